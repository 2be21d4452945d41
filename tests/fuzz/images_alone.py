"""Law: a network of images that runs image by image (`passes/image_turns.py`) has the results of
the images alone, in every bit, at every precision that it is done for.

Networks are those of `networks.py` with images of one size; they run so however small they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import numpy

import anydim as ad
from anydim.compiler.passes import image_turns
from anydim.compiler.passes.options import BFLOAT16, INT8
from tests.fuzz import onnx_peers
from tests.fuzz.case import Arrays
from tests.fuzz.judge import said
from tests.fuzz.networks import random_network
from tests.fuzz.onnx_models import Models
from tests.fuzz.onnx_peers import feeds_of, text
from tests.fuzz.runner import Outcome

SIZES = {"n": 3, "m": 13, "k": 18}
_DIMS = {"n": (0, 4), "m": 13, "k": 18}


def differences(m: Models) -> Iterator[str]:
    """What differs between a batch and its images; shapes and types are those of `"exact"`."""
    given = feeds_of(m, SIZES)
    try:
        exact = ad.compile(m.model(), dims=_dims(m), threads=1)(**given)
    except ad.ModelError:  # a window of such images has no elements
        return
    for precision in (BFLOAT16, INT8):
        with mock.patch.object(image_turns, "_pays", lambda *_: True):
            model = ad.compile(m.model(), dims=_dims(m), threads=2, precision=precision)
        alone = [model(**_image(given, at)) for at in range(SIZES["n"])]
        for name, batch in model(**given).items():
            images = [one[name] for one in alone]
            joined = numpy.concatenate(images, _batch_axis(batch.shape, images[0].shape))
            if joined.tobytes() != numpy.asarray(batch).tobytes():
                yield f"{precision}: '{name}' of a batch is not that of its images"
            if batch.shape != exact[name].shape or batch.dtype != exact[name].dtype:
                yield f"{precision}: '{name}' is {batch.dtype}{list(batch.shape)}"


def _dims(m: Models) -> dict[str, object]:
    """Images of one size, in batches: what of that the network leaves free."""
    used = {str(size) for known in m.inputs for size in known.shape}
    return {name: dim for name, dim in _DIMS.items() if name in used}


def _batch_axis(batch: tuple[int, ...], image: tuple[int, ...]) -> int:
    """The axis of the images: the one whose size differs."""
    return next(axis for axis, sizes in enumerate(zip(batch, image)) if sizes[0] != sizes[1])


def _image(given: Arrays, at: int) -> Arrays:
    return {name: array[at : at + 1] for name, array in given.items()}


def judged(seed: int, small: bool) -> tuple[str, str]:
    """What is wrong with the network of a seed, and its text; twice '' where nothing is."""
    m = random_network(seed)
    if not all(known.shape and str(known.shape[0]) == "n" for known in m.inputs):
        return "", ""
    try:
        found = next(differences(m), "")
    except Exception as error:
        found = said(error)
    return (found, text(m.model())) if found else ("", "")


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the networks of these seeds, in order."""
    return onnx_peers.run(seeds, small, judged, random_network)

"""The light architectures of onnx, compiled once for a free batch, agree with onnxruntime.

Values differ by the order of float32 sums over up to 25088 terms and by scales that moved into
weights: at most 1e-4 of the largest result, about 40 times what was seen.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy
import pytest

import anydim as ad
from bench.light import NAMES, light_model

onnxruntime = pytest.importorskip("onnxruntime")
SIDE = 224
SMALL = ("squeezenet", "shufflenet")
ANY_SIZE = ("squeezenet", "densenet121")  # those that end in a global pool, or are convolutions


@lru_cache(maxsize=2)
def both(name: str, free: bool = False) -> tuple[ad.Model, Any]:
    """The model, and the session of its peer."""
    sizes = ("batch", 3, "height", "width") if free else ("batch",)
    model = light_model(name, sizes)
    dims = {"batch": ad.Dim(1, 16)}
    if free:
        dims |= {"height": ad.Dim(32, 400), "width": ad.Dim(32, 400)}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return ad.compile(model, dims=dims, threads=2), session


def check(name: str, shape: tuple[int, ...], free: bool = False) -> None:
    model, session = both(name, free)
    x = numpy.random.default_rng(sum(shape)).standard_normal(shape, numpy.float32)
    feed = {model.inputs[0].name: x}
    (found,) = model(**feed).values()
    (expected,) = session.run(None, feed)
    assert found.shape == expected.shape
    assert numpy.abs(found - expected).max() <= 1e-4 * numpy.abs(expected).max()


@pytest.mark.parametrize("name", SMALL)
def test_some_batches(name: str) -> None:
    for batch in (2, 1, 3):
        check(name, (batch, 3, SIDE, SIDE))


def test_free_height_and_width() -> None:
    for shape in ((1, 3, 64, 64), (2, 3, 33, 97), (1, 3, 224, 35)):
        check("squeezenet", shape, free=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_random_batches(name: str) -> None:
    for batch in numpy.random.default_rng(7).integers(1, 17, 20):
        check(name, (int(batch), 3, SIDE, SIDE))


@pytest.mark.slow
@pytest.mark.parametrize("name", ANY_SIZE)
def test_random_sizes(name: str) -> None:
    random = numpy.random.default_rng(8)
    for _ in range(20):
        batch, height, width = random.integers((1, 64, 64), (5, 320, 320))
        check(name, (int(batch), 3, int(height), int(width)), free=True)

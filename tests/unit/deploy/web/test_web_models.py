"""Promise: decoders, recurrences and networks of images give onnxruntime's results in node, ragged
batches those of this machine, at 20 sizes in one instance, 0 and 1 among them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.runtime.ragged import Packing
from bench.networks.sequences import decoder
from tests.aarch64.models import images, recurrent
from tests.unit.deploy.kinds import Inputs, floats
from tests.unit.deploy.web.node import answers, call_of, needs_node, outputs
from tests.unit.runtime.program.batches.test_ragged_map import SHIFT, graph

pytestmark = [needs_node, pytest.mark.slow]
CACHES = [f"{kind}_{layer}" for layer in range(2) for kind in ("keys", "values")]


def sequences(random: np.random.Generator) -> Iterator[Inputs]:
    for steps in (0, 1, 2, 3, 5, 17, 33):
        yield from ({"x": floats(random, steps, batch, 12)} for batch in (0, 1, 4))


def pictures(random: np.random.Generator) -> Iterator[Inputs]:
    for height, width in ((4, 4), (8, 8), (9, 8), (17, 13), (32, 40), (5, 64), (31, 7)):
        yield from ({"x": floats(random, count, 3, height, width)} for count in (0, 1, 2))


def steps(random: np.random.Generator) -> Iterator[Inputs]:
    for batch in (1, 3):
        for count in (0, 1, 5):
            for length in (0, 1, 7, 64):
                caches = {name: floats(random, batch, 2, length, 8) for name in CACHES}
                yield {"ids": random.integers(0, 60, (batch, count)), **caches}


MODELS: dict[str, tuple[Any, Any]] = {
    "lstm": (lambda: recurrent()[0], sequences),
    "images": (lambda: images()[0], pictures),
    "decoder": (lambda: decoder(2, 2, 8, 60, places=600), steps),
}


@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_onnxruntime(name: str, tmp_path: Path) -> None:
    """Where an axis is 0, which ends onnxruntime's process, they are those of this machine."""
    engine = pytest.importorskip("onnxruntime")
    source, calls = MODELS[name][0](), list(MODELS[name][1](np.random.default_rng(0)))
    session = engine.InferenceSession(
        source.SerializeToString(), providers=["CPUExecutionProvider"]
    )  # fmt: skip
    model = ad.compile(source)
    model.export(tmp_path, target="wasm32")
    assert len(calls) >= 20
    for inputs, answer in zip(calls, answers(tmp_path, map(call_of, calls)), strict=True):
        whole = all(array.size for array in inputs.values())
        wanted = session.run(None, dict(inputs)) if whole else [*model(**inputs).values()]
        for came, right in zip(outputs(model, answer).values(), wanted, strict=True):
            np.testing.assert_allclose(came, right, 1e-5, 1e-5)


def test_a_ragged_batch_is_arrays(tmp_path: Path) -> None:
    """A caller passes the rows back to back, and where they begin."""
    model, random = ad.compile(graph(), ragged={"seq": "batch"}), np.random.default_rng(0)
    model.export(tmp_path, target="wasm32")
    specs = {spec.name: spec for spec in model.program.signature.inputs}
    packing, calls = Packing(model.name, model._lists, specs), []
    for rows in (0, 1, 2, 3, 5, 8, 40) * 3:
        ids = [random.integers(0, 9, random.integers(1, 30)) for _ in range(rows)]
        calls.append({"ids": ids, "scale": floats(random, rows), "shift": SHIFT})
    feeds = [{k: np.asarray(v) for k, v in packing.pack(call)[0].items()} for call in calls]
    for call, answer in zip(calls, answers(tmp_path, map(call_of, feeds)), strict=True):
        came, right = outputs(model, answer), model(**call)
        np.testing.assert_allclose(came["rows"], right["rows"].values, 1e-5, 1e-5)
        np.testing.assert_allclose(came["total"], right["total"], 1e-4, 1e-4)

"""Promise: branches, loops, calls and found sizes, in each other, with nodes on devices at random
give what the graph means, at every size, and leave nothing behind."""

from __future__ import annotations

import random

import numpy as np
import pytest

import anydim as ad
from anydim.compiler.graph.evaluate import evaluate
from anydim.runtime import context
from anydim.runtime.devices.device import Device
from tests.unit.compiler.native.region_cases import drawn
from tests.unit.compiler.native.test_region_fuzz import random_graph
from tests.unit.compiler.native.test_region_programs import GRAPHS, same, sizes_of
from tests.unit.runtime.devices.queued import QueuedDevice
from tests.unit.runtime.devices.scattered import scattered


def devices(queued: int) -> dict[str, str | Device]:
    if queued % 2:
        return {"a": QueuedDevice("a"), "b": QueuedDevice("b")}
    return {"a": "cpu:0", "b": "cpu:1"}


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("name", GRAPHS)
def test_examples(name: str) -> None:
    example = GRAPHS[name]()
    graph = scattered(example.graph, random.Random(name), ("", "a", "b"))
    model = ad.compile(graph, devices=devices(len(name)))
    values = sum(len(region.values) for region in model.program.regions)
    for inputs, wanted in drawn(example, 20):
        model.trim()  # a kept block may serve for half as much
        same(model(**inputs), wanted)
        planned = model.plan(**sizes_of(model, inputs))
        assert planned.unknown or most_bytes(model) <= planned.bytes + 64 * values
    assert model.executable.leaked == 0


def most_bytes(model: ad.Model) -> int:
    """The most that the only idle call has had in use in its last call, host and devices."""
    (frame,) = model.executable._frames.free()
    homes = [0, *(device.home for device in model.executable.interface.devices)]
    return sum(int(frame.block[home + context.PEAK]) for home in homes)


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5, 6, 10, 24, 25, 33, 50])
def test_random_regions(seed: int) -> None:
    graph = random_graph(seed)
    model = ad.compile(scattered(graph, random.Random(seed), ("", "a", "b")), devices=devices(seed))
    rng = np.random.default_rng(seed)
    for n, t in ((0, 0), (1, 1), (4, 2), (0, 3), (5, 3)):
        shapes = {"n": n, "T": t}
        inputs = {
            name: (rng.standard_normal([s.evaluate(shapes) for s in graph.types[name].shape]) * 2)
            .astype(np.float32)
            for name in graph.inputs
        }  # fmt: skip
        wanted, got = evaluate(graph, inputs), model(**inputs)
        for name, value in wanted.items():
            assert got[name].shape == value.shape
            np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-4)
    assert model.executable.leaked == 0

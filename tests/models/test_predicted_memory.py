"""Promise: what a plan predicts is what is allocated, to the byte, whatever the sizes.

Measured where memory comes from: by what arenas ask of the system, and by a malloc that counts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

import anydim as ad
from anydim.api.model import Model
from anydim.runtime import arena, escaped_blocks, region
from anydim.sizes import Dim
from tests.unit.compiler.native.region_cases import CASES, drawn

FLOAT = ad.float32


def normalised() -> Model:
    """Matrix products between normalisations; rows and columns open."""
    g = ad.Builder("normalised")
    n, k = g.dim("n", 0, 300), g.dim("k", 0, 90)
    x = g.input("x", FLOAT, (n, k))
    scores = g.softmax(g.matmul(x, g.transpose(x, perm=(1, 0))))
    g.output("y", g.matmul(scores, x) - g.reduce_mean(x, axes=(0,), keepdims=True))
    return ad.compile(g, threads=2)


def joined() -> Model:
    """Parts of open sizes, joined after work on each."""
    g = ad.Builder("joined")
    a, b = g.dim("a", 0, 200), g.dim("b", 0, 50)
    x, y = g.input("x", FLOAT, (a, 24)), g.input("y", FLOAT, (b, 24))
    parts = [g.softmax(value - g.reduce_sum(value, axes=(0,), keepdims=True)) for value in (x, y)]
    g.output("z", g.reduce_sum(g.exp(g.concat(*parts, axis=0)), axes=(1,)))
    return ad.compile(g)


def convolved() -> Model:
    """Two convolutions; batch, height and width without bounds."""
    g = ad.Builder("convolved")
    x = g.input("x", FLOAT, (g.dim("n"), 3, g.dim("h", 3), g.dim("w", 3)))
    weights = [np.ones(shape, np.float32) for shape in ((8, 3, 3, 3), (4, 8, 3, 3))]
    for weight in weights:
        x = g.relu(g.conv(x, g.constant(weight), pads=(1, 1, 1, 1)))
    g.output("y", x)
    return ad.compile(g, dims=None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of every arena that is taken from the system."""
    sizes: list[int] = []
    new = arena.new_memory
    monkeypatch.setattr(arena, "new_memory", lambda size: (sizes.append(size), new(size))[1])
    return sizes


def points(model: Model, count: int) -> Iterator[dict[str, int]]:
    chance = Random(11)
    box = model.dims
    small = {dim.name: Dim(dim.name, dim.lo, min(dim.hi or 40, 300)) for dim in box.dims}
    for _ in range(count):
        yield {name: chance.randint(dim.lo, dim.hi or 0) for name, dim in small.items()}


def predicted_is_allocated(model: Model, asked: list[int], count: int) -> None:
    for sizes in points(model, count):
        model.executable._frames.trim()
        asked.clear()
        shapes = {s.name: [z.evaluate(sizes) for z in s.shape] for s in model.inputs}
        model(**{name: np.ones(shape, np.float32) for name, shape in shapes.items()})
        planned = model.plan(**sizes).bytes
        assert asked == [planned] * (planned > 0), sizes
        assert planned == model.memory.at(**sizes)


@pytest.mark.parametrize("make", [normalised, joined, convolved])
def test_an_arena_takes_what_the_plan_says(make, asked: list[int]) -> None:
    predicted_is_allocated(make(), asked, 40)


@pytest.mark.slow
@pytest.mark.parametrize("make", [normalised, joined, convolved])
def test_an_arena_takes_what_the_plan_says_at_a_thousand_sizes(make, asked: list[int]) -> None:
    predicted_is_allocated(make(), asked, 1000)


class Counting:
    """malloc and free of the system, and how many bytes are out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        malloc, free, *others = region.memory_functions()
        self.sizes: dict[int, int] = {}
        self.now = self.most = 0
        take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(malloc)
        give = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(free)

        def counted(size: int) -> int:
            address = take(size) or 0
            self.sizes[address] = size - 128  # the head of a block, and room to align it
            self.now += self.sizes[address]
            self.most = max(self.most, self.now)
            return address

        def forgotten(address: int) -> None:
            self.now -= self.sizes.pop(address)
            give(address)

        self._kept = (
            ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(counted),
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(forgotten),
        )
        addresses = [ctypes.cast(each, ctypes.c_void_p).value or 0 for each in self._kept]
        monkeypatch.setattr(region, "memory_functions", lambda: (*addresses, *others))
        monkeypatch.setattr(escaped_blocks, "FREE", self._kept[1])


def sizes_of(model: Model, inputs: dict[str, np.ndarray]) -> dict[str, int]:
    """The dims that inputs tell."""
    return {
        str(size.atom): length
        for spec in model.inputs
        for size, length in zip(spec.shape, inputs[spec.name].shape)
        if size.atom in model.dims.names
    }


def found() -> Model:
    """What is not zero, in three steps whose sizes data decides."""
    g = ad.Builder("found")
    x = g.input("x", FLOAT, (g.dim("n", 0, 20_000),))
    values = g.gather(x, g.reshape(g.nonzero(x), shape=(-1,)), axis=0)
    for _ in range(2):
        more = g.compress(values, g.greater(values, g.reduce_mean(values, axes=(0,))), axis=0)
        values = g.concat(g.exp(more), values, axis=0)
    g.output("y", values)
    return ad.compile(g)


def suppressed() -> Model:
    """The best boxes, and their corners."""
    g = ad.Builder("suppressed")
    n = g.dim("n", 0, 300)
    boxes, scores = g.input("boxes", FLOAT, (1, n, 4)), g.input("scores", FLOAT, (1, 2, n))
    rows = g.non_max_suppression(boxes, scores, 50, 0.5)
    kept = g.gather(rows, g.constant(np.array(2)), axis=1)
    g.output("y", g.gather(g.reshape(boxes, shape=(n, 4)), kept, axis=0))
    return ad.compile(g)


@pytest.mark.parametrize("make", [found, suppressed])
def test_counts_that_data_decides_stay_below_what_was_predicted(
    make, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting, data, most = Counting(monkeypatch), np.random.default_rng(5), 0
    model = make()
    for sizes in ({"n": n} for n in data.integers(0, model.dims.dim("n").hi, 60).tolist()):
        shapes = {s.name: [z.evaluate(sizes) for z in s.shape] for s in model.inputs}
        share = data.random()
        model(**{name: (data.random(shape) * (data.random(shape) < share)).astype(np.float32)
                 for name, shape in shapes.items()})  # fmt: skip
        most = max(most, model.plan(**sizes).bytes)
        assert counting.most <= most, (sizes, most)
        assert most <= (model.memory.bound or 0)


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("name", sorted(CASES.keys() - {"growing", "until", "large_results"}))
def test_what_data_decides_takes_no_more_than_was_predicted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all calls so far: what is kept and what is in use. A kept block may serve that is larger
    than was asked for, where nothing limits the call."""
    counting, example = Counting(monkeypatch), CASES[name]()
    model = ad.compile(example.graph)
    values = sum(len(each.values) for each in model.program.regions)
    most = 0
    for inputs, _ in drawn(example, 60):
        model(**inputs)
        sizes = sizes_of(model, inputs)
        most = max(most, model.plan(**sizes).bytes)
        assert counting.most <= most + 64 * values, (sizes, most)
    model.trim()
    assert counting.now == 0


def places() -> Model:
    """Elements that are not zero, by their places."""
    g = ad.Builder("places")
    x = g.input("x", FLOAT, (g.dim("n", 0, 300), g.dim("m", 0, 300)))
    values = g.gather_nd(x, g.transpose(g.nonzero(x), perm=(1, 0)))
    g.output("y", g.exp(values) * values)
    return ad.compile(g)


@pytest.mark.sampled(most=5)
@pytest.mark.parametrize("name", ["places", *sorted(CASES.keys() - {"growing", "until"})])
def test_a_call_that_may_take_what_is_predicted_runs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 0, 1 and sizes between, of each dim; and takes no more."""
    counting = Counting(monkeypatch)
    example = None if name == "places" else CASES[name]()
    model = places() if example is None else ad.compile(example.graph)
    data = np.random.default_rng(7)
    if example is None:
        calls = [
            {"x": data.random((n, m), np.float32) * (data.random((n, m)) < share)}
            for n in (0, 1, 7, 40)
            for m in (0, 1, 7, 40)
            for share in (0, 0.5, 1)
        ]
        calls = [{"x": call["x"].astype(np.float32)} for call in calls]
    else:
        calls = [inputs for inputs, _ in drawn(example, 40)]
    for inputs in calls:
        sizes = sizes_of(model, inputs)
        expected = model(**inputs)
        plan = model.plan(**sizes)
        assert not plan.unknown and model.memory.at(**plan.sizes) == plan.bytes
        try:
            model.limit_memory(ad.MemoryLimit(plan.bytes, per_call=True))
        except ad.MemoryLimitError:
            continue  # the least sizes need more
        model.trim()
        counting.most = before = counting.now
        for output, array in model(**inputs).items():
            np.testing.assert_array_equal(array, expected[output], str(sizes))
        assert counting.most - before <= plan.bytes, sizes
        model.limit_memory(ad.MemoryLimit(1 << 60, per_call=True))


def test_an_empty_value_takes_nothing() -> None:
    """NonZero, Transpose, GatherND, Exp and Mul of 0 rows of 7."""
    model = places()
    assert model.plan(n=0, m=7).bytes == model.memory.at(**model.plan(n=0, m=7).sizes) == 128
    model.limit_memory(ad.MemoryLimit(128, per_call=True))
    for n, m in ((0, 7), (7, 0), (0, 0)):
        assert model(np.zeros((n, m), np.float32))["y"].shape == (0,)
    with pytest.raises(ad.MemoryLimitError, match="memory limit of 128 bytes"):
        model(np.ones((5, 7), np.float32))

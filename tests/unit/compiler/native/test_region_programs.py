"""Promise: a compiled program of regions gives what its graph means, at every size; it leaks
nothing, and takes no more memory than its plan says."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import anydim as ad
from anydim.api.model import Model
from anydim.runtime import context, frames
from anydim.runtime.program.program import Program
from anydim.runtime.program.region_layout import region_layout
from anydim.runtime.region import RegionExecutable
from tests.unit.compiler.graph.region_graphs import EXAMPLES
from tests.unit.compiler.native.region_cases import CASES, drawn

GRAPHS = {**{name: make for name, make in EXAMPLES.items() if name != "listed"}, **CASES}


def native(model: Model) -> RegionExecutable:
    assert isinstance(model.executable, RegionExecutable)
    return model.executable


def regions(model: Model) -> Program:
    assert model.program.straight is None
    return model.program


def same(got: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert list(got) == list(wanted)
    for name, value in wanted.items():
        assert got[name].shape == np.shape(value)
        np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-5)  # float32, 12 turns


@pytest.mark.sampled(most=13)
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_what_the_graph_means(name: str, threads: int) -> None:
    example = GRAPHS[name]()
    model = ad.compile(example.graph, threads=threads)
    for inputs, wanted in drawn(example, 60):
        same(model(**inputs), wanted)
    assert native(model).leaked == 0


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("name", sorted(GRAPHS.keys() - {"until"}))
def test_the_model_agrees_with_its_reference(name: str) -> None:
    """`until` never ends from a number that doubling does not make larger."""
    model = ad.compile(GRAPHS[name]().graph)
    report = model.check(samples=25)
    assert report.ok, str(report)
    assert report.samples + report.rejected == 25


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("name", GRAPHS)
def test_several_threads_may_call_one_program(name: str) -> None:
    example = GRAPHS[name]()
    model = ad.compile(example.graph, threads=2)

    def work(seed: int) -> None:
        for inputs, wanted in drawn(example, 25, seed):
            same(model(**inputs), wanted)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert native(model).leaked == 0


def sizes_of(model: Model, inputs: dict[str, np.ndarray]) -> dict[str, int]:
    return {
        str(size.atom): length
        for spec in model.inputs
        for size, length in zip(spec.shape, inputs[spec.name].shape)
        if size.atom in model.dims.names
    }


def most_bytes(model: Model) -> int:
    """The most that the only idle call has had in use in its last call."""
    (frame,) = native(model)._frames.free()
    return int(frame.block[context.PEAK])


@pytest.mark.sampled(most=7)
@pytest.mark.parametrize("name", sorted(GRAPHS.keys() - {"growing", "until"}))
def test_a_call_takes_no_more_than_its_plan_says(name: str) -> None:
    """An empty value takes one block of 64 bytes, which formulas count as 0."""
    example = GRAPHS[name]()
    model = ad.compile(example.graph)
    values = sum(len(region.values) for region in regions(model).regions)
    for inputs, _ in drawn(example, 30):
        model(**inputs)
        sizes = sizes_of(model, inputs)
        planned = model.plan(**sizes)
        assert not planned.unknown
        assert most_bytes(model) <= planned.bytes + 64 * values
        bound = model.memory.bound
        assert bound is not None and planned.bytes <= bound


@pytest.mark.parametrize("name", ["growing", "until"])
def test_a_plan_says_what_has_no_bound(name: str) -> None:
    example = GRAPHS[name]()
    model = ad.compile(example.graph)
    ((inputs, _),) = drawn(example, 1)
    assert model.memory.bound is None
    planned = model.plan(**sizes_of(model, inputs))
    assert planned.unknown
    assert "without bound" in str(planned)
    assert model.plan(**planned.sizes).unknown == ()


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("name", GRAPHS)
def test_thousands_of_calls_hold_no_more_than_a_few(name: str) -> None:
    example = GRAPHS[name]()
    model = ad.compile(example.graph)
    points = list(drawn(example, 8))
    for _ in range(40):
        for inputs, _ in points:
            model(**inputs)
    held = native(model).arena_bytes
    assert held <= native(model).highest_arena_bytes
    for _ in range(150):
        for inputs, _ in points:
            model(**inputs)
    assert native(model).arena_bytes <= max(held, native(model).highest_arena_bytes)
    assert native(model).leaked == 0
    model.trim()
    assert native(model).arena_bytes == 0


def test_small_calls_after_a_large_one_give_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "SMALL", 0)
    model = ad.compile(CASES["recurrent"]().graph)
    large = {"h0": np.ones((5, 3), np.float32), "x": np.ones((12, 5, 3), np.float32)}
    small = {"h0": np.ones((1, 3), np.float32), "x": np.ones((1, 1, 3), np.float32)}
    model(**large)
    held = native(model).arena_bytes
    for _ in range(2 * frames.CALLS):
        model(**small)
    assert native(model).arena_bytes < held / 2


def test_a_slice_is_made_right_in_its_stack() -> None:
    program = regions(ad.compile(CASES["recurrent"]().graph))
    body, _ = region_layout(program).regions
    assert list(body.targets) == [1]


def test_a_loop_updates_parts_in_place_where_the_caller_permits() -> None:
    example = EXAMPLES["updated"]()
    model = ad.compile(example.graph, threads=1)
    assert native(model).updates == {("y", "pool")}
    assert "in place of 'pool'" in model.show("program")
    for inputs, wanted in drawn(example, 20):
        before = inputs["pool"].copy()
        same(model(**inputs), wanted)
        other = np.empty_like(before)
        assert model(**inputs, out=other)["y"] is other
        np.testing.assert_array_equal(other, wanted["y"])
        np.testing.assert_array_equal(inputs["pool"], before)  # copied, as it was not passed twice
        made = native(model)(inputs, {"y": inputs["pool"]})
        assert made["y"] is inputs["pool"]
        same(made, wanted)
        assert most_bytes(model) == 0
    assert native(model).leaked == 0


def test_a_call_that_may_have_written_to_its_inputs_is_not_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = ad.compile(EXAMPLES["updated"]().graph, threads=1)
    calls = []

    def fail(*_: object) -> None:
        calls.append(1)
        raise ad.OutOfMemoryError("no memory")

    monkeypatch.setattr(RegionExecutable, "_execute", fail)
    ((inputs, _),) = drawn(EXAMPLES["updated"](), 1)
    with pytest.raises(ad.OutOfMemoryError):
        native(model)(inputs, {"y": inputs["pool"]})
    assert len(calls) == 1
    with pytest.raises(ad.OutOfMemoryError):
        model(**inputs)
    assert len(calls) == 3


def test_large_results_keep_their_memory_and_outlive_the_model() -> None:
    example = CASES["large_results"]()
    model = ad.compile(example.graph)
    x = np.random.default_rng(0).standard_normal((3, 20000)).astype(np.float32)
    results = [model(x=x) for _ in range(3)]
    assert not results[0]["y"].flags.owndata
    assert results[0]["y"].flags.writeable
    del model
    gc.collect()
    for result in results:
        np.testing.assert_array_equal(result["y"], -x)
        np.testing.assert_array_equal(result["z"], x)


@pytest.mark.parametrize("dtype", [ad.float32, ad.boolean, ad.bfloat16, ad.uint8], ids=str)
def test_large_results_of_any_type_are_handed_over(dtype: ad.DType) -> None:
    g = ad.Builder("g")
    n = g.dim("n", 1, 1 << 20)
    x, wanted = g.input("x", dtype, (n, 2)), g.input("wanted", ad.boolean, (n,))
    g.output("y", g.compress(x, wanted, axis=0))
    model = ad.compile(g.graph())
    random = np.random.default_rng(0)
    values = random.integers(0, 2, (100_003, 2)).astype(dtype.numpy)
    kept = random.integers(0, 2, len(values)).astype(bool)
    made = model(x=values, wanted=kept)["y"]
    assert made.dtype == dtype.numpy and made.flags.writeable and not made.flags.owndata
    del model
    gc.collect()
    np.testing.assert_array_equal(made, values[kept])


def test_a_list_of_arrays_goes_in_and_comes_out() -> None:
    example = EXAMPLES["listed"]()
    model = ad.compile(example.graph)
    for inputs, wanted in drawn(example, 20):
        got = model(**inputs)["ys"]
        assert len(got) == len(wanted["ys"])
        for one, other in zip(got, wanted["ys"]):
            np.testing.assert_array_equal(one, other)
    positional = model([np.ones((2, 1), np.float32)])["ys"]
    np.testing.assert_array_equal(positional[0], [[-1], [-1]])


def test_the_text_shows_every_step() -> None:
    model = ad.compile(CASES["branch_in_loop"]().graph)
    text = model.show("program")
    for part in ("for t in 0:T", "if 'small' then region", "slice t of T", "= region 0 ("):
        assert part in text
    explained = model.explain(details=True)
    assert "4 segments" not in explained and "segments in 5 regions" in explained
    assert "region" in model.show("llvm")
    assert "# part 1" in model.show("fuse")

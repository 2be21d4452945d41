"""Promise: programs of regions give the same when a call is like an earlier one."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.runtime import context, region
from anydim.runtime.executable import UNLIMITED
from anydim.runtime.invoke import POSSIBLE
from tests.unit.runtime.tensors import Tensor
from tests.unit.runtime.test_invoke import plain, same, tensors


def found(g: ad.Builder) -> None:
    """Sizes that data finds, and an index that may be wrong."""
    x = g.input("x", "float32", (g.dim("n", 0, 40_000), 3))
    i = g.input("i", "int64", (g.dim("k", 0, 64),))
    g.output("places", g.nonzero(x))
    g.output("rows", g.gather(x, i, axis=0))
    g.output("y", x * 2.0)


def branched(g: ad.Builder) -> None:
    """A branch, a loop and a routine."""
    x = g.input("x", "float32", (g.dim("n", 1, 40_000), 3))
    i = g.input("i", "int64", (g.dim("k", 1, 64),))
    total = g.reduce_sum(x, axes=(0, 1), keepdims=False)
    y = g.branch(total > 0.0, lambda b: b.neg(x), lambda b: b.exp(x))
    end = g.loop(lambda b, t, state: state * 1.5, x, trips=3)
    g.output("y", y)
    g.output("end", end)
    g.output("rows", g.gather(x, i, axis=0))


GRAPHS = {"found": found, "branched": branched}


def compiled(write: Callable[[ad.Builder], None], repeated: bool) -> ad.Model:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(region, "POSSIBLE", repeated and POSSIBLE)
        g = ad.Builder(write.__name__)
        write(g)
        return ad.compile(g, threads=1)


@pytest.fixture(scope="module", params=GRAPHS)
def pair(request: pytest.FixtureRequest) -> tuple[ad.Model, ad.Model]:
    """A model, and one whose calls are all first ones."""
    write = GRAPHS[request.param]
    return compiled(write, True), compiled(write, False)


def feeds(n: int, k: int, seed: int) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(seed)
    x = numbers.standard_normal((n, 3)).astype(np.float32)
    return {"x": np.where(x > 0.5, 0, x).astype(np.float32), "i": numbers.integers(0, n, k)}


SIZES = [(1, 1), (7, 3), (7, 3), (997, 13), (9000, 2), (7, 3), (40_000, 64), (1, 1)]


def test_every_call_gives_what_a_first_one_gives(pair: tuple[ad.Model, ad.Model]) -> None:
    model, other = pair
    for n, k in SIZES:
        for seed in (0, 1, 1, 0):
            given = feeds(n, k, seed)
            expected, came = other(**given), model(**given)
            assert same(came, expected) and same(model(**given), expected)
            assert same(came, expected)  # still
    assert model.executable.leaked == other.executable.leaked == 0


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("write", GRAPHS.values())
def test_every_call_with_tensors_gives_tensors(
    write: Callable[[ad.Builder], None], timeout: float | None
) -> None:
    """Results that repeated calls copy, large ones, and ones whose sizes data changes."""
    model = compiled(write, True)
    model.executable.timeout = timeout
    for n, k in SIZES:
        for seed in (0, 1, 1, 0):
            given = feeds(n, k, seed)
            found = model(**tensors(given))
            assert all(type(each) is Tensor for each in found.values())
            assert same(plain(found), model(**given))


def test_no_rows() -> None:
    model, other = compiled(found, True), compiled(found, False)
    given = {"x": np.zeros((0, 3), np.float32), "i": np.zeros(0, np.int64)}
    for _ in range(3):
        assert same(model(**given), other(**given))


def test_what_fails_does_so_again_and_calls_go_on(pair: tuple[ad.Model, ad.Model]) -> None:
    model, other = pair
    for _ in range(3):
        given = feeds(7, 3, 0)
        errors = []
        for each in pair:
            with pytest.raises(ad.InputError) as caught:
                each(x=given["x"], i=np.array([0, 7, 1]))
            errors.append(str(caught.value))
        assert errors[0] == errors[1]
        with pytest.raises(ad.InputError):
            model(x=given["x"].astype(np.float64), i=given["i"])
        assert same(model(**given), other(**given))
    assert model.executable.leaked == 0


def test_limits(pair: tuple[ad.Model, ad.Model]) -> None:
    model, other = pair
    given = feeds(9000, 3, 0)
    expected = other(**given)
    assert same(model(**given), expected)
    model.limit_memory(ad.MemoryLimit(model.plan(n=1, k=1).bytes, per_call=True))
    with pytest.raises(ad.MemoryLimitError):
        model(**given)
    model.limit_memory(ad.MemoryLimit(1 << 40, per_call=True))
    model.limit_time(100)
    assert same(model(**given), expected)
    model.limit_time(None)
    model.executable.most_bytes = UNLIMITED
    assert same(model(**given), expected) and same(model(**given), expected)


def test_many_threads(pair: tuple[ad.Model, ad.Model]) -> None:
    model, other = pair
    known = [(given, other(**given)) for given in (feeds(n, k, n) for n, k in SIZES[:4])]

    def work(seed: int) -> bool:
        order = np.random.default_rng(seed).integers(0, len(known), 100)
        return all(same(model(**known[at][0]), known[at][1]) for at in order)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def passed_through(g: ad.Builder) -> None:
    """A result that is an input, where data says so."""
    x = g.input("x", "float32", (g.dim("n", 1, 1 << 20),))
    total = g.reduce_sum(x, axes=(0,), keepdims=False)
    g.output("y", g.branch(total > 0.0, lambda b: x, lambda b: b.exp(x)))


@pytest.mark.parametrize("n", [3, 100_000], ids=["copied by native code", "by Python"])
def test_an_input_that_is_a_result_is_held_until_it_is_copied(n: int) -> None:
    """Another thread may take it out of the caller's dict while the kernels run."""
    model = compiled(passed_through, True)
    expected = np.arange(1, n + 1, dtype=np.float32)
    for _ in range(3):
        model(x=expected)
    (frame,) = model.executable._frames.free()
    if frame.invoke is None:
        return
    run, given = frame.invoke, {"x": expected.copy()}
    alive = weakref.ref(given["x"])

    def emptied(inputs: dict[str, Any], into: None) -> Any:
        found = run(inputs, into)
        given.clear()
        assert alive() is not None
        return found

    frame.invoke = emptied
    np.testing.assert_array_equal(model.executable(given)["y"], expected)
    assert not given and alive() is None


def test_a_signal_behind_the_run_leaves_nothing_behind() -> None:
    model = compiled(found, True)
    given = feeds(20_000, 3, 0)
    expected = model(**given)
    for _ in range(2):
        model(**given)
    (frame,) = model.executable._frames.free()
    if frame.invoke is None:
        return
    run = frame.invoke

    def interrupted(*inputs: Any) -> Any:
        assert run(*inputs) is True  # results lie in the memory of the call
        raise KeyboardInterrupt

    frame.invoke = interrupted
    with pytest.raises(KeyboardInterrupt):
        model(**given)
    assert frame.block[context.COUNT] == frame.block[context.LIVE] == 0
    frame.invoke = run
    assert same(model(**given), expected) and model.executable.leaked == 0


def test_tensors_and_references(pair: tuple[ad.Model, ad.Model]) -> None:
    model, other = pair
    given = feeds(7, 3, 0)
    expected = other(**given)
    gc.collect()
    alive, watched = Tensor.alive, [*given.values(), None, True, False, given["x"].dtype]
    before = [sys.getrefcount(each) for each in watched]
    results: Any = None
    for _ in range(30):
        results = model(**tensors(given))
        assert same(plain(results), expected)
        assert same(model(**given), expected)
    after = [sys.getrefcount(each) for each in watched]
    assert all(abs(left - right) < 25 for left, right in zip(before, after))
    assert Tensor.alive == alive + (3 if POSSIBLE else 0)
    del results
    gc.collect()
    assert Tensor.alive == alive

"""Promise: a program is right at every size in every order, from several threads, and its
outputs belong to the caller."""

from __future__ import annotations

import ctypes
import gc
import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest

from anydim.base.dtypes import float32
from anydim.runtime.arena import Arena
from anydim.runtime.executable import Executable
from anydim.runtime.frames import Callers
from anydim.runtime.program.memory import memory
from anydim.runtime.program.plan import plan
from anydim.runtime.program.segment import Site
from anydim.sizes import Box, Dim, Size, as_size
from tests.unit.runtime.program.tiny import adder, executable, program, spec

BOX = Box.of(Dim("n", 0, 100_000), Dim("m", 0, 8))
N = Size.symbol("n")


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda t: f"{t}-threads")
def run(request: pytest.FixtureRequest) -> Executable:
    return executable(adder(BOX, "n", "m", threads=request.param))


def data(*shape: int) -> dict[str, numpy.ndarray]:
    count = int(numpy.prod(shape))
    a = numpy.arange(count, dtype=numpy.float32).reshape(shape)
    return {"a": a, "b": a + 1}


def right(run: Executable, *shape: int) -> bool:
    given = data(*shape)
    return numpy.array_equal(run(given)["y"], given["a"] + given["b"] + given["b"])


ORDERS = list(itertools.permutations([(0, 3), (9001, 8), (1, 1), (0, 0)]))


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_any_order_of_sizes(run: Executable, order: tuple[tuple[int, int], ...]) -> None:
    assert all(right(run, *shape) for shape in (*order, *order))


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 7, 8, 9, 31, 997])
def test_sizes_around_the_grain(run: Executable, n: int) -> None:
    assert right(run, n, 1)


def test_random_sizes(run: Executable) -> None:
    chance = numpy.random.default_rng(0)
    shapes = chance.integers((0, 0), (3000, 9), (300, 2))
    assert all(right(run, int(n), int(m)) for n, m in shapes)


def test_outputs_are_new_arrays(run: Executable) -> None:
    given = data(5, 2)
    first = run(given)["y"]
    kept = first.copy()
    second = run({name: array + 1 for name, array in given.items()})["y"]
    assert first.flags.owndata and first.flags.writeable
    assert numpy.array_equal(first, kept) and not numpy.shares_memory(first, second)


def test_inputs_are_not_written_and_may_be_read_only(run: Executable) -> None:
    given = data(5, 2)
    for array in given.values():
        array.flags.writeable = False
    assert numpy.array_equal(run(given)["y"], given["a"] + 2 * given["b"])


def test_nan_passes(run: Executable) -> None:
    given = data(3, 1)
    given["a"][1] = numpy.nan
    assert numpy.isnan(run(given)["y"]).tolist() == [[False], [True], [False]]


def test_calls_from_eight_threads(run: Executable) -> None:
    shapes = [(n, m) for n in (0, 1, 50, 4000) for m in (0, 1, 7)] * 20
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda shape: right(run, *shape), shapes))


def test_constants_are_read() -> None:
    constant = numpy.full(16, 3, numpy.float32)
    steps = [Site("add", ("x", "weight", "y"), (as_size(16),), as_size(16))]
    box = Box.of()
    made = program(box, [spec("x", 16)], [spec("y", 16)], steps, constants={"weight": constant})
    run = executable(made, {"weight": constant})
    del made, constant
    gc.collect()
    x = numpy.arange(16, dtype=numpy.float32)
    assert numpy.array_equal(run({"x": x})["y"], x + 3)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_scratch_is_private_to_a_thread(threads: int) -> None:
    """Every part writes its scratch whole before it reads any of it back."""
    step = Site("through", ("x", "y"), (), N, grain=as_size(8), scratch=4 * N)
    box = Box.of(Dim("n", 0, 5000))
    made = program(box, [spec("x", "n")], [spec("y", "n")], [step], threads=threads)
    run = executable(made)
    for n in (0, 1, 5000, 17, 4999) * 20:
        x = numpy.random.default_rng(n).standard_normal(n).astype(numpy.float32)
        assert numpy.array_equal(run({"x": x})["y"], x)
    assert run.arena_bytes == plan(made, {"n": 5000}).bytes == threads * 20032


def test_a_scalar_output_and_no_inputs() -> None:
    one = numpy.ones(1, numpy.float32)
    steps = [Site("add", ("one", "one", "y"), (as_size(1),), as_size(1))]
    made = program(Box.of(), [], [spec("y")], steps, constants={"one": one})
    run = executable(made, {"one": one})
    result = run({})["y"]
    assert result.shape == () and result.dtype == float32.numpy and result == 2


def test_what_a_launch_runs_stands_in_a_table() -> None:
    run = executable(adder(BOX, "n", "m"))
    data = {name: numpy.ones((3, 4), numpy.float32) for name in "ab"}
    parts: list[tuple[int, int]] = []

    def body(arguments: int, start: int, stop: int, scratch: int) -> None:
        parts.append((start, stop))

    kernel = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
    )(body)
    (entries,) = run.entries.values()
    before = entries[1]
    entries[1] = ctypes.cast(kernel, ctypes.c_void_p).value
    run(data)
    assert parts == [(0, 12)]
    entries[1] = before
    assert (run(data)["y"] == 3).all() and len(parts) == 1


# ---- memory ----------------------------------------------------------------------------------


def test_the_arena_takes_what_the_plan_says() -> None:
    made = adder(BOX, "n", "m")
    for shape in [(0, 3), (1, 1), (9, 8), (100_000, 8), (17, 1)]:
        run = executable(made)
        right(run, *shape)
        sizes = {"n": shape[0], "m": shape[1]}
        assert run.arena_bytes == plan(made, sizes).bytes == memory(made).at(**sizes)
    assert memory(made).bound == plan(made, {"n": 100_000, "m": 8}).bytes


def test_the_arena_grows_only_to_the_largest_call() -> None:
    made = adder(BOX, "n", "m")
    run = executable(made)
    for n in (10, 5000, 10, 700, 5000, 4999):
        right(run, n, 8)
    assert run.arena_bytes == plan(made, {"n": 5000, "m": 8}).bytes


def test_memory_of_large_calls_is_given_back() -> None:
    made = adder(BOX, "n", "m")
    run = executable(made)
    right(run, 90_000, 8)
    for _ in range(300):
        right(run, 100, 8)
    assert run.arena_bytes == plan(made, {"n": 100, "m": 8}).bytes
    assert run.highest_arena_bytes == plan(made, {"n": 90_000, "m": 8}).bytes
    run.trim()
    assert run.arena_bytes == 0
    assert right(run, 100, 8)


def test_memory_that_is_refused_once_comes_from_what_is_idle(monkeypatch) -> None:
    made = adder(BOX, "n", "m")
    run = executable(made)
    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(lambda _: right(run, 9000, 8), range(20)))
    kept, refused = run.arena_bytes, []
    new, reserve = plan(made, {"n": 10_000, "m": 8}).bytes, Arena.reserve

    def limited(arena: Arena, needed: int) -> int:
        if run.arena_bytes + arena.bytes and needed == new:
            refused.append(needed)
            raise MemoryError
        return reserve(arena, needed)

    monkeypatch.setattr(Arena, "reserve", limited)
    assert kept and right(run, 10_000, 8)
    assert refused == [new] and run.arena_bytes == new


@pytest.mark.parametrize("arenas", [1, 2, 5])
def test_as_many_calls_at_once_as_there_are_arenas(arenas: int) -> None:
    run = executable(adder(BOX, "n", "m"))
    run.admit(Callers(arenas))
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda n: right(run, n, 8), [10, 3000, 700] * 40))
    assert len(run._frames.free()) <= arenas
    assert run.arena_bytes <= arenas * run.highest_arena_bytes


def test_concurrent_calls_have_arenas_of_their_own_for_a_while() -> None:
    run = executable(adder(BOX, "n", "m"))
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: right(run, 3000, 8), range(200)))
    for _ in range(600):
        right(run, 10, 1)
    assert len(run._frames.free()) == 1

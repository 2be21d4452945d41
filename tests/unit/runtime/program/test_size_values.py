"""Promise: what depends on sizes alone is computed once for distinct sizes, and changes no bit."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import anydim as ad
from anydim.api.model import Model
from anydim.base import settings
from anydim.base.errors import InputError, MemoryLimitError
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes import assemble, setups
from anydim.compiler.passes.sizes_once import SizesOnce
from anydim.runtime.straight import StraightExecutable

WIDTH = 16
SIZES = [0, 1, 2, 7, 13, 61, 128, 512]
SHARED = 128  # from this size on the tables below are large enough to be shared by calls


def positions(g: ad.Builder, n: Any, width: int = WIDTH) -> Any:
    """sin of [n, width] angles."""
    place = g.cast(g.range(count=n), to="float32")[:, None]
    rates = g.constant(np.float32(1.0) / np.arange(1, width + 1, dtype=np.float32))
    return g.sin(place * rates)


def table(n: int, width: int = WIDTH) -> np.ndarray:
    rates = np.float32(1.0) / np.arange(1, width + 1, dtype=np.float32)
    return np.sin(np.arange(n, dtype=np.float32)[:, None] * rates)


def encoder() -> ad.Builder:
    """Positions added, and a mask of pairs multiplied; another length of its own."""
    g = ad.Builder("encoder")
    n, m = g.dim("n", 0, 512), g.dim("m", 0, 512)
    x = g.input("x", ad.float32, (n, WIDTH))
    y = g.input("y", ad.float32, (m, WIDTH))
    g.output("a", g.softmax(x + positions(g, n)))
    g.output("b", g.tanh(y * positions(g, m)))
    return g


def feeds(n: int, m: int) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(n * 1000 + m)
    return {
        "x": numbers.standard_normal((n, WIDTH)).astype(np.float32),
        "y": numbers.standard_normal((m, WIDTH)).astype(np.float32),
    }


def compiled(source: Any = None, mib: int = 64, **more: Any) -> Model:
    with settings.override(size_values_mb=mib, keep_programs=False):
        return ad.compile(encoder() if source is None else source, threads=1, **more)


def run_of(model: Any) -> StraightExecutable:
    run = model.executable
    assert isinstance(run, StraightExecutable)
    return run


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    for name, array in other.items():
        assert np.array_equal(one[name], array), name


@contextmanager
def nothing_kept() -> Iterator[None]:
    """Compile with all values of sizes alone in each call."""
    with (
        mock.patch.object(SizesOnce, "split", lambda self, graph: (graph,)),
        mock.patch.object(assemble, "with_setups", lambda launches, *_: (list(launches), ())),
    ):
        yield


@pytest.fixture(scope="module")
def plain() -> Model:
    """The model that keeps nothing."""
    with nothing_kept():
        made = compiled()
    assert made.program.straight is not None and not made.program.straight.setups
    return made


@pytest.fixture()
def model() -> Model:
    return compiled()


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("n", SIZES)
def test_results_have_the_bits_of_a_model_that_keeps_nothing(
    model: Model, plain: Model, n: int
) -> None:
    for m in (n, 5, n):
        for _ in range(3):
            same(model(**feeds(n, m)), plain(**feeds(n, m)))
    tanh = np.tanh(feeds(n, 5)["y"] * table(5))
    assert np.allclose(model(**feeds(n, 5))["b"], tanh, rtol=1e-5, atol=1e-6)


def test_each_table_is_kept_for_its_own_dim(model: Model) -> None:
    segment = model.program.straight
    assert segment is not None
    assert [setup.dims for setup in segment.setups] == [("n",), ("m",)]
    run = run_of(model)
    for n in (200, 300):
        for m in (200, 300, 400):
            model(**feeds(n, m))
    assert len(run.size_values) == 2 + 3


def counted(model: Model, calls: list[tuple[int, int]]) -> list[int]:
    """How many launches of setups each call makes."""
    from anydim.runtime.clocked import Clock

    clock, found = Clock(model.executable), []
    segment = model.program.straight
    assert segment is not None
    for sizes in calls:
        launches = clock.call(feeds(*sizes)).launches
        found.append(sum(launch.site < segment.first_launch for launch in launches))
    return found


def test_setups_run_once_for_distinct_sizes(model: Model) -> None:
    calls = [(200, 300), (200, 300), (200, 300), (200, 301), (199, 301), (200, 300), (200, 301)]
    assert counted(model, calls) == [2, 0, 0, 1, 1, 0, 0]


def test_small_tables_are_filled_where_sizes_change(model: Model) -> None:
    calls = [(3, 4), (3, 4), (3, 4), (3, 5), (3, 5), (3, 5)]
    found = counted(model, calls)
    assert found[0] == 2 and found[2] == 0 and found[3] == 2 and found[5] == 0
    assert not len(run_of(model).size_values)


@pytest.mark.parametrize("seed", range(4))
def test_sizes_that_come_again_in_any_order(plain: Model, seed: int) -> None:
    """In the arena, shared and above the limit of what is kept, with memory freed in between."""
    model, draw = compiled(), np.random.default_rng(seed)
    run = run_of(model)
    run.size_values.most_bytes = (300, 300, 20, 64 << 10)[seed] * 64
    sizes = [(7, 9), (7, 13), (200, 9), (200, 300), (512, 300)]
    for number in draw.integers(0, len(sizes), 60):
        given = feeds(*sizes[number])
        same(model(**given), plain(**given))
        what = draw.integers(0, 12)
        if what == 0:
            model.trim()
        elif what == 1:
            run._frames.visit(lambda frame: frame.keep(0))
    assert run.size_values.bytes <= run.size_values.most_bytes


def test_more_sizes_than_are_kept(model: Model, plain: Model) -> None:
    run = run_of(model)
    run.size_values.most = 4
    wanted = {(n, n + 1): plain(**feeds(n, n + 1)) for n in range(200, 212)}
    for _ in range(3):
        for sizes, expected in wanted.items():
            for _ in range(2):
                same(model(**feeds(*sizes)), expected)
            assert len(run.size_values) <= 4
            assert run.size_values.bytes <= 4 * 64 * 512


def test_more_bytes_than_are_kept(plain: Model) -> None:
    model = compiled()
    run = run_of(model)
    run.size_values.most_bytes = 3 * 64 * 300
    for n in (*range(250, 300), *range(299, 249, -1)):
        same(model(**feeds(n, n)), plain(**feeds(n, n)))
        assert run.size_values.bytes <= 3 * 64 * 300


def test_blocks_above_what_may_be_kept_serve_their_sizes_alone(plain: Model) -> None:
    model = compiled()
    run = run_of(model)
    run.size_values.most_bytes = 64 * 200
    for n in (400, 100, 400, 128, 511):
        for _ in range(4):
            same(model(**feeds(n, n)), plain(**feeds(n, n)))
        if n > 200:
            assert run.arena_bytes >= model.plan(n=n, m=n).bytes - run.size_values.bytes
    assert counted(model, [(400, 400)] * 4)[-1] == 0
    model.trim()
    same(model(**feeds(400, 400)), plain(**feeds(400, 400)))


def test_several_threads_call_one_model(plain: Model) -> None:
    model = compiled()
    run_of(model).size_values.most = 3
    sizes = [(n, m) for n in (150, 256, 511, 8) for m in (140, 333)]
    expected = {each: plain(**feeds(*each)) for each in sizes}
    begun = threading.Barrier(4)

    def work(first: int) -> None:
        begun.wait()
        for number in range(200):
            each = sizes[(first + number * (first + 1)) % len(sizes)]
            same(model(**feeds(*each)), expected[each])
            if number % 50 == 49:
                model.trim()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    values = run_of(model).size_values
    assert values.bytes == sum(block.bytes for block in values._blocks.values())


# ---- memory --------------------------------------------------------------------------------------


def test_the_memory_of_a_call_has_what_is_kept(model: Model, plain: Model) -> None:
    planned = model.plan(n=200, m=300)
    assert planned.kept_bytes == 64 * 200 + 64 * 300
    assert planned.bytes == planned.arena_bytes + planned.kept_bytes
    assert model.memory.at(n=200, m=300) == planned.bytes
    assert "kept" in str(planned)
    assert [launch.kept for launch in planned.launches].count(True) == 2
    model(**feeds(200, 300))
    assert run_of(model).arena_bytes == planned.bytes
    assert model.trim() == planned.bytes and run_of(model).arena_bytes == 0


@pytest.mark.parametrize("sizes", [(7, 9), (200, 300), (512, 512), (0, 300)])
def test_a_limit_is_exact(model: Model, plain: Model, sizes: tuple[int, int]) -> None:
    for each in ((400, 401), (402, 403)):  # other sizes are let go where they are in the way
        for _ in range(3):
            model(**feeds(*each))
    needed = model.memory.at(n=sizes[0], m=sizes[1])
    model.limit_memory(ad.MemoryLimit(needed, per_call=True))
    arena = model.plan(n=sizes[0], m=sizes[1]).arena_bytes
    for _ in range(4):
        same(model(**feeds(*sizes)), plain(**feeds(*sizes)))
        assert arena + run_of(model).size_values.bytes <= needed
    model.limit_memory(ad.MemoryLimit(needed - 1, per_call=True))
    for _ in range(2):
        with pytest.raises(MemoryLimitError, match=f"{needed}"):
            model(**feeds(*sizes))


def test_a_call_in_progress_lets_go_at_its_end_of_what_was_dropped(
    model: Model, plain: Model
) -> None:
    for _ in range(3):
        model(**feeds(200, 300))
    run = run_of(model)
    (frame,) = run._frames.free()
    invoke = frame.invoke
    if invoke is None:
        pytest.skip("calls are not repeated by native code here")
    memory = [weakref.ref(block.memory) for block in frame.bound.blocks]

    def trimmed(*given: Any) -> Any:
        model.trim()
        return invoke(*given)

    frame.invoke = trimmed
    same(model(**feeds(200, 300)), plain(**feeds(200, 300)))
    assert len(memory) == 2 and not any(each() is not None for each in memory)
    same(model(**feeds(200, 300)), plain(**feeds(200, 300)))


def test_known_sizes_hold_no_blocks_that_were_dropped(model: Model, plain: Model) -> None:
    run, sizes = run_of(model), [(200, 300), (400, 500)]
    for each in sizes * 3:
        model(**feeds(*each))
    (frame,) = run._frames.free()
    if frame.table is None:
        pytest.skip("calls are not repeated by native code here")
    first, last = ([block.memory for block in each.blocks] for each in frame.known.values())
    gone, own = [weakref.ref(memory) for memory in first], frame.bound.blocks
    assert len(gone) == 2 and last[0] is own[0].memory
    del first, last
    run._forget(run.size_values.make_room(0, tuple(block.key for block in own)))
    assert not any(each() is not None for each in gone)
    for each in sizes * 3:
        same(model(**feeds(*each)), plain(**feeds(*each)))


def test_a_limit_is_exact_where_some_blocks_are_not_kept(model: Model, plain: Model) -> None:
    run_of(model).size_values.most = 1
    needed = model.memory.at(n=200, m=300)
    for _ in range(2):
        model.limit_memory(ad.MemoryLimit(needed, per_call=True))
        with ThreadPoolExecutor(3) as pool:
            for came in pool.map(lambda _: model(**feeds(200, 300)), range(30)):
                same(came, plain(**feeds(200, 300)))
        for _ in range(4):
            same(model(**feeds(200, 300)), plain(**feeds(200, 300)))
        model.limit_memory(ad.MemoryLimit(needed - 1, per_call=True))
        for _ in range(4):
            with pytest.raises(MemoryLimitError):
                model(**feeds(200, 300))


def test_calls_within_a_limit_keep_no_more_than_it_leaves(model: Model, plain: Model) -> None:
    limit = model.memory.at(n=300, m=300)
    model.limit_memory(ad.MemoryLimit(limit, per_call=True))
    run = run_of(model)
    for n, m in [(300, 300), (200, 200), (300, 300), (150, 390), (200, 200), (200, 200)] * 2:
        same(model(**feeds(n, m)), plain(**feeds(n, m)))
        assert run.size_values.bytes + model.plan(n=n, m=m).arena_bytes <= limit


def test_what_is_kept_is_told(model: Model) -> None:
    told = model.explain()
    assert "kept      for distinct sizes of 'n': 64*n" in told and "sizes of 'm': 64*m" in told
    assert "setup of n: 1 launch" in model.show("program")
    document = model.plan(n=200, m=300).document()
    kept = [value for value in document["values"] if value["kind"] == "kept"]
    assert [value["bytes"] for value in kept] == [64 * 200, 64 * 300]
    assert document["memory"]["kept"]["bytes"] == 64 * 500
    assert [launch["kept"] for launch in document["launches"]].count(True) == 2


# ---- ways to call --------------------------------------------------------------------------------


def test_saved_files_keep_it_too(model: Model, plain: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "encoder.anydim")
    loaded = ad.load(tmp_path / "encoder.anydim")
    for n, m in [(200, 300), (200, 300), (200, 300), (7, 300), (512, 1)] * 2:
        same(loaded(**feeds(n, m)), plain(**feeds(n, m)))
    assert len(run_of(loaded).size_values) == 3
    assert loaded.memory.at(n=9, m=300) == model.memory.at(n=9, m=300)
    with settings.override(size_values_mb=0):
        none = ad.load(tmp_path / "encoder.anydim")
    for n, m in [(200, 300), (200, 300), (200, 300), (7, 300), (512, 1)] * 2:
        same(none(**feeds(n, m)), plain(**feeds(n, m)))
    assert not len(run_of(none).size_values)


@pytest.mark.parametrize("strategy", ["exact", "buckets(n=64, m=64)", "adaptive"])
def test_strategies(plain: Model, strategy: str) -> None:
    model = compiled(strategy=strategy)
    for n, m in [(200, 300), (200, 300), (7, 300), (512, 1), (0, 3)] * 2:
        came, expected = model(**feeds(n, m)), plain(**feeds(n, m))
        for name, array in expected.items():
            assert np.allclose(came[name], array, rtol=1e-6, atol=1e-7)


def test_a_setting_keeps_nothing_for_sizes_that_may_come_again(plain: Model) -> None:
    model = compiled(mib=0)
    for n, m in [(200, 300), (200, 300), (200, 300), (7, 300), (512, 1)] * 2:
        same(model(**feeds(n, m)), plain(**feeds(n, m)))
        assert not len(run_of(model).size_values)
    assert counted(model, [(200, 300)] * 4)[2:] == [0, 0]


def test_results_into_given_arrays_and_two_threads(plain: Model) -> None:
    with settings.override(keep_programs=False):
        model = ad.compile(encoder(), threads=2)
    for n, m in [(512, 511), (512, 511), (512, 511), (77, 3)]:
        out = {"a": np.empty((n, WIDTH), np.float32), "b": np.empty((m, WIDTH), np.float32)}
        model(**feeds(n, m), out=out)
        same(out, plain(**feeds(n, m)))


def test_a_dim_that_no_input_tells(plain: Model) -> None:
    g = ad.Builder("asked")
    n, m = g.dim("n", 0, 512), g.dim("m", 0, 512)
    x = g.input("x", ad.float32, (n, WIDTH))
    g.output("y", g.matmul(x, g.transpose(positions(g, m), perm=(1, 0))))
    model = compiled(g)
    x = feeds(9, 0)["x"]
    for m in (300, 5, 300, 300):
        model.set_sizes(m=m)
        assert np.allclose(model(x=x)["y"], x @ table(m).T, rtol=1e-4, atol=1e-5)


# ---- indices, failures ---------------------------------------------------------------------------


def looked_up() -> ad.Builder:
    """Rows of a table of ten at places that sizes tell: place n does not exist from 10 on."""
    g = ad.Builder("looked up")
    n = g.dim("n", 0, 4096)
    x = g.input("x", ad.float32, (n, 8))
    wide = np.arange(80 * 10, dtype=np.float32).reshape(100, 8)
    place = g.cast(g.cast(g.range(count=n), to="float32") * 1.0 + 0.25, to="int64")
    g.output("y", g.exp(x) * g.gather(g.constant(wide), place, axis=0))
    return g


def test_an_index_of_sizes_alone_fails_in_every_call() -> None:
    with mock.patch.object(setups, "WORTH", 0.0):
        model = compiled(looked_up())
    x = np.zeros((100, 8), np.float32)
    for _ in range(3):
        assert model(x=x)["y"][99, 7] == 799
    for _ in range(3):
        with pytest.raises(InputError, match="100"):
            model(x=np.zeros((101, 8), np.float32))
    for _ in range(3):
        assert model(x=x)["y"][99, 7] == 799


def test_a_call_without_memory_for_a_block_lets_go_of_others(model: Model, plain: Model) -> None:
    from anydim.runtime import straight

    for n in (200, 210, 220):
        model(**feeds(n, n))
    real, failures = straight.Block, iter([True, False])

    def block(*given: Any) -> Any:
        if next(failures, False):
            raise MemoryError
        return real(*given)

    with mock.patch.object(straight, "Block", block):
        same(model(**feeds(333, 333)), plain(**feeds(333, 333)))
    assert len(run_of(model).size_values) == 2


BEHIND = 1 << 16


class Interrupted(BaseException):
    """What a signal's handler raises."""


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("where", ["made", "noted"])
def test_a_call_that_is_interrupted_while_it_finds_blocks(
    model: Model, plain: Model, second: bool, where: str
) -> None:
    """Neither is memory of earlier sizes written, nor a block kept that nothing has filled."""
    from anydim.runtime import straight

    made: list[Any] = []
    armed = False

    class Block(straight.Block):
        __slots__ = ()

        def __init__(self, key: Any, bytes: int) -> None:
            super().__init__(key, bytes + BEHIND)
            self.memory[:] = 0xFF
            self.bytes = bytes
            made.append(self)  # it stays: what is written there is no other memory
            self.hit("made")

        def __getattribute__(self, name: str) -> Any:
            if name == "address" and armed:
                self.hit("noted")
            return super().__getattribute__(name)

        def hit(self, at: str) -> None:
            nonlocal armed
            if armed and at == where and self.key[0] == second:
                armed = False
                raise Interrupted

    first, then = (200, 210), (400, 410)
    with mock.patch.object(straight, "Block", Block):
        model(**feeds(*first))
        armed = True
        with pytest.raises(Interrupted):
            model(**feeds(*then))
        for sizes in (then, first, then, first):
            same(model(**feeds(*sizes)), plain(**feeds(*sizes)))
        both = run_of(model).size_values
        run_of(model)._frames.take()  # the next call has another one, which has found nothing yet
        for sizes in (then, first):
            same(model(**feeds(*sizes)), plain(**feeds(*sizes)))
    for each in made:  # what is behind a block has its bytes
        assert (each.memory[-BEHIND:] == 0xFF).all()
    assert len(both) == 4 and both.bytes == 64 * (400 + 410 + 200 + 210)


@pytest.mark.parametrize("sizes", [(200, 210), (7, 210), (7, 9)])
def test_a_profile_that_is_interrupted_leaves_no_block_that_is_not_filled(
    model: Model, plain: Model, sizes: tuple[int, int]
) -> None:
    from anydim.runtime import clocked, straight

    class Block(straight.Block):
        __slots__ = ()

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.memory[:] = 0xFF

    clock, times = clocked.Clock(model.executable), count()

    def now() -> int:  # the first is before the call, the second in a launch of a setup
        time = next(times)
        if time == 1:
            raise Interrupted
        return time

    with mock.patch.object(straight, "Block", Block):
        with mock.patch.object(clocked, "now", now), pytest.raises(Interrupted):
            clock.call(feeds(*sizes))
        for _ in range(3):
            same(model(**feeds(*sizes)), plain(**feeds(*sizes)))
            same(clock.results(feeds(*sizes))[0], plain(**feeds(*sizes)))


# ---- what is chosen ------------------------------------------------------------------------------


def split(source: ad.Builder) -> tuple[Graph, ...]:
    """The graphs that the pass makes of a graph of statements."""
    seen: list[tuple[Graph, ...]] = []
    real = SizesOnce.split

    def looked(self: SizesOnce, graph: Graph) -> tuple[Graph, ...]:
        seen.append(real(self, graph))
        return seen[-1]

    with mock.patch.object(SizesOnce, "split", looked):
        compiled(source)
    (found,) = seen
    return found


def test_a_cheap_mask_stays_where_it_is_read() -> None:
    g = ad.Builder("masked")
    n = g.dim("n", 0, 512)
    x = g.input("x", ad.float32, (n, n))
    place = g.range(count=n)
    behind = g.greater(place[None, :], place[:, None])
    g.output("y", g.softmax(g.where(behind, g.constant(np.float32(-1e9)), x)))
    assert len(split(g)) == 1


def test_a_dear_value_is_split_off_before_it_is_broadcast() -> None:
    g = ad.Builder("broadcast")
    b, n = g.dim("b", 0, 64), g.dim("n", 0, 512)
    x = g.input("x", ad.float32, (b, n, WIDTH))
    wide = g.expand(positions(g, n), shape=(b, n, WIDTH))
    g.output("y", g.tanh(x) * (wide + 1.0))
    setup, rest = split(g)
    (kept,) = setup.outputs
    assert len(setup.types[kept].shape) == 2
    assert kept in rest.inputs and not setup.inputs


def test_sums_and_results_are_never_split_off() -> None:
    g = ad.Builder("sums")
    n = g.dim("n", 0, 512)
    x = g.input("x", ad.float32, (n,))
    dear = positions(g, n)
    g.output("y", x * g.exp(g.reduce_sum(dear, axes=(1,))))
    g.output("z", dear)
    assert all("reduce" not in name for graph in split(g)[:-1] for name in graph.outputs)
    model = compiled(g)
    for n in (0, 5, 300, 300, 300):
        z = model(x=np.zeros(n, np.float32))["z"]
        assert np.allclose(z, table(n), atol=1e-5)
        z[:] = 0  # the caller's


@pytest.fixture(autouse=True)
def _own_settings() -> Iterator[None]:
    with settings.override(keep_programs=False):
        yield

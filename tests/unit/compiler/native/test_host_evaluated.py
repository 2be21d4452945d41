"""Promise: host code means what it should without any native code: the evaluator runs it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy
import pytest

from anydim.base.errors import DimError
from anydim.compiler.kernels import ir
from anydim.compiler.native.blocks import (
    ALLOCATE,
    CLEAR,
    DROP,
    GROW,
    HOLD,
    LEAVE,
    TRIM,
    blocks_code,
)
from anydim.compiler.native.emit import BIND, RUN, emit
from anydim.compiler.native.region_emit import emit_regions
from anydim.compiler.native.stopping import TIMEOUT
from anydim.compiler.native.threads import _PIECE, BEGIN, LAUNCH, WAKE, threads_code
from anydim.compiler.targets.evaluated.evaluator import call
from anydim.compiler.targets.evaluated.space import Space
from anydim.runtime import context
from anydim.runtime.layout import ARENA, ARENA_BYTES, CODE, PARALLEL, POINTERS, POOL, WORTH_WAKING
from anydim.runtime.program.program import Program
from anydim.sizes import Box, Dim, parse
from tests.unit.compiler.native.test_arithmetic import EXPRESSIONS, slots_program
from tests.unit.runtime.program.tiny import adder


@pytest.mark.parametrize("high", [20, None], ids=["bounded", "unbounded"])
def test_sizes_are_those_of_evaluate(high: int | None) -> None:
    box = Box.of(Dim("a", 0, high), Dim("b", 0, high))
    made = slots_program(box, [parse(text) for text in EXPRESSIONS]).straight
    assert made is not None
    host = emit(made)
    for a, b in itertools.product((0, 1, 2, 3, 7, 8, 9, 19, 20), repeat=2):
        space, block = Space(), numpy.zeros(host.layout.words, numpy.int64)
        block[host.layout.input_shapes :][:2] = a, b
        code = call(host.code.functions, BIND, [space.address_of(block)], space)
        kind = host.checks[code - 1].kind if code else ""
        try:
            wanted = [size.evaluate({"a": a, "b": b}) for size in made.slots]
        except DimError:
            assert kind == "large"
            continue
        assert kind == ""
        assert block[host.layout.first_slot :][: len(wanted)].tolist() == wanted


def bound(program: Program, *shape: int) -> tuple[Space, numpy.ndarray, list[numpy.ndarray]]:
    """The memory of a call of `adder`, after `bind`: words, and the tensors a, b and y."""
    segment = program.straight
    assert segment is not None
    host, space = emit(segment), Space()
    block = numpy.zeros(host.layout.words, numpy.int64)
    block[host.layout.input_shapes :][: 2 * len(shape)] = 2 * shape
    assert call(host.code.functions, BIND, [space.address_of(block)], space) == 0
    random = numpy.random.default_rng(0)
    tensors = [random.standard_normal(shape).astype(numpy.float32) for _ in range(3)]
    block[POINTERS:][:3] = [space.address_of(tensor) for tensor in tensors]
    return space, block, tensors


def add_kernel(space: Space, parts: list[tuple[int, int]]) -> int:
    """The address of a kernel that adds two tensors of float32."""

    def add(arguments: int, start: int, stop: int, scratch: int) -> None:
        parts.append((start, stop))
        operands = space.bytes(arguments, 24).view(numpy.int64)
        a, b, out = (space.bytes(int(at), 4 * stop) for at in operands)
        added = a.view(numpy.float32) + b.view(numpy.float32)
        out[4 * start : 4 * stop] = added[start:stop].view(numpy.uint8)

    return space.function(add)


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (4, 8), (16, 1)])
def test_a_program_runs_its_launches_in_order(shape: tuple[int, int]) -> None:
    made = adder(Box.of(Dim("n", 0, 99), Dim("m", 0, 99)), "n", "m")
    space, block, (a, b, y) = bound(made, *shape)
    parts: list[tuple[int, int]] = []
    table = numpy.full(2, add_kernel(space, parts), numpy.int64)
    arena = numpy.zeros(int(block[ARENA_BYTES]) + 64, numpy.uint8)
    block[ARENA], block[POOL], block[CODE] = space.address_of(arena), 0, space.address_of(table)
    functions = (*emit(made.straight).code.functions, *threads_code().functions)
    assert call(functions, RUN, [space.address_of(block)], space) == 0
    count = shape[0] * shape[1]
    assert parts == ([(0, count)] * 2 if count else [])
    assert numpy.array_equal(y, a + b + b) or not count


POOL_WORDS, DONE, JOB, SLEEPERS, THREADS, LOCKING = (
    48,
    8,
    16,
    24,
    30,
    32,
)  # of a pool, before those of its parts


@pytest.mark.parametrize("thread", range(4))
def test_a_thread_takes_its_own_part_first_and_none_that_was_taken(thread: int) -> None:
    space, taken = Space(), []
    kernel = space.function(lambda a, start, stop, s: taken.append(start))
    pool = numpy.zeros(POOL_WORDS + 4, numpy.int64)
    pool[THREADS], pool[0] = 4, 7 << 16 | 4  # the seventh launch, in four parts
    pool[JOB : JOB + 6] = kernel, 0, 4, 4, 0, 0
    memory, work = space.address_of(pool), threads_code().functions
    assert call(work, "work", [memory, thread], space) == 7
    assert taken == [(thread + number) % 4 for number in range(4)]
    assert pool[DONE] == 4
    assert call(work, "work", [memory, 0], space) == 7  # who comes late
    assert len(taken) == 4
    pool[0], pool[POOL_WORDS + 1] = 8 << 16 | 2, 8  # the next launch; its second part is taken
    call(work, "work", [memory, thread], space)
    assert taken[4:] == [0]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_launch_does_every_part_once(threads: int) -> None:
    """The caller alone with a pool whose workers never come."""
    for parallel, grain in ((0, 1), (1, 1), (3, 2), (4, 1), (13, 4), (97, 5)):
        space, parts = Space(), []
        pool = numpy.zeros(POOL_WORDS + threads, numpy.int64)
        pool[THREADS] = threads
        kernel = space.function(lambda a, start, stop, s, parts=parts: parts.append((start, stop)))
        memory = space.address_of(pool)
        given = [memory, kernel, 1, parallel, grain, 0, 0, 0]
        for _ in range(3):
            parts.clear()
            call(threads_code().functions, LAUNCH, given, space)
            call(threads_code().functions, WAKE, [memory], space)
            wanted = max(1, min(parallel // grain, threads)) if parallel else 0
            assert len(parts) == wanted
            assert [i for part in parts for i in range(*part)] == list(range(parallel))
            lengths = [stop - start for start, stop in parts]
            assert not parts or max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("grains", [2, 6, 15, WORTH_WAKING // 2])
def test_a_sleeper_is_woken_once_it_has_missed_enough(grains: int) -> None:
    """The work of a loop is found out on the way; launches of one call count, large ones alone."""
    space, told = Space(), []
    pool = numpy.zeros(POOL_WORDS + 2, numpy.int64)
    pool[THREADS], pool[SLEEPERS] = 2, 1
    pool[LOCKING : LOCKING + 5] = space.function(lambda *_: 0)
    pool[LOCKING + 3] = space.function(lambda *_: told.append(1))
    kernel = space.function(lambda a, start, stop, s: None)
    memory, functions = space.address_of(pool), threads_code().functions
    needed = 1 if 2 * grains >= WORTH_WAKING else -(-WORTH_WAKING // grains)
    for _ in range(2):
        call(functions, BEGIN, [memory], space)
        told.clear()
        for launch in range(needed):
            assert not told, launch
            call(functions, LAUNCH, [memory, kernel, 1, 3 * grains, 3, 0, 0, 0], space)
        assert len(told) == 1
        call(
            functions, LAUNCH, [memory, kernel, 1, 6, 3, 0, 0, 0], space
        )  # what follows begins anew
        assert len(told) == 1


@pytest.mark.parametrize("threads", [0, 1, 2, 3])
@pytest.mark.parametrize("range", [9, 10, 4 * _PIECE, 20 * _PIECE - 1, 20 * _PIECE, 71 * _PIECE])
def test_a_long_launch_looks_at_the_clock_between_pieces(threads: int, range: int) -> None:
    """The caller alone; a look takes a second, and the fifth one comes too late."""
    grain, looks, space, parts = 10, [0], Space(), []
    pool, words = numpy.zeros(POOL_WORDS + 4, numpy.int64), numpy.zeros(context.WORDS, numpy.int64)
    pool[THREADS] = threads

    def clock(number: int, time: int) -> int:
        looks[0] += 1
        space.bytes(time, 16).view(numpy.int64)[:] = looks[0], 0
        return 0

    kernel = space.function(lambda a, start, stop, s: parts.append((start, stop)))
    words[context.CLOCK] = space.function(clock)
    memory, call_words = space.address_of(pool) if threads else 0, space.address_of(words)
    given = [memory, kernel, 1, range, grain, 0, 0, call_words]
    for deadline, verdict in ((0, 0), (4_500_000_000, TIMEOUT)):
        words[context.DEADLINE], looks[0] = deadline, 0
        parts.clear()
        pieces = 0 if range < grain else max(1, range // (grain * _PIECE))
        stopped = pieces > 4 and verdict
        assert call(threads_code().functions, LAUNCH, given, space) == stopped
        assert looks[0] == (5 if stopped else pieces)
        assert all(stop == start for (_, stop), (start, _) in itertools.pairwise(parts))
        assert parts[0][0] == 0 and (parts[-1][1] == range) == (not stopped)


class Blocks:
    """The words of a call, and the blocks that are made in it."""

    def __init__(self) -> None:
        self.space, self.given = Space(), 0
        self.words = numpy.zeros(context.WORDS, numpy.int64)
        self.address = self.space.address_of(self.words)
        self.words[context.MALLOC] = self.space.function(self.malloc)
        self.words[context.FREE] = self.space.function(self.free)
        self.words[context.COPY] = self.space.function(self.copy)

    def malloc(self, bytes: int) -> int:
        if bytes > 1 << 20:
            return 0
        self.given += 1
        return self.space.address_of(numpy.zeros(bytes, numpy.uint8))

    def free(self, memory: int) -> None:
        self.given -= 1

    def copy(self, target: int, source: int, bytes: int) -> None:
        for byte in range(bytes):
            self.space.bytes(target + byte, 1)[:] = self.space.bytes(source + byte, 1)

    def __call__(self, name: str, *arguments: int) -> int | None:
        arguments = arguments if name == HOLD else (self.address, *arguments)
        return call(blocks_code().functions, name, arguments, self.space)


def test_blocks_are_counted_and_come_back() -> None:
    blocks, live = Blocks(), []
    draw = random.Random(3)
    for _ in range(60):
        if live and draw.random() < 0.5:
            block = live.pop(draw.randrange(len(live)))
            if draw.random() < 0.3:
                blocks(HOLD, block)
                blocks(DROP, block)
            blocks(DROP, block)
        else:
            live.append(blocks(ALLOCATE, draw.choice([0, 1, 64, 65, 300, 3000])))
        assert len(set(live)) == len(live) == blocks.words[context.COUNT]
        assert blocks.words[context.LIVE_BYTES] <= blocks.words[context.PEAK]
    assert blocks(CLEAR) == len(live)
    blocks(TRIM, 0)
    assert blocks.given == blocks.words[context.CACHED_BYTES] == 0
    assert blocks(ALLOCATE, -1) == blocks(ALLOCATE, 2**61) == 0


def test_a_block_grows_and_leaves() -> None:
    blocks = Blocks()
    cells = numpy.zeros(3, numpy.int64)  # data, owner, room
    at = blocks.space.address_of(cells)
    for used in range(9):
        assert blocks(GROW, at, at + 8, at + 16, used, 8) == 1
        blocks.space.bytes(int(cells[0]) + 8 * used, 8).view(numpy.int64)[:] = used * used
    kept = blocks.space.bytes(int(cells[0]), 64).view(numpy.int64)
    assert kept.tolist() == [n * n for n in range(8)] and cells[2] >= 9
    memory = blocks(LEAVE, int(cells[1]))
    assert memory and blocks.words[context.COUNT] == 0
    assert blocks(GROW, at, at + 8, at + 16, 2**40, 2**40) == 0  # no memory
    assert blocks(GROW, at, at + 8, at + 16, 2**40, 2**62) == 0  # no number


def called(functions: tuple[ir.Function, ...]) -> Iterator[str]:
    """The names that functions call."""
    steps = [step for function in functions for step in function.body]
    while steps:
        step = steps.pop()
        if isinstance(step, ir.Call) and isinstance(step.function, str):
            yield step.function
        for body in ("body", "then", "otherwise"):
            steps += getattr(step, body, ())


def test_host_code_calls_nothing_but_host_code() -> None:
    made = adder(Box.of(Dim("n", 0, 9), Dim("m", 0, 9)), "n", "m")
    modules = [emit(made.straight).code, threads_code(), blocks_code(), *emit_regions(made).code]
    own = {"anydim_segment0_bind", "anydim_segment0_run"}
    own |= {function.name for module in modules for function in module.functions}
    for module in modules:
        assert set(called(module.functions)) <= own
    assert PARALLEL == 1

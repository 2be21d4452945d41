"""Trials: measure a variant against the generic kernel on this machine, and compare bits.

Both run alternately on the same operands of random numbers; integers are 0, which is a valid index
in every non-empty tensor. A launch on several threads takes the time of its slowest part.
"""

from __future__ import annotations

import ctypes
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from statistics import geometric_mean, median

import numpy

from anydim.base.cache import key_of
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import Kernel
from anydim.compiler.kernels.launch import STATUS_TENSOR, Argument, Launch
from anydim.compiler.native.body import Body, parameter
from anydim.compiler.passes.recipes import parse_machine
from anydim.compiler.targets.target import Target
from anydim.compiler.variants.candidates import Candidate, SizedSite
from anydim.runtime.packing import pack
from anydim.runtime.positions import FINE
from anydim.sizes import as_size

_MAX_DRAWS, _DRAWN, _ON = 64, 1 << 20, 37  # draws compared, bytes of all, elements to rotate by
MAX_BYTES = 1 << 30  # of the operands of a trial
COLD, SMALL = 2, 32 << 10  # weights are rotated through this many L2 sizes; smaller ones are not
ROUNDS = 11
_ROUND = 300e-6  # minimum seconds of one kernel per round
_MAX_SECONDS = 1.0  # of all rounds of a kernel
_MAX_COPIES = 64
_MAX_TIMES = 10_000
_ALIGNED = 64
GUARDED = 1.05  # maximum ratio to the generic time, at any size, of code for many sizes
_BFLOAT16 = 2.0**-7  # its epsilon, which numpy lacks
NEAR = 64  # tolerance in epsilons of the largest result, if bits may differ
_REPEAT = "repeat"
_CALL = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 8)


@dataclass(frozen=True)
class Tried:
    """The result of a trial: time ratio to the generic kernel, or the reason for rejection."""

    candidate: Candidate
    ratio: float | None
    problem: str = ""


class Trials:
    """Candidates of one site at its sizes: compiled, compared and timed on `threads` threads.

    Results must have the same bits, or `near` ones. `possible` is False if operands are too large;
    for a span, operands at some of its points suffice.
    """

    def __init__(
        self, site: SizedSite, target: Target, rounds: int = ROUNDS, threads: int = 1,
        near: bool = False,
    ) -> None:  # fmt: skip
        self._rounds = rounds
        given = (threads, _near if near else _same)
        made = [(n, _Point(site, at, target, *given)) for n, at in enumerate(site.points)]
        self._points = [(number, point) for number, point in made if point.possible]
        self.possible = bool(self._points)

    def run(self, candidate: Candidate, rounds: int = 0) -> Tried:
        """Try a candidate; `rounds` 0 means the default.

        For a span, the ratio is the geometric mean over its points, none of which may be bad.
        """
        rounds, kernel, grain = rounds or self._rounds, candidate.kernel, candidate.grain
        ranges = candidate.ranges
        found = (point.run(kernel, ranges[n], grain, rounds) for n, point in self._points)
        return Tried(candidate, *_mean(found))

    def try_launch(self, launch: Launch, rounds: int = 0) -> tuple[float | None, str]:
        """Try a general launch, whose operands may have another packing."""
        return _mean(point.try_launch(launch, rounds or self._rounds) for _, point in self._points)


def _mean(found: Iterable[tuple[float | None, str]]) -> tuple[float | None, str]:
    """The geometric mean of ratios, or the first problem."""
    ratios = []
    for ratio, problem in found:
        if ratio is None:
            return None, problem
        ratios.append(ratio)
        if len(ratios) > 1 and max(ratios) > GUARDED:
            return None, "slower at some sizes"
    return geometric_mean(ratios), ""


class _Point:
    """A site at a point, for trials."""

    def __init__(
        self, site: SizedSite, dims: Mapping[str, int], target: Target, threads: int,
        equal: Callable[[numpy.ndarray, numpy.ndarray], bool],
    ) -> None:  # fmt: skip
        self._site, self._dims, self._target = site, dims, target
        self._threads, self._equal = threads, equal
        launch = site.generic
        self._memories: dict[tuple[Argument, ...], _Memory | None] = {}
        memory = self._memory(launch)
        self.possible = memory is not None
        if memory is not None:
            parallel = launch.parallel.evaluate(dims)
            self._generic = self._load(memory, launch.kernel, parallel, self._grain(launch))
            self._wanted = self._generic.results()

    def run(
        self, kernel: Kernel, parallel: int, grain: int, rounds: int
    ) -> tuple[float | None, str]:
        """The ratio to the generic kernel's time, or the reason for rejection."""
        return self._try_loaded(self._load(self._generic.memory, kernel, parallel, grain), rounds)

    def try_launch(self, launch: Launch, rounds: int) -> tuple[float | None, str]:
        """Try a general launch."""
        memory = self._memory(launch)
        if memory is None:
            return None, "operands too large"
        parallel = launch.parallel.evaluate(self._dims)
        grain = self._grain(launch)
        return self._try_loaded(self._load(memory, launch.kernel, parallel, grain), rounds)

    def _grain(self, launch: Launch) -> int:
        return as_size(launch.grain).evaluate(self._dims)

    def _try_loaded(self, loaded: _LoadedLaunch, rounds: int) -> tuple[float | None, str]:
        found = loaded.results()
        if any(not self._equal(found[name], self._wanted[name]) for name in self._wanted):
            return None, "bits differ from the generic kernel's"
        return _ratio(loaded, self._generic, rounds), ""

    def _memory(self, launch: Launch) -> _Memory | None:
        """Operands of a launch, shared between launches with equal arguments; with its sizes."""
        if launch.arguments not in self._memories:
            self._memories[launch.arguments] = _Memory.of(self._site, launch, self._dims)
        memory = self._memories[launch.arguments]
        return None if memory is None else memory.at(launch, self._dims)

    def _load(self, memory: _Memory, kernel: Kernel, parallel: int, grain: int) -> _LoadedLaunch:
        count = max(1, min(self._threads, parallel // max(1, grain)))
        each, extra = divmod(parallel, count)  # partitioned like `native/threads.py`
        ends = [each * n + min(n, extra) for n in range(count + 1)]
        parts = tuple(pairwise(ends))
        return _LoadedLaunch(memory, _load_code(kernel, self._target), parts, parallel)


@cache
def _repeat(target: Target) -> _Code:
    """`repeat(kernel, first, stride, end, low, high, scratch, times)`: call a kernel `times` times.

    The arguments advance from `first` by `stride` bytes up to `end`, then restart at `first`.
    """
    body = Body()
    names = ("kernel", "first", "stride", "end", "low", "high", "scratch", "times")
    kernel, first, stride, end, low, high, scratch, times = map(parameter, names)
    at = body.variable(first)
    with body.range(0, times):
        body.call(kernel, at(), low, high, scratch)
        at += stride
        with body.when(at() >= end):
            at.set(first)
    made = (body.function(_REPEAT, names, public=True, result=False),)
    library = ir.Library(_REPEAT, lambda: made, key_of(repr(made)))
    return _Code(target, library, _REPEAT)


class _Code:
    """The loaded code of a kernel."""

    def __init__(self, target: Target, made: Kernel | ir.Library, symbol: str) -> None:
        assert target.load is not None
        objects = target.compile(target.sources([made], target.processor), 1)
        self._code = target.load(objects.code.values(), [symbol])
        self.address = self._code.address(symbol)


def _load_code(kernel: Kernel, target: Target) -> tuple[_Code, _Code]:
    return _Code(target, kernel, kernel.name), _repeat(target)


@dataclass(frozen=True)
class _Memory:
    """Operands of a launch, and argument blocks with their addresses and its sizes.

    In a model, values were just computed and are in a cache; weights are not, as the weights of all
    other layers are read in between. So there are `copies` of weights, more than a cache holds,
    used in rotation. `written` are the results by name, with their initial values; `drawn` are
    unpacked float operands, which are rotated to get other operands.
    """

    copies: Sequence[Sequence[numpy.ndarray]]
    written: Mapping[str, tuple[numpy.ndarray, int]]
    drawn: Sequence[numpy.ndarray]
    blocks: numpy.ndarray
    scratch: numpy.ndarray

    @staticmethod
    def of(site: SizedSite, launch: Launch, dims: Mapping[str, int]) -> _Memory | None:
        """Operands of a site, packed for a launch; None if they are too large for a trial."""
        arrays = []
        left = MAX_BYTES
        for argument in launch.arguments:
            shape, dtype = _shape(argument, site, dims)
            left -= int(numpy.prod(shape, dtype=object)) * dtype.itemsize
            if left < 0:
                return None
            array = _random(shape, dtype, argument.tensor)
            if argument.packing is not None:
                array = pack(array, argument.packing)
            arrays.append(array)
        held = [argument.tensor in site.recipe.constants for argument in launch.arguments]
        bytes = sum(array.nbytes for array, constant in zip(arrays, held) if constant)
        most = COLD * parse_machine(site.recipe.machine).l2_bytes
        count = min(_MAX_COPIES, -(-most // bytes)) if bytes > SMALL else 1
        copies = [arrays] + [
            [_copy(array) if constant else array for array, constant in zip(arrays, held)]
            for _ in range(count - 1)
        ]
        written = {
            argument.tensor: (array, FINE if argument.tensor == STATUS_TENSOR else 0)
            for array, operand, argument in zip(arrays, launch.kernel.operands, launch.arguments)
            if operand.written
        }
        drawn = [
            array
            for array, operand, argument in zip(arrays, launch.kernel.operands, launch.arguments)
            if not operand.written and argument.packing is None and array.dtype.kind not in "biu"
        ]
        none = numpy.zeros(0, numpy.int64)
        return _Memory(copies, written, drawn, none, none).at(launch, dims)

    def at(self, launch: Launch, dims: Mapping[str, int]) -> _Memory:
        """The same operands, with the sizes and the scratch of a launch."""
        sizes = [size.evaluate(dims) for size in launch.sizes]
        blocks = [[*(array.ctypes.data for array in each), *sizes, 0] for each in self.copies]
        scratch = _aligned_zeros(launch.scratch.evaluate(dims))
        return replace(self, blocks=numpy.array(blocks, numpy.int64), scratch=scratch)


@dataclass(frozen=True)
class _LoadedLaunch:
    """Code of a launch and its operands; each thread executes one of `parts`."""

    memory: _Memory
    code: tuple[_Code, _Code]
    parts: tuple[tuple[int, int], ...]
    parallel: int

    def results(self) -> dict[str, numpy.ndarray]:
        """Results for several operands, if these are small: sums in another order may have equal
        bits by chance."""
        written, drawn = self.memory.written, self.memory.drawn
        bytes = sum(array.nbytes for array in (*drawn, *(a for a, _ in written.values())))
        found: dict[str, list[numpy.ndarray]] = {name: [] for name in written}
        turns = max(1, min(_MAX_DRAWS, _DRAWN // max(1, bytes)))
        for _ in range(turns):
            for array, first in written.values():
                array[...] = first
            self._run((0, self.parallel), 1)
            for name, (array, _) in written.items():
                found[name].append(array.copy())
            for array in drawn:
                array[...] = numpy.roll(array, _ON)
        for array in drawn:
            array[...] = numpy.roll(array, -_ON * turns)
        return {name: numpy.stack(some) for name, some in found.items()}

    def seconds(self, times: int) -> float:
        """The time of the slowest part, repeated `times` times."""
        return max(self._run(part, times) for part in self.parts)

    def _run(self, part: tuple[int, int], times: int) -> float:
        code, repeat = self.code
        call, blocks = _CALL(repeat.address), self.memory.blocks
        first, stride = blocks.ctypes.data, blocks.strides[0]
        end, scratch = first + blocks.nbytes, self.memory.scratch.ctypes.data
        given = (code.address, first, stride, end, *part, scratch, times)
        start = time.perf_counter()
        call(*given)
        return time.perf_counter() - start


def _ratio(loaded: _LoadedLaunch, other: _LoadedLaunch, rounds: int) -> float:
    """The median time ratio of two kernels, run alternately."""
    once = max(1e-9, other.seconds(8) / 8)
    times = min(_MAX_TIMES, max(1, int(_ROUND / once)))
    rounds = max(5, min(rounds, int(_MAX_SECONDS / (times * once))))
    ratios = []
    for number in range(rounds):
        pair = [loaded, other] if number % 2 else [other, loaded]
        seconds = [each.seconds(times) for each in pair]
        ratios.append(seconds[0] / seconds[1] if number % 2 else seconds[1] / seconds[0])
    return median(ratios)


def _shape(
    argument: Argument, site: SizedSite, dims: Mapping[str, int]
) -> tuple[tuple[int, ...], numpy.dtype]:
    if argument.tensor == STATUS_TENSOR:
        return (64,), numpy.dtype(numpy.int64)
    kind = site.graph.types[argument.tensor]
    return tuple(size.evaluate(dims) for size in kind.shape), kind.dtype.numpy


def _random(shape: tuple[int, ...], dtype: numpy.dtype, name: str) -> numpy.ndarray:
    """Random floats, seeded by name; integers and flags are 0.

    Padded at the end, for wide loads.
    """
    count = int(numpy.prod(shape, dtype=object))
    array = _aligned_zeros(max(1, count) * dtype.itemsize).view(dtype)[:count]
    if dtype.kind not in "biu":
        random = numpy.random.default_rng(zlib.crc32(name.encode()))
        some = random.standard_normal(1 << 16).astype(dtype)
        array[...] = numpy.resize(some, count)
    return array.reshape(shape)


def _copy(array: numpy.ndarray) -> numpy.ndarray:
    """A copy with the same alignment."""
    made = _aligned_zeros(array.nbytes).view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def _same(one: numpy.ndarray, other: numpy.ndarray) -> bool:
    return one.tobytes() == other.tobytes()


def _near(one: numpy.ndarray, other: numpy.ndarray) -> bool:
    """Whether results agree up to the order of summation; integers must be equal."""
    if one.dtype.kind in "biu":
        return _same(one, other)
    wide = numpy.longdouble if one.dtype == numpy.float64 else numpy.float64
    first, second = one.astype(wide), other.astype(wide)
    most = numpy.abs(second[numpy.isfinite(second)]).max(initial=0)
    unit = float(numpy.finfo(one.dtype).eps) if one.dtype.kind == "f" else _BFLOAT16
    near = NEAR * unit * most
    return bool(numpy.allclose(first, second, rtol=0, atol=near, equal_nan=True))


def _aligned_zeros(bytes: int) -> numpy.ndarray:
    """Zeroed bytes, aligned to a cache line and padded at the end."""
    held = numpy.zeros(bytes + 2 * _ALIGNED, numpy.uint8)
    start = -held.ctypes.data % _ALIGNED
    return held[start : start + bytes]

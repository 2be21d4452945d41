"""Whether a body is worth having: measured beside the generic one, on this machine, in bits equal.

Both run in turns on the same operands, made up of random numbers; integers are 0, which is a right
index wherever there is one.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from functools import cache
from statistics import median

import numpy

from anydim.base.cache import key_of
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.ir import Kernel
from anydim.kernels.launch import STATUS_TENSOR, Argument
from anydim.kernels.product.packing import pack
from anydim.native.body import Body, parameter
from anydim.passes.recipes import parse_machine
from anydim.runtime.positions import FINE
from anydim.targets.target import Target
from anydim.variants.candidates import Candidate, Sized

MOST_BYTES = 1 << 30  # of the operands of a trial
COLD, SMALL = 2, 32 << 10  # weights take turns up to so many caches; smaller ones do not
ROUNDS = 11
_ROUND = 300e-6  # seconds at least of one body in a round
_MOST_SECONDS = 1.0  # of all rounds of a body
_MOST_COPIES = 64
_MOST_TIMES = 10_000
_ALIGNED = 64
_REPEAT = "repeat"
_CALL = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 7)


@dataclass(frozen=True)
class Tried:
    """What became of a candidate: its time beside the generic body's, or why it is none."""

    candidate: Candidate
    ratio: float | None
    problem: str = ""


class Trials:
    """Candidates of one site at its sizes: compiled, compared and timed.

    Where operands are too large to be made up, `possible` says so.
    """

    def __init__(self, site: Sized, target: Target, rounds: int = ROUNDS) -> None:
        self._target, self._rounds = target, rounds
        memory = _Memory.of(site)
        self.possible = memory is not None
        if memory is not None:
            self._memory = memory
            self._generic = _loaded(site.generic.kernel, target)
            self._parallel = site.generic.parallel.evaluate(site.dims)
            self._wanted = memory.results(self._generic, self._parallel)

    def run(self, candidate: Candidate, rounds: int = 0) -> Tried:
        """What becomes of a candidate; `rounds` are those of all without a number."""
        memory, parallel = self._memory, candidate.parallel
        body = _loaded(candidate.kernel, self._target)
        found = memory.results(body, parallel)
        if not all(map(numpy.array_equal, found, self._wanted)):
            return Tried(candidate, None, "other bits than the generic body")
        generic = (self._generic, self._parallel)
        return Tried(candidate, memory.ratio(body, parallel, *generic, rounds or self._rounds))


@cache
def _repeat(target: Target) -> _Code:
    """`repeat(kernel, first, stride, end, parallel, scratch, times)`: a kernel called many times.

    With arguments at `first`, `stride` bytes further, and so on to `end`, then from `first` again.
    """
    body = Body()
    names = ("kernel", "first", "stride", "end", "parallel", "scratch", "times")
    kernel, first, stride, end, parallel, scratch, times = map(parameter, names)
    at = body.variable(first)
    with body.range(0, times):
        body.call(kernel, at(), 0, parallel, scratch)
        at += stride
        with body.when(at() >= end):
            at.set(first)
    made = (body.function(_REPEAT, names, public=True, result=False),)
    library = ir.Library(_REPEAT, lambda: made, key_of(repr(made)))
    return _Code(target, library, _REPEAT)


class _Code:
    """Loaded code of a kernel."""

    def __init__(self, target: Target, made: Kernel | ir.Library, symbol: str) -> None:
        assert target.load is not None
        objects = target.compile(target.sources([made], target.processor), 1)
        self._code = target.load(objects.code.values(), [symbol])
        self.address = self._code.address(symbol)


def _loaded(kernel: Kernel, target: Target) -> tuple[_Code, _Code]:
    return _Code(target, kernel, kernel.name), _repeat(target)


class _Memory:
    """Operands of a launch, and blocks of their addresses and its sizes.

    Values were just made and are in a cache; weights of a model are not, as those of all its layers
    come in between. So there are `copies` of them, more than a cache holds, which take turns.
    """

    def __init__(
        self, arrays: Sequence[numpy.ndarray], copies: Sequence[Sequence[numpy.ndarray]],
        site: Sized,
    ) -> None:  # fmt: skip
        launch = site.generic
        self._copies = copies
        places = zip(arrays, launch.kernel.operands, launch.arguments)
        self.written = [
            (array, FINE if argument.tensor == STATUS_TENSOR else 0)
            for array, operand, argument in places if operand.written
        ]  # fmt: skip
        sizes = [size.evaluate(site.dims) for size in launch.sizes]
        blocks = [[*(array.ctypes.data for array in each), *sizes, 0] for each in copies]
        self._blocks = numpy.array(blocks, numpy.int64)
        self._scratch = _aligned(launch.scratch.evaluate(site.dims))

    @staticmethod
    def of(site: Sized) -> _Memory | None:
        """Operands of a site; None where they are too large to be tried."""
        random = numpy.random.default_rng(0)
        arrays = []
        left = MOST_BYTES
        for argument in site.generic.arguments:
            shape, dtype = _shape(argument, site)
            left -= int(numpy.prod(shape, dtype=object)) * dtype.itemsize
            if left < 0:
                return None
            array = _random(shape, dtype, random)
            if argument.packing is not None:
                array = pack(array, argument.packing)
            arrays.append(array)
        held = [argument.tensor in site.recipe.constants for argument in site.generic.arguments]
        bytes = sum(array.nbytes for array, constant in zip(arrays, held) if constant)
        most = COLD * parse_machine(site.recipe.machine).l2_bytes
        count = min(_MOST_COPIES, -(-most // bytes)) if bytes > SMALL else 1
        copies = [arrays] + [
            [_copy(array) if constant else array for array, constant in zip(arrays, held)]
            for _ in range(count - 1)
        ]
        return _Memory(arrays, copies, site)

    def results(self, body: tuple[_Code, _Code], parallel: int) -> list[numpy.ndarray]:
        """What a body writes, as bytes, once."""
        for array, first in self.written:
            array[...] = first
        self._run(body, parallel, 1)
        return [array.view(numpy.uint8).copy() for array, _ in self.written]

    def ratio(
        self, body: tuple[_Code, _Code], parallel: int, other: tuple[_Code, _Code],
        others: int, rounds: int,
    ) -> float:  # fmt: skip
        """The median time of a body over that of another, in turns."""
        once = max(1e-9, self._run(other, others, 8) / 8)
        times = min(_MOST_TIMES, max(1, int(_ROUND / once)))
        rounds = max(5, min(rounds, int(_MOST_SECONDS / (times * once))))
        ratios = []
        for number in range(rounds):
            pair = [(body, parallel), (other, others)]
            seconds = [self._run(*each, times) for each in (pair if number % 2 else pair[::-1])]
            ratios.append(seconds[0] / seconds[1] if number % 2 else seconds[1] / seconds[0])
        return median(ratios)

    def _run(self, body: tuple[_Code, _Code], parallel: int, times: int) -> float:
        code, repeat = body
        call, blocks = _CALL(repeat.address), self._blocks
        first, stride = blocks.ctypes.data, blocks.strides[0]
        end = first + blocks.nbytes
        scratch = self._scratch.ctypes.data
        given = (code.address, first, stride, end, parallel, scratch, times)
        start = time.perf_counter()
        call(*given)
        return time.perf_counter() - start


def _shape(argument: Argument, site: Sized) -> tuple[tuple[int, ...], numpy.dtype]:
    if argument.tensor == STATUS_TENSOR:
        return (64,), numpy.dtype(numpy.int64)
    kind = site.graph.types[argument.tensor]
    return tuple(size.evaluate(site.dims) for size in kind.shape), kind.dtype.numpy


def _random(
    shape: tuple[int, ...], dtype: numpy.dtype, random: numpy.random.Generator
) -> numpy.ndarray:
    """Random floats; integers and flags are 0. With a margin behind, as wide loads have."""
    count = int(numpy.prod(shape, dtype=object))
    array = _aligned(max(1, count) * dtype.itemsize).view(dtype)[:count]
    if dtype.kind not in "biu":
        some = random.standard_normal(1 << 16).astype(dtype)
        array[...] = numpy.resize(some, count)
    return array.reshape(shape)


def _copy(array: numpy.ndarray) -> numpy.ndarray:
    """The same elsewhere, as well aligned."""
    made = _aligned(array.nbytes).view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def _aligned(bytes: int) -> numpy.ndarray:
    """Zeroed bytes on a cache line, none of them at the end of their memory."""
    held = numpy.zeros(bytes + 2 * _ALIGNED, numpy.uint8)
    start = -held.ctypes.data % _ALIGNED
    return held[start : start + bytes]

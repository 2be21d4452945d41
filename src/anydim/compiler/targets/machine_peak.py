"""Measures peak compute and read rates of this machine with two small kernels.

One runs multiply-adds on registers, in as many independent chains as fit the registers; the other
sums an array repeatedly: sizes from small ones in caches up to one larger than all caches. Each
thread runs its own; rates are totals.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle, islice
from time import perf_counter

import numpy

from anydim.base.dtypes import float32, uint8
from anydim.compiler.kernels import ir
from anydim.compiler.targets.run import ENTRY, build
from anydim.compiler.targets.targets import target
from anydim.runtime.program.profile.limits import Limits

_READ_BYTES = tuple(1 << bits for bits in (14, 16, 18, 20, 22, 24))  # total over threads
_MEMORY_BYTES, _PART_BYTES = 1 << 27, 1 << 24  # of an array larger than all caches, read in parts
_CALL_BYTES = 1 << 26  # minimum bytes read per call of cached sizes
_ROUNDS = 24  # of about 1 ms each; the best one excludes preemption
_STEPS = 1 << 17  # multiply-adds of a chain
_START, _STOP = ir.Var(ir.INDEX, "start"), ir.Var(ir.INDEX, "stop")
_INDEX = ir.Var(ir.INDEX, "i")


def fastest(threads: int) -> Limits:
    """Measure the rates: about a third of a second on an idle machine."""
    processor = target().processor
    lanes, chains = processor.vector_bytes // 4, max(4, processor.registers * 3 // 4)
    with ExitStack() as held, ThreadPoolExecutor(threads) as pool:
        computing, reading = (
            ENTRY(held.enter_context(build(kernel, processor.vector_bytes)).address(kernel.name))
            for kernel in (_computing(lanes, chains), _reading(lanes))
        )
        arrays = [
            numpy.full(_MEMORY_BYTES // 4 // threads, 1e-30, numpy.float32) for _ in range(threads)
        ]
        work = [[_call(computing, array, _STEPS) for array in arrays]]
        flops = 2.0 * _STEPS * chains * lanes * threads / _minimum_seconds(pool, work)
        reads = []
        for size in _READ_BYTES:
            each = _elements_of(size // threads, lanes)
            times = max(1, _CALL_BYTES // threads // (4 * each))
            seconds = _minimum_seconds(
                pool, [[_call(reading, array, times, each) for array in arrays]]
            )
            reads.append((size, 4.0 * each * times * threads / seconds))
        each = _elements_of(_PART_BYTES // threads, lanes)
        parts = [[_call(reading, array[at:], 1, each) for array in arrays]
                 for at in range(0, len(arrays[0]) - each + 1, each)]  # fmt: skip
        reads.append((_MEMORY_BYTES, 4.0 * each * threads / _minimum_seconds(pool, parts)))
    return Limits(threads, flops, tuple(reads))


def _call(
    entry: Callable[..., None], array: numpy.ndarray, stop: int, *sizes: int
) -> Callable[[], None]:
    block = (ctypes.c_int64 * (1 + len(sizes)))(array.ctypes.data, *sizes)
    return lambda: entry(ctypes.addressof(block), 0, stop, None)


def _elements_of(bytes: int, lanes: int) -> int:
    """Return the elements in `bytes`, rounded to a multiple of one step's."""
    return max(1, bytes // 4 // (8 * lanes)) * (8 * lanes)


def _minimum_seconds(
    pool: ThreadPoolExecutor, work: Sequence[Sequence[Callable[[], None]]]
) -> float:
    """Return the minimum seconds of a round, in which all threads make one call.

    `work` has the calls of rounds, which alternate.
    """
    times = []
    for calls in islice(cycle(work), _ROUNDS):
        begin = perf_counter()
        for done in [pool.submit(call) for call in calls]:
            done.result()
        times.append(perf_counter() - begin)
    return min(times)


def _computing(lanes: int, chains: int) -> ir.Kernel:
    """Chains of multiply-adds; the results are stored, so that they are not optimised away."""
    kind = ir.Type(float32, lanes)
    factor = ir.Load(kind, "x", ir.Const(ir.INDEX, 0))
    names = [f"chain{number}" for number in range(chains)]
    step = tuple(
        ir.Assign(
            name, ir.Op(kind, "fma", (ir.Get(kind, name), ir.Var(kind, "by"), ir.Var(kind, "by")))
        )
        for name in names
    )
    body: tuple[ir.Step, ...] = (
        ir.Let("by", factor),
        *(ir.Declare(name, ir.Var(kind, "by")) for name in names),
        ir.For("i", _START, _STOP, ir.Const(ir.INDEX, 1), step),
        ir.Store("x", ir.Const(ir.INDEX, 0), _sum(kind, names)),
    )
    return _kernel("anydim_computing", body)


def _reading(lanes: int) -> ir.Kernel:
    """Sum the first `length` elements of an array repeatedly, in eight registers."""
    kind = ir.Type(float32, lanes)
    names = [f"sum{number}" for number in range(8)]
    step = []
    for number, name in enumerate(names):
        offset = _INDEX + number * lanes
        value = ir.Op(kind, "add", (ir.Get(kind, name), ir.Load(kind, "x", offset)))
        step.append(ir.Assign(name, value))
    body: tuple[ir.Step, ...] = (
        *(ir.Declare(name, ir.Const(kind, 0.0)) for name in names),
        ir.For("again", _START, _STOP, ir.Const(ir.INDEX, 1), (
            ir.For("i", ir.Const(ir.INDEX, 0), ir.Var(ir.INDEX, "length"),
                   ir.Const(ir.INDEX, 8 * lanes), tuple(step)),
        )),
        ir.Store("x", ir.Const(ir.INDEX, 0), _sum(kind, names)),
    )  # fmt: skip
    return _kernel("anydim_reading", body, ("length",))


def _sum(kind: ir.Type, names: Sequence[str]) -> ir.Value:
    total: ir.Value = ir.Get(kind, names[0])
    for name in names[1:]:
        total = ir.Op(kind, "add", (total, ir.Get(kind, name)))
    return total


def _kernel(name: str, body: Sequence[ir.Step], sizes: tuple[str, ...] = ()) -> ir.Kernel:
    scalars = [ir.Scalar(name) for name in (*sizes, "start", "stop")]
    x, scratch = ir.Pointer("x", float32), ir.Pointer("scratch", uint8)
    parameters: tuple[ir.Pointer | ir.Scalar, ...] = (x, *scalars, scratch)
    main = ir.Function("main", parameters, tuple(body))
    return ir.Kernel(name, (ir.Operand("x", float32, True),), sizes, (main,))

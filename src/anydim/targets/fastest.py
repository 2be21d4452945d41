"""The most that this machine computes and reads: two small kernels, timed.

One does multiply-adds on registers, as many chains at once as there are registers for; the other
adds up an array that is larger than caches. Each thread runs its own; rates are those of all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from time import perf_counter

import numpy

from anydim.base.dtypes import float32, uint8
from anydim.kernels import ir
from anydim.program.profile.limits import Limits
from anydim.targets.run import ENTRY, build
from anydim.targets.targets import target

_READ_BYTES = 128 << 20  # of all threads together
_ROUNDS = 5
_STEPS = 1 << 21  # multiply-adds of a chain: milliseconds
_START, _STOP = ir.Var(ir.INDEX, "start"), ir.Var(ir.INDEX, "stop")
_INDEX = ir.Var(ir.INDEX, "i")


def fastest(threads: int) -> Limits:
    """Measure: about a quarter of a second."""
    processor = target("llvm").processor
    lanes, chains = processor.vector_bytes // 4, max(4, processor.registers * 3 // 4)
    with ExitStack() as held, ThreadPoolExecutor(threads) as pool:
        computing, reading = (
            ENTRY(held.enter_context(build(kernel, processor.vector_bytes)).address(kernel.name))
            for kernel in (_computing(lanes, chains), _reading(lanes))
        )
        each = _READ_BYTES // 4 // threads // (8 * lanes) * (8 * lanes)
        arrays = [numpy.full(each, 1e-30, numpy.float32) for _ in range(threads)]
        seconds = _least(pool, [_call(computing, array, _STEPS) for array in arrays])
        flops = 2.0 * _STEPS * chains * lanes * threads / seconds
        seconds = _least(pool, [_call(reading, array, each) for array in arrays])
    return Limits(threads, flops, 4.0 * each * threads / seconds)


def _call(entry: Callable[..., None], array: numpy.ndarray, stop: int) -> Callable[[], None]:
    block = (ctypes.c_int64 * 1)(array.ctypes.data)
    return lambda: entry(ctypes.addressof(block), 0, stop, None)


def _least(pool: ThreadPoolExecutor, calls: Sequence[Callable[[], None]]) -> float:
    """Seconds of all calls at once, the best of some rounds."""
    times = []
    for _ in range(_ROUNDS):
        begin = perf_counter()
        for done in [pool.submit(call) for call in calls]:
            done.result()
        times.append(perf_counter() - begin)
    return min(times)


def _computing(lanes: int, chains: int) -> ir.Kernel:
    """Chains of multiply-adds; their ends are stored, so that they are computed."""
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
    """The sum of an array, in eight registers."""
    kind = ir.Type(float32, lanes)
    names = [f"sum{number}" for number in range(8)]
    step = []
    for number, name in enumerate(names):
        place = _INDEX + number * lanes
        value = ir.Op(kind, "add", (ir.Get(kind, name), ir.Load(kind, "x", place)))
        step.append(ir.Assign(name, value))
    body: tuple[ir.Step, ...] = (
        *(ir.Declare(name, ir.Const(kind, 0.0)) for name in names),
        ir.For("i", _START, _STOP, ir.Const(ir.INDEX, 8 * lanes), tuple(step)),
        ir.Store("x", ir.Const(ir.INDEX, 0), _sum(kind, names)),
    )
    return _kernel("anydim_reading", body)


def _sum(kind: ir.Type, names: Sequence[str]) -> ir.Value:
    total: ir.Value = ir.Get(kind, names[0])
    for name in names[1:]:
        total = ir.Op(kind, "add", (total, ir.Get(kind, name)))
    return total


def _kernel(name: str, body: Sequence[ir.Step]) -> ir.Kernel:
    parameters = (
        ir.Pointer("x", float32), ir.Scalar("start"), ir.Scalar("stop"),
        ir.Pointer("scratch", uint8),
    )  # fmt: skip
    main = ir.Function("main", parameters, tuple(body))
    return ir.Kernel(name, (ir.Operand("x", float32, True),), (), (main,))

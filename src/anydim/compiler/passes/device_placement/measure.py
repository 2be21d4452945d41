"""Measurement of device speeds: nodes of three classes, and copies, timed once per machine.

The difference between chains of nine and of one nodes is the time of eight nodes, and the
difference of a node's times at two sizes is its work, without the overhead of a call. Times come
from the device's clock (`Device.clock`), which simulated devices have, too.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, TypeAlias

import numpy

from anydim.base.cache import code_version, key_of, user_cache
from anydim.base.dtypes import float32
from anydim.compiler.frontends.builder import Builder, Value
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.passes.device_placement.speeds import ELEMENTS, PRODUCT, ROWS, Speed, work_of
from anydim.runtime.devices.device import Device

_ROUNDS = 5
_MORE = 8  # additional nodes of the longer chain
_COPIED = 1 << 22  # bytes
_SMALL, _SHAPE = (8, 8), (512, 512)
_LARGE = (2048, 1024)  # of data larger than the caches
Run: TypeAlias = Callable[[Mapping[str, numpy.ndarray]], Any]
Step: TypeAlias = Callable[[Builder, Value, Value], Value]
Compiled: TypeAlias = Callable[[Graph], Run]  # with all nodes on the device


def speed_of(
    device: Device | None, compiled: Compiled, threads: int, tell: Callable[[], None]
) -> Speed:
    """The speed of a device, or of the host with this many threads; cached on disk.

    `tell` is called before a measurement.
    """
    name = f"host {threads}" if device is None else device.identity
    disk = user_cache() if name else None
    key = key_of("speeds", code_version(), platform.node(), name)
    data = None if disk is None else disk.get(key)
    if data is not None:
        return Speed(**json.loads(data))
    tell()
    speed = _measure_speed(device, compiled)
    if disk is not None:
        kept = {"launch": speed.launch, "flop": dict(speed.flop), "moved": speed.moved,
                "copy": speed.copy, "copied": speed.copied}  # fmt: skip
        disk.put(key, json.dumps(kept).encode())
    return speed


def _measure_speed(device: Device | None, compiled: Compiled) -> Speed:
    clock = perf_counter if device is None else device.clock
    copy, copied = (0.0, 0.0) if device is None else _copies(device)
    run = partial(_seconds, compiled, clock)

    def each(shape: tuple[int, int]) -> float:
        """Seconds per additional product; products are never fused with each other."""
        return max(0.0, run(_product, shape, 1 + _MORE) - run(_product, shape, 1)) / _MORE

    def larger(step: Step, shape: tuple[int, int]) -> float:
        """Seconds of a node at a size, minus those at a small size."""
        bytes = float32.bytes * shape[0] * shape[1]
        return max(0.0, run(step, shape, 1) - run(step, _SMALL, 1) - copied * bytes)

    launch = each(_SMALL)
    moved = larger(_subtract_row_maximum, _LARGE) / (2 * float32.bytes * _LARGE[0] * _LARGE[1])
    flop = {}
    for kind, step, seconds in (
        (PRODUCT, _product, each(_SHAPE) - launch),
        (ROWS, _softmax, larger(_softmax, _SHAPE)),
    ):
        work = work_of(*_first(_chain(step, _SHAPE, 1)))
        rest = seconds - moved * _number(work.moved)
        flop[kind] = max(rest, 0.02 * seconds, 0.0) / _number(work.flops)
    work = work_of(*_first(_chain(_element, _SHAPE, 1)))  # chains of these fuse into one kernel
    more = run(_element, _SHAPE, 1 + _MORE) - run(_element, _SHAPE, 1)
    flop[ELEMENTS] = max(more, 0.0) / _MORE / _number(work.flops)
    return Speed(launch, flop, moved, copy, copied)


def _first(graph: Graph) -> tuple[Graph, Node]:
    return graph, graph.nodes[0]


def _seconds(
    compiled: Compiled, clock: Callable[[], float], step: Step, shape: tuple[int, int], count: int
) -> float:
    """Seconds of a call of a chain; the minimum of some rounds."""
    given = {"x": numpy.full(shape, 0.5, numpy.float32)}
    run = compiled(_chain(step, shape, count))
    return min(_time_run(run, given, clock) for _ in range(_ROUNDS))


def _time_run(run: Run, given: Mapping[str, numpy.ndarray], clock: Callable[[], float]) -> float:
    begin = clock()
    run(given)
    return clock() - begin


def _chain(step: Step, shape: tuple[int, int], count: int) -> Graph:
    g = Builder(f"{getattr(step, '__name__', 'chain').strip('_')}_{count}")
    value = g.input("x", float32, shape)
    matrix = g.constant(numpy.full((shape[1], shape[1]), 1.0 / shape[1], numpy.float32))
    for _ in range(count):
        value = step(g, value, matrix)
    g.output("y", g.reduce_max(value, axes=(0, 1)))  # little to copy
    return g.graph()


def _product(g: Builder, value: Value, matrix: Value) -> Value:
    made: Value = g.matmul(value, matrix)
    return made


def _softmax(g: Builder, value: Value, matrix: Value) -> Value:
    made: Value = g.softmax(value, axis=-1)
    return made


def _subtract_row_maximum(g: Builder, value: Value, matrix: Value) -> Value:
    """Subtract the maximum of each row: one kernel with little work per byte."""
    made: Value = g.sub(value, g.reduce_max(value, axes=(1,), keepdims=True))
    return made


def _element(g: Builder, value: Value, matrix: Value) -> Value:
    made: Value = g.tanh(value)
    return made


def _copies(device: Device) -> tuple[float, float]:
    """Seconds of a copy, and per byte, averaged over both directions."""
    array = numpy.zeros(_COPIED, numpy.uint8)
    block = device.allocate(_COPIED)
    try:
        small, large = (min(_copy(device, block, array, n) for _ in range(_ROUNDS))
                        for n in (64, _COPIED))  # fmt: skip
    finally:
        device.free(block)
    byte = max(0.0, large - small) / (_COPIED - 64)
    return small, byte


def _copy(device: Device, block: int, array: numpy.ndarray, bytes: int) -> float:
    """Half the seconds of a copy to the device and back."""
    begin = device.clock()
    device.copy_in(block, array.ctypes.data, bytes)
    device.copy_out(array.ctypes.data, block, bytes)
    device.wait(device.record())
    return (device.clock() - begin) / 2


def _number(size: Any) -> int:
    constant: int = size.constant
    return max(1, constant)


__all__ = ["Compiled", "speed_of"]

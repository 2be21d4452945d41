"""Work-item steps of the interpreter: barriers, warp matrix multiplies, async copies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy

from anydim.base.dtypes import float32
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.mma_fragments import SUMS, WARP
from anydim.compiler.targets.evaluated.fragments import multiply_fragments
from anydim.compiler.targets.evaluated.groups import Member
from anydim.compiler.targets.evaluated.space import Copy


def _member(frame: Any, what: str) -> Member:
    if frame.item is None:
        frame.fail(f"{what} outside a work-group")
    member: Member = frame.item
    return member


def item(frame: Any, node: ir.Item) -> int:
    """Return the local id of the work-item."""
    return _member(frame, "work-item").number


def _barrier(frame: Any, step: ir.Barrier) -> None:
    _member(frame, "barrier").meet(step)
    for group in frame.commit_groups:  # pending copies may complete at any time
        for copy in group:
            frame.elements(copy.buffer, ir.Type(copy.dtype), copy.positions, "store")


def _fragments(frame: Any, step: ir.Fragments) -> None:
    member = _member(frame, "fragment")
    given = [frame.array(value) for value in (*step.left, *step.right)]
    whole = member.exchange(step, given, WARP, partial(multiply_fragments, step.dtype))
    kind, lane = ir.Type(float32), member.number % WARP
    for name, element in zip(step.sums, SUMS, strict=True):
        before = frame.value(ir.Get(kind, name)).astype(numpy.float64)
        total = before + whole[element(*divmod(lane, 4))]
        frame.registers[name] = frame.as_type(kind, total.astype(numpy.float32))


def _warp_exchange(frame: Any, step: ir.WarpExchange) -> None:
    member = _member(frame, "exchange")
    values = member.exchange(step, frame.value(step.value), WARP, tuple)
    frame.names[step.name] = values[(member.number % WARP) ^ step.distance]


def _copy_wide(frame: Any, step: ir.CopyWide) -> None:
    bytes, kind = step.count * step.dtype.bytes, ir.Type(step.dtype)
    sides = []
    for buffer, offset, use in (
        (step.source, step.source_offset, "load"), (step.buffer, step.offset, "store"),
    ):  # fmt: skip
        positions = frame.integer(offset) + numpy.arange(step.count)
        data, touched = frame.elements(buffer, kind, positions, use)
        start = data.ctypes.data + int(touched[0][0])
        if bytes not in (2, 4, 8, 16) or start % bytes:
            frame.fail(f"a wide copy of {bytes} bytes at address {start:#x} in '{buffer}'")
        sides.append((data, touched))
    (source, read), (target, written) = sides
    target[written] = source[read]


def _copy_aside(frame: Any, step: ir.CopyAside) -> None:
    _member(frame, "async copy")
    offset, source, valid = map(frame.integer, (step.offset, step.source_offset, step.valid))
    if not 0 <= valid <= step.count:
        frame.fail(f"an async copy of {step.count} elements has {valid} valid ones")
    bytes, kind = step.count * step.dtype.bytes, ir.Type(step.dtype)
    if bytes not in (4, 8, 16) or offset % step.count or (valid and source % step.count):
        frame.fail(f"an async copy of {bytes} bytes from {source} to {offset}")
    data, touched = frame.elements(step.source, kind, source + numpy.arange(valid), "load")
    held = numpy.zeros((step.count, step.dtype.bytes), numpy.uint8)
    held[:valid] = data[touched]
    copy = Copy(step.buffer, offset + numpy.arange(step.count), step.dtype, held)
    frame.elements(copy.buffer, kind, copy.positions, "store")
    frame.commit_groups[-1].append(copy)


def _copies_end(frame: Any, step: ir.CopiesEnd) -> None:
    frame.commit_groups.append([])


def _copies_wait(frame: Any, step: ir.CopiesWait) -> None:
    while len(frame.commit_groups) > step.left + 1:
        for copy in frame.commit_groups.pop(0):
            kind = ir.Type(copy.dtype)
            data, touched = frame.elements(copy.buffer, kind, copy.positions, "store")
            data[touched] = copy.held


STEPS: dict[type, Callable[[Any, Any], None]] = {
    ir.Barrier: _barrier,
    ir.Fragments: _fragments,
    ir.WarpExchange: _warp_exchange,
    ir.CopyWide: _copy_wide,
    ir.CopyAside: _copy_aside,
    ir.CopiesEnd: _copies_end,
    ir.CopiesWait: _copies_wait,
}

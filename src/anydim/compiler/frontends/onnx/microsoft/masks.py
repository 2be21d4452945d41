"""Masks of attention scores, in the forms of onnxruntime's files.

A padding key gets `mask_filter_value`, as in onnxruntime, so that a fully masked row is not empty;
a key after its row gets a share of 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import DType, int64
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.attention import Operands
from anydim.compiler.frontends.onnx.operators.call import OnnxNode
from anydim.sizes import Size

FILTERED = -10000.0


def padding(call: OnnxNode, position: int, given: Operands) -> str | None:
    """The padding mask as an addend of scores; None if the node has none.

    [batch, columns], [batch, rows, columns]: 0 is padding. [batch]: the start of padding. [2 *
    batch]: this, then the end of padding at the front. [batch, 1, most, most]: the keys visible to
    each row, past included.
    """
    if not call.given(position):
        return None
    kept = _kept(call, position, given)
    filtered = call.attribute("mask_filter_value")
    low = call.number(FILTERED if filtered is None else filtered, given.dtype)
    return call.emit("where", kept, call.number(0, given.dtype), low)


def _kept(call: OnnxNode, position: int, given: Operands) -> str:
    """The keys that are not padding, broadcast to [batch, heads, rows, columns]."""
    mask, kind = call.input(position), call.type(position)
    if kind.rank == 1:
        return _in_ranges(call, mask, given)
    if kind.rank == 4:
        mask = call.emit(
            "slice", mask, axes=(2, 3), starts=(given.past, 0),
            ends=(given.past + given.rows, given.columns),
        )  # fmt: skip
    elif kind.rank in (2, 3):
        mask = call.emit("unsqueeze", mask, axes=(1, 2) if kind.rank == 2 else (1,))
    else:
        raise Unsupported(f"a mask of type {kind}")
    return call.emit("greater", mask, call.number(0, kind.dtype))


def _in_ranges(call: OnnxNode, ends: str, given: Operands) -> str:
    """The keys below the end of their row, and from its start on if both are given."""
    (count,) = call.kind(ends).shape
    columns = iota(call, given.columns)
    if call.proved(count, "==", given.batch):
        return call.emit("less", columns, _per_row(call, ends, 0, given.batch))
    if not call.proved(count, "==", 2 * given.batch):
        raise Unsupported(f"a mask of {count} numbers, expected {given.batch} or twice as many")
    end, start = (
        _per_row(call, ends, number * given.batch, (number + 1) * given.batch)
        for number in range(2)
    )
    below, after = call.emit("less", columns, end), call.emit("greater_equal", columns, start)
    return call.emit("logical_and", below, after)


def _per_row(call: OnnxNode, numbers: str, start: Size | int, end: Size | int) -> str:
    """A slice of numbers, one per batch row, broadcast to [batch, heads, rows, columns]."""
    part = call.emit("slice", numbers, axes=(0,), starts=(start,), ends=(end,))
    part = part if call.kind(part).dtype == int64 else call.emit("cast", part, to=int64)
    return call.emit("unsqueeze", part, axes=(1, 2, 3))


def iota(call: OnnxNode, count: Size) -> str:
    return call.emit("range", start=0, step=1, count=count, dtype=int64)


def causal_mask(call: OnnxNode, given: Operands) -> str:
    """[rows, columns]: whether a key is at most at the row's position, which is after the past."""
    row = call.emit("unsqueeze", iota(call, given.rows), axes=(1,))
    if given.past.constant != 0:
        before = call.emit("size_tensor", values=(given.past,), dtype=int64, scalar=True)
        row = call.emit("add", row, before)
    return call.emit("less_equal", iota(call, given.columns), row)


def masked(call: OnnxNode, scores: str, added: Sequence[str | None], allowed: str | None) -> str:
    """Add addends to scores; scores that are not allowed become -inf."""
    dtype: DType = call.kind(scores).dtype
    for value in added:
        scores = scores if value is None else call.emit("add", scores, value)
    if allowed is None:
        return scores
    return call.emit("where", allowed, scores, call.number(float("-inf"), dtype))

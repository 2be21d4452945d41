"""What is added to the scores of an attention: padding as the files of onnxruntime give it.

A key that is padding gets `mask_filter_value`, as onnxruntime has it, so that a row with nothing
else is not empty; a key that comes later than its row has no share at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import DType, int64
from anydim.frontends.onnx.file.tensors import Unsupported
from anydim.frontends.onnx.operators.attention import Operands
from anydim.frontends.onnx.operators.call import OnnxNode
from anydim.sizes import Size

FILTERED = -10000.0


def padding(call: OnnxNode, position: int, given: Operands) -> str | None:
    """A mask of keys as what is added to scores; None where the node has none.

    [batch, columns], [batch, rows, columns]: 0 is padding. [batch]: where padding begins.
    [2 * batch]: these, then where what is no padding begins. [batch, 1, most, most]: what the rows
    after the past see.
    """
    if not call.given(position):
        return None
    kept = _kept(call, position, given)
    filtered = call.attribute("mask_filter_value")
    low = call.number(FILTERED if filtered is None else filtered, given.dtype)
    return call.emit("where", kept, call.number(0, given.dtype), low)


def _kept(call: OnnxNode, position: int, given: Operands) -> str:
    """Which keys are no padding, against [batch, heads, rows, columns]."""
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
    """Keys below the end of their row, and from its begin on where the ends hold both."""
    (count,) = call.kind(ends).shape
    columns = places(call, given.columns)
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
    """Some numbers, one for each row of the batch, against [batch, heads, rows, columns]."""
    part = call.emit("slice", numbers, axes=(0,), starts=(start,), ends=(end,))
    part = part if call.kind(part).dtype == int64 else call.emit("cast", part, to=int64)
    return call.emit("unsqueeze", part, axes=(1, 2, 3))


def places(call: OnnxNode, count: Size) -> str:
    return call.emit("range", start=0, step=1, count=count, dtype=int64)


def not_later(call: OnnxNode, given: Operands) -> str:
    """[rows, columns]: whether a key comes no later than the row, which follows the past."""
    place = call.emit("unsqueeze", places(call, given.rows), axes=(1,))
    if given.past.constant != 0:
        before = call.emit("size_tensor", values=(given.past,), dtype=int64, scalar=True)
        place = call.emit("add", place, before)
    return call.emit("less_equal", places(call, given.columns), place)


def masked(call: OnnxNode, scores: str, added: Sequence[str | None], allowed: str | None) -> str:
    """Scores plus what is added to them; those that are not allowed have no share."""
    dtype: DType = call.kind(scores).dtype
    for value in added:
        scores = scores if value is None else call.emit("add", scores, value)
    if allowed is None:
        return scores
    return call.emit("where", allowed, scores, call.number(float("-inf"), dtype))

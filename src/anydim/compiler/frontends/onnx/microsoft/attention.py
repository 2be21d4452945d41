"""Attention, MultiHeadAttention: projections, heads and masks in one node.

A padding key gets `mask_filter_value`, as in onnxruntime, so that a fully masked row is not empty;
a key after its row gets a share of 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from anydim.base.dtypes import DType, float32, int64
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.microsoft.elements import add_given
from anydim.compiler.frontends.onnx.microsoft.record import Required, Row, row
from anydim.compiler.frontends.onnx.operators.attention import (
    Operands,
    operands_of,
    scale_of,
    scores_of,
    split_heads,
    weighted_values,
)
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.sizes import Size, as_size

FILTERED = -10000.0


def padding(call: OnnxNode, position: int, given: Operands) -> str | None:
    """The padding mask as an addend of scores; None if the node has none.

    [batch, columns], [batch, rows, columns]: 0 is padding. [batch]: the start of padding. [2 *
    batch]: this, then the end of padding at the front. [batch, 1, most, most]: the keys visible to
    each row, past included.
    """
    if not call.given(position):
        return None
    kept = _visible_keys(call, position, given)
    filtered = call.attribute("mask_filter_value")
    low = call.number(FILTERED if filtered is None else filtered, given.dtype)
    return call.emit("where", kept, call.number(0, given.dtype), low)


def _visible_keys(call: OnnxNode, position: int, given: Operands) -> str:
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
    columns = call.iota(given.columns)
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
    return call.emit("unsqueeze", call.as_type(part, int64), axes=(1, 2, 3))


def causal_mask(call: OnnxNode, given: Operands) -> str:
    """[rows, columns]: whether a key is at most at the row's position, which is after the past."""
    row = call.emit("unsqueeze", call.iota(given.rows), axes=(1,))
    if given.past.constant != 0:
        row = call.emit("add", row, call.size_tensor(given.past))
    return call.emit("less_equal", call.iota(given.columns), row)


def mask_scores(
    call: OnnxNode, scores: str, added: Sequence[str | None], allowed: str | None
) -> str:
    """Add addends to scores; scores that are not allowed become -inf."""
    dtype: DType = call.kind(scores).dtype
    for value in added:
        scores = scores if value is None else call.emit("add", scores, value)
    if allowed is None:
        return scores
    return call.emit("where", allowed, scores, call.number(float("-inf"), dtype))


MASK: dict[str, Any] = {"mask_filter_value": float, "scale": float, "unidirectional": 0}


def refuse(call: OnnxNode, inputs: Sequence[int] = (), attributes: Sequence[str] = ()) -> None:
    """Unsupported if one of these inputs or attributes is given."""
    for position in inputs:
        if call.given(position):
            raise Unsupported(f"its input {position}")
    for name in attributes:
        if call.attribute(name):
            raise Unsupported(f"{name} {call.attribute(name)}")


def attention(call: OnnxNode) -> Sequence[Result]:
    """One product computes queries, keys and values; past keys and values are in one input."""
    refuse(call, (6,), ("do_rotary", "past_present_share_buffer"))
    call.axes(0, 3), call.axes(1, 2)
    made = add_given(call, call.emit("matmul", call.input(0), call.input(1)), 2)
    parts = _parts(call, made, _widths(call))
    query, key, value = (split_heads(call, part, call.attribute("num_heads")) for part in parts)
    past: tuple[str, str] | None = None
    if call.given(4):
        call.axes(4, 5)
        past = _one_of_two(call, call.input(4), 0), _one_of_two(call, call.input(4), 1)
    output, key, value, _ = attention_of(call, (query, key, value), past, mask=3, bias=5)
    if not any(call.outputs[1:]):
        return [output]
    lifted = (call.emit("unsqueeze", part, axes=(0,)) for part in (key, value))
    return [output, call.emit("concat", *lifted, axis=0)]


def _widths(call: OnnxNode) -> tuple[Size, Size, Size]:
    """The column counts of queries, keys and values in the product."""
    given = call.attribute("qkv_hidden_sizes")
    if given:
        if len(given) != 3 or min(given) < 0:
            raise Unsupported(f"qkv_hidden_sizes {given}")
        query, key, value = map(as_size, given)
        return query, key, value
    width = call.shape(1)[-1] // 3
    return width, width, width


def _parts(call: OnnxNode, value: str, widths: Sequence[Size]) -> list[str]:
    """Split along the last axis."""
    return call.emit_many("split", len(widths), value, axis=-1, sizes=tuple(widths))


def _one_of_two(call: OnnxNode, value: str, number: int, axis: int = 0) -> str:
    """One slice along an axis, with the axis removed."""
    part = call.emit("slice", value, axes=(axis,), starts=(number,), ends=(number + 1,))
    return call.emit("squeeze", part, axes=(axis,))


def attention_of(
    call: OnnxNode, heads: tuple[str, str, str], past: tuple[str, str] | None, mask: int, bias: int
) -> tuple[str, str, str, str]:
    """(output values, all keys, all values, the scores) of attention with heads as axes.

    `mask` and `bias` are positions of optional inputs of the node.
    """
    query, key, value = heads
    before: Size | int = 0
    if past is not None:
        before = call.kind(past[0]).shape[2]
        key, value = (call.emit("concat", old, new, axis=2) for old, new in zip(past, (key, value)))
    given = operands_of(call, query, key, value, before)
    scale = scale_of(call, call.attribute("scale"), given.depth, given.dtype)
    added = [padding(call, mask, given), call.input(bias) if call.given(bias) else None]
    allowed = causal_mask(call, given) if call.attribute("unidirectional") else None
    scores = mask_scores(call, scores_of(call, given, scale, given.whole), added, allowed)
    shares = call.emit("softmax", scores, axis=-1)
    return weighted_values(call, shares, given, flat=True), key, value, scores


# ---- separate queries, keys and values ---------------------------------------------------------


def multi_head_attention(call: OnnxNode) -> Sequence[Result]:
    refuse(call, (8, 9))
    heads = _given_heads(call, bias=3)
    return attention_of(call, heads, _past(call, 6), mask=4, bias=5)


def decoded_attention(call: OnnxNode) -> Sequence[Result]:
    """MultiHeadAttention of one row; its optional inputs are in a different order."""
    refuse(call, (7, 8, 9), ("past_present_share_buffer",))
    heads = _given_heads(call, bias=10)
    return attention_of(call, heads, _past(call, 5), mask=3, bias=4)


def _past(call: OnnxNode, position: int) -> tuple[str, str] | None:
    """Keys and values of earlier calls, two inputs."""
    if not (call.given(position) and call.given(position + 1)):
        return None
    call.axes(position, 4), call.axes(position + 1, 4)
    return call.input(position), call.input(position + 1)


def _given_heads(call: OnnxNode, bias: int) -> tuple[str, str, str]:
    """Queries, keys and values with heads as axes.

    Packed inputs [batch, rows, heads, 2 or 3, depth] are split.
    """
    if len(call.axes(0, 3, 5)) == 5:
        query, key, value = (_unpack(call, 0, number, bias) for number in range(3))
        return query, key, value
    biases = _biases(call, bias)
    query = _with_bias(call, 0, biases[0])
    if call.given(1) and call.type(1).rank == 5:
        key, value = (_unpack(call, 1, number, bias) for number in range(2))
        return query, key, value
    return query, _with_bias(call, 1, biases[1]), _with_bias(call, 2, biases[2])


def _unpack(call: OnnxNode, position: int, number: int, bias: int) -> str:
    if call.given(bias):
        raise Unsupported("a bias of packed inputs")
    part = _one_of_two(call, call.input(position), number, axis=3)
    return call.emit("transpose", part, perm=(0, 2, 1, 3))


def _biases(call: OnnxNode, position: int) -> Sequence[str | None]:
    if not call.given(position):
        return (None, None, None)
    width = call.shape(0)[-1]
    last = call.axes(position, 1)[0] - width - width
    return _parts(call, call.input(position), (width, width, last))


def _with_bias(call: OnnxNode, position: int, bias: str | None) -> str:
    """An input with heads as axes; unchanged if it has them."""
    value = call.input(position)
    if len(call.axes(position, 3, 4)) == 4:
        return value
    if bias is not None:
        value = call.emit("add", value, bias)
    return split_heads(call, value, call.attribute("num_heads"))


ROWS: dict[str, Row] = {
    "Attention": row(
        attention,
        "input weights bias? mask_index? past? attention_bias? past_sequence_length? -> "
        "output present?",
        num_heads=Required(int), do_rotary=int, past_present_share_buffer=int,
        qkv_hidden_sizes=(int,), rotary_embedding_dim=int, **MASK,
        limits="no shared buffers, no rotation"),
    "DecoderMaskedMultiHeadAttention": row(
        decoded_attention,
        "query key? value? mask_index? attention_bias? past_key? past_value? past_sequence_length? "
        "beam_width? cache_indirection? bias? -> output present_key? present_value? qk?",
        num_heads=Required(int), output_qk=int, past_present_share_buffer=int,
        mask_filter_value=float, scale=float, limits="no shared buffers, no beams"),
    "MultiHeadAttention": row(
        multi_head_attention,
        "query key? value? bias? key_padding_mask? attention_bias? past_key? past_value? "
        "past_sequence_length? cache_indirection? -> output present_key? present_value? qk?",
        num_heads=Required(int), **MASK, limits="no shared buffers, no beams"),
}  # fmt: skip


def relative_position_bias(call: OnnxNode) -> Result:
    """[1, heads, queries, keys]: a number per bucket of distances (T5).

    The table is declared as [buckets, heads], but its numbers are laid out as [heads, buckets].
    """
    buckets, heads = (size.constant for size in call.axes(0, 2))
    if not buckets or heads is None:
        raise Unsupported(f"a table of type {call.type(0)}")
    queries, keys = call.size(1), call.size(2)
    table = call.emit("reshape", call.input(0), shape=(heads, buckets))
    found = call.emit("gather", table, _bucket(call, queries, keys, buckets), axis=1)
    return call.emit("unsqueeze", found, axes=(0,))


def _bucket(call: OnnxNode, queries: Size, keys: Size, buckets: int) -> str:
    """The bucket of each distance [queries, keys].

    Half of the buckets are linear, half logarithmic up to `max_distance`; keys after the query have
    separate buckets if bidirectional, else bucket 0.
    """
    zero = call.number(0, int64)
    row = call.emit("unsqueeze", call.iota(queries), axes=(1,))
    behind = call.emit("sub", row, call.iota(keys))
    first = None
    if call.attribute("is_bidirectional"):
        buckets //= 2
        later = call.emit("less", behind, zero)
        first = call.emit("where", later, call.number(buckets, int64), zero)
        behind = call.emit("abs", behind)
    else:
        behind = call.emit("maximum", behind, zero)
    exact = buckets // 2
    max_distance = call.attribute("max_distance")
    if not 1 <= exact < max_distance:
        raise Unsupported(f"max_distance {max_distance} with {buckets} buckets a direction")
    steps = (buckets - exact) / math.log(max_distance / exact)
    share = call.emit("cast", call.emit("maximum", behind, call.number(1, int64)), to=float32)
    share = call.emit("log", call.emit("div", share, call.number(exact, float32)))
    grown = call.emit("cast", call.emit("mul", share, call.number(steps, float32)), to=int64)
    grown = call.emit("add", grown, call.number(exact, int64))
    grown = call.emit("minimum", grown, call.number(buckets - 1, int64))
    near = call.emit("less", behind, call.number(exact, int64))
    bucket = call.emit("where", near, behind, grown)
    return bucket if first is None else call.emit("add", bucket, first)


def gated_relative_position_bias(call: OnnxNode) -> Result:
    """[batch, heads, rows, rows]: the bias times a gate computed from each row's query."""
    refuse(call, (6,))
    call.axes(0, 3), call.axes(3, 2)
    dtype = call.type(0).dtype
    query = call.emit("add", call.input(0), call.input(1))
    query = split_heads(call, query, call.attribute("num_heads"))
    gates = call.emit("add", call.emit("matmul", query, call.input(3)), call.input(4))
    batch, heads, rows, width = call.kind(gates).shape
    gates = call.emit("reshape", gates, shape=(batch, heads, rows, 2, width // 2))
    gates = call.emit("sigmoid", call.emit("reduce_sum", gates, axes=(-1,), keepdims=False))
    update, reset = call.emit_many("split", 2, gates, axis=-1, sizes=(1, 1))
    inner = call.emit("sub", call.emit("mul", reset, call.input(5)), call.number(1, dtype))
    opened = call.emit("add", call.emit("mul", update, inner), call.number(2, dtype))
    return call.emit("mul", opened, call.input(2))


POSITION_ROWS: dict[str, Row] = {
    "GatedRelativePositionBias": row(
        gated_relative_position_bias,
        "query_layer query_bias rel_pos weight bias eco_a token_offset? -> output",
        num_heads=Required(int), limits="no packed rows"),
    "RelativePositionBias": row(
        relative_position_bias, "bias_table query_length key_length -> output",
        is_bidirectional=0, max_distance=Required(int)),
}  # fmt: skip

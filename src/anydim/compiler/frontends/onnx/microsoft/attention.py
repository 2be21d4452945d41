"""Attention, MultiHeadAttention: projections, heads and masks in one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.microsoft.masks import causal_mask, masked, padding
from anydim.compiler.frontends.onnx.microsoft.record import Row, required, row
from anydim.compiler.frontends.onnx.operators.attention import (
    operands_of,
    scale_of,
    scores_of,
    split_heads,
    weighted_values,
)
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.sizes import Size, as_size

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
    made = call.emit("matmul", call.input(0), call.input(1))
    if call.given(2):
        made = call.emit("add", made, call.input(2))
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
    scores = masked(call, scores_of(call, given, scale, given.whole), added, allowed)
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
        query, key, value = (_unpacked(call, 0, number, bias) for number in range(3))
        return query, key, value
    biases = _biases(call, bias)
    query = _with_bias(call, 0, biases[0])
    if call.given(1) and call.type(1).rank == 5:
        key, value = (_unpacked(call, 1, number, bias) for number in range(2))
        return query, key, value
    return query, _with_bias(call, 1, biases[1]), _with_bias(call, 2, biases[2])


def _unpacked(call: OnnxNode, position: int, number: int, bias: int) -> str:
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
        num_heads=required(int), do_rotary=int, past_present_share_buffer=int,
        qkv_hidden_sizes=(int,), rotary_embedding_dim=int, **MASK,
        limits="no shared buffers, no rotation"),
    "DecoderMaskedMultiHeadAttention": row(
        decoded_attention,
        "query key? value? mask_index? attention_bias? past_key? past_value? past_sequence_length? "
        "beam_width? cache_indirection? bias? -> output present_key? present_value? qk?",
        num_heads=required(int), output_qk=int, past_present_share_buffer=int,
        mask_filter_value=float, scale=float, limits="no shared buffers, no beams"),
    "MultiHeadAttention": row(
        multi_head_attention,
        "query key? value? bias? key_padding_mask? attention_bias? past_key? past_value? "
        "past_sequence_length? cache_indirection? -> output present_key? present_value? qk?",
        num_heads=required(int), **MASK, limits="no shared buffers, no beams"),
}  # fmt: skip

"""Biases of attention scores by relative position."""

from __future__ import annotations

import math

from anydim.base.dtypes import float32, int64
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.microsoft.attention import refuse
from anydim.compiler.frontends.onnx.microsoft.record import Required, Row, row
from anydim.compiler.frontends.onnx.operators.attention import split_heads
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.sizes import Size


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


ROWS: dict[str, Row] = {
    "GatedRelativePositionBias": row(
        gated_relative_position_bias,
        "query_layer query_bias rel_pos weight bias eco_a token_offset? -> output",
        num_heads=Required(int), limits="no packed rows"),
    "RelativePositionBias": row(
        relative_position_bias, "bias_table query_length key_length -> output",
        is_bidirectional=0, max_distance=Required(int)),
}  # fmt: skip

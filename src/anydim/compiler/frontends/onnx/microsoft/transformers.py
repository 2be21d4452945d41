"""Transformer operators with weights of bytes: the float versions on dequantised inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anydim.base.dtypes import float32
from anydim.compiler.frontends.onnx.microsoft.attention import MASK, attention
from anydim.compiler.frontends.onnx.microsoft.norms import embed_layer_norm
from anydim.compiler.frontends.onnx.microsoft.record import INTEGERS, Required, Row, row
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.quantised import per_axis


def _numbers(call: OnnxNode, tensor: int, scale: int, zero: int) -> str:
    """Dequantise an input; scales are single numbers, or one per column."""
    columns = call.shape(tensor)[-1]
    inputs = [call.input(tensor), per_axis(call, scale, columns)]
    if call.given(zero):
        inputs.append(per_axis(call, zero, columns))
    return call.emit("dequantize", *inputs, to=float32, axis=-1)


def quantised_attention(call: OnnxNode) -> Sequence[Result]:
    """Attention of dequantised numbers; the product runs on bytes (`Integers`)."""
    x, weights = _numbers(call, 0, 3, 6), _numbers(call, 1, 4, 7)
    mask, past = (call.input(n) if call.given(n) else None for n in (5, 8))
    return attention(replace(call, inputs=(x, weights, call.input(2), mask, past)))


def quantised_embedding(call: OnnxNode) -> Sequence[Result]:
    """Ids, five tensors of bytes and a mask; then the five scales and zero points."""
    parts = [
        _numbers(call, position, number + 8, number + 13) if call.given(position) else None
        for number, position in enumerate((2, 3, 4, 5, 6))
    ]
    segments, mask = (call.input(n) if call.given(n) else None for n in (1, 7))
    return embed_layer_norm(replace(call, inputs=(call.input(0), segments, *parts, mask)))


ROWS: dict[str, Row] = {
    "QAttention": row(
        quantised_attention,
        "input weight bias input_scale weight_scale mask_index? input_zero_point?"
        " weight_zero_point? past? -> output present?",
        types=INTEGERS, limits="no shared buffers, no rotation", num_heads=Required(int),
        do_rotary=int, past_present_share_buffer=int, **MASK),
    "QEmbedLayerNormalization": row(
        quantised_embedding,
        "input_ids segment_ids? word_embedding_quant position_embedding_quant segment_embedding?"
        " gamma_quant beta_quant mask? word_embedding_scale position_embedding_scale"
        " segment_embedding_scale? gamma_scale beta_scale word_embedding_zero_point"
        " position_embedding_zero_point segment_embedding_zero_point? gamma_zero_point"
        " beta_zero_point -> layernorm_out mask_index_out",
        types=("int32",), epsilon=1e-12),
}  # fmt: skip

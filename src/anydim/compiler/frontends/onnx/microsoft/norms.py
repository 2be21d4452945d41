"""Normalisations with fused additions."""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import boolean, int32
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.microsoft.elements import sum_inputs
from anydim.compiler.frontends.onnx.microsoft.record import Row, row
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.norms import layer_norm, rms_norm, root_mean_square


def _plain(call: OnnxNode) -> None:
    """Unsupported if the statistics are requested: onnxruntime does not compute them."""
    if any(call.outputs[1:3]):
        raise Unsupported("its results mean and inv_std_var")


def skip_layer_norm(call: OnnxNode) -> Sequence[Result]:
    """The sum of input, skip and bias, normalised; the sum is the last result."""
    _plain(call)
    total = sum_inputs(call, 1, 4)
    scales = call.given_inputs(2, 3)
    made = call.emit("layer_norm", total, *scales, epsilon=call.attribute("epsilon"))
    return [made, made, made, total]


def skip_simplified_layer_norm(call: OnnxNode) -> Sequence[Result]:
    _plain(call)
    total = sum_inputs(call, 1, 3)
    made, _ = root_mean_square(call, total, call.input(2), (-1,), call.type(0).dtype)
    return [made, made, made, total]


def embed_layer_norm(call: OnnxNode) -> Sequence[Result]:
    """Sum of table rows for words, positions and segments, normalised.

    Results are the normalised rows, the mask's count of ones, and the sums.
    """
    call.axes(0, 2), call.axes(2, 2), call.axes(3, 2)
    words = call.emit("gather", call.input(2), call.input(0), axis=0)
    positions = call.input(8) if call.given(8) else call.iota(call.shape(0)[-1])
    position_rows = call.emit("gather", call.input(3), positions, axis=0)
    total = call.emit("add", words, position_rows)
    if call.given(1):
        if not call.given(4):
            raise Unsupported("segments without a table")
        segments = call.emit("gather", call.input(4), call.input(1), axis=0)
        total = call.emit("add", total, segments)
    scales = (call.input(5), call.input(6))
    made = call.emit("layer_norm", total, *scales, epsilon=call.attribute("epsilon"))
    return [made, _counts(call), total]


def _counts(call: OnnxNode) -> str:
    """The number of ones in each row of the mask; 0 without a mask."""
    if not call.given(7):
        return call.emit("fill", shape=call.shape(0)[:1], value=0, dtype=int32)
    ones = call.emit("equal", call.input(7), call.number(1, call.type(7).dtype))
    assert call.kind(ones).dtype == boolean
    return call.emit("reduce_sum", call.emit("cast", ones, to=int32), axes=(-1,), keepdims=False)


ROWS: dict[str, Row] = {
    "EmbedLayerNormalization": row(
        embed_layer_norm,
        "input_ids segment_ids? word_embedding position_embedding segment_embedding? gamma beta "
        "mask? position_ids? -> output mask_index? embedding_sum?",
        types=("int32",), epsilon=1e-12, mask_index_type=int),
    "SkipLayerNormalization": row(
        skip_layer_norm,
        "input skip gamma beta? bias? -> output mean? inv_std_var? input_skip_bias_sum?",
        epsilon=1e-12),
    "SkipSimplifiedLayerNormalization": row(
        skip_simplified_layer_norm,
        "input skip gamma bias? -> output mean? inv_std_var? input_skip_bias_sum?",
        epsilon=1e-12),
}  # fmt: skip

STANDARD_ROWS: dict[str, Row] = {
    "LayerNormalization": row(
        layer_norm, "X Scale B? -> Y Mean? InvStdDev?", axis=-1, epsilon=1e-5, stash_type=1),
    "SimplifiedLayerNormalization": row(
        rms_norm, "X scale -> Y inv_std_var?", axis=-1, epsilon=1e-5, stash_type=1),
}  # fmt: skip
"""Names that onnxruntime adds to the standard's own domain, in every opset."""

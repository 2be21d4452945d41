"""Matrix products and convolutions with fused transposes, sums and activations."""

from __future__ import annotations

from typing import Any

from anydim.compiler.frontends.onnx.microsoft.activations import activated
from anydim.compiler.frontends.onnx.microsoft.record import Row, required, row
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.whole_numbers import gemm
from anydim.compiler.frontends.onnx.operators.windows import convolution

_TRANSPOSED: dict[str, Any] = {"alpha": 1.0, "transA": 0, "transB": 0}
_TRANSPOSED_BATCHES: dict[str, Any] = {**_TRANSPOSED, "transBatchA": 0, "transBatchB": 0}
_ACTIVATION: dict[str, Any] = {
    "activation_alpha": float,
    "activation_beta": float,
    "activation_gamma": float,
}
WINDOW: dict[str, Any] = {
    "auto_pad": "NOTSET", "kernel_shape": (int,), "dilations": (int,), "strides": (int,),
    "pads": (int,), "group": 1,
}  # fmt: skip
FUSED_WINDOW: dict[str, Any] = {**WINDOW, "activation": str, "activation_params": (float,)}


def matmul(call: OnnxNode) -> str:
    """alpha * a b, each optionally transposed; vectors are not transposed."""
    product = call.emit("matmul", _operand(call, 0, "A"), _operand(call, 1, "B"))
    alpha = call.attribute("alpha")
    if alpha == 1:
        return product
    return call.emit("mul", product, call.number(alpha, call.kind(product).dtype))


def _operand(call: OnnxNode, position: int, side: str) -> str:
    """Matrices [..., rows, inner]; with `transBatch` the file stores their rows in axis 0."""
    rank = call.type(position).rank
    order = list(range(rank))
    if rank > 2 and call.attribute(f"transBatch{side}"):
        order = [*order[1:-1], 0, order[-1]]
    if rank > 1 and call.attribute(f"trans{side}"):
        order[-2:] = order[-1], order[-2]
    if order == sorted(order):
        return call.input(position)
    return call.emit("transpose", call.input(position), perm=tuple(order))


def fused_gemm(call: OnnxNode) -> Result:
    product = gemm(call)
    assert isinstance(product, str)
    return activated(call, product)


def activated_matmul(call: OnnxNode) -> Result:
    product = matmul(call)
    if call.attribute("activation") == "Softmax":
        return call.emit("softmax", product, axis=call.attribute("activation_axis", -1))
    return activated(call, product)


def fused_convolution(call: OnnxNode) -> Result:
    """activation(x * w + b + z): z has the shape of the result."""
    made = convolution(call)
    assert isinstance(made, str)
    if call.given(3):
        made = call.emit("add", made, call.input(3))
    return activated(call, made, call.attribute("activation_params") or ())


ROWS: dict[str, Row] = {
    "FusedConv": row(fused_convolution, "X W B? Z? -> Y", **FUSED_WINDOW),
    "FusedGemm": row(
        fused_gemm, "A B C? -> Y", alpha=1.0, beta=1.0, transA=0, transB=0, activation=str,
        **_ACTIVATION),
    "FusedMatMul": row(matmul, "A B -> Y", **_TRANSPOSED_BATCHES),
    "FusedMatMulActivation": row(
        activated_matmul, "A B -> Y", activation=required(str), activation_axis=int,
        **_TRANSPOSED_BATCHES, **_ACTIVATION),
    "TransposeMatMul": row(matmul, "A B -> Y", **_TRANSPOSED),
}  # fmt: skip

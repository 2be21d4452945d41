"""Matrix products and convolutions with fused transposes, sums and activations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.microsoft.record import Required, Row, row
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.whole_numbers import gemm
from anydim.compiler.frontends.onnx.operators.windows import convolution


@dataclass(frozen=True)
class Activation:
    """The builder of an activation, and its parameters in the order of a parameter list."""

    build: Callable[..., str]
    parameters: tuple[str, ...] = ()


def _plain(operator: str, *parameters: str) -> Activation:
    """An operator of the library with attributes of these names."""

    def build(call: OnnxNode, value: str, **given: float) -> str:
        return call.emit(operator, value, **given)

    return Activation(build, parameters)


def _clip(call: OnnxNode, value: str, **bounds: float) -> str:
    for operator, name in (("maximum", "low"), ("minimum", "high")):
        if name in bounds:
            number = call.number(bounds[name], call.kind(value).dtype)
            value = call.emit(operator, value, number)
    return value


ACTIVATIONS: Mapping[str, Activation] = {
    "Clip": Activation(_clip, ("low", "high")),
    "Elu": _plain("elu", "alpha"),
    "Gelu": _plain("gelu"),
    "HardSigmoid": _plain("hard_sigmoid", "alpha", "beta"),
    "HardSwish": _plain("hard_swish"),
    "LeakyRelu": _plain("leaky_relu", "alpha"),
    "Relu": _plain("relu"),
    "Selu": _plain("selu", "alpha", "gamma"),
    "Sigmoid": _plain("sigmoid"),
    "Softplus": _plain("softplus"),
    "Softsign": _plain("softsign"),
    "Tanh": _plain("tanh"),
    "ThresholdedRelu": _plain("thresholded_relu", "alpha"),
}


def _activation(name: str) -> Activation:
    found = ACTIVATIONS.get(name)
    if found is None:
        raise Unsupported(f"activation {name!r}")
    return found


def apply_activation(call: OnnxNode, value: str, given: Sequence[float] | None = None) -> str:
    """Apply the node's activation, if it has one.

    Parameters are the list `given`, or attributes `activation_alpha` and so on.
    """
    name = call.attribute("activation")
    if not name:
        return value
    record = _activation(name)
    if given is None:
        named = {own: call.attribute(f"activation_{own}") for own in record.parameters}
        parameters = {own: number for own, number in named.items() if number is not None}
    elif len(given) > len(record.parameters):
        raise Unsupported(f"{len(given)} parameters of activation {name!r}")
    else:
        parameters = dict(zip(record.parameters, given))
    return record.build(call, value, **parameters)


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
    return apply_activation(call, product)


def activated_matmul(call: OnnxNode) -> Result:
    product = matmul(call)
    if call.attribute("activation") == "Softmax":
        return call.emit("softmax", product, axis=call.attribute("activation_axis", -1))
    return apply_activation(call, product)


def fused_convolution(call: OnnxNode) -> Result:
    """activation(x * w + b + z): z has the shape of the result."""
    made = convolution(call)
    assert isinstance(made, str)
    if call.given(3):
        made = call.emit("add", made, call.input(3))
    return apply_activation(call, made, call.attribute("activation_params") or ())


ROWS: dict[str, Row] = {
    "FusedConv": row(fused_convolution, "X W B? Z? -> Y", **FUSED_WINDOW),
    "FusedGemm": row(
        fused_gemm, "A B C? -> Y", alpha=1.0, beta=1.0, transA=0, transB=0, activation=str,
        **_ACTIVATION),
    "FusedMatMul": row(matmul, "A B -> Y", **_TRANSPOSED_BATCHES),
    "FusedMatMulActivation": row(
        activated_matmul, "A B -> Y", activation=Required(str), activation_axis=int,
        **_TRANSPOSED_BATCHES, **_ACTIVATION),
    "TransposeMatMul": row(matmul, "A B -> Y", **_TRANSPOSED),
}  # fmt: skip

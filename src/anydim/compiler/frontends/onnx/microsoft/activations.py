"""Activations fused into matrix products and convolutions, by the names of ONNX's operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode


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


def activated(call: OnnxNode, value: str, given: Sequence[float] | None = None) -> str:
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

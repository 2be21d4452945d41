"""Rows of activations, computed as the other elementwise overloads are."""

from __future__ import annotations

from anydim.frontends.builder import Value
from anydim.frontends.torch.builder import Number, TorchBuilder
from anydim.frontends.torch.record import Build
from anydim.frontends.torch.rows.elementwise import clamp


def gelu(g: TorchBuilder, x: Value, approximate: str = "none") -> Value:
    (x,) = g.worked(x)
    return g.gelu(x) if approximate == "none" else g.gelu_tanh(x)


def activation(name: str, *attributes: str) -> Build:
    """An activation whose numbers, in order, are these attributes of the library's operator."""

    def build(g: TorchBuilder, x: Value, *numbers: float) -> Value:
        given = {key: float(number) for key, number in zip(attributes, numbers)}
        return getattr(g, name)(*g.worked(x), **given)

    return build


def leaky_relu(g: TorchBuilder, x: Value, slope: float = 0.01) -> Value:
    return g.leaky_relu(*g.worked(x), alpha=float(slope))


def elu(g: TorchBuilder, x: Value, alpha: float = 1, scale: float = 1, inner: float = 1) -> Value:
    """scale * (x, or alpha * (exp(inner * x) - 1) where negative)."""
    (x,) = g.worked(x)
    if scale == 1 and inner == 1:
        return g.elu(x, alpha=float(alpha))
    below = g.mul(g.expm1(g.mul(x, float(inner))), float(alpha))
    return g.mul(g.where(g.greater(x, 0), x, below), float(scale))


def prelu(g: TorchBuilder, x: Value, weight: Value) -> Value:
    """A slope per channel (axis 1), or one slope."""
    (x, w) = g.worked(x, weight)
    if w.shape and w.shape[0].constant != 1 and len(x.shape) > 1:
        w = g.reshape(w, shape=(1, w.shape[0], *(1,) * (len(x.shape) - 2)))
    return g.prelu(x, w)


def softplus(g: TorchBuilder, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    (x,) = g.worked(x)
    moved = g.mul(x, float(beta))
    made = g.div(g.softplus(moved), float(beta))
    return g.where(g.greater(moved, float(threshold)), x, made)


def hard_tanh(g: TorchBuilder, x: Value, low: float = -1, high: float = 1) -> Value:
    return clamp(g, x, low, high)


def hard_sigmoid(g: TorchBuilder, x: Value) -> Value:
    return g.hard_sigmoid(*g.worked(x), alpha=1 / 6, beta=0.5)


def threshold(g: TorchBuilder, x: Value, limit: Number, value: Number) -> Value:
    return g.where(g.greater(x, g.operand(limit, x.dtype)), x, g.operand(value, x.dtype))


def hard_shrink(g: TorchBuilder, x: Value, lambd: float = 0.5) -> Value:
    inside = g.logical_and(g.greater_equal(x, -float(lambd)), g.less_equal(x, float(lambd)))
    return g.where(inside, g.scalar(0, x.dtype), x)


def log_sigmoid(g: TorchBuilder, x: Value) -> list[Value]:
    """(log sigmoid x, exp -|x|, which torch's gradient takes on CPUs)."""
    (x,) = g.worked(x)
    return [g.neg(g.softplus(g.neg(x))), g.exp(g.neg(g.abs(x)))]


def swish(g: TorchBuilder, x: Value) -> Value:
    return g.swish(*g.worked(x))


ROWS: dict[str, Build] = {
    "gelu.default": gelu, "silu.default": swish, "elu.default": elu,
    "celu.default": activation("celu", "alpha"),
    "leaky_relu.default": leaky_relu, "_prelu_kernel.default": prelu, "prelu.default": prelu,
    "softplus.default": softplus, "hardtanh.default": hard_tanh,
    "hardsigmoid.default": hard_sigmoid, "threshold.default": threshold,
    "hardshrink.default": hard_shrink, "log_sigmoid_forward.default": log_sigmoid,
}  # fmt: skip

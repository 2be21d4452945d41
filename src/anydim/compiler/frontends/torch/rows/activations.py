"""Rows of activations, computed as the other elementwise overloads are."""

from __future__ import annotations

from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import (
    Build,
    Operand,
    TorchBuilder,
    is_known,
    is_number,
)
from anydim.compiler.frontends.torch.rows.elementwise import clamp


def gelu(g: TorchBuilder, x: Value, approximate: str = "none") -> Value:
    (x,) = g.to_working(x)
    return g.gelu(x) if approximate == "none" else g.gelu_tanh(x)


def activation(name: str, *attributes: str) -> Build:
    """An activation whose numbers, in order, are these attributes of the library's operator."""

    def build(g: TorchBuilder, x: Value, *numbers: float) -> Value:
        given = {key: float(number) for key, number in zip(attributes, numbers)}
        return getattr(g, name)(*g.to_working(x), **given)

    return build


def leaky_relu(g: TorchBuilder, x: Value, slope: Operand = 0.01) -> Value:
    (x,) = g.to_working(x)
    if is_known(slope):
        return g.leaky_relu(x, alpha=float(slope))
    return g.where(g.greater(x, 0), x, g.mul(x, g.operand(slope, x.dtype)))


def elu(
    g: TorchBuilder, x: Value, alpha: Operand = 1, scale: Operand = 1, inner: Operand = 1
) -> Value:
    """scale * (x, or alpha * (exp(inner * x) - 1) where negative)."""
    (x,) = g.to_working(x)
    if is_known(alpha) and is_number(scale, 1) and is_number(inner, 1):
        return g.elu(x, alpha=float(alpha))
    alpha, scale, inner = (g.operand(each, x.dtype) for each in (alpha, scale, inner))
    below = g.mul(g.expm1(g.mul(x, inner)), alpha)
    return g.mul(g.where(g.greater(x, 0), x, below), scale)


def prelu(g: TorchBuilder, x: Value, weight: Value) -> Value:
    """A slope per channel (axis 1), or one slope."""
    (x, w) = g.to_working(x, weight)
    if w.shape and w.shape[0].constant != 1 and len(x.shape) > 1:
        w = g.reshape(w, shape=(1, w.shape[0], *(1,) * (len(x.shape) - 2)))
    return g.prelu(x, w)


def softplus(g: TorchBuilder, x: Value, beta: Operand = 1, threshold: Operand = 20) -> Value:
    (x,) = g.to_working(x)
    beta, threshold = (g.operand(each, x.dtype) for each in (beta, threshold))
    moved = g.mul(x, beta)
    made = g.div(g.softplus(moved), beta)
    return g.where(g.greater(moved, threshold), x, made)


def hard_sigmoid(g: TorchBuilder, x: Value) -> Value:
    return g.hard_sigmoid(*g.to_working(x), alpha=1 / 6, beta=0.5)


def threshold(g: TorchBuilder, x: Value, limit: Operand, value: Operand) -> Value:
    return g.where(g.greater(x, g.operand(limit, x.dtype)), x, g.operand(value, x.dtype))


def hard_shrink(g: TorchBuilder, x: Value, lambd: Operand = 0.5) -> Value:
    limit = g.operand(lambd, x.dtype)
    inside = g.logical_and(g.greater_equal(x, g.neg(limit)), g.less_equal(x, limit))
    return g.where(inside, g.scalar(0, x.dtype), x)


def log_sigmoid(g: TorchBuilder, x: Value) -> list[Value]:
    """(log sigmoid x, exp -|x|, which torch's gradient takes on CPUs)."""
    (x,) = g.to_working(x)
    return [g.neg(g.softplus(g.neg(x))), g.exp(g.neg(g.abs(x)))]


ROWS: dict[str, Build] = {
    "gelu.default": gelu, "silu.default": activation("swish"), "elu.default": elu,
    "celu.default": activation("celu", "alpha"),
    "leaky_relu.default": leaky_relu, "_prelu_kernel.default": prelu, "prelu.default": prelu,
    "softplus.default": softplus,
    "hardtanh.default": lambda g, x, low=-1, high=1: clamp(g, x, low, high),

    "hardsigmoid.default": hard_sigmoid, "threshold.default": threshold,
    "hardshrink.default": hard_shrink, "log_sigmoid_forward.default": log_sigmoid,
}  # fmt: skip

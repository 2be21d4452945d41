"""Rows of normalisations. 16-bit floats are normalised in float32."""

from __future__ import annotations

from typing import Any

from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import Build, Sizes, TorchBuilder
from anydim.compiler.frontends.torch.promotion import working
from anydim.sizes import maximum, product


def layer_norm(
    g: TorchBuilder, x: Value, shape: Sizes, weight: Value | None = None,
    bias: Value | None = None, epsilon: float = 1e-5, *_: Any,
) -> list[Value]:  # fmt: skip
    """(normalised x, mean, 1 / deviation), or the first alone for an overload with one result."""
    work = working(x.dtype)
    scale = g.fill_shape(shape, 1, work) if weight is None else g.as_type(weight, work)
    given = [g.as_type(x, work), scale]
    if bias is not None:
        given.append(g.as_type(bias, work))
    attributes = {"axis": -len(shape), "epsilon": float(epsilon), "statistics": g.parts > 1}
    made = g.layer_norm(*given, **attributes)
    return list(made) if isinstance(made, tuple) else [made]


def rms_norm(
    g: TorchBuilder, x: Value, shape: Sizes, weight: Value | None = None,
    epsilon: float | None = None,
) -> list[Value]:  # fmt: skip
    """(x over the root of the mean of its squares, the reciprocal of the root)."""
    import numpy

    work = working(x.dtype)
    own = g.as_type(x, work)
    axes = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    square = g.reduce_mean(g.mul(own, own), axes=axes, keepdims=True)
    small = float(numpy.finfo(work.numpy).eps) if epsilon is None else float(epsilon)
    inverse = g.reciprocal(g.sqrt(g.add(square, small)))
    made = g.mul(own, inverse)
    return [made if weight is None else g.mul(made, g.as_type(weight, work)), inverse]


def _channels(g: TorchBuilder, value: Value | None, x: Value, number: float) -> Value:
    """A number per channel (axis 1), in the working type."""
    work = working(x.dtype)
    if value is None:
        return g.fill_shape((x.shape[1],), number, work)
    return g.as_type(value, work)


def batch_norm_inference(
    g: TorchBuilder, x: Value, weight: Value | None, bias: Value | None, mean: Value,
    variance: Value, momentum: float, epsilon: float,
) -> list[Value]:  # fmt: skip
    return [_batch_normed(g, x, weight, bias, mean, variance, epsilon),
            *(g.fill_shape((0,), 0, working(x.dtype)) for _ in range(2))]  # fmt: skip


def _batch_normed(
    g: TorchBuilder, x: Value, weight: Value | None, bias: Value | None, mean: Value,
    variance: Value, epsilon: float,
) -> Value:  # fmt: skip
    numbers = ((weight, 1.0), (bias, 0.0), (mean, 0.0), (variance, 1.0))
    given = [_channels(g, value, x, number) for value, number in numbers]
    return g.batch_norm(g.as_type(x, working(x.dtype)), *given, epsilon=float(epsilon))


def batch_norm(
    g: TorchBuilder, x: Value, weight: Value | None, bias: Value | None, mean: Value | None,
    variance: Value | None, training: bool, momentum: float, epsilon: float, *_: Any,
) -> list[Value]:  # fmt: skip
    """(normalised x, mean, 1 / deviation, new running mean, new running variance)."""
    if not training and mean is not None and variance is not None:
        fixed = batch_norm_inference(g, x, weight, bias, mean, variance, momentum, epsilon)
        return [*fixed, mean, variance]
    work = working(x.dtype)
    own = g.as_type(x, work)
    axes = (0, *range(2, len(x.shape)))
    own_mean = g.reduce_mean(own, axes=axes)
    away = g.sub(own, g.reduce_mean(own, axes=axes, keepdims=True))
    own_variance = g.reduce_mean(g.mul(away, away), axes=axes)
    made = _batch_normed(g, x, weight, bias, own_mean, own_variance, epsilon)
    inverse = g.reciprocal(g.sqrt(g.add(own_variance, float(epsilon))))
    results = [made, own_mean, inverse]
    if mean is not None and variance is not None:
        count = product(x.shape[axis] for axis in axes)
        ratio = g.div(g.scalar(count, work), g.scalar(maximum(count - 1, 1), work))
        unbiased = g.mul(own_variance, ratio)
        pairs = ((mean, own_mean), (variance, unbiased))
        results += [_running_average(g, old, new, momentum) for old, new in pairs]
    return results


def batch_norm_no_statistics(
    g: TorchBuilder, x: Value, weight: Value | None, bias: Value | None, training: bool,
    momentum: float, epsilon: float,
) -> list[Value]:  # fmt: skip
    return batch_norm(g, x, weight, bias, None, None, True, momentum, epsilon)


def _running_average(g: TorchBuilder, old: Value, new: Value, momentum: float) -> Value:
    kept = g.mul(old, g.scalar(1 - momentum, old.dtype))
    return g.add(kept, g.mul(g.as_type(new, old.dtype), g.scalar(momentum, old.dtype)))


def group_norm(
    g: TorchBuilder, x: Value, groups: int, weight: Value | None = None,
    bias: Value | None = None, epsilon: float = 1e-5, *_: Any,
) -> list[Value]:  # fmt: skip
    """(groups of channels normalised together and scaled per channel, means, 1 / deviations)."""
    work = working(x.dtype)
    batch, channels, *rest = x.shape
    inner = channels // groups * product(rest)
    parts = g.reshape(g.as_type(x, work), shape=(batch, groups, inner))
    mean = g.reduce_mean(parts, axes=(2,), keepdims=True)
    away = g.sub(parts, mean)
    variance = g.reduce_mean(g.mul(away, away), axes=(2,), keepdims=True)
    inverse = g.reciprocal(g.sqrt(g.add(variance, float(epsilon))))
    made = g.reshape(g.mul(away, inverse), shape=x.shape)
    shape = (1, channels, *(1,) * len(rest))
    if weight is not None:
        made = g.mul(made, g.reshape(g.as_type(weight, work), shape=shape))
    if bias is not None:
        made = g.add(made, g.reshape(g.as_type(bias, work), shape=shape))
    flat = [g.reshape(each, shape=(batch, groups)) for each in (mean, inverse)]
    return [made, *flat]


def native_group_norm(
    g: TorchBuilder, x: Value, weight: Value | None, bias: Value | None, batch: Any, channels: Any,
    inner: Any, groups: int, epsilon: float,
) -> list[Value]:  # fmt: skip
    return group_norm(g, x, groups, weight, bias, epsilon)


def instance_norm(
    g: TorchBuilder, x: Value, weight: Value | None, bias: Value | None, mean: Value | None,
    variance: Value | None, by_input: bool, momentum: float, epsilon: float, *_: Any,
) -> Value:  # fmt: skip
    if not by_input and mean is not None and variance is not None:
        return _batch_normed(g, x, weight, bias, mean, variance, epsilon)
    work = working(x.dtype)
    scale, shift = _channels(g, weight, x, 1.0), _channels(g, bias, x, 0.0)
    return g.instance_norm(g.as_type(x, work), scale, shift, epsilon=float(epsilon))


def weight_norm_backward(
    g: TorchBuilder, gradient: Value, direction: Value, length: Value, norms: Value, dim: int
) -> list[Value]:
    """Gradients of the direction and the length of length * direction / norm of the direction."""
    axis = dim % len(direction.shape)
    others = tuple(each for each in range(len(direction.shape)) if each != axis)
    norms = g.as_type(norms, gradient.dtype)
    along = g.reduce_sum(g.mul(gradient, direction), axes=others, keepdims=True)
    across = g.sub(gradient, g.mul(direction, g.div(along, g.mul(norms, norms))))
    return [g.mul(g.div(length, norms), across), g.div(along, norms)]


ROWS: dict[str, Build] = {
    "_weight_norm_interface_backward.default": weight_norm_backward,
    "layer_norm.default": layer_norm, "native_layer_norm.default": layer_norm,
    "rms_norm.default": rms_norm, "_fused_rms_norm.default": rms_norm,
    "batch_norm.default": batch_norm, "native_batch_norm.default": batch_norm,
    "_native_batch_norm_legit_no_training.default": batch_norm_inference,
    "_native_batch_norm_legit_functional.default": batch_norm,
    "_native_batch_norm_legit.no_stats": batch_norm_no_statistics,
    "group_norm.default": group_norm, "native_group_norm.default": native_group_norm,
    "instance_norm.default": instance_norm,
}  # fmt: skip

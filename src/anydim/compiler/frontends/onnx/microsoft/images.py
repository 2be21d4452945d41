"""Operators on images in channels-last layout: convolutions, group normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.microsoft.fused import FUSED_WINDOW, WINDOW, apply_activation
from anydim.compiler.frontends.onnx.microsoft.record import Required, Row, row
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.norms import working
from anydim.compiler.frontends.onnx.operators.windows import window_attributes
from anydim.sizes import Size, product

_GROUPS: dict[str, Any] = {
    "activation": Required(int), "channels_last": 1, "epsilon": 1e-5, "groups": Required(int),
}  # fmt: skip


def channels_first(call: OnnxNode, value: str) -> str:
    """[n, ..., c] as [n, c, ...]."""
    rank = call.kind(value).rank
    return call.emit("transpose", value, perm=(0, rank - 1, *range(1, rank - 1)))


def channels_last(call: OnnxNode, value: str) -> str:
    """[n, c, ...] as [n, ..., c]."""
    rank = call.kind(value).rank
    return call.emit("transpose", value, perm=(0, *range(2, rank), 1))


def convolution(call: OnnxNode) -> Result:
    """Weights [out, ..., in]."""
    return _convolution(call, channels_first(call, call.input(1)))


def fused_convolution(call: OnnxNode) -> Result:
    """Weights [out, in, ...]; z has the shape of the result."""
    made = _convolution(call, call.input(1))
    if call.given(3):
        made = call.emit("add", made, call.input(3))
    return apply_activation(call, made, call.attribute("activation_params") or ())


def _convolution(call: OnnxNode, weights: str) -> str:
    inputs = channels_first(call, call.input(0)), weights, *call.given_inputs(2)
    wanted = call.attribute("kernel_shape")
    kernel = call.kind(weights).shape[2:]
    if wanted and tuple(size.constant for size in kernel) not in (wanted, (None,) * len(kernel)):
        raise Unsupported(f"kernel_shape {wanted} for weights of {call.type(1)}")
    made = call.emit("conv", *inputs, groups=call.attribute("group"), **window_attributes(call))
    return channels_last(call, made)


def group_norm(call: OnnxNode) -> Result:
    return _normalise(call, call.input(0))


def skip_group_norm(call: OnnxNode) -> Sequence[Result]:
    """The sum of x, skip and bias, normalised; and the sum. A skip may be [n, c]."""
    skip, rank = call.input(3), call.type(0).rank
    if call.type(3).rank == 2:
        first = 1 if call.attribute("channels_last") else 2
        skip = call.emit("unsqueeze", skip, axes=tuple(range(first, first + rank - 2)))
    total = call.emit("add", call.input(0), skip)
    if call.given(4):
        total = call.emit("add", total, _per_channel(call, call.input(4), rank))
    return [_normalise(call, total), total]


def _normalise(call: OnnxNode, value: str) -> str:
    """Normalise to mean 0 and variance 1 over the pixels and channels of each group."""
    kind = call.kind(value)
    work = working(kind.dtype)
    parts, axes = _by_groups(call, kind.shape)
    x = call.emit("reshape", call.as_type(value, work), shape=parts)
    centered = call.emit("sub", x, call.emit("reduce_mean", x, axes=axes, keepdims=True))
    square = call.emit(
        "reduce_mean", call.emit("mul", centered, centered), axes=axes, keepdims=True
    )
    moved = call.emit("add", square, call.number(call.attribute("epsilon"), work))
    inverse = call.emit("reciprocal", call.emit("sqrt", moved))
    made = call.emit("reshape", call.emit("mul", centered, inverse), shape=kind.shape)
    for position, operator in ((1, "mul"), (2, "add")):
        own = call.as_type(call.input(position), work)
        made = call.emit(operator, made, _per_channel(call, own, kind.rank))
    if call.attribute("activation"):
        made = call.emit("swish", made)
    return call.as_type(made, kind.dtype)


def _by_groups(call: OnnxNode, shape: Sequence[Size]) -> tuple[tuple[Size | int, ...], Any]:
    """The shape with groups of channels as an axis, and the axes of a group."""
    groups, last = call.attribute("groups"), call.attribute("channels_last")
    if groups < 1:
        raise Unsupported(f"groups {groups}")
    if last:
        return (shape[0], product(shape[1:-1]), groups, shape[-1] // groups), (1, 3)
    return (shape[0], groups, shape[1] // groups, product(shape[2:])), (2, 3)


def _per_channel(call: OnnxNode, value: str, rank: int) -> str:
    """A vector of one number per channel, broadcast to images."""
    if call.attribute("channels_last"):
        return value
    return call.emit("unsqueeze", value, axes=tuple(range(1, rank - 1)))


ROWS: dict[str, Row] = {
    "GroupNorm": row(group_norm, "X gamma beta -> Y", **_GROUPS),
    "NhwcConv": row(convolution, "X W B? -> Y", **WINDOW),
    "NhwcFusedConv": row(fused_convolution, "X W B? Z? -> Y", **FUSED_WINDOW),
    "SkipGroupNorm": row(skip_group_norm, "X gamma beta skip bias? -> Y S?", **_GROUPS),
}  # fmt: skip

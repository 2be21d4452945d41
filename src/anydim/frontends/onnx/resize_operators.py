"""Rows of ONNX operators that make grids of other sizes: Resize and ConvTranspose."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy

from anydim.frontends.onnx.call import Call, Result
from anydim.frontends.onnx.tensors import Unsupported
from anydim.sizes import Size, as_size, maximum, simplify


def resize(call: Call) -> Result:
    """Scales are numbers, sizes may be size expressions."""
    old = call.opset < 11
    rank, shape = call.type(0).rank, call.shape(0)
    for name, usual in (("antialias", 0), ("keep_aspect_ratio_policy", "stretch")):
        if call.attribute(name, usual) != usual:
            raise Unsupported(f"{name} {call.attribute(name)!r}")
    axes = call.attribute("axes") or range(rank)
    if sorted({axis % rank for axis in axes}) != sorted(axis % rank for axis in axes):
        raise Unsupported(f"axes {tuple(axes)} of {rank} axes")
    sizes: list[Size] = list(shape)
    scales: list[float] | None = None
    given = 1 if old else 2
    if not old and call.given(3):
        wanted = call.sizes(3)
        for axis, size in zip(axes, _as_many(wanted, axes)):
            sizes[axis] = size
    else:
        scales = [1.0] * rank
        numbers = call.known(given).reshape(-1)
        if numbers.dtype == object:
            raise Unsupported("scales that depend on a dim; give sizes")
        for axis, scale in zip(axes, _as_many(numbers.tolist(), axes)):
            if not numpy.isfinite(scale) or scale <= 0:
                raise Unsupported(f"scale {scale}")
            scales[axis] = scale
            exact = Fraction(scale)
            sizes[axis] = shape[axis] * exact.numerator // exact.denominator
    coordinates = call.attribute("coordinate_transformation_mode", "asymmetric")
    rounding = call.attribute("nearest_mode", "floor")
    return call.emit(
        "resize", call.input(0), sizes=sizes, scales=scales, mode=call.attribute("mode"),
        coordinates=coordinates, rounding=rounding,
        cubic=call.attribute("cubic_coeff_a", -0.75),
        exclude_outside=bool(call.attribute("exclude_outside", 0)),
    )  # fmt: skip


def _as_many(values: Sequence[Any], axes: Sequence[int]) -> Sequence[Any]:
    if len(values) != len(axes):
        raise Unsupported(f"{len(values)} sizes or scales for {len(axes)} axes")
    return values


def convolution_transpose(call: Call) -> Result:
    """The sizes of the result, or the padding that leads to sizes that are asked for."""
    rank, shape, kernel = call.type(0).rank - 2, call.shape(0)[2:], call.shape(1)[2:]
    strides = call.attribute("strides") or (1,) * rank
    dilations = call.attribute("dilations") or (1,) * rank
    more = call.attribute("output_padding") or (0,) * rank
    pads = call.attribute("pads") or (0,) * (2 * rank)
    padding, wanted = call.attribute("auto_pad", "NOTSET"), call.attribute("output_shape")
    rows = (strides, dilations, more, pads[::2], wanted or strides)
    if not all(len(row) == rank for row in rows) or padding not in _PADDINGS:
        raise Unsupported(f"attributes that do not fit {rank} axes")
    before: list[Size] = []
    sizes: list[Size] = []
    for axis in range(rank):
        full = (shape[axis] - 1) * strides[axis] + more[axis]
        full = full + (kernel[axis] - 1) * dilations[axis] + 1
        size = full - pads[axis] - pads[rank + axis]
        first = as_size(pads[axis])
        if wanted or padding.startswith("SAME"):
            size = as_size(wanted[axis]) if wanted else shape[axis] * strides[axis]
            total = maximum(full - size, 0)
            first = total // 2 if padding == "SAME_UPPER" else total - total // 2
        before.append(simplify(first, call.emitter.box))
        sizes.append(simplify(maximum(size, 0), call.emitter.box))
    inputs = [call.input(0), call.input(1)] + ([call.input(2)] if call.given(2) else [])
    return call.emit(
        "conv_transpose", *inputs, strides=strides, dilations=dilations, before=before,
        sizes=sizes, groups=call.attribute("group", 1),
    )  # fmt: skip


_PADDINGS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")

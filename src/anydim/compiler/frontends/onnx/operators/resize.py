"""Rows of ONNX operators that change grid sizes or sample between elements."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy

from anydim.base.dtypes import DType, boolean, float32, float64, int64
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.values.data_sizes import sizes_of
from anydim.sizes import Size, as_size, maximum, minimum, simplify


def resize(call: OnnxNode) -> Result:
    """Scales are numbers, sizes may be size expressions."""
    old = call.opset < 11
    rank, shape = call.type(0).rank, call.shape(0)
    axes = [axis % max(rank, 1) for axis in call.attribute("axes") or range(rank)]
    if len(set(axes)) != len(axes):
        raise Unsupported(f"axes {tuple(axes)} of {rank} axes")
    sizes: list[Size] = list(shape)
    scales: list[float] | None = None
    given = 1 if old else 2
    if not old and call.given(3):
        wanted = list(_as_many(call.sizes(3), axes))
        for size in wanted:
            if size.constant is not None and size.constant < 0:
                raise Unsupported(f"size {size}")
        policy = call.attribute("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            return _kept_ratio(call, policy, axes, wanted)
        for axis, size in zip(axes, wanted):
            sizes[axis] = size
    elif not _has_scale_attribute(call) and call.input(given) not in call.emitter.known:
        return _resize_by_data(call, given, axes)
    else:
        scales = [1.0] * rank
        for axis, scale in zip(axes, _as_many(_scales(call, given), axes)):
            scales[axis] = scale
            exact = Fraction(scale)
            sizes[axis] = shape[axis] * exact.numerator // exact.denominator
    return _resize(call, axes, sizes, scales, None)


def _resize(
    call: OnnxNode, axes: Sequence[int], sizes: Sequence[Size], scales: Sequence[float] | None,
    factors: str | None,
) -> Result:  # fmt: skip
    coordinates = call.attribute("coordinate_transformation_mode", "asymmetric")
    dtype, nearest = call.type(0).dtype, call.attribute("mode", "nearest") == "nearest"
    floats = dtype if nearest or dtype.is_float else float64
    inputs = [call.as_type(call.input(0), floats)] + ([factors] if factors else [])
    if coordinates == "tf_crop_and_resize":
        coordinates = "crop"
        inputs.append(_crop_region(call, axes, call.type(0).rank))
    made = call.emit(
        "resize", *inputs, sizes=sizes, scales=scales, mode=call.attribute("mode"),
        scaled=factors is not None, coordinates=coordinates,
        rounding=call.attribute("nearest_mode", "floor"),
        cubic=call.attribute("cubic_coeff_a", -0.75),
        exclude_outside=bool(call.attribute("exclude_outside", 0)),
        antialias=bool(call.attribute("antialias", 0)),
        outside=call.attribute("extrapolation_value", 0.0),
    )  # fmt: skip
    return made if floats == dtype else _as_integers(call, made, dtype)


def _as_integers(call: OnnxNode, made: str, dtype: DType) -> str:
    """Round to integers, saturated to the range of the type."""
    return call.as_type(made if dtype == boolean else call.emit("round", made), dtype)


def _resize_by_data(call: OnnxNode, position: int, axes: Sequence[int]) -> Result:
    """Resize by run-time scales: the sizes are bound when the node runs."""
    if [call.emitter.constant(size) for size in call.shape(position)] != [len(axes)]:
        raise Unsupported(f"scales of type {call.type(position)} for {len(axes)} axes")
    shape, rank = call.shape(0), call.type(0).rank
    dtype = call.type(position).dtype
    own = call.emit("size_tensor", values=[shape[axis] for axis in axes], dtype=dtype)
    wanted = call.emit("floor", call.emit("mul", own, call.input(position)))
    found = sizes_of(call, call.nodes, call.emit("cast", wanted, to=int64))
    sizes = list(shape)
    for axis, size in zip(axes, found):
        sizes[axis] = size
    factors = call.input(position)
    if list(axes) != list(range(rank)):
        indices = [axes.index(axis) if axis in axes else len(axes) for axis in range(rank)]
        factors = _spread(call, factors, indices)
    return _resize(call, axes, sizes, None, factors)


def _has_scale_attribute(call: OnnxNode) -> bool:
    """Whether the scales are an attribute: in Upsample before opset 9."""
    return call.operator == "Upsample" and call.opset < 9


def _scales(call: OnnxNode, position: int) -> list[float]:
    if _has_scale_attribute(call):
        numbers: list[Any] = list(call.attribute("scales"))
    else:
        array = call.known(position).reshape(-1)
        if array.dtype == object:
            raise Unsupported("scales that depend on a dim; give sizes")
        numbers = array.tolist()
    for scale in numbers:
        if not numpy.isfinite(scale) or scale <= 0:
            raise Unsupported(f"scale {scale}")
    return numbers


def _kept_ratio(call: OnnxNode, policy: str, axes: Sequence[int], wanted: Sequence[Size]) -> Result:
    """Scale all axes by one factor, so that they fit into the sizes or cover them."""
    choices = {"not_larger": (minimum, "arg_min"), "not_smaller": (maximum, "arg_max")}
    if policy not in choices:
        raise Unsupported(f"keep_aspect_ratio_policy {policy!r}")
    choose, operator = choices[policy]
    shape = call.shape(0)
    own = [shape[axis] for axis in axes]
    sizes = list(shape)
    for axis in axes:
        rounded = [
            (2 * shape[axis] * size + other) // (2 * maximum(other, 1))
            for other, size in zip(own, wanted)
        ]
        sizes[axis] = simplify(choose(*rounded), call.emitter.box)
    above = call.emit("size_tensor", values=wanted, dtype=float64)
    below = call.emit("size_tensor", values=own, dtype=float64)
    best = call.emit(operator, call.emit("div", above, below), axis=0, keepdims=True, last=False)
    indices = [0 if axis in axes else 1 for axis in range(len(shape))]
    ratio = [_spread(call, call.emit("gather", extents, best, axis=0), indices)
             for extents in (above, below)]  # fmt: skip
    return _resize(call, axes, sizes, None, call.emit("concat", *ratio, axis=0))


def _spread(call: OnnxNode, factors: str, indices: Sequence[int]) -> str:
    """A factor per axis: `indices` selects from `factors`; one past the end selects 1."""
    one = call.emit("fill", shape=(1,), value=1.0, dtype=call.emitter.types[factors].dtype)
    both = call.emit("concat", factors, one, axis=0)
    return call.emit("gather", both, call.numbers(indices), axis=0)


def _crop_region(call: OnnxNode, axes: Sequence[int], rank: int) -> str:
    """The crop region, starts then ends of all axes, from that of some axes."""
    count = len(axes)
    if [size.constant for size in call.shape(1)] != [2 * count]:
        raise Unsupported(f"a part to crop of type {call.type(1)} for {count} axes")
    if list(axes) == list(range(rank)):
        return call.input(1)
    dtype = call.type(1).dtype
    whole = call.emit("fill", shape=(2,), value=0.0, dtype=dtype)
    ones = call.emit("fill", shape=(2,), value=1.0, dtype=dtype)
    both = call.emit("concat", call.input(1), whole, ones, axis=0)
    indices = [axes.index(a) if a in axes else 2 * count for a in range(rank)]
    indices += [count + axes.index(a) if a in axes else 2 * count + 2 for a in range(rank)]
    return call.emit("gather", both, call.numbers(indices), axis=0)


def _as_many(values: Sequence[Any], axes: Sequence[int]) -> Sequence[Any]:
    if len(values) != len(axes):
        raise Unsupported(f"{len(values)} sizes or scales for {len(axes)} axes")
    return values


def convolution_transpose(call: OnnxNode) -> Result:
    """The sizes of the result, or the padding for the requested sizes."""
    rank, shape, kernel = call.type(0).rank - 2, call.shape(0)[2:], call.shape(1)[2:]
    strides = call.attribute("strides") or (1,) * rank
    dilations = call.attribute("dilations") or (1,) * rank
    more = call.attribute("output_padding") or (0,) * rank
    pads = call.attribute("pads") or (0,) * (2 * rank)
    padding, wanted = call.attribute("auto_pad", "NOTSET"), call.attribute("output_shape")
    rows = (strides, dilations, more, pads[::2], wanted or strides)
    fits = len(shape) == len(kernel) == rank and len(pads) == 2 * rank
    if not fits or not all(len(row) == rank for row in rows) or padding not in _PADDINGS:
        raise Unsupported(f"attributes that do not fit {rank} axes")
    if min(*strides, *dilations, call.attribute("group", 1)) < 1:
        raise Unsupported(f"strides {strides}, dilations {dilations}, below 1")
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
    inputs = call.input(0), call.input(1), *call.given_inputs(2)
    return call.emit(
        "conv_transpose", *inputs, strides=strides, dilations=dilations, before=before,
        sizes=sizes, groups=call.attribute("group", 1),
    )  # fmt: skip


_PADDINGS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


_MODES = {
    "bilinear": "linear", "linear": "linear", "nearest": "nearest", "bicubic": "cubic",
    "cubic": "cubic",
}  # fmt: skip


def grid_sample(call: OnnxNode) -> Result:
    mode = call.attribute("mode", "linear")
    if mode not in _MODES:
        raise Unsupported(f"mode {mode!r}")
    flags = call.type(0).dtype == boolean  # a fraction of true is true
    x = call.as_type(call.input(0), float32) if flags else call.input(0)
    made = call.emit(
        "grid_sample", x, call.input(1), mode=_MODES[mode],
        padding=call.attribute("padding_mode"), corners=bool(call.attribute("align_corners")),
    )  # fmt: skip
    return call.as_type(made, call.type(0).dtype)


def affine_grid(call: OnnxNode) -> Result:
    sizes = call.sizes(1)
    return call.emit(
        "affine_grid", call.input(0), sizes=sizes[2:],
        corners=bool(call.attribute("align_corners")),
    )  # fmt: skip


def roi_align(call: OnnxNode) -> Result:
    samples = call.attribute("sampling_ratio")
    if samples < 1:
        raise Unsupported("sampling_ratio 0, whose sample count depends on data")
    transformation = call.attribute("coordinate_transformation_mode", "output_half_pixel")
    sizes = call.attribute("output_height"), call.attribute("output_width")
    return call.emit(
        "roi_align", call.input(0), call.input(1), call.input(2), sizes=sizes, samples=samples,
        scale=call.attribute("spatial_scale"), half_pixel=transformation == "half_pixel",
        largest=call.attribute("mode") == "max",
    )  # fmt: skip


def deformable_convolution(call: OnnxNode) -> Result:
    biased, masked = call.given(3), call.given(4)
    inputs = [call.input(position) for position in range(5) if call.given(position)]
    per_axis = {name: call.attribute(name) for name in ("strides", "dilations", "pads")}
    return call.emit(
        "deform_conv", *inputs, groups=call.attribute("group"), biased=biased, masked=masked,
        offset_groups=call.attribute("offset_group"),
        **{name: value for name, value in per_axis.items() if value},
    )  # fmt: skip

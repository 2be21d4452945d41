"""Rows of ONNX operators that sample between elements: grids, regions, deformable convolutions."""

from __future__ import annotations

from anydim.base.dtypes import boolean, float32
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result

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

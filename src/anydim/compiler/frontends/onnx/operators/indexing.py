"""Rows of operators that scatter, and of those whose result sizes depend on data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydim.base.dtypes import int64
from anydim.compiler.frontends.data_sized import compress, non_max_suppression, nonzero, unique
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.whole_numbers import bools_as_integers


def scatter(name: str) -> Callable[[OnnxNode], Result]:
    """Scatter, ScatterElements and ScatterND: x, indices, updates."""

    def build(call: OnnxNode) -> Result:
        attributes = {"reduction": call.attribute("reduction", "none") or "none"}
        if name == "scatter_elements":
            attributes["axis"] = call.attribute("axis", 0)
        x, updates = call.input(0), call.input(2)
        if attributes["reduction"] != "none":  # of bools: or, and
            x, updates = bools_as_integers(call, 0), bools_as_integers(call, 2)
        indices = call.with_constant_end(1) if name == "scatter_nd" else call.input(1)
        made = call.emit(name, x, indices, updates, **attributes)
        return call.as_type(made, call.type(0).dtype)

    return build


def tensor_scatter(call: OnnxNode) -> Result:
    """past_cache, update, write_indices; without the last, entries start at 0."""
    mode = call.attribute("mode", "linear")
    if mode not in ("linear", "circular"):
        raise Unsupported(f"mode {mode!r}")
    if call.given(2):
        indices = call.input(2)
    else:
        zero = call.number(0, int64)
        indices = call.emit("expand", zero, shape=(call.shape(0)[0],))
    return call.emit(
        "tensor_scatter", call.input(0), indices, call.input(1),
        axis=call.attribute("axis", -2), circular=mode == "circular",
    )  # fmt: skip


def non_zero(call: OnnxNode) -> Result:
    return nonzero(call, call.input(0))


def compress_slices(call: OnnxNode) -> Result:
    axis = call.attribute("axis")
    own = axis if axis is None else call.axis(axis)
    if call.type(1).rank != 1:
        raise Unsupported(f"a condition of type {call.type(1)}")
    return compress(call, call.input(0), call.input(1), own)


def unique_elements(call: OnnxNode) -> Sequence[Result]:
    axis = call.attribute("axis")
    own = axis if axis is None else call.axis(axis)
    outputs = [*call.outputs, "", "", ""]
    requested = [bool(name) for name in outputs[1:4]]
    in_order = bool(call.attribute("sorted", 1))
    return list(unique(call, call.input(0), own, in_order, requested))


def suppressed_boxes(call: OnnxNode) -> Result:
    """NonMaxSuppression; the number of boxes defaults to 0."""
    usual = ((2, 0, int64), (3, 0.0, call.type(0).dtype))
    scalars = [
        call.input(position) if call.given(position) else call.number(number, dtype)
        for position, number, dtype in usual
    ]
    scalars += call.given_inputs(4)
    center = bool(call.attribute("center_point_box", 0))
    return non_max_suppression(call, call.input(0), call.input(1), *scalars, center=center)


def top_k(call: OnnxNode) -> Sequence[Result]:
    """TopK; k is an attribute before opset 10."""
    axis = call.attribute("axis", -1)
    call.axis(axis)
    if call.opset < 10:
        k = call.attribute("k")
    else:
        known = call.element(1)
        (k,) = call.sizes(1, 1)
        if k != known:
            call.constrain(call.shape(0)[axis] - k)
    return call.emit_many(
        "top_k", 2, call.input(0), k=k, axis=axis, largest=bool(call.attribute("largest", 1)),
        sorted=bool(call.attribute("sorted", 1)),
    )  # fmt: skip

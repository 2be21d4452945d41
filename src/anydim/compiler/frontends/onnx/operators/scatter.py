"""Rows of the ONNX operators that scatter."""

from __future__ import annotations

from collections.abc import Callable

from anydim.base.dtypes import int64
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

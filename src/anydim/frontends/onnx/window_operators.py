"""Rows of ONNX operators that slide a window, or norm what lies along the axes after the second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anydim.frontends.onnx.call import Call, Result
from anydim.frontends.onnx.tensors import Unsupported
from anydim.sizes import as_size

_PADDINGS = {"SAME_UPPER": "same_upper", "SAME_LOWER": "same_lower", "VALID": "valid"}


def window_attributes(call: Call) -> dict[str, Any]:
    """The attributes that convolution and pooling share."""
    attributes: dict[str, Any] = {}
    for name in ("strides", "dilations"):
        if call.attribute(name):
            attributes[name] = call.attribute(name)
    padding = call.attribute("auto_pad", "NOTSET")
    if padding != "NOTSET":
        if padding not in _PADDINGS:
            raise Unsupported(f"auto_pad {padding!r}")
        attributes["pads"] = _PADDINGS[padding]
    elif call.attribute("pads"):
        attributes["pads"] = call.attribute("pads")
    return attributes


def convolution(call: Call) -> Result:
    inputs = [call.input(0), call.input(1)] + ([call.input(2)] if call.given(2) else [])
    check_kernel(call, 1)
    return call.emit("conv", *inputs, groups=call.attribute("group", 1), **window_attributes(call))


def check_kernel(call: Call, weights: int) -> None:
    """Raise Unsupported where the attribute kernel_shape and the weights differ."""
    wanted = call.attribute("kernel_shape")
    kernel = call.shape(weights)[2:]
    if wanted and not all(s.constant is None or s == as_size(k) for s, k in zip(kernel, wanted)):
        raise Unsupported(f"kernel_shape {wanted} for weights of {call.type(weights)}")


def pool(name: str, **renamed: str) -> Callable[[Call], Result]:
    """A pool; `renamed` leads from further attributes of the library's operator to ONNX's."""

    def build(call: Call) -> Result:
        if any(call.outputs[1:]):
            raise Unsupported("its result Indices")
        attributes = {
            own: call.attribute(theirs)
            for own, theirs in renamed.items()
            if call.attribute(theirs) is not None
        }
        return call.emit(
            name, call.input(0), kernel=call.attribute("kernel_shape"),
            ceil=bool(call.attribute("ceil_mode", 0)), **attributes, **window_attributes(call),
        )  # fmt: skip

    return build


def max_pool(call: Call) -> Sequence[Result]:
    """The largest elements and, where asked for, their row-major places in the whole of x."""
    indices = any(call.outputs[1:])
    return call.emit_many(
        "max_pool", 1 + indices, call.input(0), kernel=call.attribute("kernel_shape"),
        ceil=bool(call.attribute("ceil_mode", 0)), indices=indices,
        columns_first=bool(call.attribute("storage_order", 0)), **window_attributes(call),
    )  # fmt: skip


def global_pool(name: str) -> Callable[[Call], Result]:
    """A reduction of all axes after the second, which keep a size of 1."""

    def build(call: Call) -> Result:
        axes = tuple(range(2, call.type(0).rank))
        return call.emit(name, call.input(0), axes=axes, keepdims=True)

    return build

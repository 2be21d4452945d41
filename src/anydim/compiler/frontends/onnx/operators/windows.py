"""Rows of ONNX operators with sliding windows, and of global pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.sizes import Guard, as_size, maximum, product, simplify

_PADDINGS = {"SAME_UPPER": "same_upper", "SAME_LOWER": "same_lower", "VALID": "valid"}


def window_attributes(call: OnnxNode, weights: int | None = None) -> dict[str, Any]:
    """The attributes that convolution and pooling share.

    `weights` is the input whose shape has to agree with `kernel_shape`, if there is one.
    """
    if weights is not None:
        _check_kernel(call, weights)
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
        if min(attributes["pads"]) < 0:
            raise Unsupported(f"pads {attributes['pads']}, expected 0 and above")
    return attributes


def convolution(call: OnnxNode) -> Result:
    attributes = window_attributes(call, weights=1)
    inputs = call.input(0), call.input(1), *call.given_inputs(2)
    return call.emit("conv", *inputs, groups=call.attribute("group", 1), **attributes)


def _check_kernel(call: OnnxNode, weights: int) -> None:
    """Raise Unsupported if the attribute kernel_shape and the weights differ."""
    wanted = call.attribute("kernel_shape")
    if call.type(weights).rank < 3:
        raise Unsupported(f"weights of {call.type(weights)}")
    kernel = call.shape(weights)[2:]
    if wanted and not all(s.constant is None or s == as_size(k) for s, k in zip(kernel, wanted)):
        raise Unsupported(f"kernel_shape {wanted} for weights of {call.type(weights)}")


def pool(name: str, **renamed: str) -> Callable[[OnnxNode], Result]:
    """A pooling row; `renamed` maps further attributes of the library's operator to ONNX's."""

    def build(call: OnnxNode) -> Result:
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


def max_pool(call: OnnxNode) -> Sequence[Result]:
    """The largest elements and, if requested, their row-major indices in x."""
    indices = any(call.outputs[1:])
    return call.emit_many(
        "max_pool", 1 + indices, call.input(0), kernel=call.attribute("kernel_shape"),
        ceil=bool(call.attribute("ceil_mode", 0)), indices=indices,
        columns_first=bool(call.attribute("storage_order", 0)), **window_attributes(call),
    )  # fmt: skip


def global_pool(name: str) -> Callable[[OnnxNode], Result]:
    """A reduction of all axes after the second, which keep a size of 1."""

    def build(call: OnnxNode) -> Result:
        axes = tuple(range(2, call.type(0).rank))
        return call.emit(name, call.input(0), axes=axes, keepdims=True)

    return build


def max_unpool(call: OnnxNode) -> Result:
    """Scatter elements to the row-major indices of the pool's input; 0 elsewhere.

    The indices refer to the shape given by the attributes, even if `output_shape` is larger: the
    rest is then zero-padded (as in the standard's reference).
    """
    shape, kernel = call.shape(0), call.attribute("kernel_shape")
    rank = len(kernel)
    if call.type(1).rank != len(shape) or len(shape) != rank + 2:
        raise Unsupported(f"{call.type(0)} and {call.type(1)} for a window of {rank} axes")
    strides = call.attribute("strides") or (1,) * rank
    pads = call.attribute("pads") or (0,) * (2 * rank)
    if len(strides) != rank or len(pads) != 2 * rank:
        raise Unsupported(f"{len(strides)} strides and {len(pads)} pads for {rank} axes")
    sizes = [
        maximum((size - 1) * step - before - after + width, 0)
        for size, step, before, after, width in zip(
            shape[2:], strides, pads[:rank], pads[rank:], kernel
        )
    ]
    whole = [*shape[:2], *(simplify(size, call.box) for size in sizes)]
    zeros = call.emit("fill", shape=(product(whole),), value=0, dtype=call.type(0).dtype)
    values = [
        call.emit("reshape", call.input(position), shape=(product(call.shape(position)),))
        for position in (1, 0)
    ]
    values[0] = call.counted(values[0], product(whole) - 1)  # negative indices are invalid here
    made = call.emit("reshape", call.emit("scatter_elements", zeros, *values), shape=whole)
    if not call.given(2):
        return made
    after = [wanted - own for wanted, own in zip(call.sizes(2, len(whole)), whole)]
    message = f"{call.source}: 'output_shape' is at least the shape that the attributes give"
    call.emitter.guards += [Guard(as_size(0), "<=", size, message) for size in after]
    return call.emit("pad", made, before=(0,) * len(whole), after=after)

"""Operators on shapes and indices, many of them older forms of the standard's operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from anydim.compiler.frontends.data_sized import unique
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.microsoft.record import FLOATS, Required, Row, row
from anydim.compiler.frontends.onnx.operators import resize
from anydim.compiler.frontends.onnx.operators import shapes as standard
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.table import gather_nd, same
from anydim.sizes import as_size

_ANY = (*FLOATS, "int64", "int32", "bool")
_PAD_OPSET = 18  # of the standard's Pad with the inputs of this one


def range_(call: OnnxNode) -> Result:
    """Range; the step defaults to 1."""
    if call.given(2):
        return standard.range_(call)
    step = call.number(1, call.type(0).dtype)
    call.inputs = (*call.inputs[:2], step)
    return standard.range_(call)


def pad(call: OnnxNode) -> Result:
    """Pad; the counts may be a matrix of one row."""
    counts = call.input(1)
    if call.type(1).rank == 2:
        counts = call.emit("squeeze", counts, axes=(0,))
    own = replace(call, opset=_PAD_OPSET, inputs=(call.inputs[0], counts, *call.inputs[2:]))
    return standard.pad(own)


def expand_dims(call: OnnxNode) -> Result:
    axis = call.size(1).constant
    if axis is None:
        raise Unsupported("an axis that depends on a dim")
    call.axis(axis, call.type(0).rank + 1)
    return call.emit("unsqueeze", call.input(0), axes=(axis,))


def unique_elements(call: OnnxNode) -> Sequence[Result]:
    """In order of first occurrence: unique elements, the index of each element, counts."""
    requested = (False, *(bool(name) for name in (*call.outputs[1:3], "", "")[:2]))
    found = unique(call, call.input(0), None, False, requested)
    return [found[0], found[2], found[3]]


def distances(call: OnnxNode) -> Result:
    """Pairwise distances [rows of a, rows of b], squared unless the metric is euclidean."""
    metric = call.attribute("metric")
    if metric not in ("euclidean", "sqeuclidean") or call.type(0).rank != 2:
        raise Unsupported(f"metric {metric!r} of {call.type(0)}")
    a = call.emit("unsqueeze", call.input(0), axes=(1,))
    difference = call.emit("sub", a, call.input(1))
    name = "reduce_sum_square" if metric == "sqeuclidean" else "reduce_l2"
    return call.emit(name, difference, axes=(-1,), keepdims=False)


def convolution_transpose(call: OnnxNode) -> Result:
    """The standard's ConvTranspose with its padding as an input."""
    inputs = (*call.inputs[:2], *call.inputs[3:4])
    attributes = dict(call.attributes)
    if call.given(2):
        attributes["pads"] = call.sizes(2, 2 * (call.type(0).rank - 2))
    return resize.convolution_transpose(replace(call, inputs=inputs, attributes=attributes))


def embedding(call: OnnxNode) -> Result:
    """Gather rows of a table; the other inputs concern gradients."""
    return call.emit("gather", call.input(0), call.input(1), axis=0)


def windows(call: OnnxNode) -> Result:
    """Windows of `size` along an axis with stride `step`; they become the last axis."""
    rank, axis = call.type(0).rank, call.attribute("dim")
    size, step = call.attribute("size"), call.attribute("step")
    if not -rank <= axis < rank or min(size, step) < 1:
        raise Unsupported(f"windows of {size} each {step} along axis {axis} of {rank} axes")
    axis %= rank
    extent = call.shape(0)[axis]
    call.constrain(extent - size)
    count = (extent - size) // step + 1
    first = call.emit("unsqueeze", call.iota(count, step=step), axes=(1,))
    at = call.emit("add", first, call.iota(size))
    made = call.emit("gather", call.input(0), at, axis=axis)
    order = (*range(axis + 1), *range(axis + 2, rank + 1), axis + 1)
    return call.emit("transpose", made, perm=order)


def real_transform(inverse: bool) -> Callable[[OnnxNode], Result]:
    """The real Fourier transform along the last axis, [..., n / 2 + 1, 2], or its inverse."""

    def build(call: OnnxNode) -> Result:
        if call.attribute("signal_ndim") != 1 or not call.attribute("onesided"):
            raise Unsupported("more than one axis, or both sides")
        rank = call.type(0).rank
        if inverse:
            length = 2 * (call.shape(0)[-2] - 1)
            made = call.emit(
                "dft", call.input(0), length=length, axis=rank - 2, inverse=True, onesided=True
            )
            return call.emit("squeeze", made, axes=(-1,)) if call.kind(made).rank == rank else made
        pairs = call.emit("unsqueeze", call.input(0), axes=(rank,))
        length = as_size(call.shape(0)[-1])
        return call.emit("dft", pairs, length=length, axis=rank - 1, inverse=False, onesided=True)

    return build


_TRANSFORM: dict[str, Any] = {"normalized": 0, "onesided": 1}

ROWS: dict[str, Row] = {
    "CDist": row(distances, "A B -> C", metric="sqeuclidean"),
    "ConvTransposeWithDynamicPads": row(
        convolution_transpose, "X W Pads? B? -> Y", auto_pad="NOTSET", dilations=(int,), group=1,
        kernel_shape=(int,), output_padding=(int,), strides=(int,)),
    "ExpandDims": row(expand_dims, "X axis -> Y", types=_ANY),
    "GatherND": row(gather_nd, "data indices -> output", types=_ANY),
    "GridSample": row(resize.grid_sample, "X Grid -> Y", align_corners=0, mode="bilinear",
                      padding_mode="zeros"),
    "Inverse": row(same("inverse", 1), "X -> Y", types=FLOATS[:3]),
    "Irfft": row(real_transform(True), "X -> Y", signal_ndim=Required(int), **_TRANSFORM,
                 limits="one axis; costs length * length products"),
    "Pad": row(pad, "data pads value? -> output", mode="constant", types=_ANY),
    "Range": row(range_, "start limit delta? -> Y", types=(*FLOATS[:3], "int64", "int32")),
    "Rfft": row(real_transform(False), "X -> Y", signal_ndim=1, **_TRANSFORM,
                limits="one axis; costs length * length products"),
    "TorchEmbedding": row(
        embedding, "weight indices padding_idx? scale_grad_by_freq? -> Y", types=_ANY),
    "Trilu": row(standard.trilu, "X k? -> Y", upper=1, types=_ANY),
    "UnfoldTensor": row(windows, "input -> output", dim=-1, size=Required(int), step=1,
                        types=_ANY),
    "Unique": row(unique_elements, "x -> y idx counts", types=("float",)),
}  # fmt: skip

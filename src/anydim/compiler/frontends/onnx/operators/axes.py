"""Rows of ONNX operators along an axis: norms, cumulative sums, block moves."""

from __future__ import annotations

from collections.abc import Callable

from anydim.base.dtypes import int64
from anydim.compiler.frontends.onnx.file.tensors import Unsupported, element_type
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.whole_numbers import bools_as_integers
from anydim.sizes import as_size, maximum, product


def hardmax(call: OnnxNode) -> Result:
    """Before opset 13 all axes from `axis` on are flattened."""
    axis, rank, shape = call.attribute("axis", -1), call.type(0).rank, call.shape(0)
    if call.opset >= 13:
        return call.emit("hardmax", call.input(0), axis=axis)
    if not -rank <= axis <= rank:
        raise Unsupported(f"axis {axis} of a tensor with {rank} axes")
    axis = axis + rank if axis < 0 else axis
    flat = (product(shape[:axis]), product(shape[axis:]))
    made = call.emit("hardmax", call.emit("reshape", call.input(0), shape=flat), axis=1)
    return call.emit("reshape", made, shape=shape)


def lp_normalization(call: OnnxNode) -> Result:
    """x / norm; 0 if the norm is 0."""
    axis, p = call.attribute("axis", -1), call.attribute("p", 2)
    if p not in (1, 2):
        raise Unsupported(f"p {p}")
    x = call.input(0)
    norm = call.emit(f"reduce_l{p}", x, axes=(axis,), keepdims=True)
    zero = call.number(0, call.type(0).dtype)
    empty = call.emit("equal", norm, zero)
    return call.emit("where", empty, zero, call.emit("div", x, norm))


def global_lp_pool(call: OnnxNode) -> Result:
    axes, p = tuple(range(2, call.type(0).rank)), call.attribute("p", 2)
    if p in (1, 2):
        return call.emit(f"reduce_l{p}", call.input(0), axes=axes, keepdims=True)
    dtype = call.type(0).dtype
    powers = call.emit("pow", call.emit("abs", call.input(0)), call.number(p, dtype))
    total = call.emit("reduce_sum", powers, axes=axes, keepdims=True)
    return call.emit("pow", total, call.number(1 / p, dtype))


def local_response(call: OnnxNode) -> Result:
    return call.emit(
        "local_response_norm", call.input(0), count=as_size(call.attribute("size")),
        alpha=call.attribute("alpha"), beta=call.attribute("beta"), bias=call.attribute("bias"),
    )  # fmt: skip


def cumulative(name: str) -> Callable[[OnnxNode], Result]:
    """CumSum and CumProd. A run-time axis selects among the results of all axes."""

    def build(call: OnnxNode) -> Result:
        rank = call.type(0).rank

        def along(axis: int) -> str:
            return call.emit(
                name, call.input(0), axis=axis, exclusive=bool(call.attribute("exclusive", 0)),
                reverse=bool(call.attribute("reverse", 0)),
            )  # fmt: skip

        if call.is_static(1):
            axes = call.integers(1)
            if len(axes) != 1:
                raise Unsupported(f"{len(axes)} axes")
            return along(axes[0])
        if rank == 0:
            raise Unsupported("a scalar has no axis")
        wanted = call.emit("cast", call.emit("reshape", call.input(1), shape=()), to=int64)
        # the index is checked as usual; negative ones count from the end
        wanted = call.emit("gather", call.numbers(range(rank), int64), wanted, axis=0)
        result = call.number(0, call.type(0).dtype)
        for axis in range(rank):
            this = call.emit("equal", wanted, call.number(axis, int64))
            result = call.emit("where", this, along(axis), result)
        return result

    return build


def reverse_sequence(call: OnnxNode) -> Result:
    time, batch = call.attribute("time_axis"), call.attribute("batch_axis")
    lengths = call.counted(call.input(1), call.shape(0)[time])
    return call.emit("reverse_sequence", call.input(0), lengths, time=time, batch=batch)


def columns_to_image(call: OnnxNode) -> Result:
    """Col2Im: the columns are first reshaped to windows with axes of their own."""
    sizes, block = call.sizes(1), call.sizes(2)
    if call.type(0).rank != 3:
        raise Unsupported(f"columns of type {call.type(0)}")
    rank, (count, rows, _) = len(sizes), call.shape(0)
    strides = call.attribute("strides") or (1,) * rank
    dilations = call.attribute("dilations") or (1,) * rank
    pads = call.attribute("pads") or (0,) * (2 * rank)
    if [len(block), len(strides), len(dilations), len(pads)] != [rank, rank, rank, 2 * rank]:
        raise Unsupported(f"blocks, strides, dilations or pads that are not of {rank} axes")
    window_counts = [
        (size + pads[axis] + pads[rank + axis] - (kernel - 1) * dilations[axis] - 1)
        // strides[axis] + 1
        for axis, (size, kernel) in enumerate(zip(sizes, block))
    ]  # fmt: skip
    shape = (count, rows // maximum(product(block), 1), *block, *window_counts)
    windows = call.emit("reshape", bools_as_integers(call, 0), shape=shape)
    made = call.emit("fold", windows, sizes=sizes, strides=strides, dilations=dilations, pads=pads)
    return call.as_type(made, call.type(0).dtype)


def depth_to_space(call: OnnxNode) -> Result:
    return _blocks(call, "depth_to_space")


def space_to_depth(call: OnnxNode) -> Result:
    return _blocks(call, "space_to_depth")


def _blocks(call: OnnxNode, name: str) -> Result:
    mode = call.attribute("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise Unsupported(f"mode {mode!r}")
    block = call.attribute("blocksize")
    return call.emit(name, call.input(0), block=block, inner=mode == "CRD")


def eye_like(call: OnnxNode) -> Result:
    if call.type(0).rank != 2:
        raise Unsupported(f"a tensor with {call.type(0).rank} axes, expected 2")
    wanted = call.attribute("dtype")
    dtype = call.type(0).dtype if wanted is None else element_type(wanted)
    rows, columns = call.shape(0)
    return call.emit("eye", rows=rows, columns=columns, k=call.attribute("k", 0), dtype=dtype)

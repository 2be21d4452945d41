"""Table: how to write each operator of the library in ONNX (opset 21), where ONNX has it.

A row takes a node and writes ONNX nodes for its results; it raises Refused for cases that ONNX
defines differently or lacks. Element types are checked against ONNX's schemas (`Call.add`).
Operators without a row are not delegated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anydim.base.dtypes import float16, float32
from anydim.compiler.frontends.onnx.operators.counterparts import COUNTERPARTS, REDUCTIONS
from anydim.compiler.passes.delegate.onnx_writer import CODES, Call, Refused
from anydim.sizes import as_size

_PADDINGS = {"same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}


def _sliding(call: Call) -> dict[str, Any]:
    """The attributes common to all windows."""
    pads = call["pads"]
    named = isinstance(pads, str)
    return {
        "strides": call.integers("strides"), "dilations": call.integers("dilations"),
        "pads": None if named else call.integers("pads"),
        "auto_pad": _PADDINGS[pads] if named else None,
    }  # fmt: skip


def _conv(name: str) -> Callable[[Call], None]:
    def row(call: Call) -> None:
        kernel = [size.constant for size in call.kinds[1].shape[2:]]
        shape = None if None in kernel else kernel
        call.add(name, **_sliding(call), group=call["groups"], kernel_shape=shape)

    return row


def _conv_integer(call: Call) -> None:
    if any(kind.rank for kind in call.kinds[2:]):
        raise Refused("a zero point of its weights is not a scalar")
    _conv("ConvInteger")(call)


def _pool_attributes(call: Call) -> dict[str, Any]:
    return {
        **_sliding(call), "kernel_shape": call.integers("kernel"),
        "ceil_mode": int(call["ceil"]),
    }  # fmt: skip


def _max_pool(call: Call) -> None:
    if call["indices"]:
        raise Refused("its second result has the indices of the largest elements")
    call.add("MaxPool", **_pool_attributes(call))


def _average_pool(call: Call) -> None:
    call.add("AveragePool", **_pool_attributes(call), count_include_pad=int(call["count_padding"]))


def _lp_pool(call: Call) -> None:
    call.add("LpPool", **_pool_attributes(call), p=call["p"])


def _resize(call: Call) -> None:
    if call["coordinates"] == "crop" or call["scaled"] or call["antialias"]:
        raise Refused("a resize of a crop, by data-dependent scales, or with antialias")
    scales = call["scales"]
    mode = {
        "mode": call["mode"], "coordinate_transformation_mode": call["coordinates"],
        "nearest_mode": call["rounding"], "cubic_coeff_a": call["cubic"],
        "exclude_outside": int(call["exclude_outside"]),
    }  # fmt: skip
    if scales is None:
        wanted = call.writer.sizes(call["sizes"])
        call.add("Resize", [call.inputs[0], "", "", wanted], **mode)
    else:
        held = call.writer.number([float(scale) for scale in scales], float32)
        call.add("Resize", [call.inputs[0], "", held], **mode)


def _local_response(call: Call) -> None:
    count = as_size(call["count"]).constant
    if count is None or count % 2 == 0 or call.kinds[0].rank != 4:
        raise Refused("its neighbourhood is even, or its input has other than 4 axes")
    call.add("LRN", size=count, alpha=call["alpha"], beta=call["beta"], bias=call["bias"])


WINDOWS: Mapping[str, Callable[[Call], None]] = {
    "conv": _conv("Conv"), "conv_integer": _conv_integer, "max_pool": _max_pool,
    "average_pool": _average_pool, "lp_pool": _lp_pool, "resize": _resize,
    "local_response_norm": _local_response,
}  # fmt: skip


Row = Callable[[Call], None]


def _plain(name: str) -> Row:
    """The operator of ONNX of this name, with its attributes that the library has, too."""
    attributes = COUNTERPARTS[name].attributes

    def row(call: Call) -> None:
        given: dict[str, Any] = {
            each.onnx: int(call[each.library]) if each.is_flag else call[each.library]
            for each in attributes
        }
        call.add(name, **given)

    return row


def _counting_from_end(row: Row) -> Row:
    """A row of an operator with indices, which ONNX counts from the end if they are negative."""

    def checked(call: Call) -> None:
        if not call["from_end"]:
            raise Refused("negative indices are not errors in ONNX")
        row(call)

    return checked


def _reduce(name: str) -> Row:
    def row(call: Call) -> None:
        axes = call["axes"]
        inputs = call.inputs[:1]
        if axes is not None:
            axes = (axes,) if isinstance(axes, int) else tuple(axes)
            inputs = [*inputs, call.writer.sizes(axes)]
        call.add(
            name, inputs, keepdims=int(call["keepdims"]), noop_with_empty_axes=_noop(axes)
        )  # fmt: skip

    return row


def _noop(axes: object) -> int | None:
    if axes == ():
        raise Refused("it reduces no axis")
    return None


def _mod(fmod: int) -> Row:
    def row(call: Call) -> None:
        if not fmod and call.kinds[0].dtype.is_float:
            raise Refused("ONNX only has the remainder of floats with the dividend's sign")
        call.add("Mod", fmod=fmod)

    return row


def _swish(call: Call) -> None:
    (x,) = call.inputs
    alpha = call["alpha"]
    inner = x if alpha == 1.0 else call.add_inner("Mul", x, call.number(alpha))
    call.add("Mul", [x, call.add_inner("Sigmoid", inner)])


def _gelu(approximate: str) -> Row:
    return lambda call: call.add("Gelu", approximate=approximate)


def _not(name: str) -> Row:
    return lambda call: call.add("Not", [call.add_inner(name, *call.inputs)])


def _prelu(call: Call) -> None:
    if call.results[0] != call.kinds[0]:
        raise Refused("its slope has more elements than its input")
    call.add("PRelu")


def _cast(call: Call) -> None:
    if CODES.get(call["to"].name) is None or call["to"].stored or call.kinds[0].dtype.stored:
        raise Refused(f"a conversion to {call['to']}")
    source = call.kinds[0].dtype
    if source.is_float and call["to"].is_integer:
        raise Refused("a conversion of floats to integers, whose overflow depends on the engine")
    call.add("Cast", to=CODES[call["to"].name])


def _softmax(name: str) -> Row:
    def row(call: Call) -> None:
        if not isinstance(call["axis"], int):
            raise Refused("it is over several axes")
        call.add(name, axis=call["axis"])

    return row


def _layer_norm(call: Call) -> None:
    if call["statistics"] or len(call.inputs) < 2 or call.kinds[0].dtype == float16:
        raise Refused("a layer_norm with statistics, without scale or in float16")
    rank = call.kinds[0].rank
    first = call["axis"] + rank if call["axis"] < 0 else call["axis"]
    shapes = [kind.shape for kind in call.kinds]
    if any(shape != shapes[0][first:] for shape in shapes[1:]):
        raise Refused("its scale or bias has another shape than the normalised axes")
    call.add("LayerNormalization", axis=call["axis"], epsilon=call["epsilon"])


def _with_shape(name: str, **more: Any) -> Row:
    """The shape of the result as the second input."""
    return lambda call: call.add(
        name, [call.inputs[0], call.writer.sizes(call.results[0].shape)], **more
    )


def _axes(name: str) -> Row:
    def row(call: Call) -> None:
        axes = call["axes"]
        if axes is None:
            axes = [axis for axis, size in enumerate(call.kinds[0].shape) if size.constant == 1]
        axes = (axes,) if isinstance(axes, int) else tuple(axes)
        call.add(name, [call.inputs[0], call.writer.sizes(axes)])

    return row


def _slice(call: Call) -> None:
    starts, sizes = tuple(call["starts"]), call.writer.sizes
    axes = tuple(range(len(starts))) if call["axes"] is None else tuple(call["axes"])
    steps = call["steps"] or (1,) * len(starts)
    call.add("Slice", [call.inputs[0], *map(sizes, (starts, call["ends"], axes, steps))])


def _split(call: Call) -> None:
    call.add("Split", [call.inputs[0], call.writer.sizes(call["sizes"])], axis=call["axis"])


def _tile(call: Call) -> None:
    call.add("Tile", [call.inputs[0], call.writer.sizes(call["repeats"])])


def _pad(call: Call) -> None:
    pads = call.writer.sizes([*call["before"], *call["after"]])
    mode = call["mode"]
    value = call.inputs[1:] if mode == "constant" else []
    call.add("Pad", [call.inputs[0], pads, *value], mode=mode)


def _one_hot(call: Call) -> None:
    indices, values = call.inputs
    call.add("OneHot", [indices, call.writer.sizes([call["depth"]]), values], axis=call["axis"])


def _trilu(call: Call) -> None:
    k = call.add_inner("Squeeze", call.writer.sizes([call["k"]]))
    call.add("Trilu", [call.inputs[0], k], upper=int(call["upper"]))


def _depth_to_space(call: Call) -> None:
    call.add("DepthToSpace", blocksize=call["block"], mode="CRD" if call["inner"] else "DCR")


def _space_to_depth(call: Call) -> None:
    if call["inner"]:
        raise Refused("its block offset is the minor part of a channel's index")
    call.add("SpaceToDepth", blocksize=call["block"])


def _fill(call: Call) -> None:
    value = call.writer.number(call["value"], call["dtype"])
    call.add("Expand", [value, call.writer.sizes(call["shape"])])


def _size_tensor(call: Call) -> None:
    made = call.writer.sizes(call["values"])
    if call["scalar"]:
        made = call.add_inner("Squeeze", made)
    call.add("Cast", [made], to=CODES[call["dtype"].name])


def _range(call: Call) -> None:
    ends = [call["start"], call["start"] + call["step"] * call["count"], call["step"]]
    made = [call.add_inner("Squeeze", call.writer.sizes([end])) for end in ends]
    call.add("Cast", [call.add_inner("Range", *made)], to=CODES[call["dtype"].name])


def _dequantize(call: Call) -> None:
    if call["to"] not in (None, call.kinds[1].dtype):
        raise Refused("its result has another type than its scale")
    call.add("DequantizeLinear", axis=call["axis"], block_size=call["block"])


def _quantize(call: Call) -> None:
    usual = call["saturate"] and call["work"] in (None, call.kinds[1].dtype)
    if not usual or not call["to"].is_integer:
        raise Refused("it divides in another type than its scale, or produces floats")
    to = CODES[call["to"].name] if len(call.inputs) < 3 else None  # else that of the zero point
    call.add("QuantizeLinear", axis=call["axis"], block_size=call["block"], output_dtype=to)


def _matmul_integer(call: Call) -> None:
    if call.kinds[2].rank:
        raise Refused("its first zero point is not a scalar")
    call.add("MatMulInteger")


ROWS: Mapping[str, Row] = {
    # what the importer reads, too
    **{of.library: _plain(name) for name, of in COUNTERPARTS.items()},
    # arithmetic and functions
    "not_equal": _not("Equal"), "prelu": _prelu, "clip": lambda call: call.add("Clip"),
    "mod": _mod(0), "fmod": _mod(1), "swish": _swish, "gelu": _gelu("none"),
    "gelu_tanh": _gelu("tanh"), "cast": _cast,
    "shift_left": lambda call: call.add("BitShift", direction="LEFT"),
    "shift_right": lambda call: call.add("BitShift", direction="RIGHT"),
    # reductions, normalisations, products
    **{library: _reduce(name) for name, library in REDUCTIONS.items()},
    "softmax": _softmax("Softmax"), "log_softmax": _softmax("LogSoftmax"),
    "hardmax": _softmax("Hardmax"), "layer_norm": _layer_norm,
    "matmul_integer": _matmul_integer, "dequantize": _dequantize, "quantize": _quantize,
    # views and other movement
    "reshape": _with_shape("Reshape", allowzero=1), "expand": _with_shape("Expand"),
    "squeeze": _axes("Squeeze"), "unsqueeze": _axes("Unsqueeze"), "slice": _slice,
    "split": _split, "tile": _tile, "pad": _pad,
    "depth_to_space": _depth_to_space, "space_to_depth": _space_to_depth,
    # indices and sizes
    "gather": _counting_from_end(_plain("Gather")),
    "gather_elements": _counting_from_end(_plain("GatherElements")),
    "gather_nd": _counting_from_end(_plain("GatherND")),
    "scatter_elements": _counting_from_end(_plain("ScatterElements")),
    "scatter_nd": _counting_from_end(_plain("ScatterND")),
    "one_hot": _one_hot, "trilu": _trilu,
    "fill": _fill, "size_tensor": _size_tensor, "range": _range,
    **WINDOWS,
}  # fmt: skip

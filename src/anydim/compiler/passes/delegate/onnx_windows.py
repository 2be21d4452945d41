"""Rows of the window operators and of resize."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anydim.base.dtypes import float32
from anydim.compiler.passes.delegate.onnx_writer import Call, Refused
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

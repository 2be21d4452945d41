"""Key lookup: LabelEncoder, OneHotEncoder. String keys stay on the host."""

from __future__ import annotations

from typing import Any

import numpy

from anydim.base.dtypes import float32, int64
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result

_LISTS = (("int64s", numpy.int64), ("floats", numpy.float32))


def label_encoder(call: OnnxNode) -> Result:
    """Map each key to its value, and all others to a default; both are numbers."""
    keys, values = _read_table(call, "keys"), _read_table(call, "values")
    if len(keys) != len(values):
        raise Unsupported(f"{len(keys)} keys and {len(values)} values")
    dtype = call.type(0).dtype
    if keys.dtype != dtype.numpy:
        raise Unsupported(f"keys of {keys.dtype} for elements of {dtype}")
    known, first = numpy.unique(keys, return_index=True)  # the first of equal keys counts
    table = numpy.append(values[first], numpy.array(_other(call, values), values.dtype))
    name = call.emitter.fresh(f"{call.outputs[0]}/values")
    call.emitter.add_constant(name, table)
    indices = call.emit("find_keys", call.input(0), call.numbers(known, dtype))
    return call.emit("gather", name, indices, axis=0)


def _read_table(call: OnnxNode, what: str) -> numpy.ndarray:
    """Keys or values, as lists or as a tensor."""
    tensor = call.attribute(f"{what}_tensor")
    if tensor is not None:
        return call.array(tensor).reshape(-1)
    for kind, dtype in _LISTS:
        found = call.attribute(f"{what}_{kind}")
        if found:
            return numpy.array(found, dtype)
    raise Unsupported(f"{what} are missing")


def _other(call: OnnxNode, values: numpy.ndarray) -> Any:
    """The default for other keys."""
    tensor = call.attribute("default_tensor")
    if tensor is not None:
        (only,) = call.array(tensor).reshape(-1)[:1]
        return only
    floats = values.dtype.kind == "f"
    return call.attribute("default_float", -0.0) if floats else call.attribute("default_int64", -1)


def one_hot(call: OnnxNode) -> Result:
    """A one-hot last axis, float32, by category.

    An unknown category gives zeros, or is an error of the call if the file requests it.
    """
    categories = call.attribute("cats_int64s")
    if not categories:
        raise Unsupported("cats_int64s is missing")
    x, table = call.as_type(call.input(0), int64), numpy.array(categories, numpy.int64)
    if not call.attribute("zeros"):
        known, first = numpy.unique(table, return_index=True)
        found = call.emit("find_keys", x, call.numbers(known, int64))
        x = call.emit("counted", found, count=len(known))
        table = numpy.argsort(first, kind="stable")
    same = call.emit(
        "equal", call.emit("unsqueeze", x, axes=(call.type(0).rank,)), call.numbers(table, int64)
    )
    return call.emit("cast", same, to=float32)

"""Preprocessing of columns: scaling, imputation, selection, concatenation, lookup of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from anydim.base.dtypes import DType, float32, float64, int64
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.sizes import product

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


_NORMS = {"MAX": "reduce_max", "L1": "reduce_l1", "L2": "reduce_l2"}


def _numbers(call: OnnxNode, values: Sequence[float], dtype: DType) -> str:
    """One number per column, or one for all; Unsupported for another count."""
    columns = call.type(0).shape[-1].constant if call.type(0).rank else 1
    if len(values) != 1 and columns not in (None, len(values)):
        raise Unsupported(f"{len(values)} numbers for {columns} columns")
    return call.numbers(values, dtype) if len(values) > 1 else call.number(values[0], dtype)


def scaler(call: OnnxNode) -> Result:
    """(x - offset) * scale, float32."""
    wide = float64 if call.type(0).dtype == float64 else float32
    x = call.as_type(call.input(0), wide)
    for name, operator in (("offset", "sub"), ("scale", "mul")):
        values = call.attribute(name)
        if values:
            x = call.emit(operator, x, _numbers(call, values, wide))
    return call.as_type(x, float32)


def normalizer(call: OnnxNode) -> Result:
    """Each row divided by its norm, float32; rows of norm 0 are unchanged."""
    rank, norm = call.type(0).rank, call.attribute("norm")
    if norm not in _NORMS or rank not in (1, 2):
        raise Unsupported(f"norm {norm!r} of a tensor with {rank} axes")
    wide = float64 if call.type(0).dtype == float64 else float32
    x = call.as_type(call.input(0), wide)
    length = call.emit(_NORMS[norm], x, axes=(rank - 1,), keepdims=True)
    none = call.emit("equal", length, call.number(0, wide))
    y = call.emit("div", x, call.emit("where", none, call.number(1, wide), length))
    return call.as_type(y, float32)


def imputer(call: OnnxNode) -> Result:
    """Replace one value, or NaN, by a number per column."""
    dtype = call.type(0).dtype
    kind = "float" if dtype.is_float else "int64"
    values = call.attribute(f"imputed_value_{kind}s")
    missing = call.attribute(f"replaced_value_{kind}")
    if not values:
        raise Unsupported(f"imputed_value_{kind}s is missing")
    if missing is None or missing != missing:
        where = call.emit("is_nan", call.input(0))
    else:
        where = call.emit("equal", call.input(0), call.number(missing, dtype))
    return call.emit("where", where, _numbers(call, values, dtype), call.input(0))


def array_feature_extractor(call: OnnxNode) -> Result:
    """ArrayFeatureExtractor: gather elements of the last axis; a vector counts as one row."""
    count = product(call.shape(1))
    x = call.input(0)
    if call.type(0).rank == 1:
        x = call.emit("unsqueeze", x, axes=(0,))
    return call.emit("gather", x, call.emit("reshape", call.input(1), shape=(count,)), axis=-1)


def binarizer(call: OnnxNode) -> Result:
    """1 above the threshold, 0 elsewhere."""
    dtype = call.type(0).dtype
    above = call.emit("greater", call.input(0), call.number(call.attribute("threshold"), dtype))
    return call.emit("cast", above, to=dtype)


def feature_vectorizer(call: OnnxNode) -> Result:
    """FeatureVectorizer: concatenate a given column count of each input, float32, zero-padded."""
    wanted = call.attribute("inputdimensions")
    if wanted is None or len(wanted) != len(call.inputs):
        raise Unsupported(f"inputdimensions for {len(wanted or ())} of {len(call.inputs)} inputs")
    parts = []
    for position, count in enumerate(wanted):
        x = call.input(position)
        if call.type(position).rank == 1:
            x = call.emit("unsqueeze", x, axes=(1,))
        if call.kind(x).rank != 2 or count < 0:
            raise Unsupported(f"{count} columns of a tensor with {call.kind(x).rank} axes")
        x = call.as_type(x, float32)
        columns = call.kind(x).shape[1]
        if not call.proved(columns, "==", count):
            rows = call.kind(x).shape[0]
            zeros = call.emit("expand", call.number(0, float32), shape=(rows, count))
            x = call.emit("concat", x, zeros, axis=1)
            x = call.emit("slice", x, starts=(0,), ends=(count,), axes=(1,))
        parts.append(x)
    return call.emit("concat", *parts, axis=1)

"""Preprocessing of columns: scaling, imputation, selection, concatenation."""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import DType, float32, float64
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.sizes import product

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

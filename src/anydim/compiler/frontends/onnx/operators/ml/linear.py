"""LinearRegressor and LinearClassifier: one matrix product and common postprocessing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from anydim.base.dtypes import DType, float32, float64
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.ml.scores import (
    Labels,
    above,
    best,
    second_class,
    select_labels,
    transform_scores,
)


def rows(call: OnnxNode, dtype: DType = float32) -> str:
    """The input as a matrix of a type; a vector is one row."""
    rank = call.type(0).rank
    if rank not in (1, 2):
        raise Unsupported(f"a tensor with {rank} axes")
    x = call.as_type(call.input(0), dtype)
    return x if rank == 2 else call.emit("unsqueeze", x, axes=(0,))


def check_columns(call: OnnxNode, x: str, wanted: int) -> None:
    """Reject a matrix whose column count is known to differ from the number of coefficients."""
    given = call.kind(x).shape[1].constant
    if given is not None and given != wanted:
        raise Unsupported(f"{given} columns, and coefficients for {wanted}")


def product(call: OnnxNode, x: str, coefficients: Sequence[float], count: int) -> str:
    """Rows times coefficients [count, columns]."""
    if count < 1 or len(coefficients) % count:
        raise Unsupported(f"{len(coefficients)} coefficients for {count} results")
    dtype = call.kind(x).dtype
    weights = numpy.array(coefficients, dtype.numpy).reshape(count, -1)
    check_columns(call, x, weights.shape[1])
    return call.emit("gemm", x, call.numbers(weights, dtype), transpose_b=True)


def add_intercepts(call: OnnxNode, sums: str, intercepts: Sequence[float], count: int) -> str:
    if not len(intercepts):
        return sums
    if len(intercepts) not in (1, count):
        raise Unsupported(f"{len(intercepts)} intercepts for {count} results")
    return call.emit("add", sums, call.numbers(intercepts, call.kind(sums).dtype))


def linear_regressor(call: OnnxNode) -> Result:
    """Rows times coefficients plus intercepts, float32."""
    count = call.attribute("targets", 1)
    wide = float64 if call.type(0).dtype == float64 else float32
    sums = product(call, rows(call, wide), call.attribute("coefficients") or (), count)
    sums = add_intercepts(call, sums, call.attribute("intercepts") or (), count)
    result = transform_scores(call, sums, call.attribute("post_transform", "NONE"))
    return call.as_type(result, float32)


def linear_classifier(call: OnnxNode) -> Sequence[Result]:
    """The class with the largest sum; a single sum belongs to the second of two classes."""
    labels, transform = Labels.of(call, "classlabels_ints"), call.attribute("post_transform")
    intercepts = call.attribute("intercepts") or ()
    count = len(intercepts) or labels.count
    sums = product(call, rows(call), call.attribute("coefficients"), count)
    sums = add_intercepts(call, sums, intercepts, count)
    if count > 1:
        if count > labels.count:
            raise Unsupported(f"{count} sums for {labels.count} classes")
        return select_labels(call, labels, best(call, sums)), transform_scores(
            call, sums, transform
        )
    indices = above(call, sums, 0.0)
    if labels.count != 2:
        scores = transform_scores(call, sums, transform)
    elif transform in ("NONE", "LOGISTIC"):
        share = call.emit("sigmoid", sums) if transform == "LOGISTIC" else sums
        scores = second_class(call, share, "NONE", True)
    else:
        raise Unsupported(f"post_transform {transform} of one score for two classes")
    return select_labels(call, labels, indices), scores

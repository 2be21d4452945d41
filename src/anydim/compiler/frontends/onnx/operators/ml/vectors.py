"""SVMRegressor and SVMClassifier: a kernel between rows and support vectors, then products."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, combinations

import numpy

from anydim.base.dtypes import float32, float64
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.ml.linear import (
    add_intercepts,
    check_columns,
    product,
    rows,
)
from anydim.compiler.frontends.onnx.operators.ml.scores import (
    Labels,
    best,
    second_class,
    select_labels,
    transform_scores,
)

_MOST_COEFFICIENTS = 1 << 27  # over all pairs of classes


def svm_regressor(call: OnnxNode) -> Result:
    """The regression [n, 1] by support vectors, or plain coefficients."""
    coefficients, rho = _floats(call, "coefficients"), _floats(call, "rho")
    count = call.attribute("n_supports", 0)
    x = rows(call)
    if count > 0:
        x = _kernel(call, x, _floats(call, "support_vectors"), count)
    elif call.attribute("kernel_type") != "LINEAR":
        raise Unsupported("a kernel without support vectors")
    result = add_intercepts(call, product(call, x, coefficients, 1), rho[:1], 1)
    if call.attribute("one_class"):
        zero, one = call.number(0, float32), call.number(1, float32)
        inside = call.emit("greater", result, zero)
        return call.emit("where", inside, one, call.number(-1, float32))
    return transform_scores(call, result, call.attribute("post_transform", "NONE"))


def svm_classifier(call: OnnxNode) -> Sequence[Result]:
    """Pairs of classes vote; scores are the votes, or probabilities if the file has parameters."""
    labels, sizes = Labels.of(call, "classlabels_ints"), call.attribute("vectors_per_class") or ()
    transform = call.attribute("post_transform")
    if not sum(sizes):
        return _linear(call, labels, transform)
    if len(sizes) != labels.count or labels.count < 2 or min(sizes) < 0:
        raise Unsupported(f"support vectors of {len(sizes)} classes for {labels.count} labels")
    kernel = _kernel(call, rows(call), _floats(call, "support_vectors"), sum(sizes))
    sums = _pairs(call, kernel, sizes)
    pairs = list(combinations(range(labels.count), 2))
    indices = best(call, _votes(call, sums, pairs, labels.count))
    slopes, shifts = _floats(call, "prob_a"), _floats(call, "prob_b")
    if slopes or shifts:
        if not len(slopes) == len(shifts) == len(pairs):
            raise Unsupported(f"prob_a and prob_b for {len(slopes)} of {len(pairs)} pairs")
        shares = _shares(call, sums, slopes, shifts)
        found = call.emit("pairwise_coupling", shares, count=labels.count)
        scores = transform_scores(call, call.emit("cast", found, to=float32), transform)
    elif labels.count == 2:
        scores = second_class(call, sums, transform, transform != "NONE")
    else:
        scores = transform_scores(call, sums, transform)
    return select_labels(call, labels, indices), scores


def _linear(call: OnnxNode, labels: Labels, transform: str) -> Sequence[Result]:
    """A classifier without support vectors: coefficients per class."""
    coefficients, rho = _floats(call, "coefficients"), _floats(call, "rho")
    sums = add_intercepts(call, product(call, rows(call), coefficients, labels.count), rho[:1], 1)
    indices = best(call, sums)
    if labels.count == 2:  # any score above the limit selects the second class
        top = call.emit("reduce_max", sums, axes=(1,), keepdims=False)
        positive = min(coefficients) >= 0
        relation, limit = ("greater_equal", 0.5) if positive else ("greater", 0.0)
        certain = call.emit(relation, top, call.number(limit, float32))
        indices = call.emit("where", certain, call.number(1, call.kind(indices).dtype), indices)
    return select_labels(call, labels, indices), transform_scores(call, sums, transform)


def _floats(call: OnnxNode, name: str) -> Sequence[float]:
    return tuple(call.attribute(name) or ())


def _kernel(call: OnnxNode, x: str, vectors: Sequence[float], count: int) -> str:
    """The kernel of each row and support vector, [n, count]."""
    if len(vectors) % count or not vectors:
        raise Unsupported(f"{len(vectors)} elements of {count} support vectors")
    given = tuple(call.attribute("kernel_params") or ())
    gamma, offset, degree = given if len(given) == 3 else (0.0, 0.0, 0.0)
    kind = call.attribute("kernel_type", "LINEAR")
    if kind == "RBF":
        table = numpy.array(vectors, numpy.float32).reshape(count, -1)
        check_columns(call, x, table.shape[1])
        near = call.emit("sub", call.emit("unsqueeze", x, axes=(1,)), call.numbers(table, float32))
        far = call.emit("reduce_sum", call.emit("mul", near, near), axes=(2,), keepdims=False)
        return call.emit("exp", call.emit("mul", far, call.number(-gamma, float32)))
    dots = product(call, x, vectors, count)
    if kind == "LINEAR":
        return dots
    dots = call.emit("mul", dots, call.number(gamma, float32))
    dots = call.emit("add", dots, call.number(offset, float32))
    if kind == "SIGMOID":
        return call.emit("tanh", dots)
    if kind != "POLY":
        raise Unsupported(f"kernel_type {kind}")
    if degree in (2, 3):
        square = call.emit("mul", dots, dots)
        return square if degree == 2 else call.emit("mul", square, dots)
    return call.emit("pow", dots, call.number(degree, float32))


def _pairs(call: OnnxNode, kernel: str, sizes: Sequence[int]) -> str:
    """The decision value of each pair of classes [n, pairs]; positive means the first.

    Coefficients [classes - 1, vectors]: a vector of class i has one for each other class.
    """
    count, total = len(sizes), sum(sizes)
    pairs = list(combinations(range(count), 2))
    given = numpy.array(_floats(call, "coefficients"), numpy.float32)
    rho = _floats(call, "rho")
    if len(given) < (count - 1) * total or len(rho) < len(pairs):
        raise Unsupported(f"{len(given)} coefficients and {len(rho)} rho for {len(pairs)} pairs")
    if len(pairs) * total > _MOST_COEFFICIENTS:
        raise Unsupported(f"{len(pairs)} pairs of classes with {total} support vectors")
    given = given[: (count - 1) * total].reshape(count - 1, total)
    first = [0, *accumulate(sizes)]
    weights = numpy.zeros((len(pairs), total), numpy.float32)
    for row, (i, j) in zip(weights, pairs):
        of_i, of_j = slice(first[i], first[i + 1]), slice(first[j], first[j + 1])
        row[of_i], row[of_j] = given[j - 1, of_i], given[i, of_j]
    sums = call.emit("gemm", kernel, call.numbers(weights, float32), transpose_b=True)
    return call.emit("add", sums, call.numbers(rho[: len(pairs)], float32))


def _votes(call: OnnxNode, sums: str, pairs: Sequence[tuple[int, int]], count: int) -> str:
    """The number of votes for each class."""
    table = numpy.zeros((2, len(pairs), count), numpy.float32)
    for number, pair in enumerate(pairs):
        table[0, number, pair[1]] = table[1, number, pair[0]] = 1
    won = call.emit("cast", call.emit("greater", sums, call.number(0, float32)), to=float32)
    gained = call.emit("matmul", won, call.numbers(table[1] - table[0], float32))
    return call.emit("add", gained, call.numbers(table[0].sum(0), float32))


def _shares(
    call: OnnxNode, sums: str, slopes: Sequence[float], shifts: Sequence[float]
) -> str:  # fmt: skip
    """Probability of the first class of each pair by Platt's sigmoid; float64, as in libsvm."""
    wide = call.emit("cast", sums, to=float64)
    line = call.emit("mul", wide, call.numbers(slopes, float64))
    line = call.emit("add", line, call.numbers(shifts, float64))
    return call.emit("sigmoid", call.emit("neg", line))

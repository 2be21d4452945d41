"""LinearRegressor, LinearClassifier and support vector machines, and scores of classifiers.

The standard underspecifies scores; converters target onnxruntime's behaviour, which this follows
(`write_scores` there). A classifier of two classes may have one sum, for the second class.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, combinations

import numpy

from anydim.base.dtypes import DType, float32, float64, int64
from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result

_ERROR_FUNCTION = 0.147  # of Winitzki's inverse of erf, used by the standard's PROBIT
_NOTHING = 1e-7  # SOFTMAX_ZERO skips smaller numbers


@dataclass(frozen=True)
class Labels:
    """The labels of a classifier. Names of classes were replaced by numbers before the import."""

    values: tuple[int, ...]

    @staticmethod
    def of(call: OnnxNode, name: str) -> Labels:
        found = call.attribute(name)
        if not found:
            raise Unsupported(f"{name} is missing")
        return Labels(tuple(found))

    @property
    def count(self) -> int:
        return len(self.values)


def select_labels(call: OnnxNode, labels: Labels, indices: str) -> str:
    """The labels at indices [n]; a classifier with one label returns 0 or 1."""
    values = labels.values if labels.count > 1 else (0, 1)
    if values == tuple(range(len(values))):
        return indices
    return call.emit("gather", call.numbers(values, int64), indices, axis=0)


def best(call: OnnxNode, scores: str) -> str:
    """The index of the largest score of each row, the first of equal ones."""
    return call.emit("arg_max", scores, axis=1, keepdims=False)


def above(call: OnnxNode, sums: str, limit: float) -> str:
    """1 where the single sum of a row [n, 1] is above a limit, else 0."""
    dtype = call.kind(sums).dtype
    flat = call.emit("reshape", sums, shape=(call.kind(sums).shape[0],))
    return call.emit("cast", call.emit("greater", flat, call.number(limit, dtype)), to=int64)


# ---- post_transform ----------------------------------------------------------------------------


def transform_scores(call: OnnxNode, scores: str, transform: str) -> str:
    """Scores [n, count] after a post_transform."""
    if transform == "NONE":
        return scores
    if transform == "LOGISTIC":
        return call.emit("sigmoid", scores)
    if transform == "SOFTMAX":
        return call.emit("softmax", scores, axis=1)
    if transform == "SOFTMAX_ZERO":
        return _softmax_zero(call, scores)
    if transform == "PROBIT":
        return _probit(call, scores)
    raise Unsupported(f"post_transform {transform}")


def _softmax_zero(call: OnnxNode, x: str) -> str:
    """A softmax of the nonzero scores; zeros are unchanged and not counted."""
    dtype = call.kind(x).dtype
    counts = call.emit("greater", call.emit("abs", x), call.number(_NOTHING, dtype))
    top = call.emit("reduce_max", x, axes=(1,), keepdims=True)
    powers = call.emit("exp", call.emit("sub", x, top))
    zero = call.number(0, dtype)
    total = call.emit("where", counts, powers, zero)
    total = call.emit("reduce_sum", total, axes=(1,), keepdims=True)
    rest = call.emit("mul", x, call.emit("exp", call.emit("neg", top)))
    return call.emit("div", call.emit("where", counts, powers, rest), total)


def _probit(call: OnnxNode, x: str) -> str:
    """sqrt(2) * erf_inv(2 x - 1), by Winitzki's formula as in the standard's reference."""
    dtype = call.kind(x).dtype

    def number(value: float) -> str:
        return call.number(value, dtype)

    two = call.emit("sub", call.emit("mul", x, number(2)), number(1))
    left, right = (call.emit(name, number(1), two) for name in ("sub", "add"))
    log = call.emit("log", call.emit("mul", left, right))
    half = call.emit("mul", log, number(0.5))
    v = call.emit("add", half, number(2 / (numpy.pi * _ERROR_FUNCTION)))
    inner = call.emit("sub", call.emit("mul", v, v), call.emit("div", log, number(_ERROR_FUNCTION)))
    size = call.emit("sqrt", call.emit("sub", call.emit("sqrt", inner), v))
    below = call.emit("less", two, number(0))
    sign = call.emit("where", below, number(-(2**0.5)), number(2**0.5))
    return call.emit("mul", sign, size)


# ---- one sum for two classes -------------------------------------------------------------------


def second_class(call: OnnxNode, sums: str, transform: str, positive: bool) -> str:
    """Scores [n, 2] from the single sum [n, 1] of the second class.

    `positive`: the sum is a share of 1, and the first class gets the rest; else a sum above 0
    selects the second class.
    """
    dtype = call.kind(sums).dtype
    if transform == "PROBIT":
        raise Unsupported("post_transform PROBIT of one score for two classes")
    if positive and transform != "LOGISTIC":
        first = call.emit("sub", call.number(1, dtype), sums)
        return call.emit("concat", first, sums, axis=1)
    both = call.emit("concat", call.emit("neg", sums), sums, axis=1)
    return call.emit("sigmoid", both) if transform == "LOGISTIC" else both


def tree_scores(
    call: OnnxNode, sums: str, base: Sequence[float], only: Sequence[int], count: int,
    positive: bool, transform: str,
) -> tuple[str, str]:  # fmt: skip
    """The class indices [n] and the scores from an ensemble's sums [n, count].

    `only` are the classes that leaves have weights for; `positive`: no weight is negative.
    """
    dtype = call.kind(sums).dtype
    if count == 1 or (count == 2 and tuple(only) == (0,) and len(base) < 2):
        one = call.emit("gather", sums, call.numbers([0], int64), axis=1)
        if len(base):
            one = call.emit("add", one, call.numbers(base[:1], dtype))
        indices = above(call, one, 0.5 if positive and count == 2 else 0.0)
        if count == 1:
            return indices, transform_scores(
                call, one, transform if transform == "PROBIT" else "NONE"
            )
        return indices, second_class(call, one, transform, positive)
    if len(base):
        wide = [*base, *(0.0,) * (count - len(base))]
        sums = call.emit("add", sums, call.numbers(wide, dtype))
    scores = transform_scores(call, sums, transform)
    if count == 2 and tuple(only) == (1,):
        second = call.emit("gather", sums, call.numbers([1], int64), axis=1)
        return above(call, second, 0.5 if positive else 0.0), scores
    candidates = sums
    if len(only) < count and not len(base):  # never choose a class without leaves
        silent = [0.0 if index in only else -numpy.inf for index in range(count)]
        candidates = call.emit("add", sums, call.numbers(silent, dtype))
    return best(call, candidates), scores


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

"""Postprocessing of classifiers: the selected class, and scores in the requested form.

The standard underspecifies it; converters target onnxruntime's behaviour, which this follows
(`write_scores` there). A classifier of two classes may have one sum, for the second class.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from anydim.base.dtypes import int64
from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode

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

"""Scattered updates beside numpy, one update after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.ops.case import case

REDUCED: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda old, new: new, "add": np.add, "mul": np.multiply, "min": np.minimum,
    "max": np.maximum,
}  # fmt: skip


def elements(axis: int, reduction: str = "none"):
    def reference(x, indices, updates):
        y = x.copy()
        for place in np.ndindex(*indices.shape):
            at = list(place)
            at[axis] = int(indices[place])
            y[tuple(at)] = REDUCED[reduction](y[tuple(at)], updates[place])
        return y

    return reference


def tuples(reduction: str = "none"):
    def reference(x, indices, updates):
        y = x.copy()
        for place in np.ndindex(*indices.shape[:-1]):
            at = tuple(indices[place].astype(int))
            y[at] = REDUCED[reduction](y[at], updates[place])
        return y

    return reference


def cache(axis: int, circular: bool):
    def reference(x, indices, updates):
        y = x.copy()
        for row in range(len(x)):
            for step in range(updates.shape[axis]):
                at = int(indices[row]) + step
                at = at % x.shape[axis] if circular else at
                y[row].swapaxes(0, axis - 1)[at] = updates[row].swapaxes(0, axis - 1)[step]
        return y

    return reference


def put(axis: int, first: int):
    def reference(x, new):
        y = x.copy()
        y.swapaxes(0, axis)[first : first + new.shape[axis]] = new.swapaxes(0, axis)
        return y

    return reference


def rows(count: int):
    def reference(past, first, fresh):
        y = np.zeros((*past.shape[:2], count, past.shape[3]), past.dtype)
        y[:, :, : past.shape[2]] = past[:, :, :count]
        for number, place in enumerate(first):
            y[number, :, int(place) : int(place) + fresh.shape[2]] = fresh[number]
        return y

    return reference


CASES = {
    "cached_rows": [
        case("float32[n, 2, 3, m]", "int64[n]", "float32[n, 2, 2, m]", count=9, high=8,
             to=rows(9)),
        case("float32[n, 2, m, 3]", "int64[n]", "float32[n, 2, 1, 3]", count=9, to=rows(9)),
    ],
    "scatter_elements": [
        case("float32[9, n]", "int64[4, n]", "float32[4, n]", low=-9, to=elements(0)),
        case("int32[n, 9]", "int32[n, 5]", "int32[n, 5]", axis=1, reduction="add", low=-9,
             to=elements(1, "add")),
        case("float32[9, 2, n]", "int64[3, 2, n]", "float32[3, 2, n]", reduction="max",
             to=elements(0, "max")),
        case("float32[9]", "int64[n]", "float32[n]", axis=-1, reduction="mul",
             to=elements(0, "mul")),
    ],
    "scatter_nd": [
        case("float32[9, 9, n]", "int64[m, 2]", "float32[m, n]", low=-9, to=tuples()),
        case("float32[9, n]", "int64[2, m, 1]", "float32[2, m, n]", reduction="add",
             to=tuples("add")),
        case("int32[9]", "int64[n, 1]", "int32[n]", reduction="min", to=tuples("min")),
    ],
    "put": [
        case("float32[n, 12, 3]", "float32[n, 4, 3]", axis=1, first=5, to=put(1, 5)),
        case("int32[n + 2, 5]", "int32[n, 5]", axis=0, first=1, to=put(0, 1)),
    ],
    "tensor_scatter": [
        case("float32[n, 2, 12, 3]", "int64[n]", "float32[n, 2, 3, 3]", to=cache(2, False)),
        case("float32[n, 9, 3]", "int64[n]", "float32[n, 4, 3]", axis=1, circular=True,
             to=cache(1, True)),
    ],
}  # fmt: skip

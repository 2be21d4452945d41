"""Lists of arrays as two arrays: all elements one after another, and the shape of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from anydim.base.dtypes import DType, from_numpy
from anydim.base.errors import InputError
from anydim.base.records import dataclass


@dataclass(frozen=True)
class Listed:
    """Two values that a user sees as a list of arrays: elements [total] and shapes [count, rank].

    The elements of all arrays follow one another, each array in row-major order. With `optional`
    there is at most one array: a user sees it, or None. With `single` there is one: a user sees it,
    and `shapes` is its shape [rank], whose length differs from call to call.
    """

    elements: str
    shapes: str
    optional: bool = False
    single: bool = False


def pack(
    name: str, arrays: Sequence[numpy.ndarray], dtype: DType, rank: int | None
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """(elements [total], shapes int64 [count, rank]) of a list; InputError for a wrong array.

    Without a `rank`, all arrays have as many axes as the first one.
    """
    if isinstance(arrays, numpy.ndarray) or not isinstance(arrays, (list, tuple)):
        raise InputError(f"input '{name}' is {type(arrays).__name__}, expected a list of arrays")
    held = [numpy.asarray(array) for array in arrays]
    if rank is None:
        rank = held[0].ndim if held else 0
    for number, array in enumerate(held):
        if from_numpy(array.dtype) != dtype or array.ndim != rank:
            raise InputError(
                f"input '{name}', array {number}: {array.dtype} with {array.ndim} axes came, "
                f"expected {dtype} with {rank}"
            )
    shapes = numpy.array([array.shape for array in held], numpy.int64).reshape(len(held), rank)
    flat = [array.reshape(-1) for array in held]
    return numpy.concatenate(flat) if flat else numpy.zeros(0, dtype.numpy), shapes


def seen(results: dict[str, Any], lists: Mapping[str, Listed]) -> dict[str, Any]:
    """Results as a user sees them, in their order."""
    found, of = {}, {parts.elements: name for name, parts in lists.items()}
    hidden = {parts.shapes for parts in lists.values()}
    for key, value in results.items():
        if key in of:
            parts = lists[of[key]]
            found[of[key]] = _seen(value, results[parts.shapes], parts)
        elif key not in hidden:
            found[key] = value
    return found


def _seen(elements: numpy.ndarray, shapes: numpy.ndarray, parts: Listed) -> Any:
    if parts.single:
        return elements.reshape(shapes)
    arrays = unpack(elements, shapes)
    return arrays if not parts.optional else arrays[0] if arrays else None


def unpack(elements: numpy.ndarray, shapes: numpy.ndarray) -> list[numpy.ndarray]:
    """The arrays of a list, each with memory of its own."""
    ends = numpy.cumsum(shapes.prod(axis=1))
    parts = numpy.split(elements, ends[:-1]) if len(shapes) else []
    return [part.reshape(shape).copy() for part, shape in zip(parts, shapes)]

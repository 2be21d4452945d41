"""Reads of the numpy evaluator: slices where possible, else bounds-checked gathers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy

from anydim.base.errors import InputError
from anydim.lang.tree import Expr, Read
from anydim.lang.tree.affine import affine

Array = numpy.ndarray[Any, Any]
Span = tuple[int, int]


def read_values(
    tensor: Array,
    read: Read,
    spans: Mapping[str, Span],
    dimensions: Mapping[str, int],
    value: Callable[[Expr], Array],
    default: Array | None,
    sizes: Mapping[str, int],
    used: Array | None = None,
) -> Array:
    """Evaluate a read over the spans of all indices, with a dimension per index.

    Raises InputError for a position out of bounds, unless the read has a default or its value is
    not `used` there (None: it is used everywhere).
    """
    if read.flat:
        tensor = tensor.reshape(-1)
    if default is None:
        sliced = _slice_read(tensor, read, spans, dimensions, sizes)
        if sliced is not None:
            return sliced
    positions = [value(index) for index in read.indices]
    if any(p.dtype == object for p in positions):
        raise InputError(
            f"tensor '{read.tensor}' is read at a position that is known only at run time"
        )
    return _gather_read(tensor, read, positions, default, len(dimensions), used)


def _slice_read(
    tensor: Array,
    read: Read,
    spans: Mapping[str, Span],
    dimensions: Mapping[str, int],
    sizes: Mapping[str, int],
) -> Array | None:
    """Slice a tensor if each dimension is read by an index of its own or at a constant."""
    cuts: list[Any] = []
    order: list[int] = []
    for position, length in zip(read.indices, tensor.shape):
        form = affine(position)
        if form is None or len(form.terms) > 1:
            return None
        offset = form.constant.evaluate(sizes)
        if not form.terms:
            _check(read, offset, offset, length, tensor)
            cuts.append(offset)
            continue
        name, coefficient = form.terms[0]
        step = coefficient.evaluate(sizes)
        start, stop = spans[name]
        if step <= 0 or dimensions[name] in order:
            return None
        first, last = offset + step * start, offset + step * (stop - 1)
        _check(read, first, last, length, tensor)
        cuts.append(slice(first, last + 1, step))
        order.append(dimensions[name])
    part = tensor[tuple(cuts)]
    part = numpy.asarray(part, dtype=tensor.dtype).transpose(numpy.argsort(order))
    shape = [1] * len(dimensions)
    for dimension, length in zip(sorted(order), part.shape):
        shape[dimension] = length
    return part.reshape(shape)


def _check(read: Read, low: int, high: int, length: int, tensor: Array) -> None:
    if low < 0 or high >= length:
        wrong = low if low < 0 else high
        raise outside_error(read.tensor, wrong, tensor.shape)


def outside_error(
    tensor: str, position: int, shape: tuple[int, ...], access: str = "read"
) -> InputError:
    """Error for a position out of bounds that is 'read' or 'written'."""
    return InputError(
        f"tensor '{tensor}' is {access} at {position}, outside its shape {shape}",
        "indices start at 0 and end before the size",
    )


def _gather_read(
    tensor: Array, read: Read, positions: list[Array], default: Array | None, rank: int,
    used: Array | None,
) -> Array:  # fmt: skip
    inside: Any = True
    safe = []
    for position, length in zip(positions, tensor.shape):
        within = (position >= 0) & (position < length)
        wrong = ~within if used is None else ~within & used
        if default is None and wrong.any():
            found = numpy.broadcast_to(position, wrong.shape)[wrong]
            raise outside_error(read.tensor, int(found.flat[0]), tensor.shape)
        inside = inside & within
        safe.append(numpy.where(within, position, 0))
    if not positions:
        return tensor.reshape((1,) * rank)
    if tensor.size == 0:
        shape = numpy.broadcast_shapes(*(p.shape for p in positions))
        value = numpy.zeros((1,) * rank, tensor.dtype) if default is None else default
        return numpy.broadcast_to(value, numpy.broadcast_shapes(value.shape, shape))
    if default is None:
        return tensor[tuple(safe)]
    return numpy.where(inside, tensor[tuple(safe)], default)

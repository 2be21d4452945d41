"""Random inputs of a program, for profiles and placement measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from anydim.base.errors import OptionError, OutOfMemoryError
from anydim.base.user_values import integer_of, short_repr
from anydim.runtime.signature import TensorSpec
from anydim.sizes import LARGEST, Size, as_size

Ranges = Mapping[str, tuple[int, int | Size]]


def known_ranges(given: Mapping[str, Any]) -> Ranges:
    """Return pairs (low, high) of integers; raises OptionError for anything else."""
    for name, ends in given.items():
        pair = isinstance(ends, (tuple, list)) and len(ends) == 2
        try:
            low, high = map(integer_of, ends) if pair else (1, 0)
        except TypeError:
            low, high = 1, 0
        if not -LARGEST <= low <= high <= LARGEST:
            raise OptionError(
                f"the integer range of '{name}' is {short_repr(ends)}",
                "give (low, high), inclusive",
            )
    return dict(given)


def draw(
    spec: TensorSpec,
    sizes: Mapping[str, int],
    data: numpy.random.Generator,
    integers: tuple[int, int | Size] = (0, 1),
) -> numpy.ndarray:
    """Return a random array for an input at given sizes; an empty range yields its low end."""
    shape = tuple(size.evaluate(sizes) for size in spec.shape)
    low, high = integers[0], as_size(integers[1]).evaluate(sizes)
    try:
        if spec.dtype.is_float:
            return data.standard_normal(shape).astype(spec.dtype.numpy)
        if spec.dtype.kind == "complex":
            parts = data.standard_normal((*shape, 2))
            return parts.view(numpy.complex128)[..., 0].astype(spec.dtype.numpy)
        return data.integers(low, max(low, high) + 1, shape).astype(spec.dtype.numpy)
    except (MemoryError, ValueError):  # ValueError: above numpy's maximum
        problem = f"there is no memory for an input '{spec.name}' of shape {shape}"
        raise OutOfMemoryError(problem, "draw smaller sizes") from None

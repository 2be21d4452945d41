"""Sizes and bounds given by users: numbers of any integer type, pairs, Dims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anydim.base.errors import DimError, OptionError
from anydim.base.user_values import integer_of, short_repr
from anydim.sizes.box import Dim
from anydim.sizes.interval import LARGEST

_FORMS = 'give a size such as 128, bounds such as (1, 512), or Dim(1, 512), by name: {"seq": 128}'


def given_dims(dims: Any) -> dict[str, Dim]:
    """Bounds by name: a Dim, a pair of bounds (None: no upper one), or one size.

    A mapping by axis, `{"x": {2: 48}}`, is for axes of an input: `x.2`. Raises OptionError for
    anything else.
    """
    if dims is None:
        return {}
    if not isinstance(dims, Mapping):
        raise OptionError(f"dims is {short_repr(dims)}, expected a mapping by name", _FORMS)
    return {name: _dim(name, value) for name, value in _flat(dims)}


def _flat(dims: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in dims.items():
        if not isinstance(value, Mapping):
            yield _name(name), value
            continue
        for axis, bounds in value.items():
            try:
                yield f"{_name(name)}.{integer_of(axis)}", bounds
            except TypeError:
                problem = (
                    f"dims of '{name}': {short_repr(axis)} is not an axis, expected an integer"
                )
                raise OptionError(problem, 'such as {"x": {2: (32, 736)}}') from None


def _name(name: Any) -> str:
    if isinstance(name, str):
        return name
    raise OptionError(f"dims has {short_repr(name)} for a name, expected a string", _FORMS)


def _dim(name: str, value: Any) -> Dim:
    if isinstance(value, Dim):
        return value
    try:
        ends = value if isinstance(value, (tuple, list)) and len(value) == 2 else (value, value)
        low, high = (None if end is None else integer_of(end) for end in ends)
    except TypeError:
        raise OptionError(f"dim '{name}' is given as {short_repr(value)}", _FORMS) from None
    if low is None:
        raise OptionError(
            f"dim '{name}' is given without a lower bound: {short_repr(value)}", _FORMS
        )
    try:
        return Dim(low, high)
    except OptionError as error:
        raise OptionError(error.problem.replace("a dim", f"dim '{name}'", 1), _FORMS) from None


def given_sizes(name: str, sizes: Mapping[str, Any]) -> dict[str, int]:
    """Sizes by the name of their dim, for the program `name`; DimError for an invalid size."""
    return {dim: _size(name, dim, value) for dim, value in sizes.items()}


def _size(name: str, dim: str, value: Any) -> int:
    try:
        size = integer_of(value)
    except TypeError:
        raise DimError(
            f"{name}: dim '{dim}' is {short_repr(value)}, expected an integer", f"such as {dim}=8"
        ) from None
    if abs(size) > LARGEST:
        raise DimError(f"{name}: dim '{dim}' is {short_repr(size)}, which does not fit 64 bits")
    return size

"""Arguments of a definition: arrays, numbers and shapes for parameters, and fixed sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from anydim.base.dtypes import DTYPES, array_of_numbers
from anydim.base.errors import InputError, OptionError
from anydim.base.frozen import freeze_value
from anydim.base.text import axes_text
from anydim.base.user_values import by_names, short_repr, whole_within
from anydim.lang.surface.syntax import TYPE_NAMES, Definition, Parameter, Spread
from anydim.runtime.arrays import shared_array
from anydim.runtime.ragged import parts_of
from anydim.sizes import LARGEST

Shape = tuple[int, ...]


def sizes_of(definition: Definition) -> set[str]:
    """The names of the sizes in the shapes of a definition's parameters."""
    terms = [term for parameter in definition.parameters for term in parameter.shape]
    names = {term.name for term in terms if hasattr(term, "name") and not isinstance(term, Spread)}
    return names - {attribute.name for attribute in definition.attributes}


def known_sizes(fixed: Any) -> dict[str, int]:
    """Check sizes to be fixed; raises OptionError for an invalid one."""
    hint = "give sizes from 0 up by name, such as {'N': 64}"
    return {
        name: whole_within(f"fixed size '{name}'", value, 0, LARGEST, hint)
        for name, value in by_names("fixed", fixed).items()
    }


def own_sizes(definition: Definition, fixed: Mapping[str, int]) -> dict[str, int]:
    """The entries of `fixed` that are sizes of a definition."""
    own = sizes_of(definition)
    return {name: value for name, value in fixed.items() if name in own}


def constant(name: str, value: Any) -> Any:
    """An attribute's value, with numpy scalars and scalar types converted to Python's.

    Raises OptionError for a value that cannot be an attribute: it has no hash.
    """
    if isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, numpy.dtype) or _is_scalar_type(value):
        return numpy.dtype(value).name
    try:
        hash(freeze_value(value))
    except Exception:  # any error of the object
        raise OptionError(
            f"attribute '{name}' is {short_repr(value)}", "give a number, a bool or an element type"
        ) from None
    return value


def _is_scalar_type(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, numpy.generic)


def array_of(value: Any, parameter: Parameter, shared: Mapping[str, numpy.dtype]) -> numpy.ndarray:
    """Convert an argument to a numpy array; numbers and lists take the declared element type.

    If that is a type variable, they take its type in the other arguments (`shared`).
    """
    if isinstance(value, numpy.ndarray):
        return value
    kind = TYPE_NAMES.get(parameter.type)
    wanted = shared.get(parameter.type) if kind is None else DTYPES[kind].numpy
    if wanted is None and isinstance(value, float):
        wanted = numpy.dtype(numpy.float32)
    try:
        if value is None:
            raise TypeError("None is no number")
        if wanted is None or isinstance(value, numpy.generic):
            return numpy.asarray(value, wanted)
        return array_of_numbers(value, wanted)
    except (TypeError, ValueError, OverflowError) as error:
        hint = f"give an array of {wanted or 'numbers'}, a number, or lists of equal lengths"
        raise InputError(f"argument '{parameter.name}': {error}", hint) from None


def rows_of(value: Any, parameter: Parameter, shared: Mapping[str, numpy.dtype]) -> Any:
    """The rows of an argument for a parameter with ragged sizes; None for an array of all rows.

    Rows are an `ad.Ragged` or the like, a list with arrays, or nested lists of different lengths.
    """
    if not parameter.rows or isinstance(value, (numpy.ndarray, numpy.generic)):
        return None
    if parts_of(value) is not None:
        return value
    if not isinstance(value, (list, tuple)):
        return None
    rows = [array_of(row, parameter, shared) for row in value]
    are_arrays = any(hasattr(row, "shape") for row in value)
    return rows if are_arrays or len({row.shape for row in rows}) != 1 else None


def array_for(rows: Any, parameter: Parameter, shared: Mapping[str, numpy.dtype]) -> numpy.ndarray:
    """An array of the element type and rank of rows joined along a new axis, of one element."""
    dtype: numpy.dtype | None
    if not isinstance(rows, list):
        values, _, *shapes = parts_of(rows) or (numpy.zeros(0), None)
        row = shapes[0][0] if shapes and shapes[0] else numpy.shape(values)
        dtype, rank = numpy.asarray(values).dtype, len(row) + 1
    elif rows:
        dtype, rank = rows[0].dtype, rows[0].ndim + 1
    else:
        kind = TYPE_NAMES.get(parameter.type)
        usual = shared.get(parameter.type, numpy.dtype(numpy.float32))
        dtype = usual if kind is None else DTYPES[kind].numpy
        rank = len(parameter.shape)
    wanted = len(parameter.shape)
    if rank != wanted and not any(isinstance(term, Spread) for term in parameter.shape):
        raise InputError(
            f"argument '{parameter.name}': a row has {axes_text(rank - 1)}, expected {wanted - 1}",
            "give one array per row, without the axis of the batch",
        )
    return numpy.broadcast_to(numpy.zeros((), dtype), (2,) * rank)


def array_of_shape(value: Any, parameter: Parameter, types: Mapping[str, str]) -> numpy.ndarray:
    """An array of a given shape that stores one element; `types` maps type variables."""
    if isinstance(value, numpy.ndarray) or hasattr(value, "__dlpack__"):
        where = f"argument '{parameter.name}'"
        array = value if isinstance(value, numpy.ndarray) else shared_array(value, where)
        return numpy.broadcast_to(numpy.zeros((), array.dtype), array.shape)
    shape = value if isinstance(value, (tuple, list)) else ()
    kind = {**types, **TYPE_NAMES}.get(parameter.type, "float32")
    try:
        return numpy.broadcast_to(numpy.zeros((), DTYPES[kind].numpy), tuple(shape))
    except (TypeError, ValueError):
        raise InputError(
            f"argument '{parameter.name}': {value!r} is no shape",
            "give sizes, such as (3, 4), an array, or a number",
        ) from None


def any_shape(parameter: Parameter) -> Shape:
    """A shape that fits a parameter's rank, with one axis for an ellipsis."""
    return (2,) * len(parameter.shape)

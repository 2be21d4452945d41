"""Types of mixed operands, as numpy has them.

`loop_types` is numpy's own answer for one of its functions. A Python number has no type of its own:
next to a float it takes the float's type, next to integers a float makes float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy

from anydim.base.dtypes import DType, boolean, convert_array, float64, from_numpy, int64
from anydim.base.errors import GraphError
from anydim.base.user_values import short_repr
from anydim.sizes import Size

Kind: TypeAlias = "DType | type[int] | type[float]"  # of an operand; a class: a Python number's

_HINT = "operands are values of the graph, arrays, numbers and sizes"


def array_like(item: Any) -> Any:
    """An operand; lists of numbers as an array. Raises GraphError for what is no operand."""
    if isinstance(item, (bool, int, float, Size, numpy.generic, numpy.ndarray)):
        return item
    if is_value(item):
        return item
    hint = _HINT
    if isinstance(item, (list, tuple)) and not _holds_values(item):
        array = _as_array(item)
        if array is not None and array.dtype.kind in "biuf":
            return array
    elif isinstance(item, (list, tuple)):
        hint = "make one value of several: numpy.stack([...])"
    elif item is None:
        hint = "is it None? `x is None`"
    elif hasattr(item, "__dlpack__"):
        hint = "give a numpy array: numpy.from_dlpack(array)"
    raise GraphError(f"{short_repr(item)} is no operand of a value of a graph", hint)


def _holds_values(items: Any) -> bool:
    if isinstance(items, (list, tuple)):
        return any(map(_holds_values, items))
    return is_value(items)


def _as_array(items: Any) -> numpy.ndarray | None:
    try:
        return numpy.asarray(items)
    except Exception:  # arbitrary objects in a list may raise anything
        return None


def kind_of(item: Any) -> Kind:
    """The type of an operand, or the class of a Python number. A size counts as an integer."""
    if isinstance(item, (numpy.generic, numpy.ndarray)):
        return from_numpy(item.dtype)
    if isinstance(item, bool):
        return boolean
    if isinstance(item, (int, Size)):
        return int
    if isinstance(item, float):
        return float
    found: DType = item.dtype
    return found


@cache
def loop_types(name: str, kinds: tuple[Kind, ...]) -> tuple[DType, ...]:
    """The types in which numpy computes one of its functions, then those of its results.

    Raises GraphError if numpy has no such function of these types.
    """
    function = getattr(numpy, name, numpy.multiply)  # numpy 1 has no vecdot
    floats = [kind for kind in kinds if isinstance(kind, DType) and kind.is_float]
    own = floats[0] if floats and not floats[0].is_native else float
    given = [own if kind is float else kind for kind in kinds]  # numpy: bfloat16 + 1.0 is float32
    dtypes = [kind.numpy if isinstance(kind, DType) else kind for kind in given]
    try:
        found = function.resolve_dtypes((*dtypes, *[None] * function.nout))
        return tuple(map(from_numpy, found))
    except TypeError:
        types = ", ".join(kind if isinstance(kind, str) else _kind_name(kind) for kind in kinds)
        raise GraphError(f"numpy.{name} is not defined for {types}", _advice(name)) from None


def _kind_name(kind: Kind) -> str:
    return kind.name if isinstance(kind, DType) else f"a Python {kind.__name__}"


def _advice(name: str) -> str:
    return {
        "subtract": "of bools: `^`, or convert them: x.astype('int32')",
        "negative": "of bools: `~`, or convert them: x.astype('int32')",
    }.get(name, "convert: x.astype('int32')")


def common_type(kinds: Sequence[Kind]) -> DType:
    """The type to which numpy promotes operands, as for numpy.concatenate and numpy.where."""
    strong = [kind.numpy for kind in kinds if isinstance(kind, DType)]
    found = from_numpy(numpy.result_type(*strong)) if strong else boolean
    if float in kinds and not found.is_float:
        return float64
    return int64 if int in kinds and found == boolean else found


def number(value: int | float, dtype: DType) -> numpy.ndarray:
    """A number as an array of a type; GraphError if the type cannot represent it."""
    try:
        array = numpy.array(value, dtype.numpy)
        held = dtype.is_float or array.item() == value
    except (OverflowError, ValueError):  # out of range, or infinity or NaN in an integer type
        held = False
    if not held:
        problem = f"{value} is no value of {dtype}, the type of the other operands"
        raise GraphError(problem, "convert these: g.cast(x, to=...)")
    return array


def value_of(g: Any, item: Any, dtype: DType) -> Any:
    """An operand as a value of a builder's graph and of a type."""
    if isinstance(item, (numpy.generic, numpy.ndarray)):
        return g.constant(convert_array(numpy.asarray(item), dtype.numpy))
    if isinstance(item, Size):
        if item.constant is None:
            made = g._apply("size_tensor", (), {"values": (item,), "dtype": int64, "scalar": True})
            return cast(g, made, dtype)
        item = item.constant
    if isinstance(item, (bool, int, float)):
        return g.constant(number(item, dtype))
    return cast(g, g._own(item), dtype)


def cast(g: Any, value: Any, dtype: DType) -> Any:
    """Convert a value, if it has another type."""
    return value if value.dtype == dtype else g._apply("cast", (value,), {"to": dtype})


def common_values(g: Any, items: Sequence[Any]) -> list[Any]:
    """Operands as values of the type to which numpy promotes them."""
    given = [array_like(item) for item in items]
    common = common_type([kind_of(item) for item in given])
    return [value_of(g, item, common) for item in given]


def common_arrays(g: Any, items: Sequence[Any]) -> list[Any]:
    """Operands of one type for functions of numpy that convert Python numbers to arrays first."""
    return common_values(g, [strong(item) for item in items])


def strong(item: Any) -> Any:
    """An operand; a Python number as an array, which has a type of its own."""
    return numpy.asarray(item) if isinstance(item, (bool, int, float)) else array_like(item)


def as_value(g: Any, item: Any) -> Any:
    """A value of a builder's graph; an array, or what numpy converts, becomes a constant."""
    if isinstance(item, Size):
        return value_of(g, item, int64)
    return g._own(item) if is_value(item) else g.constant(item)


def is_value(item: Any) -> bool:
    """Whether an operand is a value of a graph."""
    return hasattr(item, "builder") and hasattr(item, "dtype")


def builder_of(operands: Iterable[Any]) -> Any:
    """The builder of the innermost graph of the values among operands."""
    values = [item for item in operands if is_value(item)]
    return values[0].builder._innermost(values)

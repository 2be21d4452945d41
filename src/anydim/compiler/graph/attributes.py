"""Checks of the attributes that a caller gives an operator, before its rule reads them.

What an attribute is follows from its default: True or False, an integer, a number or a text. Names
whose default does not tell are in a table. numpy's scalars become Python's, lists become tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy

from anydim.base.errors import GraphError
from anydim.base.frozen import freeze_value
from anydim.base.user_values import integer_of, short_repr
from anydim.sizes import Size, as_size

_LARGEST = (1 << 64) - 1
Check = Callable[[Any], Any]
"""Converts a value; raises TypeError for one of another kind."""


def _flag(value: Any) -> bool:
    if isinstance(value, (bool, numpy.bool_)) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise TypeError


def _integer(value: Any) -> int:
    constant = isinstance(value, Size) and value.constant is not None
    number = value.constant if constant else integer_of(value)
    if abs(number) > _LARGEST:
        raise TypeError
    return number


def _number(value: Any) -> Any:
    if isinstance(value, numpy.generic) and value.size == 1:
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        raise TypeError
    float(value)  # raises for an integer beyond
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return str(value)


def _whole(value: Any) -> int:
    number = _integer(value)
    if number < 0:
        raise TypeError
    return number


def _size(value: Any) -> Size | int:
    if isinstance(value, (Size, str)):
        return as_size(value)
    return _integer(value)


def _count(value: Any) -> Size | int:
    size = _size(value)
    if not isinstance(size, Size) and size < 0:
        raise TypeError
    return size


def _activation(value: Any) -> tuple[str, float, float]:
    label, alpha, beta = value
    return _text(label), _number(alpha), _number(beta)


def _any(value: Any) -> Any:
    frozen = freeze_value(value)
    hash(frozen)
    return frozen


def _list_of(check: Check) -> Check:
    def items(value: Any) -> tuple[Any, ...]:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return tuple(map(check, value))

    return items


def _either(*checks: Check) -> Check:
    def first(value: Any) -> Any:
        for check in checks[:-1]:
            try:
                return check(value)
            except TypeError:
                continue
        return checks[-1](value)

    return first


_ANY = _any, "a value with a hash"
_FLAG = _flag, "True or False"
_INTEGER = _integer, "an integer of 64 bits"
_NUMBER = _number, "a number"
_TEXT = _text, "a text"
_WHOLE = _whole, "an integer of at least 0"
_SIZE = _size, "an integer, or an expression of dims"
_COUNT = _count, "a size: an integer of at least 0, or an expression of dims"
_SIZES = _list_of(_size), "a list of sizes"
_AXES = _either(_integer, _list_of(_integer)), "an axis, or a list of axes"
_INTEGERS = _list_of(_integer), "a list of integers"
_NUMBERS = _list_of(_number), "a list of numbers"
_PADS = _either(_text, _list_of(_size)), "a list of sizes, or a text such as 'same_upper'"

_Kind = tuple[Check, str]
_BY_DEFAULT: Mapping[type, _Kind] = {bool: _FLAG, int: _INTEGER, float: _NUMBER, str: _TEXT}
_BY_NAME: Mapping[str, _Kind] = {
    **dict.fromkeys(("bits", "block", "groups", "longest", "samples", "trees", "width"), _INTEGER),
    **dict.fromkeys(("dilations", "kernel", "perm", "strides"), _INTEGERS),
    **dict.fromkeys(("scales", "weights"), _NUMBERS),
    **dict.fromkeys(("bins", "columns", "count", "depth", "first", "length", "rows", "size"),
                    _COUNT),
    **dict.fromkeys(("k", "start", "step"), _SIZE),
    **dict.fromkeys(("after", "before", "ends", "repeats", "shape", "sizes", "starts", "steps",
                     "values"), _SIZES),
    "axes": _AXES, "axis": _INTEGER, "equation": _TEXT, "pads": _PADS, "plan": _TEXT,
    "activations": (_list_of(_activation), "a list of names with two numbers each"),
    "given": (_list_of(_text), "a list of texts"),
}  # fmt: skip
_OWN: Mapping[tuple[str, str], _Kind] = {
    **dict.fromkeys((("softmax", "axis"), ("log_softmax", "axis")), _AXES),
    **dict.fromkeys((("tree_ensemble", "depth"), ("pairwise_coupling", "count")), _WHOLE),
    ("call_levels", "counts"): _SIZES,
}


def check_attribute(operator: str, name: str, default: Any, value: Any) -> Any:
    """The value of an attribute, with a hash; raises GraphError for one of another kind."""
    if value is None and default is None:
        return None
    own = None if isinstance(default, bool) else _BY_NAME.get(name)
    kind = _OWN.get((operator, name), own)
    check, wanted = kind or _BY_DEFAULT.get(type(default), _ANY)
    try:
        return check(value)
    except Exception:  # any error of the object
        raise GraphError(
            f"operator '{operator}': {name} is {short_repr(value)}", f"give {wanted}"
        ) from None

"""Binding of arguments to parameters: ranks of ellipses, size and type variables, attributes.

The extents of ellipses are inferred in `broadcast.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import inf
from sys import float_info
from typing import Any

from anydim.base.dtypes import DTYPES, DType
from anydim.base.errors import LanguageError, UserError
from anydim.base.records import dataclass
from anydim.base.text import count_of, quote_list, suggestion
from anydim.base.user_values import is_real, short_repr
from anydim.lang.resolve.ranks import ellipses_of, ranks_of
from anydim.lang.surface.syntax import (
    FUNCTION_ALIASES,
    TYPE_NAMES,
    Attribute,
    CallTerm,
    Definition,
    Name,
    Number,
    Operation,
    Parameter,
    Spread,
    Term,
)
from anydim.lang.tree import Axis, Expr, Literal, SizeTerm, TensorType
from anydim.sizes import Box, Size, Truth, as_size, maximum, minimum, prove
from anydim.sizes.guard import Guard


@dataclass
class Binding:
    """The values of a definition's names, once its arguments are known.

    `by_call`: a read that is out of bounds at these sizes raises an error in the calls that reach
    it, as with free sizes, not at compile time.
    """

    definition: Definition
    box: Box
    by_call: bool = False
    tensors: dict[str, TensorType] = field(
        default_factory=dict
    )  # equal sizes are one expression here
    dtypes: dict[str, DType] = field(default_factory=dict)
    sizes: dict[str, Size] = field(default_factory=dict)
    origins: dict[str, str] = field(
        default_factory=dict
    )  # the dimension that bound each size, for errors
    attributes: dict[str, Expr] = field(default_factory=dict)
    ellipses: dict[str, tuple[Axis, ...]] = field(default_factory=dict)
    spreads: dict[tuple[str, str], int] = field(default_factory=dict)  # (tensor, ellipsis) -> rank
    guards: list[Guard] = field(default_factory=list)

    def error(self, position: int, problem: str, hint: str = "") -> LanguageError:
        return self.definition.error(position, problem, hint)

    def is_proved(self, left: Size, relation: str, right: Size | int) -> bool:
        return prove(left, relation, right, self.box) is Truth.PROVED

    def guard(self, left: Size, relation: str, right: Size, message: str) -> None:
        """Add a guard, if it is new."""
        guard = Guard(left, relation, right, f"{self.definition.name}: {message}")
        if guard not in self.guards:
            self.guards.append(guard)


def bind(
    definition: Definition,
    types: Sequence[TensorType],
    attributes: Mapping[str, Any],
    box: Box,
    by_call: bool = False,
) -> Binding:
    """Bind a definition to argument types; raises LanguageError when they do not fit."""
    binding = Binding(definition, box, by_call)
    parameters = definition.parameters
    if len(types) != len(parameters):
        names = ", ".join(p.name for p in parameters)
        raise binding.error(
            definition.position,
            f"takes {count_of(len(parameters), 'tensor')} ({names}), not {len(types)}",
        )
    _bind_attributes(binding, attributes)
    for parameter, kind in zip(parameters, types):
        _bind_dtype(binding, parameter, kind.dtype)
        binding.tensors[parameter.name] = kind
    layouts = _bind_ranks(binding, attributes)
    checked: list[tuple[Parameter, Term, int, Size]] = []
    for parameter, layout in zip(parameters, layouts):
        for term, axis in layout:
            actual = binding.tensors[parameter.name].shape[axis]
            if isinstance(term, Name) and term.name not in binding.attributes:
                _bind_size(binding, parameter, term, axis, actual)
            else:
                checked.append((parameter, term, axis, actual))
    for parameter, term, axis, actual in checked:
        what = f"dimension {axis} of {parameter.name}"
        agree(binding, shape_size(binding, term), actual, term.position, "the declared size", what)
    for parameter, layout in zip(parameters, layouts):
        _use_declared_sizes(binding, parameter, layout)
    return binding


# ---- attributes and element types --------------------------------------------------------------


def _bind_attributes(binding: Binding, given: Mapping[str, Any]) -> None:
    definition = binding.definition
    known = {attribute.name for attribute in definition.attributes}
    ellipses = {f"...{name}" for name in ellipses_of(definition)}
    for name in given:
        if name not in known | ellipses:
            there = sorted(known) + sorted(ellipses)
            hint = suggestion(name, there) or f"its attributes are {quote_list(there)}"
            raise binding.error(definition.position, f"there is no attribute '{name}'", hint)
    for attribute in definition.attributes:
        value = given.get(attribute.name, attribute.default)
        if value is None:
            raise binding.error(
                attribute.position, f"attribute '{attribute.name}' is not given",
                f"give it by name, {attribute.name}=..., or a default: "
                f"{attribute.kind} {attribute.name} = ...",
            )  # fmt: skip
        if attribute.kind == "type":
            binding.dtypes[attribute.name] = _type_value(binding, attribute, value)
        else:
            binding.attributes[attribute.name] = _value(binding, attribute, value)


def _type_value(binding: Binding, attribute: Attribute, value: Any) -> DType:
    text = value if isinstance(value, str) else short_repr(value)
    name = value.name if isinstance(value, DType) else text
    if name not in TYPE_NAMES:
        hint = suggestion(name, TYPE_NAMES)
        raise binding.error(attribute.position, f"there is no element type '{name}'", hint)
    return DTYPES[TYPE_NAMES[name]]


def _value(binding: Binding, attribute: Attribute, value: Any) -> Expr:
    """The expression of an attribute; integers also serve as sizes."""
    kind = attribute.kind
    if kind in ("int", "size") and isinstance(value, Size):
        return SizeTerm(value) if value.constant is None else Literal(value.constant)
    if kind == "bool" and isinstance(value, (bool, int)):
        return Literal(bool(value))
    number = is_real(value)
    if kind == "float" and number and not float_info.max < abs(value) < inf:
        return Literal(float(value))
    if kind in ("int", "size") and number and -(2**63) <= value < 2**64 and value == int(value):
        return Literal(int(value))
    article = "an" if kind == "int" else "a"
    raise binding.error(
        attribute.position,
        f"attribute '{attribute.name}' must be {article} {kind}, not {short_repr(value)}",
        _EXAMPLES[kind],
    )  # fmt: skip


_EXAMPLES = {
    "int": "give a whole number", "size": "give a whole number", "float": "give a number",
    "bool": "give True or False",
}  # fmt: skip


def _bind_dtype(binding: Binding, parameter: Parameter, dtype: DType) -> None:
    wanted = parameter.type
    if wanted in TYPE_NAMES:
        expected, why = DTYPES[TYPE_NAMES[wanted]], ""
    else:
        expected, why = binding.dtypes.setdefault(wanted, dtype), f" ({wanted})"
    if expected != dtype:
        raise binding.error(
            parameter.position,
            f"'{parameter.name}' is {expected}{why}, but the argument is {dtype}",
            f"give an array of {expected}, or declare a type variable: T(...) {parameter.name}",
        )


# ---- ranks -------------------------------------------------------------------------------------

Layout = list[tuple[Term, int]]  # the terms of a shape that are one dimension, with its index


def _bind_ranks(binding: Binding, given: Mapping[str, Any]) -> list[Layout]:
    """Determine the rank of every ellipsis in each parameter, and the index of every dimension."""
    arguments = {name: kind.rank for name, kind in binding.tensors.items()}
    ranks = ranks_of(binding.definition, arguments, given)
    binding.spreads = ranks.own
    binding.ellipses = {
        name: _ellipsis_axes(binding, name, rank) for name, rank in ranks.whole.items()
    }
    return [_layout(binding, parameter) for parameter in binding.definition.parameters]


def _ellipsis_axes(binding: Binding, name: str, rank: int) -> tuple[Axis, ...]:
    """Unique index names of an ellipsis; their extents are set later."""
    taken = binding.definition.text
    stem = name if f"{name}0" not in taken else f"{name}_"
    return tuple(Axis(f"{stem}{i}", as_size(1)) for i in range(rank))


def _layout(binding: Binding, parameter: Parameter) -> Layout:
    dimensions: Layout = []
    axis = 0
    for term in parameter.shape:
        if isinstance(term, Spread):
            axis += binding.spreads[parameter.name, term.name]
        else:
            dimensions.append((term, axis))
            axis += 1
    return dimensions


def spread_axes(binding: Binding, parameter: Parameter, name: str) -> range:
    """The dimensions of a parameter that its `...name` stands for."""
    axis = 0
    for term in parameter.shape:
        rank = binding.spreads[parameter.name, term.name] if isinstance(term, Spread) else 1
        if isinstance(term, Spread) and term.name == name:
            return range(axis, axis + rank)
        axis += rank
    return range(0)


# ---- sizes -------------------------------------------------------------------------------------


def _bind_size(binding: Binding, parameter: Parameter, term: Name, axis: int, actual: Size) -> None:
    before = binding.sizes.get(term.name)
    what = f"dimension {axis} of {parameter.name}"
    if before is None:
        binding.sizes[term.name] = actual
        binding.origins[term.name] = what
        return
    known = f"size {term.name}, {binding.origins[term.name]},"
    agree(binding, before, actual, term.position, known, what)
    if before.constant is None and actual.constant is not None:
        binding.sizes[term.name] = actual


def _use_declared_sizes(binding: Binding, parameter: Parameter, layout: Layout) -> None:
    """Replace the dimensions of a parameter by its declared sizes, proved or guarded equal."""
    kind = binding.tensors[parameter.name]
    shape = list(kind.shape)
    for term, axis in layout:
        shape[axis] = shape_size(binding, term)
    binding.tensors[parameter.name] = TensorType(kind.dtype, tuple(shape))


def agree(
    binding: Binding, expected: Size, actual: Size, position: int, left: str, right: str
) -> None:
    """Require two sizes to be equal: proved, rejected, or guarded."""
    truth = prove(expected, "==", actual, binding.box)
    if truth is Truth.REFUTED:
        raise binding.error(position, f"{left} is {expected}, but {right} is {actual}")
    if truth is Truth.UNKNOWN:
        binding.guard(expected, "==", actual, f"{left} equals {right}")


def shape_size(binding: Binding, term: Term) -> Size:
    """The size of a term of a shape, once the size variables are bound."""
    if isinstance(term, Number) and isinstance(term.value, int):
        return as_size(int(term.value))
    if isinstance(term, Name):
        if term.name in binding.attributes:
            return _attribute_size(binding, term)
        if term.name in binding.sizes:
            return binding.sizes[term.name]
        raise binding.error(term.position, f"size '{term.name}' is not the size of a dimension")
    if isinstance(term, (Operation, CallTerm)):
        name = term.function if isinstance(term, Operation) else term.name
        parts = [shape_size(binding, argument) for argument in term.arguments]
        folded = fold_sizes(FUNCTION_ALIASES.get(name, name), parts)
        if folded is not None:
            return folded
    raise binding.error(term.position, "this is not a size")


def _attribute_size(binding: Binding, term: Name) -> Size:
    value = binding.attributes[term.name]
    if isinstance(value, SizeTerm):
        return value.size
    if isinstance(value, Literal) and type(value.value) is int:
        return as_size(value.value)
    raise binding.error(term.position, f"attribute '{term.name}' is not a size")


def fold_sizes(function: str, parts: Sequence[Size]) -> Size | None:
    """Apply a function to sizes; None when the result is not a size, or on division by 0."""
    try:
        if function == "add":
            return parts[0] + parts[1]
        if function == "sub":
            return parts[0] - parts[1]
        if function == "mul":
            return parts[0] * parts[1]
        if function == "neg":
            return -parts[0]
        if function in ("floordiv", "mod"):
            return parts[0] // parts[1] if function == "floordiv" else parts[0] % parts[1]
    except UserError:
        return None
    if function in ("min", "max"):
        return minimum(*parts) if function == "min" else maximum(*parts)
    return None

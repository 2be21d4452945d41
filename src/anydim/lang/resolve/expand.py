"""Expansion of surface terms to tree expressions: resolves names, ellipses and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from anydim.base.dtypes import DTYPES, DType, int64
from anydim.base.errors import LanguageError, UserError
from anydim.base.records import dataclass
from anydim.base.text import count_of
from anydim.lang.functions import FUNCTIONS
from anydim.lang.resolve.binding import Binding, fold_sizes, spread_axes
from anydim.lang.resolve.ranges import is_proved
from anydim.lang.resolve.sized import with_sizes
from anydim.lang.surface.operator_names import LIBRARY
from anydim.lang.surface.syntax import (
    FUNCTION_ALIASES,
    TYPE_NAMES,
    CallTerm,
    Convert,
    Count,
    Dimension,
    Flat,
    Invoke,
    Name,
    Number,
    Operation,
    Parameter,
    Spread,
    Term,
    items,
    walk,
)
from anydim.lang.tree import (
    Apply,
    Axis,
    Cast,
    Expr,
    Index,
    Literal,
    Read,
    SizeTerm,
    TensorType,
)
from anydim.lang.tree.affine import affine, rewrite, to_expr
from anydim.lang.tree.composed import COMPOSED
from anydim.sizes import (
    USUAL,
    Size,
    Truth,
    as_size,
    condition,
    fits,
    product,
    prove,
)

LARGEST = 20_000  # maximum number of nodes of an expression
DEPTH_WEIGHT = LARGEST // 120  # a depth of 120 weighs as much as `LARGEST` nodes

_COMPARISONS = {
    "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">",
    "greater_equal": ">=",
}  # fmt: skip

_CHOOSING = ("select", "and", "or")  # only the first argument is always evaluated


@dataclass
class Expander:
    """Expands the terms of one statement.

    `indices` collects the indices in order of appearance; `trusted` the reads' dimensions (as index
    expressions) that broadcasting makes valid by construction.
    """

    binding: Binding
    tensors: Mapping[str, TensorType]
    indices: dict[str, int] = field(default_factory=dict)  # name -> first position
    positions: dict[Expr, int] = field(default_factory=dict)  # where each was first met
    trusted: set[tuple[str, int, Expr]] = field(default_factory=set)
    extents: dict[int, tuple[int, int]] = field(
        default_factory=dict
    )  # by id of the expressions in `kept`
    kept: list[Expr] = field(default_factory=list)

    def error(self, term: Term, problem: str, hint: str = "") -> LanguageError:
        return self.binding.error(term.position, problem, hint)

    def expand(self, term: Term) -> Expr:
        """Return the expression of a term."""
        expr = self._expand(term)
        self.positions.setdefault(expr, term.position)
        return expr

    def _expand(self, term: Term) -> Expr:
        if isinstance(term, Number):
            return Literal(term.value)
        if isinstance(term, Name):
            return self._name(term)
        if isinstance(term, CallTerm):
            return self._call(term)
        if isinstance(term, Operation):
            return self._operation(term)
        if isinstance(term, Convert):
            return Cast(self._dtype(term.type), self.expand(term.argument))
        if isinstance(term, Flat):
            return self._flat(term)
        if isinstance(term, Dimension):
            return self._dimension(term)
        if isinstance(term, Count):
            extents = [axis.extent for axis in self.binding.ellipses[term.ellipsis]]
            return SizeTerm(product(extents))
        raise self.error(term, "an ellipsis is only allowed among indices")

    def _operation(self, term: Operation) -> Expr:
        arguments = [self.expand(argument) for argument in term.arguments]
        if term.function in _CHOOSING and by_sizes(term.arguments[0], self.binding):
            return Apply(
                term.function, tuple(arguments)
            )  # all operands count, whatever sizes decide
        return fold(term.function, arguments, self.binding)

    def _name(self, term: Name) -> Expr:
        binding = self.binding
        if term.name in binding.attributes:
            return binding.attributes[term.name]
        if term.name in self.tensors:
            return self._check_rank(Read(term.name, ()), term)
        if term.name in binding.sizes:
            return SizeTerm(binding.sizes[term.name])
        self.indices.setdefault(term.name, term.position)
        return Index(term.name)

    def _dtype(self, name: str) -> DType:
        if name in self.binding.dtypes:
            return self.binding.dtypes[name]
        return DTYPES[TYPE_NAMES[name]]

    def _call(self, term: CallTerm) -> Expr:
        if term.name in self.tensors:
            return self._read(term)
        function = FUNCTION_ALIASES.get(term.name, term.name)
        if function in FUNCTIONS:
            return fold(function, [self.expand(a) for a in term.arguments], self.binding)
        if function in COMPOSED:
            expr = COMPOSED[function].make(*(self.expand(a) for a in term.arguments))
            if max(self._extent(expr)) > LARGEST:
                raise self.error(term, "the expression is too large", "give parts of it names")
            return expr
        return Cast(self._dtype(term.name), self.expand(term.arguments[0]))

    def _extent(self, expr: Expr) -> tuple[int, int]:
        """Node count of an expression as a tree, and its weighted depth."""
        if not isinstance(expr, (Apply, Cast)):
            return 1, DEPTH_WEIGHT
        known = self.extents.get(id(expr))
        if known is None:
            parts = expr.arguments if isinstance(expr, Apply) else (expr.argument,)
            inner = [self._extent(part) for part in parts]
            nodes, depth = sum(n for n, _ in inner), max(d for _, d in inner)
            known = self.extents[id(expr)] = nodes + 1, depth + DEPTH_WEIGHT
            self.kept.append(expr)
        return known

    def _read(self, term: CallTerm) -> Expr:
        shape = self.tensors[term.name].shape
        indices: list[Expr] = []
        for argument in term.arguments:
            if isinstance(argument, Spread):
                indices += self._spread(term, argument, len(indices))
            else:
                indices.append(self.index(argument))
        if len(indices) != len(shape):
            have = count_of(len(shape), "dimension")
            raise self.error(
                term, f"'{term.name}' has {have} here, not {len(indices)}",
                "give an index for each, or '...s' for the indices of an ellipsis",
            )  # fmt: skip
        default = None if term.default is None else self.expand(term.default)
        return self._check_rank(Read(term.name, tuple(indices), False, default), term)

    def _check_rank(self, read: Read, term: Term) -> Read:
        """Return the read if its index count equals the rank of its tensor."""
        shape = self.tensors[read.tensor].shape
        if not read.flat and len(read.indices) != len(shape):
            have = count_of(len(shape), "dimension")
            hint = self._kept_axes_read(read.tensor) or f"write {read.tensor}(i, ...)"
            raise self.error(term, f"'{read.tensor}' has {have} and needs indices", hint)
        return read

    def _kept_axes_read(self, tensor: str) -> str:
        """How to read the result of a reduction that keeps its axes; '' for other tensors."""
        for item in items(self.binding.definition.statements):
            if isinstance(item, Invoke) and item.targets == (tensor,):
                known = LIBRARY.get(item.call.name)
                if known is not None and known.attributes.get("keepdims") is True:
                    return (f"'{item.call.name}' keeps the axis that it reduces with size 1: "
                            f"write {tensor}(0), or give keepdims = false")  # fmt: skip
        return ""

    def _flat(self, term: Flat) -> Expr:
        default = None if term.default is None else self.expand(term.default)
        return self._check_rank(Read(term.tensor, (self.index(term.offset),), True, default), term)

    def index(self, term: Term) -> Expr:
        """An index expression in normal form; integers become sizes."""
        index = self.whole_sizes(self.expand(term))
        self.positions.setdefault(index, term.position)
        return index

    def whole_sizes(self, expr: Expr) -> Expr:
        """An integer expression in normal form, with integers as sizes."""
        expr = rewrite(with_sizes(fold_decided_choices(expr), self.binding.box), _number_as_size)
        form = affine(expr)
        if form is None:
            return expr
        for size in form.sizes:
            if any(abs(coefficient) >= 1 << 63 for _, coefficient in size.monomials):
                position = self.positions.get(expr, self.binding.definition.position)
                raise self.binding.error(position, "a number in an index exceeds 64 bits")
        return to_expr(form)

    def _dimension(self, term: Dimension) -> Expr:
        shape = self.tensors[term.tensor].shape
        if term.axis >= len(shape):
            have = count_of(len(shape), "dimension")
            raise self.error(term, f"'{term.tensor}' has {have} here, from 0")
        return SizeTerm(shape[term.axis])

    # ---- ellipses ------------------------------------------------------------------------------

    def _spread(self, term: CallTerm, spread: Spread, start: int) -> list[Expr]:
        """The indices of an ellipsis in a read, dimensions of size 1 pinned to 0."""
        axes = self.axes_of(spread)
        parameter = _parameter(self.binding, term.name)
        dimensions = (
            None if parameter is None else spread_axes(self.binding, parameter, spread.name)
        )
        declared = parameter is not None and (term.name, spread.name) in self.binding.spreads
        if not declared or dimensions is None or dimensions.start != start:
            return [Index(axis.name) for axis in axes]
        shape = self.tensors[term.name].shape
        own = axes[len(axes) - len(dimensions) :]
        return [
            self._broadcast(term.name, dimension, shape[dimension], axis)
            for dimension, axis in zip(dimensions, own)
        ]

    def axes_of(self, spread: Spread) -> tuple[Axis, ...]:
        """The axes of an ellipsis; registers its indices."""
        axes = self.binding.ellipses[spread.name]
        for axis in axes:
            self.indices.setdefault(axis.name, spread.position)
        return axes

    def _broadcast(self, tensor: str, dimension: int, size: Size, axis: Axis) -> Expr:
        index: Expr = Index(axis.name)
        if size.constant == 1 and axis.extent.constant != 1:
            index = SizeTerm(as_size(0))
        elif not is_proved(size, "==", axis.extent, self.binding.box):
            if size.constant is None and not _never_one(size, self.binding):
                index = Apply("mul", (index, SizeTerm(condition(size, ">", 1).flag)))
        self.trusted.add((tensor, dimension, index))
        return index


def _never_one(size: Size, binding: Binding) -> bool:
    return prove(size, "==", 1, binding.box) is Truth.REFUTED


def _parameter(binding: Binding, name: str) -> Parameter | None:
    return next((p for p in binding.definition.parameters if p.name == name), None)


def _number_as_size(expr: Expr) -> Expr | None:
    """Convert integers to sizes, and fold arithmetic on sizes."""
    if isinstance(expr, Literal) and type(expr.value) is int:
        return SizeTerm(as_size(expr.value))
    if isinstance(expr, Apply):
        parts = [a.size for a in expr.arguments if isinstance(a, SizeTerm)]
        if len(parts) == len(expr.arguments):
            folded = fold_sizes(expr.function, parts)
            return None if folded is None else SizeTerm(folded)
    return None


def by_sizes(term: Term, binding: Binding) -> bool:
    """Whether a condition depends on more than constants and attributes."""
    inner = list(walk(term))
    names = {part.name for part in inner if isinstance(part, Name)}
    return bool(names - binding.attributes.keys()) or any(
        isinstance(part, (Dimension, Count, CallTerm)) for part in inner
    )


def fold_decided_choices(expr: Expr) -> Expr:
    """Fold the choices in a position or a size that constants decide."""

    def change(part: Expr) -> Expr | None:
        if isinstance(part, Apply) and part.function in (*_CHOOSING, "not"):
            return _fold_logic(part.function, list(part.arguments))
        return None

    return rewrite(expr, change)


# ---- folding -----------------------------------------------------------------------------------


def fold(function: str, arguments: list[Expr], binding: Binding) -> Expr:
    """Apply a function, folded at compile time where sizes and constants decide it."""
    if function == "neg" and isinstance(arguments[0], Literal):
        value = arguments[0].value
        return Apply("neg", tuple(arguments)) if isinstance(value, bool) else Literal(-value)
    sizes = [_size_of(argument) for argument in arguments]
    if any(isinstance(a, SizeTerm) for a in arguments) and None not in sizes:
        known = [size for size in sizes if size is not None]
        folded = fold_sizes(function, known)
        if folded is not None and fits(folded, *int64.range, binding.box, USUAL):
            return SizeTerm(folded)  # else it wraps, unless it is an index
    if function in _COMPARISONS and None not in sizes:
        return _compare(function, arguments, binding)
    return _fold_logic(function, arguments)


def _size_of(expr: Expr) -> Size | None:
    if isinstance(expr, SizeTerm):
        return expr.size
    if isinstance(expr, Literal) and type(expr.value) is int:
        return as_size(expr.value)
    return None


def _compare(function: str, arguments: list[Expr], binding: Binding) -> Expr:
    left, right = (_size_of(argument) for argument in arguments)
    assert left is not None and right is not None
    try:
        truth = prove(left, _COMPARISONS[function], right, binding.box)
    except UserError:
        truth = Truth.UNKNOWN
    if truth is Truth.UNKNOWN:
        return Apply(function, tuple(arguments))
    return Literal(truth is Truth.PROVED)


def _fold_logic(function: str, arguments: list[Expr]) -> Expr:
    first = arguments[0]
    known = first.value if isinstance(first, Literal) and isinstance(first.value, bool) else None
    if known is not None:
        if function == "select":
            return arguments[1] if known else arguments[2]
        if function == "not":
            return Literal(not known)
        if function in ("and", "or") and known == (function == "or"):
            return first
    return Apply(function, tuple(arguments))

"""Affine forms of index expressions, and the flat address of a read.

Fast kernels rely on addresses that are affine in the loop indices: the constant and the
coefficients (strides) are size expressions, so one form is valid at every size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import is_

from anydim.base.records import dataclass
from anydim.lang.tree import Apply, Cast, Expr, Index, Literal, Read, SizeTerm, Statement
from anydim.sizes import Size, as_size, product


@dataclass(frozen=True)
class Affine:
    """constant + sum of coefficient * index; zero coefficients are omitted."""

    constant: Size
    terms: tuple[tuple[str, Size], ...] = ()

    @staticmethod
    def of(constant: Size, terms: Mapping[str, Size]) -> Affine:
        kept = tuple(sorted((n, c) for n, c in terms.items() if c.constant != 0))
        return Affine(constant, kept)

    def stride(self, index: str) -> Size:
        """The coefficient of an index; 0 when the form does not depend on it."""
        for name, coefficient in self.terms:
            if name == index:
                return coefficient
        return as_size(0)

    @property
    def indices(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.terms)

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The constant and the coefficients."""
        return (self.constant, *(coefficient for _, coefficient in self.terms))

    def without(self, *indices: str) -> Affine:
        """The form where these indices are 0."""
        return Affine(self.constant, tuple(term for term in self.terms if term[0] not in indices))

    def __add__(self, other: Affine) -> Affine:
        terms = dict(self.terms)
        for name, coefficient in other.terms:
            terms[name] = terms[name] + coefficient if name in terms else coefficient
        return Affine.of(self.constant + other.constant, terms)

    def __sub__(self, other: Affine) -> Affine:
        return self + other.scale(as_size(-1))

    def scale(self, factor: Size) -> Affine:
        return Affine.of(self.constant * factor, {n: c * factor for n, c in self.terms})


@lru_cache(maxsize=1 << 12)
def row_major_strides(shape: tuple[Size, ...]) -> tuple[Size, ...]:
    """Distance in elements between neighbours along each dimension of a contiguous tensor."""
    return tuple(product(shape[i + 1 :]) for i in range(len(shape)))


@lru_cache(maxsize=1 << 16)
def affine(expr: Expr) -> Affine | None:
    """The affine form of an integer expression over indices and sizes; None if not affine."""
    if isinstance(expr, Index):
        return Affine.of(as_size(0), {expr.name: as_size(1)})
    if isinstance(expr, SizeTerm):
        return Affine(expr.size)
    if isinstance(expr, Literal) and isinstance(expr.value, int):
        return Affine(as_size(int(expr.value)))
    if isinstance(expr, Cast) and expr.dtype.name == "int64":
        return affine(expr.argument)
    if isinstance(expr, Apply):
        return _affine_apply(expr)
    return None


def _affine_apply(expr: Apply) -> Affine | None:
    if expr.function not in ("add", "sub", "mul", "neg"):
        return None
    forms = [affine(argument) for argument in expr.arguments]
    if any(form is None for form in forms):
        return None
    first = forms[0]
    assert first is not None
    if expr.function == "neg":
        return first.scale(as_size(-1))
    second = forms[1]
    assert second is not None
    if expr.function == "add":
        return first + second
    if expr.function == "sub":
        return first - second
    if not second.terms:
        return first.scale(second.constant)
    if not first.terms:
        return second.scale(first.constant)
    return None


def to_expr(form: Affine) -> Expr:
    """Convert an affine form to an expression."""
    result: Expr | None = None
    for name, coefficient in form.terms:
        term: Expr = Index(name)
        if coefficient.constant != 1:
            term = Apply("mul", (term, SizeTerm(coefficient)))
        result = term if result is None else Apply("add", (result, term))
    if result is None:
        return SizeTerm(form.constant)
    if form.constant.constant != 0:
        result = Apply("add", (result, SizeTerm(form.constant)))
    return result


@lru_cache(maxsize=1 << 16)
def address(read: Read, shape: tuple[Size, ...]) -> Affine | None:
    """The flat row-major element offset of a read of a tensor of `shape`; None if not affine."""
    if read.flat:
        return affine(read.indices[0])
    total = Affine(as_size(0))
    for index, stride in zip(read.indices, row_major_strides(shape)):
        form = affine(index)
        if form is None:
            return None
        total = total + form.scale(stride)
    return total


def flat_address(read: Read) -> Affine | None:
    """Offset of a read in a flat group; None if it is not affine or has a default."""
    return affine(read.indices[0]) if read.flat and read.default is None else None


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The operands of an expression."""
    if isinstance(expr, Read):
        return expr.indices if expr.default is None else (*expr.indices, expr.default)
    return (expr.argument,) if isinstance(expr, Cast) else getattr(expr, "arguments", ())


def rewrite(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Rebuild an expression bottom up; `change` may return a replacement for a rebuilt node."""
    if isinstance(expr, Read):
        default = None if expr.default is None else rewrite(expr.default, change)
        indices = tuple([rewrite(index, change) for index in expr.indices])
        if default is not expr.default or not _same(indices, expr.indices):
            expr = Read(expr.tensor, indices, expr.flat, default)
    elif isinstance(expr, Apply):
        arguments = tuple([rewrite(argument, change) for argument in expr.arguments])
        if not _same(arguments, expr.arguments):
            expr = Apply(expr.function, arguments)
    elif isinstance(expr, Cast):
        argument = rewrite(expr.argument, change)
        if argument is not expr.argument:
            expr = Cast(expr.dtype, argument)
    replaced = change(expr)
    return expr if replaced is None else replaced


def substitute(expr: Expr, places: Mapping[str, Expr]) -> Expr:
    """Substitute expressions for indices, by name."""
    return rewrite(expr, lambda part: places.get(part.name) if isinstance(part, Index) else None)


def body_at(statement: Statement, indices: Sequence[Expr]) -> Expr:
    """The value of a statement at these indices."""
    names = (axis.name for axis in statement.axes)
    return substitute(statement.body, dict(zip(names, indices)))


def _same(left: tuple[Expr, ...], right: tuple[Expr, ...]) -> bool:
    return all(map(is_, left, right))


@lru_cache(maxsize=1 << 16)
def reads(expr: Expr) -> tuple[Read, ...]:
    """Every read in an expression, inner ones (indirect indices) included, in order."""
    if isinstance(expr, Read):
        inner = tuple(r for index in expr.indices for r in reads(index))
        default = () if expr.default is None else reads(expr.default)
        return (*inner, *default, expr)
    if isinstance(expr, Apply):
        return tuple(r for argument in expr.arguments for r in reads(argument))
    if isinstance(expr, Cast):
        return reads(expr.argument)
    return ()


def parts(expr: Expr) -> tuple[Expr, ...]:
    """An expression and its subexpressions, except indices of reads."""
    if isinstance(expr, Apply):
        return (*(part for argument in expr.arguments for part in parts(argument)), expr)
    if isinstance(expr, Cast):
        return (*parts(expr.argument), expr)
    return (expr,)


def normal_form(index: Expr) -> Expr:
    """An index expression, written as a sum where it is affine."""
    form = affine(index)
    return index if form is None else to_expr(form)

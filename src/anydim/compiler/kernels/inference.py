"""Static properties of scalar expressions: element type, axes, linear form.

A literal without an element type takes the type of the other operand, as Python numbers do in
numpy. An expression made of such literals only has type None until its context fixes one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy

from anydim.base.dtypes import DTYPES, DType, boolean, float32, float64, from_numpy, int64
from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.lang.functions import FUNCTIONS, unsigned_type
from anydim.lang.tree import Apply, Cast, Expr, Index, Literal, Read, SizeTerm, TensorType
from anydim.lang.tree.affine import Affine, affine, operands, reads, row_major_strides, to_expr
from anydim.sizes import Size, as_size

LOGICAL = ("and", "or", "xor", "not")
_EXACT = 1 << 24  # float32 holds every integer up to here


def weak_dtype(expr: Expr) -> DType:
    """Default type of an expression of untyped literals."""
    if isinstance(expr, Literal):
        if isinstance(expr.value, bool):
            return boolean
        return int64 if isinstance(expr.value, int) else float64
    assert isinstance(expr, Apply)
    if FUNCTIONS[expr.function].result == "bool":
        return boolean
    return widest(map(weak_dtype, value_arguments(expr)))


def widest(dtypes: Iterable[DType]) -> DType:
    """The dtype with the most bits, floats first."""
    return max(dtypes, key=lambda d: (d.is_float, d.bits))


def value_arguments(expr: Apply) -> tuple[Expr, ...]:
    """The arguments that share one type: all except the condition of a select."""
    return expr.arguments[1:] if expr.function == "select" else expr.arguments


def common_dtype(exprs: tuple[Expr, ...], types: Mapping[str, TensorType]) -> DType | None:
    """The common type of several expressions; None when all are untyped literals."""
    known = [dtype_of(expr, types) for expr in exprs]
    typed = {d for d in known if d is not None}
    if not typed:
        return None
    weak = [weak_dtype(e) for e, d in zip(exprs, known) if d is None]
    if len(typed) == 1:
        (only,) = typed
        if all(_fits(w, only) for w in weak):
            return only
    examples = [{"float": 1.0, "int": 1, "bool": True}[w.kind] for w in weak]
    return from_numpy(numpy.result_type(*(d.numpy for d in typed), *examples))


def _fits(weak: DType, typed: DType) -> bool:
    rank = {"bool": 0, "uint": 1, "int": 1, "float": 2}
    return rank[weak.kind] <= rank[typed.kind]


def dtype_of(expr: Expr, types: Mapping[str, TensorType]) -> DType | None:
    """The element type of an expression; None when it consists of untyped literals only."""
    if isinstance(expr, Literal):
        return expr.dtype
    if isinstance(expr, (Index, SizeTerm)):
        return int64
    if isinstance(expr, Read):
        return types[expr.tensor].dtype
    if isinstance(expr, Cast):
        return expr.dtype
    rule = FUNCTIONS[expr.function].result
    if rule == "bool":
        return boolean
    if rule in DTYPES:
        return DTYPES[rule]
    common = common_dtype(value_arguments(expr), types)
    return unsigned_type(common) if rule == "bits" and common is not None else common


@lru_cache(maxsize=8192)
def free_axes(expr: Expr) -> frozenset[str]:
    """Names of the axes that an expression depends on."""
    if isinstance(expr, Index):
        return frozenset((expr.name,))
    return frozenset().union(*map(free_axes, operands(expr)))


@dataclass(frozen=True)
class Linear:
    """An affine form plus coefficient * atom for the parts that are not affine (`//`, `%`,
    reads)."""

    affine: Affine
    atoms: tuple[tuple[Expr, Size], ...] = ()

    def __add__(self, other: Linear) -> Linear:
        return Linear(self.affine + other.affine, self.atoms + other.atoms)

    def __sub__(self, other: Linear) -> Linear:
        return self + other.scale(as_size(-1))

    def without(self, *indices: str) -> Linear:
        """The form with these indices set to 0."""
        atoms = tuple(atom for atom in self.atoms if not free_axes(atom[0]) & {*indices})
        return Linear(self.affine.without(*indices), atoms)

    def scale(self, factor: Size) -> Linear:
        atoms = tuple((e, c * factor) for e, c in self.atoms)
        return Linear(self.affine.scale(factor), atoms)


def linear(expr: Expr) -> Linear:
    """An integer expression as a linear form; a part that is not linear becomes an atom."""
    known = affine(expr)
    if known is not None:
        return Linear(known)
    if isinstance(expr, Apply) and expr.function in ("add", "sub", "mul", "neg"):
        found = _linear_apply(expr)
        if found is not None:
            return found
    return Linear(Affine(as_size(0)), ((expr, as_size(1)),))


def _linear_apply(expr: Apply) -> Linear | None:
    forms = [linear(argument) for argument in expr.arguments]
    if expr.function == "neg":
        return forms[0].scale(as_size(-1))
    first, second = forms
    if expr.function == "add":
        return first + second
    if expr.function == "sub":
        return first - second
    if not second.affine.terms and not second.atoms:
        return first.scale(second.affine.constant)
    if not first.affine.terms and not first.atoms:
        return second.scale(first.affine.constant)
    return None


def read_address(read: Read, shape: tuple[Size, ...]) -> Linear:
    """The flat row-major element offset of a read from a tensor of `shape`."""
    if read.flat:
        return linear(read.indices[0])
    if len(read.indices) != len(shape):
        raise InternalError(f"{read} reads a tensor of rank {len(shape)}")
    total = Linear(Affine(as_size(0)))
    for index, stride in zip(read.indices, row_major_strides(shape)):
        total = total + linear(index).scale(stride)
    return total


def always_inside(read: Read, types: Mapping[str, TensorType]) -> bool:
    """Whether a read is in bounds even where the loop around it runs zero times."""
    if read.default is not None or any(reads(index) for index in read.indices):
        return True
    if read.flat:
        return False
    shape = types[read.tensor].shape
    return all(_inside_alone(index, extent) for index, extent in zip(read.indices, shape))


def _inside_alone(index: Expr, extent: Size) -> bool:
    if isinstance(index, Index):
        return True
    known, position = extent.constant, index.value if isinstance(index, Literal) else None
    if isinstance(index, SizeTerm):
        position = index.size.constant
    return known is not None and position is not None and 0 <= position < known


def linear_expr(form: Linear) -> Expr:
    """An expression equal to a linear form."""
    total: Expr | None = None if _is_zero(form.affine) and form.atoms else to_expr(form.affine)
    for atom, coefficient in form.atoms:
        term = atom
        if coefficient.constant != 1:
            term = Apply("mul", (atom, SizeTerm(coefficient)))
        total = term if total is None else Apply("add", (total, term))
    assert total is not None
    return total


def _is_zero(form: Affine) -> bool:
    return not form.terms and form.constant.constant == 0


def match_clamp(expr: Cast, have: DType) -> tuple[Expr, Literal, Literal] | None:
    """x, low and high of a cast of min(max(x, low), high) to an integer type that holds both
    bounds."""
    outer = expr.argument
    if have != float32 or not expr.dtype.is_integer or expr.dtype.stored:
        return None
    if not (isinstance(outer, Apply) and outer.function == "min"):
        return None
    inner, high = outer.arguments
    if not (isinstance(inner, Apply) and inner.function == "max" and isinstance(high, Literal)):
        return None
    value, low = inner.arguments
    least, most = expr.dtype.range
    least, most = max(least, -_EXACT), min(most, _EXACT)
    if not isinstance(low, Literal) or not least <= low.value <= high.value <= most:
        return None
    return value, low, high

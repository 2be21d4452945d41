"""Constant folding over sizes: runs an operator's own evaluator on arrays of sizes.

If a result depends on the sizes of a call (a comparison that is neither proved nor refuted, a
divisor of either sign), `Undecided` is raised and the node computes at run time instead.

A size is unchanged in an integer type if the box proves that it fits, else wrapped.

A wrapped size is a different expression, `(n + 128) % 256 - 128` for n in int8: exact at every
size, and unequal to the sizes of other shapes. Files that compute shapes in 32 bits would lose
proofs because of sizes that do not occur. So 32-bit contents have a second form in addition to the
exact one: the unwrapped sizes, with the guards under which they are right. Data always uses the
exact form; sizes use the second one with its guards (`Assumed`).

int64 keeps a size unchanged if it fits at usual sizes; a call in which it does not fit is rejected
if it is used as a size, and wraps if it is data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy

from anydim.base.dtypes import DType
from anydim.base.errors import AnydimError
from anydim.base.records import dataclass
from anydim.compiler.graph.derivations import Evaluated
from anydim.compiler.graph.nodes import Constant, Node
from anydim.compiler.graph.operator import operator
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.tree import TensorType
from anydim.sizes import (
    LARGEST,
    SHORT,
    USUAL,
    Atom,
    Box,
    Guard,
    Size,
    Truth,
    as_size,
    bounds,
    fits,
    maximum,
    minimum,
    prove,
    simplify,
    wrapped,
)

_DEEPEST = 6  # nested remainders above which contents are data


class Undecided(Exception):
    """Contents that depend on run-time data."""


@dataclass(frozen=True, eq=False)
class Assumed:
    """Contents whose sizes are assumed to fit the 32-bit types that they passed through.

    `guards` state the assumption; `likely`: they hold if no dim is above 2**24.
    """

    array: numpy.ndarray
    guards: tuple[Guard, ...]
    likely: bool


@dataclass
class Fitted:
    """Converts sizes to integer types exactly."""

    box: Box
    changed: bool = False  # whether a 32-bit size was wrapped

    def __call__(self, size: Size, dtype: DType) -> Size:
        """The value of a size in an integer type; Undecided if it is no size expression."""
        low, high = dtype.range
        value = size.constant
        if value is not None:
            return as_size((value - low) % (1 << dtype.bits) + low)
        if fits(size, low, min(high, LARGEST), self.box):
            return size
        if dtype.bits == 64:
            if low and self._counts(size):
                return size
            raise Undecided(f"{size} in {dtype}")
        return self.outside(size, dtype)

    def outside(self, size: Size, dtype: DType) -> Size:
        """The wrapped value of a size that may be out of range of a type of at most 32 bits."""
        low, high = dtype.range
        self.changed = self.changed or dtype.bits == 32
        made = wrapped(size, low, high)
        if made.depth > _DEEPEST or not all(map(self._counts, _operands(made))):
            raise Undecided(f"{size} in {dtype}")
        return made

    def _counts(self, size: Size) -> bool:
        """Whether 64 bits hold a size if all dims are in the usual range."""
        return fits(size, -LARGEST, LARGEST, self.box, USUAL)


@dataclass
class Assuming(Fitted):
    """Keeps sizes that may be out of range of a 32-bit type, and records guards for it."""

    source: str = ""
    guards: list[Guard] = field(default_factory=list)
    likely: bool = True

    def outside(self, size: Size, dtype: DType) -> Size:
        if dtype.bits < 32:
            return super().outside(size, dtype)
        self.likely = self.likely and fits(size, *dtype.range, self.box, SHORT)
        self.guards += guards_of(size, dtype, self.box, self.source)
        return size


def _operands(size: Size) -> list[Size]:
    """The operands of the remainders (`%`) in a size, of which 64 bits must hold each.

    The normal form drops nested remainders, so operands may be larger than the original ones.
    """
    atoms = (atom for monomial in size.coefficients for atom in monomial)
    return [part for atom in atoms if isinstance(atom, Atom) for part in atom.arguments]


def guards_of(size: Size, dtype: DType, box: Box, source: str) -> list[Guard]:
    """The guards for a size to be in the range of an integer type."""
    low, high = dtype.range
    where = bounds(size, box)
    message = f"{source}: a size is counted in {dtype}"
    found = [] if where.low >= low else [Guard(as_size(low), "<=", size, message)]
    return found if where.high <= high else [*found, Guard(size, "<=", as_size(high), message)]


@dataclass(frozen=True, eq=False)
class Symbol:
    """A size as an element of an object array, with Python's arithmetic and proved comparisons."""

    size: Size
    box: Box

    def _with(self, size: Size) -> Symbol:
        return Symbol(size, self.box)

    def __add__(self, other: Any) -> Symbol:
        return self._with(self.size + _size(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Symbol:
        return self._with(self.size - _size(other))

    def __rsub__(self, other: Any) -> Symbol:
        return self._with(_size(other) - self.size)

    def __mul__(self, other: Any) -> Symbol:
        return self._with(self.size * _size(other))

    __rmul__ = __mul__

    def __neg__(self) -> Symbol:
        return self._with(-self.size)

    def __abs__(self) -> Symbol:
        return self._with(simplify(maximum(self.size, -self.size), self.box))

    def __truediv__(self, other: Any) -> Symbol:
        """The quotient of integers, rounded toward zero."""
        return self._with(_toward_zero(self.size, _size(other), self.box))

    def __rtruediv__(self, other: Any) -> Symbol:
        return self._with(_toward_zero(_size(other), self.size, self.box))

    def __floordiv__(self, other: Any) -> Symbol:
        return self._with(_quotient(self.size, _size(other), self.box))

    def __rfloordiv__(self, other: Any) -> Symbol:
        return self._with(_quotient(_size(other), self.size, self.box))

    def __mod__(self, other: Any) -> Symbol:
        divisor = _positive(_size(other), self.box)
        return self._with(simplify(self.size % divisor, self.box))

    def __rmod__(self, other: Any) -> Symbol:
        return self._with(_size(other)) % self

    def __eq__(self, other: object) -> bool:
        return _decide(self.size, "==", _size(other), self.box)

    def __ne__(self, other: object) -> bool:
        return _decide(self.size, "!=", _size(other), self.box)

    def __lt__(self, other: Any) -> bool:
        return _decide(self.size, "<", _size(other), self.box)

    def __le__(self, other: Any) -> bool:
        return _decide(self.size, "<=", _size(other), self.box)

    def __gt__(self, other: Any) -> bool:
        return _decide(self.size, ">", _size(other), self.box)

    def __ge__(self, other: Any) -> bool:
        return _decide(self.size, ">=", _size(other), self.box)

    def __bool__(self) -> bool:
        return _decide(self.size, "!=", as_size(0), self.box)

    def __int__(self) -> int:
        constant = self.size.constant
        if constant is None:
            raise Undecided(str(self.size))
        return constant

    def __float__(self) -> float:
        return float(int(self))

    __hash__ = None  # type: ignore[assignment]


def _size(value: Any) -> Size:
    if isinstance(value, Symbol):
        return value.size
    if isinstance(value, Size):
        return value
    if isinstance(value, (float, numpy.floating)):
        raise Undecided("sizes among real numbers")
    return as_size(int(value))


def _decide(left: Size, relation: str, right: Size, box: Box) -> bool:
    truth = prove(left, relation, right, box)
    if truth is Truth.UNKNOWN:
        raise Undecided(f"{left} {relation} {right}")
    return truth is Truth.PROVED


def _require(left: Size, relation: str, right: int, box: Box) -> None:
    if prove(left, relation, right, box) is not Truth.PROVED:
        raise Undecided(f"{left} {relation} {right}")


def _positive(divisor: Size, box: Box) -> Size:
    """A non-negative divisor, with 0 replaced by 1: a guard rejects calls in which it is 0."""
    _require(divisor, ">=", 0, box)
    return simplify(maximum(divisor, 1), box)


def _quotient(size: Size, divisor: Size, box: Box) -> Size:
    """size // divisor, rounded down."""
    exact = size.divide_exactly(divisor)
    return simplify(size // _positive(divisor, box), box) if exact is None else exact


def _toward_zero(size: Size, divisor: Size, box: Box) -> Size:
    """size / divisor, rounded toward zero."""
    exact = size.divide_exactly(divisor)
    if exact is not None:
        return exact
    by = _positive(divisor, box)
    above, below = maximum(size, 0) // by, maximum(-size, 0) // by
    return simplify(above - below, box)


# ---- nodes -------------------------------------------------------------------------------------


def known_results(
    node: Node, types: Sequence[TensorType], inputs: Sequence[numpy.ndarray], fitted: Fitted
) -> list[numpy.ndarray]:
    """The contents of a node's results. Raises Undecided if they depend on run-time data."""
    box = fitted.box

    def fit(array: numpy.ndarray, dtype: DType) -> numpy.ndarray:
        return _wrap(numpy.frompyfunc(lambda item: fitted(_size(item), dtype), 1, 1)(array), box)

    own = _OWN.get(node.operator)
    if own is not None and any(array.dtype == object for array in inputs):
        extreme = fit(_objects(own(*inputs)), types[0].dtype)
        return [_unwrap(extreme, types[0].dtype.numpy)]
    group = operator(node.operator).instantiate(types, node.attributes, box)
    if group.guards:
        raise Undecided(node.operator)
    record = operator(node.operator)
    tensors = {t.name: _wrap(array, box) for t, array in zip(group.inputs, inputs)}
    try:
        if record.routine is not None:
            attributes = record.complete(node.attributes)
            arrays = record.routine.evaluate(tuple(tensors.values()), attributes, {})
            made = {t.name: array for t, array in zip(group.outputs, arrays)}
        else:
            made = evaluate(group, tensors, {}, fit=fit)
    except (TypeError, ValueError, AttributeError, AnydimError, ArithmeticError) as error:
        raise Undecided(node.operator) from error
    return [_unwrap(made[t.name], t.type.dtype.numpy) for t in group.outputs]


def derived_results(
    node: Node, types: Sequence[TensorType], inputs: Sequence[Constant], box: Box
) -> list[Constant]:
    """The results of a node for numbers, of which weights determine some.

    Raises Undecided for nodes without a step.
    """
    if operator(node.operator).routine is not None:
        raise Undecided(node.operator)
    group = operator(node.operator).instantiate(types, node.attributes, box)
    if group.guards:
        raise Undecided(node.operator)
    try:
        return [
            Constant.derive(Evaluated(group, each.type.dtype, output=number), *inputs)
            for number, each in enumerate(group.outputs)
        ]
    except (TypeError, ValueError, AttributeError, AnydimError, ArithmeticError) as error:
        for constant in inputs:
            constant.mark_read()
        raise Undecided(node.operator) from error


_OWN = {
    "maximum": numpy.frompyfunc(maximum, 2, 1),
    "minimum": numpy.frompyfunc(minimum, 2, 1),
}


def _wrap(array: Any, box: Box) -> numpy.ndarray:
    array = _objects(array)
    if array.dtype != object:
        return array
    wrapped = numpy.empty(array.shape, object)
    for index, size in numpy.ndenumerate(array):
        wrapped[index] = Symbol(as_size(size), box)
    return wrapped


def _unwrap(array: Any, dtype: numpy.dtype) -> numpy.ndarray:
    """Convert symbols to sizes; to numbers of the result's type if all are constant."""
    array = _objects(array)
    if array.dtype != object:
        return array.astype(dtype)
    unwrapped = numpy.empty(array.shape, object)
    for index, value in numpy.ndenumerate(array):
        unwrapped[index] = _size(value)
    constants = [size.constant for size in unwrapped.flat]
    if all(constant is not None for constant in constants):
        return numpy.array(constants, dtype).reshape(array.shape)
    if dtype.kind not in "iu":
        raise Undecided("sizes among real numbers")
    if any(constant is not None and constant > LARGEST for constant in constants):
        raise Undecided("a number beyond int64 among sizes")
    return unwrapped


def _objects(array: Any) -> numpy.ndarray:
    """Wrap a value that is no array in an array of one object."""
    if isinstance(array, numpy.ndarray):
        return array
    found = numpy.empty((), object)
    found[()] = array
    return found

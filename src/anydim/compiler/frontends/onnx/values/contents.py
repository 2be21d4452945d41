"""Constant folding over sizes: runs an operator's own evaluator on arrays of sizes.

Arithmetic on sizes follows the integer types of the operations (`fitted.py`). If a result depends
on the sizes of a call (a comparison that is neither proved nor refuted, a divisor of either sign),
`Undecided` is raised and the node computes at run time instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from anydim.base.dtypes import DType
from anydim.base.errors import AnydimError
from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.values.integer_sizes import Fitted, Undecided
from anydim.compiler.graph.nodes import Node
from anydim.compiler.graph.operator import operator
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.tree import TensorType
from anydim.sizes import LARGEST, Box, Size, Truth, as_size, maximum, minimum, prove, simplify


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

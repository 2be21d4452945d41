"""The builder of a graph from a torch program: what rows of overloads use.

A row is called with the builder and the arguments of the overload's schema: tensors are values,
sizes that depend on dims are `Size`s, types are `DType`s, numbers are Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

import numpy

from anydim.base.dtypes import DType, boolean, int64
from anydim.compiler.frontends.builder import Builder, Value
from anydim.compiler.frontends.torch.promotion import promote, working
from anydim.lang.surface.parser import parse
from anydim.lang.surface.syntax import Definition
from anydim.runtime.checks import ASSERTION
from anydim.sizes import Guard, Size, Truth, as_size, broadcast_size, product, prove

Number: TypeAlias = "bool | int | float | Size"
Operand: TypeAlias = "Value | Number"
Sizes: TypeAlias = "Sequence[int | Size]"
Build: TypeAlias = "Callable[..., Any]"
"""The row of an overload: (builder, arguments of the schema) -> results; keyword-only arguments are
named. Of several results an overload with one takes the first."""


def is_known(value: Operand) -> TypeGuard[int | float]:
    """Whether a number is a Python constant."""
    return not isinstance(value, (Value, Size))


def is_number(value: Operand, number: float) -> bool:
    """Whether an operand is this constant; `==` of a `Value` would build a comparison."""
    return not isinstance(value, Value) and value == number


class TorchBuilder(Builder):
    """A builder with torch's conventions for numbers, types and axes.

    `result` is the type of the (first) result of the current overload; `symbols` are the sizes of
    torch's symbols by name, `scalars` the values of those that are real numbers of data.
    """

    def __init__(self, name: str = "graph") -> None:
        super().__init__(name)
        self.result: DType = boolean
        self.rank = 0  # of the (first) result of the current overload
        self.source: Any = None  # torch's traced tensor of the first argument
        self.is_complex = False  # that result; `result` is then the type of its parts
        self.parts = 1  # results of the current overload
        self.traced: Sequence[Any] = ()  # torch's traced values of them
        self.used: set[int] = set()  # positions of its results that are used
        self._seeds = count()
        self.symbols: dict[str, Size] = {}
        self.scalars: dict[str, Value] = {}

    def _inside(self, stem: str) -> TorchBuilder:
        inner = super()._inside(stem)
        assert isinstance(inner, TorchBuilder)
        inner.result, inner.symbols, inner.scalars = self.result, self.symbols, self.scalars
        inner._seeds = self._seeds
        return inner

    # ---- numbers and types ----

    def scalar(self, value: Number, dtype: DType) -> Value:
        """A number, or a size, as a tensor without axes."""
        if isinstance(value, Size):
            if value.constant is None:
                made = self.size_tensor(values=(value,), dtype=int64, scalar=True)
                return self.as_type(made, dtype)
            value = value.constant
        if dtype.is_integer and not isinstance(value, bool):
            low, high = dtype.range
            value = (int(value) - low) % (high - low + 1) + low
        return self.constant(numpy.array(value).astype(dtype.numpy))

    def as_type(self, value: Value, dtype: DType) -> Value:
        """Convert a value to a type, if it has another one."""
        if value.dtype == dtype:
            return value
        if dtype == boolean:
            return self.not_equal(value, self.scalar(0, value.dtype))
        return self.cast(value, to=dtype)

    def operand(self, value: Operand, dtype: DType) -> Value:
        """A tensor or a number as a tensor of a type."""
        return self.as_type(value, dtype) if isinstance(value, Value) else self.scalar(value, dtype)

    def operands(self, *values: Operand) -> list[Value]:
        """Converts operands to their common type, for comparisons."""
        common = promote(values)
        return [self.operand(value, common) for value in values]

    def to_working(self, *values: Operand) -> list[Value]:
        """Converts operands to the type in which torch computes the result."""
        return [self.operand(value, working(self.result)) for value in values]

    def fill_shape(self, shape: Iterable[Size | int], value: Number, dtype: DType) -> Value:
        """A tensor of one number."""
        if isinstance(value, Size):
            return self.expand(self.scalar(value, dtype), shape=tuple(shape))
        whole = int(value) if dtype.is_integer else bool(value) if dtype == boolean else value
        return self.fill(shape=tuple(shape), value=whole, dtype=dtype)

    def positions(self, count: Size | int, dtype: DType = int64) -> Value:
        """0, 1, ..., count - 1."""
        return self.range(count=count, dtype=dtype)

    def seed(self) -> int:
        """The next seed: each overload that draws random numbers has its own."""
        return next(self._seeds)

    def call_definition(self, name: str, *values: Value, **attributes: Any) -> Any:
        """Call a definition of `definitions.tc`."""
        return self.call(_definitions()[name], *values, **attributes)

    def is_used(self, position: int) -> bool:
        """Whether the program uses a result of the current overload."""
        return position in self.used

    # ---- sizes ----

    def proved(self, left: Size | int, relation: str, right: Size | int) -> bool:
        return prove(left, relation, right, self._box) is Truth.PROVED

    def require(self, left: Size | int, relation: str, right: Size | int, reason: str) -> None:
        """Add a guard that every call checks."""
        if relation in (">", ">="):
            left, relation, right = right, relation.replace(">", "<"), left
        if not self.proved(left, relation, right):
            self._need(Guard(as_size(left), relation, as_size(right), reason))

    def elements(self, value: Value) -> Size:
        """The number of elements."""
        return product(value.shape)

    def flat(self, value: Value) -> Value:
        """All elements along one axis."""
        return self.reshape(value, shape=(self.elements(value),))

    def broadcast_shape(self, *shapes: Sequence[Size]) -> tuple[Size, ...]:
        """The shape to which shapes broadcast."""
        rank = max(map(len, shapes))
        ones = [(as_size(1),) * (rank - len(shape)) + tuple(shape) for shape in shapes]
        return tuple(broadcast_size(sizes, self._box) for sizes in zip(*ones))

    def broadcast(self, *values: Value) -> tuple[Size, ...]:
        """The shape to which values broadcast."""
        return self.broadcast_shape(*(value.shape for value in values))

    def find_any_size(self, value: Value, stem: str) -> Size:
        """Binds a new dim to an integer of the data that may be negative."""
        lowest = -(1 << 40)
        return self.find_size(self.sub(self.as_type(value, int64), lowest), stem) + lowest

    def find_size(self, value: Value, stem: str, low: int = 0, high: int | None = None) -> Size:
        """Binds a new dim to an integer of the data; a call checks its bounds."""
        name, number = stem, 1
        while name in self._reserved:
            number += 1
            name = f"{stem}_{number}"
        return self.find(self.as_type(value, int64), name, low, high)

    def expect(self, condition: Value, message: str = "an assertion does not hold") -> None:
        """Check in every call that a condition holds for all elements."""
        marks = self.cast(self.flat(condition), to=int64)
        holds = self.minimum(self.reduce_min(marks, axes=(0,)), 1)  # an empty one holds
        self._need(Guard(self.find_size(holds, ASSERTION, 0, 1), "==", as_size(1), message))

    # ---- axes ----

    def pad_end(self, x: Value) -> Value:
        """Append a 0 along the last axis, so that a maximum has an element."""
        none = (0,) * (len(x.shape) - 1)
        return self.pad(x, before=(*none, 0), after=(*none, 1))

    def axes_of(self, value: Value, dims: int | Sequence[int] | None) -> tuple[int, ...]:
        """Axes from dims that may be negative; all of them for None and an empty list."""
        rank = len(value.shape)
        given = (dims,) if isinstance(dims, int) else tuple(dims or ())
        if not given or not rank:
            return tuple(range(rank))
        return tuple(dim % rank for dim in given)


@cache
def _definitions() -> dict[str, Definition]:
    """The definitions of `definitions.tc` by name."""
    path = Path(__file__).with_name("definitions.tc")
    return parse(path.read_text(encoding="utf-8"), path.name)

"""Values of a graph under construction, with the operators and methods of numpy's arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy

from anydim.base.dtypes import DType, boolean
from anydim.base.errors import UnknownValueError
from anydim.base.records import dataclass
from anydim.base.text import suggestion
from anydim.compiler.frontends import array_functions, elementwise, reductions, value_shapes
from anydim.compiler.frontends.familiar_names import FAMILIAR
from anydim.compiler.frontends.subscripts import subscripts
from anydim.compiler.graph.operator import OPERATORS
from anydim.lang.tree import TensorType
from anydim.sizes import Size

Operand: TypeAlias = "Value | Size | numpy.ndarray | numpy.generic | int | float | bool"
Method = TypeVar("Method", bound=Callable[..., Any])
Unary: TypeAlias = "Callable[[Value], Value]"
Binary: TypeAlias = "Callable[[Value, Any], Value]"


def _unary(name: str) -> Unary:
    def apply(self: Value) -> Value:
        made: Value = elementwise.elementwise(name, self)
        return made

    apply.__name__ = name
    return apply


def _binary(name: str, reflect: bool = False) -> Binary:
    def apply(self: Value, other: Operand) -> Value:
        operands = (other, self) if reflect else (self, other)
        made: Value = elementwise.elementwise(name, *operands)
        return made

    apply.__name__ = f"reflected {name}" if reflect else name
    return apply


def _power(self: Value, other: Operand) -> Value:
    """`x ** 2` of bools is int8, the type of numpy.square; numpy.power(x, 2) is int64."""
    square = type(other) is int and other == 2 and self.dtype == boolean
    made: Value = elementwise.elementwise("power", self.astype("int8") if square else self, other)
    return made


def _both(name: str) -> tuple[Binary, Binary]:
    """An operator, and the one that Python calls for the right operand."""
    return _binary(name), _binary(name, reflect=True)


def _method(name: str, function: Method) -> Method:
    """A function of a value as its method, whose errors have the method's name."""

    def call(self: Value, *arguments: Any, **options: Any) -> Any:
        array_functions.check_arguments(f"{name}()", function, (self, *arguments), options)
        return function(self, *arguments, **options)

    call.__doc__, call.__name__, call.__qualname__ = function.__doc__, name, f"Value.{name}"
    return call  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class Value:
    """A value of a builder's graph. Its elements are known when the compiled model is called.

    Python's operators and numpy's functions add nodes, with the types of results that numpy has.
    """

    builder: Any  # a GraphBuilder
    name: str

    @property
    def type(self) -> TensorType:
        found: TensorType = self.builder._types[self.name]
        return found

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.type.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.type.rank

    @property
    def size(self) -> Size:
        """The number of elements."""
        return value_shapes.count_of(self)

    @property
    def T(self) -> Value:
        """The axes in reverse order."""
        return self.transpose()

    @property
    def mT(self) -> Value:
        """The last two axes exchanged."""
        made: Value = value_shapes.transpose_matrices(self)
        return made

    # ---- operators ----

    __hash__ = object.__hash__  # values are equal elementwise, and keys by identity
    __eq__ = _binary("equal")  # type: ignore[assignment]
    __ne__ = _binary("not_equal")  # type: ignore[assignment]
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    __add__, __radd__ = _both("add")
    __sub__, __rsub__ = _both("subtract")
    __mul__, __rmul__ = _both("multiply")
    __truediv__, __rtruediv__ = _both("divide")
    __floordiv__, __rfloordiv__ = _both("floor_divide")
    __mod__, __rmod__ = _both("remainder")
    __divmod__, __rdivmod__ = _both("divmod")
    __pow__, __rpow__ = _power, _binary("power", reflect=True)
    __matmul__, __rmatmul__ = _both("matmul")
    __and__, __rand__ = _both("bitwise_and")
    __or__, __ror__ = _both("bitwise_or")
    __xor__, __rxor__ = _both("bitwise_xor")
    __lshift__, __rlshift__ = _both("left_shift")
    __rshift__, __rrshift__ = _both("right_shift")
    __neg__, __pos__ = _unary("negative"), _unary("positive")
    __invert__, __abs__ = _unary("invert"), _unary("absolute")
    __round__ = _method("round", array_functions.round_to)

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        return elementwise.called_ufunc(ufunc, method, operands, options)

    def __array_function__(self, function: Any, types: Any, values: Any, options: Any) -> Any:
        return array_functions.called_function(function, values, dict(options))

    # ---- methods ----

    all = _method("all", reductions.every)
    any = _method("any", reductions.some)
    argmax = _method("argmax", reductions.find_largest)
    argmin = _method("argmin", reductions.find_smallest)
    argsort = _method("argsort", reductions.positions_in_order)
    astype = _method("astype", array_functions.convert)
    clip = _method("clip", array_functions.clip)
    cumprod = _method("cumprod", reductions.multiply_along)
    cumsum = _method("cumsum", reductions.add_along)
    diagonal = _method("diagonal", value_shapes.diagonal)
    dot = _method("dot", array_functions.dot)
    flatten = _method("flatten", value_shapes.flat)
    max = _method("max", reductions.largest)
    mean = _method("mean", reductions.average)
    min = _method("min", reductions.smallest)
    nonzero = _method("nonzero", array_functions.find_nonzero)
    prod = _method("prod", reductions.multiply_up)
    ravel = _method("ravel", value_shapes.flat)
    repeat = _method("repeat", value_shapes.repeat)
    reshape = _method("reshape", value_shapes.reshape_to)
    round = _method("round", array_functions.round_to)
    squeeze = _method("squeeze", value_shapes.drop_axes)
    std = _method("std", reductions.deviation)
    sum = _method("sum", reductions.add_up)
    swapaxes = _method("swapaxes", value_shapes.swap_axes)
    take = _method("take", value_shapes.take)
    trace = _method("trace", value_shapes.trace)
    transpose = _method("transpose", value_shapes.permute_axes)
    var = _method("var", reductions.variance)

    # ---- parts ----

    def __getitem__(self, key: Any) -> Value:
        """A part, as of arrays: integers, slices, sizes, None, `...`, and an array or a mask."""
        keys = key if isinstance(key, tuple) else (key,)
        if value_shapes.has_arrays(keys):
            picked: Value = value_shapes.pick(self, keys)
            return picked
        made = self
        for name, attributes in subscripts(self.name, self.shape, key, self.builder._need):
            made = self.builder._apply(name, (made,), attributes)
        return made

    def __setitem__(self, key: Any, other: Any) -> NoReturn:
        raise self._unknown(
            "cannot be changed: values of a graph are constant",
            "make another one: numpy.where(condition, a, b), g.put or g.scatter_elements",
        )

    def __len__(self) -> int:
        if not self.shape:
            raise self._unknown("is a scalar and has no length")
        size = self.shape[0].constant
        if size is None:
            raise self._unknown(
                f"has {self.shape[0]} elements along its first axis, which a call determines",
                "use x.shape[0], a size expression",
            )
        return size

    def __iter__(self) -> Iterator[Value]:
        """The slices along the first axis, if their number is constant."""
        return (self[index] for index in range(len(self)))

    def __contains__(self, item: Any) -> NoReturn:
        raise self._unknown("is searched while the graph is built", "use (x == item).any()")

    # ---- what only a call knows ----

    def __bool__(self) -> NoReturn:
        raise self._unknown(
            "has no truth value while the graph is built",
            "combine conditions by `&`, `|` and `~`, choose by numpy.where(x == 0, a, b) or "
            "g.branch(...); find a value in a list by `is`",
        )

    def _number(self) -> NoReturn:
        raise self._unknown(
            "is no Python number while the graph is built",
            "use operators and functions of the value; as a size: g.find(x, 'count')",
        )

    __float__ = __int__ = __index__ = __complex__ = _number

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        raise self._unknown(
            "is no array while the graph is built",
            "numpy's functions take values; several become one by numpy.stack([...])",
        )

    def _unknown(self, problem: str, hint: str = "") -> UnknownValueError:
        return UnknownValueError(f"value '{self.name}' {problem}", hint)

    def __getattr__(self, name: str) -> NoReturn:
        own = suggestion(name, [each for each in dir(type(self)) if each[0] != "_"])
        if name in OPERATORS:
            hint = f"it is a function of the builder: g.{name}(x)"
        elif name in FAMILIAR:
            hint = own or f"use 'g.{FAMILIAR[name]}'"
        elif hasattr(numpy.ndarray, name):
            hint = "of arrays only: elements are known when the model is called"
        else:
            hint = own
        raise AttributeError(f"a value has no attribute '{name}'" + (f"; {hint}" if hint else ""))

    def __repr__(self) -> str:
        return f"<value {self.name}: {self.type}>"

"""The numpy evaluator of groups: the reference for every other implementation.

The value of an expression over axes is an array with one dimension per axis, of length 1 where it
does not depend on that axis. Work that would fill more than `LARGEST` elements at a time is split
along the longest axis. Arrays of dtype object hold sizes, so that shape arithmetic can be evaluated
while the sizes are still symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy

from anydim.base.dtypes import DType, boolean, convert_array, float32, from_numpy, int64
from anydim.base.errors import DimError, InputError
from anydim.base.records import dataclass
from anydim.lang.functions import FUNCTIONS, INSIDE, compute
from anydim.lang.meaning.contract import factors, sum_of_products
from anydim.lang.meaning.gather import read_values
from anydim.lang.meaning.steps import Compute, StepRunner
from anydim.lang.tree import (
    Apply,
    Axis,
    Cast,
    Expr,
    Group,
    Index,
    Literal,
    Read,
    SizeTerm,
    Statement,
    TensorType,
)
from anydim.lang.tree.bounds_checks import (
    conditions,
    has_checks,
    index_from_end,
    position_inside,
    size_of,
)
from anydim.lang.tree.stepping import written_tensors
from anydim.lang.tree.typing import dtype_of, identity
from anydim.runtime.positions import Position, outside_axis
from anydim.sizes import Size, maximum, minimum
from anydim.sizes.guard import Guard

LARGEST = 1 << 23  # elements of one intermediate array
Array = numpy.ndarray[Any, Any]
Span = tuple[int, int]
Fit = Callable[
    [Array, DType], Array
]  # an array of sizes -> its elements wrapped to an integer type

_RELATIONS = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<=": lambda a, b: a <= b,
    "<": lambda a, b: a < b,
}


def evaluate(
    group: Group,
    tensors: Mapping[str, Array],
    sizes: Mapping[str, int],
    precision: DType | numpy.dtype[Any] | None = None,
    fit: Fit | None = None,
) -> dict[str, Array]:
    """Evaluate the outputs of a group for these inputs and sizes.

    With `precision`, all floating point is computed (and returned) in that type; `fit` converts
    symbolic sizes to the integer type in which an operation computes. Raises DimError for a failed
    guard and InputError for an input that does not fit or a read out of bounds.
    """
    wide = precision.numpy if isinstance(precision, DType) else precision
    check_guards(group.guards, sizes)
    values: dict[str, Array] = {}
    for tensor in group.inputs:
        values[tensor.name] = _input(tensor.name, tensor.type, tensors, sizes, wide)
    types = {t.name: t.type for t in (*group.inputs, *group.outputs, *group.temporaries)}
    compute = runner(types, values, wide, fit)
    with numpy.errstate(all="ignore"):
        if group.steps:
            values.update(
                {n: values[n].copy() for n in written_tensors(group.steps) & values.keys()}
            )
            made = {name: kind for name, kind in types.items() if name not in values}
            values.update(allocate_zeros(made, sizes, wide))
            StepRunner(types, values, compute).run(group.steps, sizes)
        for statement in group.statements:
            values[statement.target] = compute(statement, sizes)
    return {tensor.name: values[tensor.name] for tensor in group.outputs}


def runner(
    types: Mapping[str, TensorType], values: Mapping[str, Array],
    wide: numpy.dtype[Any] | None = None, fit: Fit | None = None,
) -> Compute:  # fmt: skip
    """Return a function that computes the whole target of a statement from `values`."""

    def compute(statement: Statement, sizes: Mapping[str, int], tensor: str = "") -> Array:
        return _Evaluator(statement, types, values, sizes, wide, fit, tensor=tensor).run()

    return compute


def allocate_zeros(
    types: Mapping[str, TensorType], sizes: Mapping[str, int], wide: numpy.dtype[Any] | None = None
) -> dict[str, Array]:
    """Allocate arrays of zeros for tensors that steps write in parts."""
    made = {}
    for name, kind in types.items():
        shape = [max(0, size.evaluate(sizes)) for size in kind.shape]
        held = wide is not None and kind.dtype.is_float and not kind.dtype.stored
        made[name] = numpy.zeros(shape, wide if held else kind.dtype.numpy)
    return made


def check_guards(guards: tuple[Guard, ...], sizes: Mapping[str, int]) -> None:
    """Raise DimError for the first guard that fails; guards on unknown sizes are skipped."""
    for guard in guards:
        if (guard.left.symbols | guard.right.symbols) - sizes.keys():
            continue
        left, right = guard.left.evaluate(sizes), guard.right.evaluate(sizes)
        if not _RELATIONS[guard.relation](left, right):
            raise DimError(
                f"{guard.message} does not hold",
                f"{guard.left} {guard.relation} {guard.right}, with {left} and {right}",
            )


def _input(
    name: str, kind: TensorType, tensors: Mapping[str, Array], sizes: Mapping[str, int],
    wide: numpy.dtype[Any] | None,
) -> Array:  # fmt: skip
    if name not in tensors:
        raise InputError(f"tensor '{name}' is missing")
    value = numpy.asarray(tensors[name])
    known = [s.evaluate(sizes) if s.symbols <= sizes.keys() else None for s in kind.shape]
    fits = len(known) == value.ndim
    if not fits or any(k is not None and k != n for k, n in zip(known, value.shape)):
        raise InputError(f"tensor '{name}' has shape {value.shape}, expected {kind}")
    held = wide is not None and kind.dtype.is_float and not kind.dtype.stored
    return convert_array(value, wide) if wide is not None and held else value


@dataclass
class _Evaluator:
    """Evaluates one statement.

    `used` is the condition under which the current value is used (None: always), `tensor` the
    tensor that the current value indexes; bounds checks need both.
    """

    statement: Statement
    types: Mapping[str, TensorType]
    values: Mapping[str, Array]
    sizes: Mapping[str, int]
    wide: numpy.dtype[Any] | None
    fit: Fit | None = None
    used: Array | None = None
    tensor: str = ""

    def __post_init__(self) -> None:
        axes = (*self.statement.axes, *self.statement.reduced)
        self.dimensions = {axis.name: dimension for dimension, axis in enumerate(axes)}
        self.dtype = dtype_of(self.statement.body, self.types)

    def run(self) -> Array:
        """Evaluate the whole target."""
        statement = self.statement
        shape = tuple(self._length(axis) for axis in statement.axes)
        spans = [(0, length) for length in (*shape, *map(self._length, statement.reduced))]
        if prod(shape) == 0:
            return numpy.empty(shape, self._numpy(self.dtype))
        if prod(stop for _, stop in spans) == 0:
            neutral = identity(statement.combine, self.dtype).value
            return numpy.full(shape, neutral, self._numpy(self.dtype))
        return self._block(spans)

    def _length(self, axis: Axis) -> int:
        return max(0, axis.extent.evaluate(self.sizes))

    def _numpy(self, dtype: DType) -> numpy.dtype[Any]:
        """The type in which values are held; storage-only types keep their own."""
        held = self.wide is not None and dtype.is_float and not dtype.stored
        return self.wide if self.wide is not None and held else dtype.numpy

    # ---- blocks --------------------------------------------------------------------------------

    def _block(self, spans: list[Span]) -> Array:
        """The target over part of its ranges, reduced over the spans."""
        statement = self.statement
        if statement.combine == "add" and self.dtype.is_float:
            parts = factors(statement.body)
            if len(parts) > 1 and all(self._size(part, spans) <= LARGEST for part in parts):
                arrays = [self._value(part, spans) for part in parts]
                lengths = [stop - start for start, stop in spans]
                if not any(array.dtype == object for array in arrays):
                    arrays = [_widen_half(array) for array in arrays]
                    total = sum_of_products(arrays, lengths, len(statement.axes))
                    return convert_array(total, self._numpy(self.dtype))
        if self._size(statement.body, spans) > LARGEST:
            return self._split(spans)
        return self._reduce(self._value(statement.body, spans), spans)

    def _size(self, expr: Expr, spans: list[Span]) -> int:
        used = indices_of(expr)
        return prod(
            stop - start for name, (start, stop) in zip(self.dimensions, spans) if name in used
        )

    def _split(self, spans: list[Span]) -> Array:
        longest = max(range(len(spans)), key=lambda number: spans[number][1] - spans[number][0])
        start, stop = spans[longest]
        middle = (start + stop) // 2
        lower, upper = list(spans), list(spans)
        lower[longest], upper[longest] = (start, middle), (middle, stop)
        halves = self._block(lower), self._block(upper)
        if longest < len(self.statement.axes):
            return numpy.concatenate(halves, axis=longest)
        return convert_array(
            _as_array(self._apply(self.statement.combine, list(halves))), self._numpy(self.dtype)
        )

    def _reduce(self, value: Array, spans: list[Span]) -> Array:
        lengths = tuple(stop - start for start, stop in spans)
        outer = len(self.statement.axes)
        value = numpy.broadcast_to(value, lengths)
        if value.dtype != object:
            value = convert_array(value, self._numpy(self.dtype))
        if not self.statement.combine:
            return numpy.array(value)
        axes = tuple(range(outer, len(lengths)))
        if value.dtype == object:
            return self._reduce_objects(value, axes)
        ufunc: Any = FUNCTIONS[self.statement.combine].numpy
        wide = _widen_half(value)
        total = numpy.asarray(ufunc.reduce(wide, axis=axes, dtype=wide.dtype))
        return convert_array(total, value.dtype)

    def _reduce_objects(self, value: Array, axes: tuple[int, ...]) -> Array:
        moved = numpy.moveaxis(value, axes, range(len(axes)))
        flat = moved.reshape((-1, *moved.shape[len(axes) :]))
        result = _as_array(flat[0])
        for part in flat[1:]:
            result = self._apply(self.statement.combine, [result, _as_array(part)])
            result = self._wrap_sizes(result, self.dtype)
        return result

    # ---- expressions ---------------------------------------------------------------------------

    def _value(self, expr: Expr, spans: list[Span]) -> Array:
        if isinstance(expr, Literal):
            kind = dtype_of(expr, self.types)
            return numpy.full((1,) * len(spans), expr.value, self._numpy(kind))
        if isinstance(expr, SizeTerm):
            value = _as_array(self._size_value(expr.size)).reshape((1,) * len(spans))
            return self._wrap_sizes(value, int64)
        if isinstance(expr, Index):
            dimension = self.dimensions[expr.name]
            shape = [1] * len(spans)
            shape[dimension] = -1
            return numpy.arange(*spans[dimension], dtype=numpy.int64).reshape(shape)
        if isinstance(expr, Read):
            return self._read(expr, spans)
        if isinstance(expr, Cast):
            return self._cast(expr.dtype, self._value(expr.argument, spans))
        if expr.function == INSIDE:
            return self._inside(expr, spans)
        arguments = self._arguments(expr, spans)
        if FUNCTIONS[expr.function].result == "bits":
            exact = dtype_of(expr.arguments[0], self.types)
            arguments = [convert_array(arguments[0], exact.numpy)]
        result = self._apply(expr.function, arguments)
        dtype = dtype_of(expr, self.types)
        if result.dtype == object:
            return self._wrap_sizes(result, dtype)
        return convert_array(result, self._numpy(dtype))

    def _size_value(self, size: Size) -> Any:
        rest = size.substitute(self.sizes)
        return rest if rest.constant is None else numpy.int64(rest.constant)

    def _arguments(self, expr: Apply, spans: list[Span]) -> list[Array]:
        """Evaluate arguments; conditional ones have their checks restricted to their condition."""
        if not has_checks(expr):
            return [self._value(argument, spans) for argument in expr.arguments]
        return [
            self._where(argument, condition, spans)
            for argument, condition in zip(expr.arguments, conditions(expr))
        ]

    def _where(self, expr: Expr, condition: Expr | None, spans: list[Span]) -> Array:
        """Evaluate an expression whose value is used only where a condition holds."""
        outer = self.used
        if condition is not None and has_checks(expr):
            holds = _plain(self._value(condition, spans)).astype(bool)
            self.used = holds if outer is None else outer & holds
        value = self._value(expr, spans)
        self.used = outer
        return value

    def _inside(self, expr: Apply, spans: list[Span]) -> Array:
        """A checked index, 0 where out of bounds and unused; raises InputError where it is used."""
        index, size = (self._value(a, spans) for a in expr.arguments[:2])
        if object in (index.dtype, size.dtype):
            return index
        fine = (index >= 0) & (index < size)
        wrong = ~fine if self.used is None else ~fine & self.used
        if wrong.any():
            found = int(numpy.broadcast_to(index, wrong.shape)[wrong].flat[0])
            from_end = index_from_end(expr) is not None
            position = Position("", self.tensor, size_of(expr), from_end)
            raise InputError(*outside_axis(position, found, int(size.flat[0])))
        return numpy.where(fine, index, 0)

    def _read(self, read: Read, spans: list[Span]) -> Array:
        default = None
        if read.default is not None:
            within = position_inside(read, self.types[read.tensor].shape)
            default = self._where(read.default, Apply("not", (within,)), spans)
        where = {name: spans[dimension] for name, dimension in self.dimensions.items()}
        outer, self.tensor = self.tensor, read.tensor
        result = read_values(
            self.values[read.tensor], read, where, self.dimensions,
            lambda index: self._value(index, spans), default, self.sizes, self.used,
        )  # fmt: skip
        self.tensor = outer
        return result

    def _cast(self, dtype: DType, value: Array) -> Array:
        if value.dtype != object:
            if dtype == boolean and from_numpy(value.dtype).is_float:
                return (
                    convert_array(value, float32.numpy) != 0 if value.itemsize < 4 else value != 0
                )
            return convert_array(value, self._numpy(dtype))
        if dtype.is_integer:
            return self._wrap_sizes(value, dtype)
        return convert_array(_plain(value), self._numpy(dtype))

    def _wrap_sizes(self, value: Array, dtype: DType) -> Array:
        """Wrap sizes among the values of an integer type to that type."""
        if self.fit is None or value.dtype != object or not dtype.is_integer:
            return value
        return self.fit(value, dtype)

    def _apply(self, function: str, arguments: list[Array]) -> Array:
        if any(a.dtype == object for a in arguments):
            if function in ("min", "max"):
                pick = minimum if function == "min" else maximum
                return _as_array(numpy.frompyfunc(lambda a, b: pick(a, b), 2, 1)(*arguments))
            if FUNCTIONS[function].result == "bool" and len(arguments) == 2:
                difference = _plain(_as_array(numpy.subtract(*arguments)))
                return _as_array(FUNCTIONS[function].numpy(difference, 0))
        if function == "select":
            arguments = [_plain(arguments[0]).astype(bool), *arguments[1:]]
        return _as_array(compute(function, arguments))


def _widen_half(array: Array) -> Array:
    """Convert 16-bit floats to float32 for accumulation, as kernels do."""
    narrow = array.itemsize == 2 and from_numpy(array.dtype).is_float
    return convert_array(array, float32.numpy) if narrow else array


def _as_array(value: Any) -> Array:
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        return numpy.asarray(value)
    array = numpy.empty((), dtype=object)
    array[()] = value
    return array


def _plain(value: Array) -> Array:
    """An object array of known sizes as int64; raises InputError for an unknown one."""
    if value.dtype != object:
        return value
    flat = []
    for item in value.reshape(-1):
        constant = item.constant if isinstance(item, Size) else item
        if constant is None:
            raise InputError(f"the value {item} is known only at run time")
        flat.append(constant)
    return numpy.array(flat).reshape(value.shape)


def indices_of(expr: Expr) -> set[str]:
    """The indices an expression depends on."""
    found: set[str] = set()
    waiting = [expr]
    while waiting:
        expr = waiting.pop()
        if isinstance(expr, Index):
            found.add(expr.name)
        elif isinstance(expr, Read):
            waiting += expr.indices
            waiting += () if expr.default is None else (expr.default,)
        elif isinstance(expr, Apply):
            waiting += expr.arguments
        elif isinstance(expr, Cast):
            waiting.append(expr.argument)
    return found

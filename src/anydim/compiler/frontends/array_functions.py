"""numpy's functions on values of a graph: `numpy.where(x == 0, a, b)`, `numpy.linalg.inv(x)`.

`FUNCTIONS` maps their names, those of the array API included, to what computes them. A function
without an entry raises an error that names an alternative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from types import MappingProxyType
from typing import Any

import numpy

from anydim.base.dtypes import boolean, dtype_of, int64
from anydim.base.errors import ArgumentError, GraphError
from anydim.base.user_values import short_repr
from anydim.compiler.frontends import reductions, value_shapes
from anydim.compiler.frontends.elementwise import elementwise
from anydim.compiler.frontends.familiar_names import FAMILIAR
from anydim.compiler.frontends.promotion import (
    array_like,
    as_value,
    builder_of,
    cast,
    common_arrays,
    common_type,
    common_values,
    is_value,
    kind_of,
    value_of,
)
from anydim.compiler.graph.operator import OPERATORS

# ---- choices -----------------------------------------------------------------------------------


def select(condition: Any, *choices: Any) -> Any:
    """`x` where a condition holds, else `y`; of the condition alone, the nonzero indices."""
    if not choices:
        return find_nonzero(condition)
    if len(choices) != 2:
        raise GraphError("where() takes a condition, and both choices or none")
    g = builder_of((condition, *choices))
    chosen = cast(g, as_value(g, condition), boolean)
    return g.where(chosen, *common_values(g, choices))


def find_nonzero(x: Any) -> tuple[Any, ...]:
    """The indices of elements that are not 0: a vector for each axis."""
    found = x.builder.nonzero(x)
    return tuple(found[axis] for axis in range(len(x.shape)))


def clip(x: Any, min: Any = None, max: Any = None) -> Any:
    """The elements clamped to bounds; None: no bound."""
    made = x if min is None else elementwise("maximum", x, min)
    return made if max is None else elementwise("minimum", made, max)


def round_to(x: Any, decimals: int = 0) -> Any:
    """Rounded to `decimals` digits behind the point, half to even."""
    if not x.dtype.is_float and decimals >= 0 and x.dtype != boolean:
        return x
    if not decimals:
        return elementwise("rint", x)
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return elementwise("rint", x * scale) / scale
    return (elementwise("rint", x / scale) * scale).astype(x.dtype)


def convert(x: Any, dtype: Any, *, copy: bool = True) -> Any:
    """The elements in another type, as numpy converts them."""
    return cast(x.builder, x, dtype_of(dtype))


def replace_nan(
    x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    """NaN and infinities replaced; infinities by the largest numbers by default."""
    if not x.dtype.is_float:
        return x
    g, most = x.builder, float(numpy.finfo(x.dtype.numpy).max)
    made = select(g.is_nan(x), nan, x)
    made = select(g.is_inf(x, negative=False), most if posinf is None else posinf, made)
    return select(g.is_inf(x, positive=False), -most if neginf is None else neginf, made)


def are_close(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Whether elements differ by at most atol + rtol * abs(b)."""
    g = builder_of((a, b))
    b = as_value(g, b)
    b = cast(g, b, common_type([b.dtype, float]))
    away, most = abs(elementwise("subtract", a, b)), atol + rtol * abs(b)
    finite = elementwise("isfinite", b)
    made = ((away <= most) & finite) | elementwise("equal", a, b)
    return made | (elementwise("isnan", a) & elementwise("isnan", b)) if equal_nan else made


def all_close(a: Any, b: Any, *arguments: Any, **options: Any) -> Any:
    """Whether all elements are close, a bool scalar."""
    return reductions.every(are_close(a, b, *arguments, **options))


def all_equal(a1: Any, a2: Any) -> Any:
    """Whether all elements are equal, a bool scalar; the shapes are equal or broadcast."""
    return reductions.every(elementwise("equal", a1, a2))


def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Any:
    """A value of this shape that is one number everywhere."""
    g, kind = x.builder, x.dtype if dtype is None else dtype_of(dtype)
    if isinstance(fill_value, int) and kind.is_integer:
        low, high = kind.range
        if not low <= fill_value <= high:
            problem = f"{fill_value} is no value of {kind}, the type of the result"
            raise GraphError(problem, "give another type: dtype='int64'")
    exact = isinstance(fill_value, int) and kind != boolean  # of any number of digits
    number = value_of(g, fill_value, kind) if exact else cast(g, as_value(g, fill_value), kind)
    return g.expand(number, shape=x.shape) if x.shape else number


def _likes(number: int) -> Any:
    return lambda x, dtype=None: full_like(x, number, dtype)


# ---- linear algebra ----------------------------------------------------------------------------


def einsum(subscripts: str, *operands: Any) -> Any:
    """Sum of products in Einstein notation."""
    if not isinstance(subscripts, str):
        raise GraphError("einsum() takes its subscripts as a text", "such as 'ij,jk->ik'")
    g = builder_of(operands)
    own = common_arrays(g, operands)
    kind = own[0].dtype
    own = [cast(g, value, int64) if kind == boolean else value for value in own]
    return cast(g, g.einsum(*own, equation=subscripts), kind)


def dot(a: Any, b: Any) -> Any:
    """numpy's dot: the last axis of a with the last but one of b."""
    a, b = common_arrays(builder_of((a, b)), (a, b))
    if not a.shape or not b.shape:
        return a * b
    return tensordot(a, b, ((-1,), (-2 if len(b.shape) > 1 else -1,)))


def inner(a: Any, b: Any) -> Any:
    """The sum of products along the last axes."""
    a, b = common_arrays(builder_of((a, b)), (a, b))
    return tensordot(a, b, ((-1,), (-1,))) if a.shape and b.shape else a * b


def outer(a: Any, b: Any) -> Any:
    """The products of all pairs of elements."""
    a, b = common_arrays(builder_of((a, b)), (a, b))
    return value_shapes.flat(a)[:, None] * value_shapes.flat(b)


def flat_dot(a: Any, b: Any) -> Any:
    """The sum of products of all elements."""
    a, b = common_arrays(builder_of((a, b)), (a, b))
    return elementwise("matmul", value_shapes.flat(a), value_shapes.flat(b))


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """The sum of products along pairs of axes; a number: the last ones of a, the first of b."""
    a, b = common_arrays(builder_of((a, b)), (a, b))
    if isinstance(axes, int):
        axes = (range(-axes, 0), range(axes))
    ours, theirs = (
        value_shapes.axes_of(v, tuple(each) if isinstance(each, Sequence | range) else each)
        for v, each in zip((a, b), axes)
    )
    if len(ours) != len(theirs):
        raise GraphError(f"axes {short_repr(axes)} are not as many of both values")
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    first = [next(letters) for _ in a.shape]
    second = [next(letters) for _ in b.shape]
    for one, two in zip(ours, theirs):
        second[two] = first[one]
    kept = [c for n, c in enumerate(first) if n not in ours]
    kept += [c for n, c in enumerate(second) if n not in theirs]
    return einsum(f"{''.join(first)},{''.join(second)}->{''.join(kept)}", a, b)


def dot_vectors(x1: Any, x2: Any, axis: int = -1) -> Any:
    """The sum of products along one axis."""
    made = reductions.add_up(elementwise("multiply", x1, x2), axis)
    return cast(made.builder, made, common_type([kind_of(array_like(x)) for x in (x1, x2)]))


def cross(a: Any, b: Any, axis: int = -1) -> Any:
    """The vector product along an axis of size 3."""
    a, b = value_shapes.broadcast_all(*common_arrays(builder_of((a, b)), (a, b)))
    along = value_shapes.axis_of(a, axis)
    if a.shape[along].constant != 3:
        raise GraphError(f"'{a.name}' has {a.shape[along]} elements along axis {axis}, expected 3")

    def shifted(x: Any, by: int) -> Any:
        return value_shapes.roll(x, by, along)

    return shifted(a, -1) * shifted(b, 1) - shifted(a, 1) * shifted(b, -1)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The norm of vectors along axes; of all elements by default."""
    rank = 2 if axis is None else len(value_shapes.axes_of(x, axis))
    if ord is not None and rank == 2 and (axis is not None or len(x.shape) == 2) and ord != "fro":
        raise GraphError(
            f"the norm {short_repr(ord)} of matrices is not available", "norms of vectors"
        )
    if axis is None and ord is not None and len(x.shape) > 2:
        raise GraphError(f"a norm {short_repr(ord)} needs axes", "give axis=")
    return vector_norm(x, axis=axis, ord=2 if ord in (None, "fro") else ord, keepdims=keepdims)


def vector_norm(x: Any, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Any:
    """(sum of abs(x) ** ord) ** (1 / ord) along axes; the extreme for infinite orders."""
    own = abs(x if x.dtype.is_float else x.astype("float64"))
    if ord == -numpy.inf:
        return reductions.smallest(own, axis, keepdims=keepdims)
    if ord == numpy.inf:
        return elementwise("maximum", reductions.reduce("reduce_max", own, axis, keepdims), 0)
    if ord == 0:
        counted = cast(x.builder, own != 0, own.dtype)
        return reductions.add_up(counted, axis, keepdims=keepdims)
    powers = own if ord == 1 else own * own if ord == 2 else own ** float(ord)
    total = reductions.add_up(powers, axis, keepdims=keepdims)
    return total if ord == 1 else elementwise("sqrt", total) if ord == 2 else total ** (1 / ord)


def _of_floats(name: str) -> Any:
    """An operator on matrices, of integers in float64."""

    def compute(x: Any) -> Any:
        own = x if x.dtype.is_float else x.astype("float64")
        return getattr(own.builder, name)(own)

    return compute


def matrix_power(x: Any, n: int) -> Any:
    """A square matrix multiplied by itself."""
    if n < 1:
        raise GraphError(f"the power of a matrix is {n}", "give 1 or more; numpy.linalg.inv(x)")
    made = x
    for _ in range(n - 1):
        made = elementwise("matmul", made, x)
    return made


# ---- sets --------------------------------------------------------------------------------------


def unique(
    x: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: int | None = None,
) -> Any:  # fmt: skip
    """The sorted distinct elements, or slices along an axis, and what else is requested."""
    values, first, inverse, counts = x.builder.unique(x, axis)
    if axis is None:
        inverse = value_shapes.reshape(inverse, x.shape)
    asked = zip((return_index, return_inverse, return_counts), (first, inverse, counts))
    made = (values, *[each for wanted, each in asked if wanted])
    return made if len(made) > 1 else values


# ---- the tables --------------------------------------------------------------------------------

METHODS: MappingProxyType[str, Callable[..., Any]] = MappingProxyType({
    "all": reductions.every, "any": reductions.some, "argmax": reductions.find_largest,
    "argmin": reductions.find_smallest, "argsort": reductions.positions_in_order,
    "astype": convert, "clip": clip, "cumprod": reductions.multiply_along,
    "cumsum": reductions.add_along, "diagonal": value_shapes.diagonal, "dot": dot,
    "max": reductions.largest, "mean": reductions.average, "min": reductions.smallest,
    "nonzero": find_nonzero, "prod": reductions.multiply_up, "ravel": value_shapes.flat,
    "repeat": value_shapes.repeat, "reshape": value_shapes.reshape, "round": round_to,
    "squeeze": value_shapes.drop_axes, "std": reductions.deviation, "sum": reductions.add_up,
    "swapaxes": value_shapes.swap_axes, "take": value_shapes.take, "trace": value_shapes.trace,
    "transpose": value_shapes.permute, "var": reductions.variance,
})  # fmt: skip
_LINEAR: dict[str, Callable[..., Any]] = {
    "linalg.cross": cross, "linalg.det": _of_floats("det"),
    "linalg.diagonal": lambda x, *, offset=0: value_shapes.diagonal(x, offset, -2, -1),
    "linalg.inv": _of_floats("inverse"), "linalg.matmul": lambda a, b: elementwise("matmul", a, b),
    "linalg.matrix_power": matrix_power,
    "linalg.matrix_transpose": value_shapes.transpose_matrices, "linalg.norm": norm,
    "linalg.outer": outer, "linalg.tensordot": tensordot,
    "linalg.trace": lambda x, *, offset=0, dtype=None: value_shapes.trace(
        x, offset, -2, -1, dtype),
    "linalg.vecdot": lambda a, b, *, axis=-1: dot_vectors(a, b, axis),
    "linalg.vector_norm": vector_norm,
}  # fmt: skip
FUNCTIONS: MappingProxyType[str, Callable[..., Any]] = MappingProxyType({
    **METHODS, **_LINEAR,
    "allclose": all_close, "amax": reductions.largest, "amin": reductions.smallest,
    "array_equal": all_equal, "around": round_to, "broadcast_arrays": value_shapes.broadcast_all,
    "broadcast_to": value_shapes.broadcast_to, "concat": value_shapes.concatenate,
    "concatenate": value_shapes.concatenate, "copy": lambda x: x,
    "count_nonzero": reductions.count_nonzero, "cross": cross,
    "cumulative_prod": reductions.cumulative_prod, "cumulative_sum": reductions.cumulative_sum,
    "diff": value_shapes.difference, "einsum": einsum,
    "empty_like": _likes(0), "expand_dims": value_shapes.add_axes, "flip": value_shapes.flip,
    "full_like": full_like, "hstack": value_shapes.stack_columns,
    "imag": _likes(0), "inner": inner, "isclose": are_close,
    "matrix_transpose": value_shapes.transpose_matrices, "moveaxis": value_shapes.move_axes,
    "nan_to_num": replace_nan, "ndim": lambda x: x.ndim, "ones_like": _likes(1), "outer": outer,
    "permute_dims": value_shapes.permute, "ptp": reductions.peak_to_peak, "real": lambda x: x,
    "result_type": lambda *items: common_type([kind_of(_type_like(item)) for item in items]),
    "roll": value_shapes.roll, "row_stack": value_shapes.stack_rows,
    "searchsorted": reductions.search_sorted, "shape": lambda x: x.shape,
    "size": lambda x: x.size, "sort": reductions.order, "split": value_shapes.split,
    "stack": value_shapes.stack, "take_along_axis": value_shapes.take_along,
    "tensordot": tensordot, "tile": value_shapes.tile, "tril": value_shapes.triangle(False),
    "triu": value_shapes.triangle(True), "unique": unique,
    "unique_all": lambda x: unique(x, True, True, True),
    "unique_counts": lambda x: unique(x, return_counts=True),
    "unique_inverse": lambda x: unique(x, return_inverse=True), "unique_values": unique,
    "unstack": value_shapes.unstack, "vdot": flat_dot, "vecdot": dot_vectors,
    "vstack": value_shapes.stack_rows, "where": select, "zeros_like": _likes(0),
})  # fmt: skip


def _type_like(item: Any) -> Any:
    return item if is_value(item) else numpy.zeros((), item) if _is_type(item) else array_like(item)


def _is_type(item: Any) -> bool:
    return isinstance(item, (type, numpy.dtype, str))


# ---- calls by numpy ----------------------------------------------------------------------------

IGNORED = ("casting", "subok")


def called_function(function: Any, arguments: Any, options: dict[str, Any]) -> Any:
    """What `__array_function__` returns. Raises GraphError for functions that are not available."""
    name = full_name(function)
    if name not in FUNCTIONS:
        raise GraphError(f"numpy.{name} is not available for values of a graph", _instead(name))
    if options.pop("out", None) is not None:
        problem = f"numpy.{name} cannot write a value of a graph to an array"
        raise GraphError(problem, "assign the result")
    given = {key: value for key, value in options.items() if key not in IGNORED}
    check_arguments(f"numpy.{name}", FUNCTIONS[name], arguments, given)
    return FUNCTIONS[name](*arguments, **given)


def check_arguments(
    name: str, function: Callable[..., Any], arguments: Sequence[Any], options: dict[str, Any]
) -> None:
    """Raise ArgumentError for arguments that a function of values does not take."""
    known = signature(function)
    try:
        known.bind(*arguments, **options)
    except TypeError as error:
        hint = f"of a value of a graph it takes {', '.join(list(known.parameters)[1:])}"
        raise ArgumentError(f"{name}: {error}", hint) from None


def full_name(function: Any) -> str:
    """'linalg.inv' of numpy.linalg.inv."""
    module, name = function.__module__.removeprefix("numpy"), function.__name__
    return f"{module[1:]}.{name}" if module in (".linalg", ".fft") else name


FOURIER = {
    "fft.fft": "`g.dft(x, length=..., axis=...)`: complex numbers are pairs, a last axis of 2",
    "fft.ifft": "`g.dft(x, length=..., axis=..., inverse=True)`",
    "fft.rfft": "`g.dft(x, length=..., axis=..., onesided=True)`",
    "fft.irfft": "`g.dft(x, length=..., axis=..., inverse=True, onesided=True)`",
}


def _instead(name: str) -> str:
    if name in FOURIER:
        return f"use {FOURIER[name]}"
    own = FAMILIAR.get(name, name)
    return f"use g.{own}" if own in OPERATORS else "write a definition: anydim.define"

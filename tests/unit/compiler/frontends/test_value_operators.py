"""Promise: operators and numpy's functions on values of a graph are those of numpy's arrays.

The same expression is computed with arrays and compiled with values: elements, types and what is
an error are compared, over random types, shapes and kinds of operands.
"""

from __future__ import annotations

import math
import operator
import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.base.errors import GraphError
from anydim.compiler.frontends.array_functions import FUNCTIONS
from anydim.compiler.frontends.elementwise import UFUNCS
from anydim.compiler.frontends.values import Value

pytestmark = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="promotion and names of numpy 2.1"
)
TYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64",
)  # fmt: skip
TOLERANCE = {"float16": 4e-3, "float32": 2e-6, "float64": 1e-12}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "eq", "ne", "lt",
        "le", "gt", "ge", "and_", "or_", "xor", "lshift", "rshift",
    )
} | {"divmod": lambda a, b: divmod(a, b)[1], "array ufunc": np.subtract}  # fmt: skip
SIZES = ((3, 5), (1, 1), (0, 5), (4, 0), (2, 1))


def draw(r: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Elements at the edges of a type and near 0."""
    dtype = np.dtype(kind)
    if dtype.kind == "f":
        pool = [0, -0.0, 1, -1, 2.5, -2.5, 0.1, np.inf, -np.inf, np.nan, 5, 1e3, 1e-7]
        return np.asarray(r.choice(np.array(pool), shape)).astype(dtype)
    if dtype.kind == "b":
        return np.asarray(r.integers(0, 2, shape)).astype(bool)
    known = np.iinfo(dtype)
    width = 8 * dtype.itemsize
    pool = [0, 1, 2, 3, 7, width - 1, width, known.max, known.max - 1, known.min, known.min // 2]
    places = r.integers(0, len(pool), shape)
    return np.array([int(pool[n]) for n in np.ravel(places)], dtype).reshape(shape)


def agree(came: Any, wanted: Any, where: str) -> None:
    wanted = np.asarray(wanted)
    assert str(came.dtype) == str(wanted.dtype), where
    assert came.shape == wanted.shape, where
    tolerance = TOLERANCE.get(str(wanted.dtype))
    if tolerance is None:
        np.testing.assert_array_equal(came, wanted, where)
    else:
        np.testing.assert_allclose(came, wanted, tolerance, tolerance * 1e-2, err_msg=where)


def tried(make: Callable[[], Any], *errors: type[Exception]) -> Any:
    """A result, or None for one of the errors."""
    try:
        with np.errstate(all="ignore"):
            return make()
    except errors:
        return None


NUMPY = (TypeError, ValueError, OverflowError, IndexError, np.linalg.LinAlgError)


def partner(r: random.Random, kind: str) -> tuple[Any, str]:
    """A constant operand, and the kind of it: of Python, of numpy, or an array."""
    numbers = np.random.default_rng(r.randrange(1 << 30))
    form = r.choice(("int", "float", "bool", "scalar", "array", "list"))
    if form == "int":
        return r.choice((0, 1, 2, 3, 8, -1, -3, 127, 128, 300, 1 << 40, 1 << 70)), form
    if form == "float":
        return r.choice((0.0, 1.5, -2.5, math.inf, math.nan, 3.0)), form
    if form == "bool":
        return r.random() < 0.5, form
    if form == "scalar":
        return draw(numbers, kind, ())[()], form
    return (draw(numbers, kind, (1,)), form) if form == "array" else ([1, 2][:1], form)


@pytest.mark.sampled(most=6)
@pytest.mark.parametrize("seed", range(60))
def test_operators_are_those_of_arrays(seed: int) -> None:
    """Each operator, of two values or of a value and a constant, in both orders."""
    r = random.Random(seed)
    left, right = r.choice(TYPES), r.choice(TYPES)
    shape = r.choice(((), ("m",), ("n", "m"), ("n", 1), (1, "m")))
    other, form = partner(r, right) if r.random() < 0.6 else (None, "value")
    swapped = r.random() < 0.5
    g = ad.Builder("operators")
    x, y = g.input("x", left, ("n", "m")), g.input("y", right, shape)
    made = {}
    numbers = np.random.default_rng(seed)
    sample = [draw(numbers, left, (3, 5)), draw(numbers, right, arrays_shape(shape, (3, 5)))]
    for name, function in BINARY.items():

        def apply(a: Any, b: Any, f: Any = function) -> Any:
            pair = (a, b if form == "value" else other)
            return f(*(pair[::-1] if swapped else pair))

        if name == "matmul" and (form != "value" or left == "float16" or right == "float16"):
            continue
        wanted = tried(partial(apply, *sample), *NUMPY)
        came = tried(partial(apply, x, y), GraphError)
        if name == "matmul" and came is not None:
            continue  # shapes of matrices: with the functions
        if wanted is None and name == "pow" and came is not None:
            continue  # numpy refuses negative integers among the elements
        said = f"{name} of {left} and {right} ({form} {other!r}), swapped: {swapped}"
        assert (wanted is None) == (came is None), f"{said}: {wanted!r}, {came!r}"
        if came is not None:
            assert isinstance(came, Value) and str(came.dtype) == str(wanted.dtype), said
            made[name] = (apply, said)
            g.output(name, came)
    model = ad.compile(g) if made else None
    for sizes in SIZES if model else ():
        arrays = [draw(numbers, left, sizes), draw(numbers, right, arrays_shape(shape, sizes))]
        results = model(*arrays) if model else {}
        for name, (function, said) in made.items():
            wanted = tried(partial(function, *arrays), *NUMPY)
            if wanted is not None:
                agree(results[name], wanted, f"{said} at {sizes}")


def arrays_shape(shape: tuple[Any, ...], sizes: tuple[int, int]) -> tuple[int, ...]:
    known = dict(zip("nm", sizes))
    return tuple(known.get(size, size) for size in shape)


# ---- functions ---------------------------------------------------------------------------------

EXPRESSIONS = """
np.all(x)|np.any(x, axis=0)|np.all(x, axis=1, keepdims=True)|np.argmax(x)|np.argmax(x, axis=0)
np.argmin(x, axis=-1, keepdims=True)|np.argsort(x, axis=0, kind="stable")|x.astype("float64")
x.astype(np.int32)|x.astype("bool")
np.clip(x, 1, 3)|x.clip(None, 2)|x.clip(1)|np.cumprod(x, axis=1)|np.cumsum(x)|x.cumsum(0)
np.diagonal(x)|np.diagonal(x, 1)|x.diagonal(-1)|np.dot(x, x.T)|np.dot(v, v)|np.dot(x, v)|np.max(x)
x.max(axis=0)|x.min(axis=(0, 1), keepdims=True)|np.amin(x)|np.amax(x, 1)|np.mean(x)|x.mean(axis=1)
np.nonzero(x)[0]|np.prod(x, axis=1)|x.prod()|np.ravel(x)|x.flatten()|np.repeat(x, 2)
np.repeat(x, 3, axis=1)|x.repeat(0, axis=0)|np.reshape(x, (-1, 1))|x.reshape(-1)|x.reshape((1, -1))
np.round(x)|np.around(x, 1)|np.squeeze(x[:, None])|x[None].squeeze(axis=0)
np.std(x)|x.std(axis=0, ddof=1)|np.sum(x)|x.sum(1)|np.sum(x, axis=(0, 1), keepdims=True)
x.sum(axis=0, dtype="float64")|np.swapaxes(x[None], 0, 2)|np.take(x, [0, -1], axis=1)|x.take([0])
np.trace(x)|x.trace(1)|np.transpose(x)|x.transpose(1, 0)|x.T|x[None].transpose((2, 0, 1))
np.var(x, axis=1)|x.var(ddof=1)|np.linalg.det(s)|np.linalg.inv(s)|np.linalg.matmul(x, x.T)
np.linalg.cross(c, c[::-1])|np.linalg.diagonal(x)|np.linalg.matrix_power(s, 3)
np.linalg.matrix_transpose(x)|np.linalg.norm(v)|np.linalg.norm(x, axis=1)|np.linalg.outer(v, v)
np.linalg.tensordot(x, x, axes=2)|np.linalg.trace(x)|np.linalg.vecdot(x, x)
np.linalg.vector_norm(x, axis=0, ord=1)|np.linalg.vector_norm(v, ord=np.inf)
np.linalg.vector_norm(v, ord=3)|np.allclose(x, x)|np.array_equal(x, x)
np.broadcast_arrays(x, v)[1]|np.broadcast_to(v, x.shape)|np.concat([x, x], axis=1)
np.concatenate([x, np.ones((1, 1), bool) & (x[:1] == x[:1])])|np.concatenate([x, v], axis=None)
np.copy(x)|np.count_nonzero(x)|np.count_nonzero(x, axis=1)|np.cross(c, c[:, ::-1])
np.cumulative_prod(x, axis=0)|np.cumulative_sum(x, axis=1, include_initial=True)
np.cumulative_sum(v)|np.diff(x)|np.diff(x, n=2, axis=0)|np.einsum("ij,ij->i", x, x)
np.zeros_like(np.empty_like(x)) if isinstance(x, np.ndarray) else np.zeros_like(x)
np.expand_dims(x, 1)|np.expand_dims(x, (0, -1))|np.flip(x)|np.flip(x, 0)|np.full_like(x, 1)
np.full_like(x, 2.5, dtype="float32")|np.hstack([x, x])|np.hstack([v, v])|np.imag(x)|np.inner(x, x)
np.isclose(x, v)|np.isclose(x, x, equal_nan=True)|np.matrix_transpose(x)|np.moveaxis(x[None], 0, -1)
np.nan_to_num(x)|np.ones_like(x)|np.outer(v, v)|np.permute_dims(x, (1, 0))|np.ptp(x, axis=0)
np.real(x)|np.roll(x, 1)|np.roll(x, -2, axis=1)|np.roll(x, (1, 2), axis=(0, 1))
np.roll(x, (1, 2))|np.roll(x, (1,), (0, 1))|np.roll(x, (1, 2), 1)|np.roll(x, 1, (0, 0))
np.roll(x, np.array([1, -2]), (-1, 1))|np.roll(x, (1, 2, 3), (0, 1))|np.roll(x, 1, ())
np.dot(x, 2)|np.dot(2.0, x)|np.inner(x, 2.0)|np.outer(x, 2)|np.tensordot(x, 2, 0)|np.triu(v)
np.einsum("ij,->i", x, 2)|np.stack([x[0, 0], 2.0])|np.hstack([v, 2])|np.tril(v, -1)
np.concatenate([x, 2.0], axis=None)|np.add.outer(2, x)|np.add.outer([1, 2], x)
np.multiply.outer(x, 1.5)|np.subtract.outer(v, np.array([[1, 2]]))|x[:, []]|x ** 2|x ** 0.5
np.searchsorted(np.sort(v), x)|np.searchsorted(np.sort(v), x, side="right")|np.sort(x)
np.sort(x, axis=0)|np.split(x[:2], 2)[1]|np.split(x, [1, 2], axis=1)[1]|np.stack([x, x], axis=1)
np.stack([v, v], axis=-1)|np.take_along_axis(x, np.array([[0]]), axis=0)|np.tensordot(x, x.T, 1)
np.tile(x, 2)|np.tile(v, (2, 1))|np.tril(x)|np.triu(x, 1)|np.unique(u)
np.unique(u, return_counts=True)[1]|np.unique_all(u)[2]|np.unique_counts(u)[1]
np.unique_inverse(u)[1]|np.sort(np.unique_values(u))|np.unstack(c, axis=1)[2]|np.vdot(x, x)
np.vecdot(x, v)|np.vstack([v, v])|np.where(x == 0, 1, x)|np.where(x, x, v)
np.where(x > 1, np.float64(0.5), v)|np.where(x)[1]
np.add.reduce(x)|np.maximum.reduce(x, axis=1)|np.add.accumulate(x, axis=1)
np.multiply.outer(v, v)|np.sqrt(x)[..., None]|x[1:, ::2]|x[x > 1]|x[:, [0, -1]]|x.mT
np.add(x, v, dtype="float64")|-x|+x|~x|abs(x)|2 ** v|divmod(x, 2)[0]|divmod(7, v + 1)[1]
np.divmod(x, 3)[1]|np.modf(x)[0]|np.modf(x)[1]|np.result_type(x, 1.5)|np.matmul(x, x.T)|v @ x.T
[1] + x|x + np.int8(3)|np.float32(2) * x|np.shape(x)[0] + x|x / x.size|np.ndim(x) + x
"""
PAIRS = (
    "arctan2", "copysign", "float_power", "fmax", "fmin", "fmod", "heaviside", "hypot",
    "logaddexp", "nextafter", "maximum", "minimum", "logical_and", "logical_or", "logical_xor",
    "power", "equal", "less", "left_shift", "right_shift", "bitwise_xor",
)  # fmt: skip
NO_EXPRESSION = {"empty_like", "linalg.outer"}  # of any elements; of 1-d values only
PARTS = 6  # of the expressions, for short tests
APART = {
    *[("np.nextafter(x, v)", kind) for kind in ("bool", "uint8")],  # of float16
    *[("np.reciprocal(x)", kind) for kind in TYPES if kind[0] != "f"],  # of 0: any number
}


def expressions() -> list[str]:
    unary = [name for name in sorted(UFUNCS) if getattr(np, name).nin == 1]
    texts = [text for line in EXPRESSIONS.strip().split("\n") for text in line.split("|")]
    texts += [f"np.{name}(x)" for name in unary if getattr(np, name).nout == 1]
    return texts + [f"np.{name}(x, v)" for name in PAIRS]


def arrays_of(kind: str, rows: int, columns: int, seed: int) -> dict[str, np.ndarray]:
    """A matrix x, a vector v that broadcasts with it, 3 columns c, a square s, a few u."""
    r = np.random.default_rng(seed)
    shapes = {"x": (rows, columns), "v": (columns,), "c": (rows, 3), "s": (3, 3), "u": (rows, 4)}
    whole = {name: r.integers(0, 4, shape) for name, shape in shapes.items()}
    if np.dtype(kind).kind == "i":
        whole["x"] = whole["x"] - 2 * (whole["x"] == 3) * 2
    made = {name: array.astype(kind) for name, array in whole.items()}
    if np.dtype(kind).kind == "f":
        made["x"] = (made["x"] * 0.75 - 1).astype(kind)
        made["s"] = (made["s"] + 4 * np.eye(3)).astype(kind)
    return made


def evaluated(text: str, values: dict[str, Any]) -> Any:
    return eval(text, {"np": np, **values})


def model_of(kind: str, texts: list[str]) -> Any:
    g = ad.Builder("functions")
    shapes = {"x": ("n", "m"), "v": ("m",), "c": ("n", 3), "s": (3, 3), "u": ("n", 4)}
    values = {name: g.input(name, kind, shape) for name, shape in shapes.items()}
    for number, text in enumerate(texts):
        made = evaluated(text, values)
        assert isinstance(made, Value), text
        g.output(f"y{number}", made)
    return ad.compile(g)


def accepted(kind: str, sizes: tuple[int, int], part: int) -> Iterator[str]:
    """The expressions of a part that numpy computes, and values too; both refuse the others."""
    g = ad.Builder("functions")
    shapes = {"x": ("n", "m"), "v": ("m",), "c": ("n", 3), "s": (3, 3), "u": ("n", 4)}
    values = {name: g.input(name, kind, shape) for name, shape in shapes.items()}
    for text in expressions()[part::PARTS]:
        wanted = tried(partial(evaluated, text, arrays_of(kind, *sizes, 0)), *NUMPY)
        came = tried(partial(evaluated, text, values), GraphError)
        if isinstance(wanted, np.dtype):
            assert str(came) == wanted.name, text
        elif wanted is not None and (text, kind) not in APART:
            assert isinstance(came, Value), f"{text} of {kind}"
            assert came.dtype.name == np.asarray(wanted).dtype.name, f"{text} of {kind}"
            yield text


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", ["float32", "int32", "bool", "uint8", "float64", "int64"])
def test_functions_are_those_of_arrays(kind: str, part: int) -> None:
    texts = [*accepted(kind, (3, 4), part)]
    model = model_of(kind, texts)
    for seed, sizes in enumerate(((3, 4), (4, 4), (5, 3), (7, 9))):
        arrays = arrays_of(kind, *sizes, seed)
        results = model(**arrays)
        for number, text in enumerate(texts):
            wanted = tried(partial(evaluated, text, arrays), *NUMPY)
            if wanted is not None:
                agree_nearly(results[f"y{number}"], wanted, f"{text} of {kind} at {sizes}")


def agree_nearly(came: Any, wanted: Any, where: str) -> None:
    wanted = np.asarray(wanted)
    assert came.dtype == wanted.dtype and came.shape == wanted.shape, where
    exact = wanted.dtype.kind != "f"
    tolerance = 0 if exact else 1e-4 if wanted.dtype == np.float32 else 2e-2 if (
        wanted.dtype == np.float16) else 1e-10  # fmt: skip
    np.testing.assert_allclose(came, wanted, tolerance, tolerance, err_msg=where)


@pytest.mark.sampled(most=3)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("sizes", [(0, 4), (4, 0), (1, 1)])
def test_functions_of_few_elements(sizes: tuple[int, int], part: int) -> None:
    with np.errstate(all="ignore"):
        texts = [*accepted("float32", sizes, part)]
        arrays = arrays_of("float32", *sizes, 1)
        model = model_of("float32", texts)
        results = model(**arrays)
        for number, text in enumerate(texts):
            wanted = evaluated(text, arrays)
            if text.startswith("np.squeeze"):
                continue  # a call's axes of size 1 stay
            agree_nearly(results[f"y{number}"], wanted, f"{text} at {sizes}")


@pytest.mark.sampled(most=6)
@pytest.mark.parametrize("seed", range(60))
def test_rolls_are_those_of_arrays(seed: int) -> None:
    """Shifts and axes of any number, repeated ones included; sizes as shifts."""
    r = random.Random(seed)
    g = ad.Builder("rolls")
    x = g.input("x", "int32", ("n", "m", 3))
    made: list[tuple[Any, Any]] = []
    for _ in range(8):
        count = r.randrange(4)
        axis = r.choice((None, r.randrange(-3, 3), tuple(r.randrange(-3, 3) for _ in range(count))))
        lengths = r.choice((count, count, 1, 2))
        shift: Any = tuple(r.randrange(-9, 9) for _ in range(lengths))
        shift = r.choice((shift, [*shift], np.array(shift, int), r.randrange(-9, 9)))
        wanted = tried(partial(np.roll, np.ones((4, 5, 3)), shift, axis), *NUMPY)
        came = tried(partial(np.roll, x, shift, axis), GraphError)
        assert (wanted is None) == (came is None), f"{shift} along {axis}"
        if came is not None:
            g.output(f"y{len(made)}", came)
            made.append((shift, axis))
    g.output("sizes", np.roll(x, (x.shape[0] - 1, x.shape[1]), (0, 2)))
    model = ad.compile(g)
    for sizes in SIZES:
        array = np.arange(math.prod(sizes) * 3, dtype=np.int32).reshape(*sizes, 3)
        results = model(array)
        for number, (shift, axis) in enumerate(made):
            wanted = np.roll(array, shift, axis)
            np.testing.assert_array_equal(results[f"y{number}"], wanted, f"{shift} along {axis}")
        wanted = np.roll(array, (sizes[0] - 1, sizes[1]), (0, 2))
        np.testing.assert_array_equal(results["sizes"], wanted)


def test_every_function_has_an_expression() -> None:
    used = set(re.findall(r"np\.((?:linalg\.)?\w+)", " ".join(expressions())))
    used |= set(re.findall(r"\bx\.(\w+)\(", EXPRESSIONS))
    assert {*FUNCTIONS} - NO_EXPRESSION - {"shape", "size", "row_stack"} <= used
    binary = {name for name in UFUNCS if getattr(np, name, np.add).nin == 2}
    assert UFUNCS - used <= binary

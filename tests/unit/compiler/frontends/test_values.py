"""Promise: values compare elementwise, are kept by identity, and say what only a call knows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import bfloat16
from anydim.base.errors import GraphError, UnknownValueError
from anydim.compiler.frontends.values import Value
from tests.house.array_functions_page import names, page
from tests.house.imports import ROOT

PAGE = ROOT.parent / "docs" / "array-functions.md"


LIBRARY = ad.define("def f(float(N) a, float(N) b) -> (c) { c(i) = a(i) + b(i) }")


def graph(**kinds: str) -> tuple[ad.Builder, dict[str, Any]]:
    """A builder with an input [n, 4] of each type."""
    g = ad.Builder("g")
    n = g.dim("n", 0, 9)
    return g, {name: g.input(name, kind, (n, 4)) for name, kind in kinds.items()}


def test_equality_of_elements() -> None:
    g = ad.Builder("g")
    x = g.input("x", "float32", ("n",))
    c = g.input("c", "bool", ("n",))
    g.output("count", g.reduce_sum(x * 0 + (x == 2)))
    g.output("both", c & (x == 2))
    g.output("other", c | (x != 2))
    g.output("reflected", 2 == x)  # noqa: SIM300
    g.output("array", np.float32(2) != x)
    array, marks = np.array([0, 2, 2], np.float32), np.array([True, True, False])
    came = ad.compile(g)(array, marks)
    assert came["count"] == 2
    np.testing.assert_array_equal(came["both"], marks & (array == 2))
    np.testing.assert_array_equal(came["other"], marks | (array != 2))
    np.testing.assert_array_equal(came["reflected"], array == 2)
    np.testing.assert_array_equal(came["array"], array != 2)


def test_values_are_kept_by_identity() -> None:
    _, values = graph(x="float32", y="float32")
    x, y = values["x"], values["y"]
    assert {x: 1, y: 2}[y] == 2 and len({x, y, x}) == 2
    assert x in [x] and [x].index(x) == 0
    with pytest.raises(UnknownValueError, match="find a value in a list by `is`"):
        _ = x in [y]


def test_mixed_types_are_promoted_as_by_numpy() -> None:
    g, values = graph(x="float32")
    made = values["x"] + np.arange(4)
    assert made.dtype == ad.float64
    g.output("y", made)
    array = np.full((2, 4), 0.1, np.float32)
    np.testing.assert_array_equal(ad.compile(g)(array)["y"], array + np.arange(4))
    with pytest.raises(GraphError) as caught:
        g.add(values["x"], np.arange(4))
    assert ".tc" not in str(caught.value)
    assert "'add' takes values of one type, and 'x' is float32[n, 4] and" in caught.value.problem


@pytest.mark.parametrize("make,said", [
    (lambda g, x: g.exp(x), "operator 'exp' on 'x' int64[n, 4]: 'exp' takes floating point"),
    (lambda g, x: x + np.ones(3, int), "'x' int64[n, 4], 'constant_1' int64[3]: cannot broadcast"),
    (lambda g, x: g.matmul(x, np.ones(4)), "'matmul' takes values of one type"),
], ids=["type", "shape", "mixed"])  # fmt: skip
def test_errors_name_values_and_not_the_library(make: Callable[..., Any], said: str) -> None:
    g, values = graph(x="int64")
    with pytest.raises(GraphError) as caught:
        make(g, values["x"])
    text = str(caught.value)
    assert said in text and ".tc:" not in text and "def " not in text


@pytest.mark.parametrize("use,said", [
    (bool, "has no truth value while the graph is built"),
    (lambda x: [1 for _ in x], "has n elements along its first axis"),
    (len, "has n elements along its first axis"),
    (lambda x: 1.0 in x, r"use \(x == item\).any\(\)"),
    (float, "is no Python number"),
    (int, "is no Python number"),
    (complex, "is no Python number"),
    (lambda x: [1, 2][x], "is no Python number"),
    (np.asarray, "is no array"),
    (lambda x: np.array([x, x]), r"numpy.stack\(\[...\]\)"),
    (lambda x: 1 if x > 0 else 2, "g.branch"),
    (lambda x: x.__setitem__(0, 1), "cannot be changed"),
    (lambda x: x[: x.sum()], r"g.find\(x, 'count'\)"),
])  # fmt: skip
def test_what_only_a_call_knows(use: Callable[[Any], Any], said: str) -> None:
    _, values = graph(x="float32")
    with pytest.raises(UnknownValueError, match=said):
        use(values["x"])


def test_an_axis_of_constant_size_is_a_sequence() -> None:
    g = ad.Builder("g")
    x = g.input("x", "float32", (2, "n"))
    first, second = x
    assert len(x) == 2 and first.shape == second.shape == x.shape[1:]
    assert x.ndim == 2 and x.T.shape == x.shape[::-1] and x.size == 2 * x.shape[1]


@pytest.mark.parametrize("use,said", [
    (lambda x: x + "a", "'a' is no operand"),
    (lambda x: x == None, "`x is None`"),  # noqa: E711
    (lambda x: x + [x], "numpy.stack"),
    (lambda x: x + 1j, "1j is no operand"),
    (lambda x: x - (x > 0) - (x > 0) - ((x > 0) - (x > 0)), "subtract is not defined for bool"),
    (lambda x: x & 1, "bitwise_and is not defined for float32, a Python int"),
    (lambda x: x.astype("uint8") + 300, "300 is no value of uint8"),
    (lambda x: x.astype("int32") ** -1, r"x \*\* -1.0"),
    (lambda x: np.gcd(x, x), "numpy.gcd is not available"),
    (lambda x: np.pad(x, 1), "use g.pad"),
    (lambda x: np.einsum(x, [0, 1], [0]), "as a text"),
    (lambda x: LIBRARY.f(x[0], [1.0, 2, 3, 4]), "'f' cannot take list"),
    (lambda x: x.std(0, None, None, 1), r"std\(\): too many positional arguments"),
    (np.median, "numpy.median is not available"),
    (np.linalg.qr, "numpy.linalg.qr is not available"),
    (np.fft.fft, r"numpy.fft.fft is not available[^`]*use `g.dft\(x, length"),
    (lambda x: np.exp(x, out=np.ones((2, 4))), "cannot write"),
    (lambda x: np.sum(x, out=np.ones(())), "cannot write"),
    (lambda x: np.ones((2, 4)).__iadd__(x), "assign the result"),
    (lambda x: np.sum(x, where=x > 0), "unexpected keyword argument 'where'"),
    (lambda x: np.exp(x, where=x > 0), "takes no `where`"),
    (lambda x: x.sum(axes=1), r"sum\(\): got an unexpected keyword argument 'axes'"),
    (lambda x: x.sum(2), "'x' has 2 axes, and no axis 2"),
    (lambda x: x.sum((0, 0)), "given twice"),
    (lambda x: x.sum(0.5), "0.5 is no axis"),
    (lambda x: x.reshape(-1, order="F"), "row-major"),
    (lambda x: x.transpose(0), "has 2 axes"),
    (lambda x: np.repeat(x, [1, 2]), "give one number"),
    (lambda x: x[x, x], "several indices"),
    (lambda x: x[x], "indices are integers"),
    (lambda x: x[0, [1, 0]], "several indices"),
    (lambda x: x[np.int64(0), [1, 0]], "several indices"),
    (lambda x: x[[1, 0], x.shape[0] - 1], "several indices"),
    (lambda x: x[x.shape[0] - 1, np.array([1, 0])], "several indices"),
    (lambda x: x[(0, 1), [1, 0]], "several indices"),
    (lambda x: x[True, [1, 0]], "several indices"),
    (lambda x: x[np.array([])], "indices are integers"),
    (lambda x: np.roll(x, (1, 2, 3), (0, 1)), "3 shifts along 2 axes"),
    (lambda x: np.roll(x, (), (0, 1)), "0 shifts along 2 axes"),
    (lambda x: np.roll(x, [[1]], 0), "one list"),
    (lambda x: np.roll(x, 1.5), "give integers or sizes"),
    (lambda x: np.roll(x, x), "give integers or sizes"),
    (lambda x: np.full_like(x, -1, dtype="uint8"), "-1 is no value of uint8"),
    (lambda x: np.full_like(x.astype("uint8"), 300), "300 is no value of uint8"),
    (lambda x: x.astype("int32") ** np.int64(-1), r"x \*\* -1.0"),
    (lambda x: x.astype("int32") ** np.array([2, 1, 0, -1]), r"x \*\* -1.0"),
    (lambda x: np.add.outer("a", x), "'a' is no operand"),
    (lambda x: np.where(x, x), "both choices"),
    (lambda x: np.cross(x, x), "expected 3"),
    (lambda x: np.linalg.matrix_power(x, 0), "give 1 or more"),
    (lambda x: np.unstack(x), "which calls determine"),
    (lambda x: np.split(x, 3, axis=1), "3 equal parts"),
    (lambda x: x + other_value(), "is no value of the graph"),
])  # fmt: skip
def test_what_is_refused(use: Callable[[Any], Any], said: str) -> None:
    _, values = graph(x="float32")
    with pytest.raises(ad.UserError, match=said):
        use(values["x"])


def other_value() -> Any:
    return graph(x="float32")[1]["x"]


@pytest.mark.parametrize("name,said", [
    ("softmax", "it is a function of the builder: g.softmax(x)"),
    ("summ", "did you mean 'sum'?"),
    ("cat", "use 'g.concat'"),
    ("tolist", "of arrays only"),
    ("nothing_like_it", "a value has no attribute 'nothing_like_it'"),
])  # fmt: skip
def test_unknown_attributes(name: str, said: str) -> None:
    _, values = graph(x="float32")
    assert not hasattr(values["x"], name)
    with pytest.raises(AttributeError, match=re.escape(said)):
        getattr(values["x"], name)


@pytest.mark.parametrize("make", [np.max, np.argmin, lambda x: x.min(axis=0), np.ptp])
def test_the_extreme_of_no_elements_is_refused_by_the_call(make: Callable[..., Any]) -> None:
    g, values = graph(x="float32")
    g.output("y", make(values["x"]))
    model = ad.compile(g)
    array = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(model(array)["y"], make(array))
    with pytest.raises(ad.DimError, match="'n' must be at least 1"):
        model(np.ones((0, 4), np.float32))


def test_sizes_are_integers() -> None:
    g = ad.Builder("g")
    n = g.dim("n", 1, 9)
    x, i = g.input("x", "float32", (n,)), g.input("i", "int32", (n,))
    made = {
        "mean": x.sum() / n, "left": n * x, "right": x - n, "whole": i // n, "equal": i == n,
        "divided": n / i, "float": n / x, "floor": n // i, "power": x ** n,
        "base": n ** x,
    }  # fmt: skip
    for name, value in made.items():
        g.output(name, value)
    assert made["left"].dtype == ad.float32 and made["whole"].dtype == ad.int32
    came = ad.compile(g)(np.array([1, 2, 4], np.float32), np.array([1, 3, 5], np.int32))
    assert came["mean"] == np.float32(7 / 3)
    np.testing.assert_array_equal(came["left"], np.array([3, 6, 12], np.float32))
    np.testing.assert_array_equal(came["equal"], [False, True, False])
    np.testing.assert_array_equal(came["whole"], [0, 1, 1])
    np.testing.assert_array_equal(came["floor"], [3, 1, 0])
    np.testing.assert_array_equal(came["power"], [1, 8, 64])
    np.testing.assert_allclose(came["base"], [3, 9, 81], 1e-6)


def test_sizes_beside_values_in_functions() -> None:
    g = ad.Builder("g")
    n = g.dim("n", 1, 9)
    x = g.input("x", "int32", (n, 3))
    texts = [
        "x.clip(n)", "np.maximum(x, np.full_like(x, n))", "np.full_like(x, n, dtype='float32')",
        "np.take(x, n - 1, axis=0)", "np.roll(x, n - 2, axis=0)", "np.where(x > n, n, 0)",
    ]  # fmt: skip
    for text in texts:
        g.output(text, eval(text, {"np": np, "x": x, "n": n}))
    array = np.arange(12, dtype=np.int32).reshape(4, 3)
    came = ad.compile(g)(array)
    for text in texts:
        np.testing.assert_array_equal(came[text], eval(text, {"np": np, "x": array, "n": 4}), text)


def test_types_that_numpy_lacks() -> None:
    _, values = graph(x="bfloat16", y="float32")
    x = values["x"]
    assert (x * 1.5).dtype == (x + 1).dtype == np.exp(x).dtype == x.sum().dtype == bfloat16
    assert (x + values["y"]).dtype == ad.float32 and (x > 1).dtype.name == "bool"


def test_values_of_an_outer_graph_in_a_branch() -> None:
    g, values = graph(x="float32")
    x = values["x"]
    total = x.sum()
    made = g.branch(total > 2, lambda b: np.where(x == 1, total, 0 * x), lambda b: x + total)
    g.output("y", made)
    model = ad.compile(g)
    for number in (1, 0.25):
        array = np.full((1, 4), number, np.float32)
        wanted = array.sum() * (array == 1) if number == 1 else array + array.sum()
        np.testing.assert_allclose(model(array)["y"], wanted)


INDEXED = [
    "x[i]", "x[:, i]", "x[..., i]", "x[..., i, :]", "x[big]", "x[:, m]", "x[:, v]",
    "x[:, v, ::2]", "x[None, :, i, 1:]", "x[[1, 0]]", "x[..., v, :]", "x[..., m]",
    "x[[]]", "x[:, [[]]]", "x[..., np.array([], int)]",
    "x[x > x.mean()]", "x[1:, None, [1, 2]]", "x[np.array(1)]", "x[..., np.array([[0, -1]])]",
]  # fmt: skip


def test_subscripts_with_an_array_or_a_mask() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    given = {"x": array, "i": np.array([[1, 0, -1]]), "m": array[0] > 3, "big": array > 5,
             "v": np.array([True, False, True])}  # fmt: skip
    g = ad.Builder("g")
    shapes = {"x": "abc", "i": "pq", "m": "bc", "big": "abc", "v": "b"}
    values = {name: g.input(name, given[name].dtype, tuple(shapes[name])) for name in given}
    for text in INDEXED:
        g.output(text, eval(text, {"np": np, **values}))
    came = ad.compile(g)(**given)
    for text in INDEXED:
        np.testing.assert_array_equal(came[text], eval(text, {"np": np, **given}), text)


EDGES = [
    "np.modf(x)[0]", "np.modf(x)[1]", "np.modf(x.astype('float16'))[0]", "np.cbrt(x)",
    "np.searchsorted(k, x)", "np.searchsorted(k, x, side='right')", "np.searchsorted([0, 2], x)",
    "np.searchsorted(k[:3], x, side='right')", "np.searchsorted(k, 0.1)", "x ** 0.5",
    "x ** np.float64(0.5)", "x.astype('float64') ** 0.5", "np.full_like(x, 2**70)",
    "np.full_like(x.astype('uint8'), 255)", "np.full_like(x > 0, 2)",
    "np.full_like(x.astype('int32'), 2.7)", "np.full_like(x, [3])", "(x > 0) ** 2",
    "np.power(x > 0, 2)", "(x > 0) ** 3", "(x > 0) ** 2.0",
]  # fmt: skip


def test_infinities_nan_and_signed_zeros() -> None:
    x = np.array([0, -0.0, 1.5, -2.5, np.nan, np.inf, -np.inf, 1e30], np.float32)
    k = np.array([-1, 0, 1.5, np.inf, np.nan])
    g = ad.Builder("g")
    values = {"x": g.input("x", "float32", ("n",)), "k": g.input("k", "float64", ("m",))}
    for text in EDGES:
        g.output(text, eval(text, {"np": np, **values}))
    came = ad.compile(g)(x, k)
    with np.errstate(all="ignore"):
        for text in EDGES:
            wanted = np.asarray(eval(text, {"np": np, "x": x, "k": k}))
            assert came[text].dtype == wanted.dtype, text
            np.testing.assert_allclose(came[text], wanted, 1e-6, err_msg=text)
            if text != "np.searchsorted(k, 0.1)":
                zero = wanted == 0
                signs = np.signbit(came[text][zero]), np.signbit(wanted[zero])
                np.testing.assert_array_equal(*signs, text)


def test_the_page_is_up_to_date() -> None:
    hint = "run: python -m tests.house.array_functions_page docs/array-functions.md"
    assert PAGE.read_text("utf-8") == page(), hint
    assert len(names()) == len({*names()})


def test_methods_have_a_documentation_and_their_name() -> None:
    for name, method in vars(Value).items():
        if name[0] != "_" and callable(method) and not isinstance(method, type):
            assert method.__doc__ and method.__name__ == name, name

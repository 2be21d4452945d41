"""Promise: a builder makes graphs whose values have names of their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.base.errors import GraphError
from anydim.compiler.frontends.familiar_names import FAMILIAR
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.operator import OPERATORS


def test_the_results_of_one_node_have_different_names() -> None:
    g = ad.Builder("parts")
    n = g.dim("n", 0, 9)
    x = g.input("x", ad.float32, (n, 4))
    left, right = g.split(x, axis=1, sizes=(1, 3))
    assert left.name != right.name
    g.output("left", left)
    g.output("right", right)
    array = numpy.arange(8, dtype=numpy.float32).reshape(2, 4)
    came = evaluate(g.graph(), {"x": array})
    numpy.testing.assert_array_equal(came["left"], array[:, :1])
    numpy.testing.assert_array_equal(came["right"], array[:, 1:])


@pytest.mark.parametrize("place", [-9, -7, -6, -2, -1, 0, 2, 5, 6, 9])
def test_an_element_at_a_size_that_may_be_negative(place: int) -> None:
    """Places below 0 count from the end once; what is no element is refused."""
    g = ad.Builder("element")
    n, i = g.dim("n", 0, 9), g.dim("i", 0, 20)
    x = g.input("x", ad.float32, (n,))
    g.input("counted", ad.float32, (i,))
    g.output("y", x[i - 9])
    array = numpy.arange(6, dtype=numpy.float32)
    inputs = {"x": array, "counted": numpy.zeros(place + 9, numpy.float32)}
    model = ad.compile(g)
    if -6 <= place < 6:
        assert model(**inputs)["y"] == array[place]
    else:
        with pytest.raises(ad.DimError, match="sizes do not fit"):
            model(**inputs)


def test_operands_may_come_as_one_list() -> None:
    made = []
    for spread in (False, True):
        g = ad.Builder("joined")
        x, y = (g.input(name, ad.float32, (g.dim(f"n{name}"), 2)) for name in "xy")
        g.output("z", g.concat(x, y, axis=0) if spread else g.concat([x, y], axis=0))
        made.append(g.graph())
    assert made[0] == made[1]
    with pytest.raises(GraphError, match="cannot take list"):
        g.relu([1.0, [x]])


KEYS = [
    numpy.s_[1:], numpy.s_[1:, ::2], numpy.s_[..., None], numpy.s_[-1], numpy.s_[0, ..., ::-1],
    numpy.s_[None, 2, None, :, 1:-1, None], numpy.s_[:, -2], numpy.s_[::-2], numpy.s_[3:1],
    numpy.s_[-3:, ...], numpy.s_[:, 1, 2], numpy.s_[numpy.int64(1)],
]  # fmt: skip


def test_values_are_cut_like_arrays() -> None:
    graph = ad.Builder("cuts")
    n = graph.dim("n", 0, 100)
    x = graph.input("x", ad.float32, (n, 4, 6))
    for number, key in enumerate(KEYS):
        graph.output(f"y{number}", x[key])
    graph.output("half", x[: n // 2])
    graph.output("last", x[n - 1])
    model = ad.compile(graph)
    for size in (3, 4, 5, 17):
        array = numpy.random.default_rng(size).standard_normal((size, 4, 6), numpy.float32)
        results = model(array)
        for number, key in enumerate(KEYS):
            numpy.testing.assert_array_equal(results[f"y{number}"], array[key], str(key))
        numpy.testing.assert_array_equal(results["half"], array[: size // 2])
        numpy.testing.assert_array_equal(results["last"], array[-1])
    with pytest.raises(
        ad.DimError, match="'n' must be at least 3\n  element 2 along axis 0 of 'x'"
    ):
        model(numpy.zeros((2, 4, 6), numpy.float32))


@pytest.mark.parametrize("key,problem", [
    ((0, 9), "'x' has 4 elements along axis 1, and no element 9"),
    ((0, -5), "'x' has 4 elements along axis 1, and no element -5"),
    ((..., ...), "two `...`"),
    ((0, 0, 0, 0), "'x' has 3 axes, and 4 subscripts were given"),
    (True, "'x' has no element True"),
    ("a", "'x' has no element 'a'"),
    (slice(None, None, 0), "the step of a slice is 0"),
    ([0.5], "'x' has no elements at float64"),
], ids=str)  # fmt: skip
def test_what_is_no_subscript(key: object, problem: str) -> None:
    graph = ad.Builder("cuts")
    x = graph.input("x", ad.float32, (graph.dim("n", 0, 100), 4, 6))
    with pytest.raises(GraphError, match=problem):
        _ = x[key]


def test_a_value_prints_its_shape_and_is_no_sequence() -> None:
    graph = ad.Builder("cuts")
    x = graph.input("x", ad.float32, (graph.dim("n", 0, 100), 4))
    assert repr(x) == "<value x: float32[n, 4]>"
    with pytest.raises(TypeError):
        list(x)
    with pytest.raises(TypeError):
        _ = 1.0 in x


def test_types_and_dims_may_be_given_by_name() -> None:
    g = ad.Builder("named")
    g.dim("m", 1, 9)
    x, y = g.input("x", "float32", ["n", 4]), g.input("y", numpy.float32, ("n", "m"))
    assert x.dtype == y.dtype == g.input("z", numpy.dtype("float32"), ()).dtype == ad.float32
    g.output("sum", g.add(g.reduce_sum(x, axes=(1,), keepdims=True), y))
    model = ad.compile(g)
    assert repr(y) == "<value y: float32[n, m]>"
    found = model(x=numpy.ones((3, 4), "f"), y=numpy.ones((3, 2), "f"), z=numpy.float32(0))
    numpy.testing.assert_array_equal(found["sum"], numpy.full((3, 2), 5))
    with pytest.raises(ad.DimError):
        model(x=numpy.ones((3, 4), "f"), y=numpy.ones((3, 10), "f"), z=numpy.float32(0))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("flaot32", ["n"]), "no element type 'flaot32'\n  did you mean 'float32'?"),
        ((None, ["n"]), "no element type None\n  the types are float64"),
        (("float32", "n"), "'n' is no shape\n  give sizes"),
        (("float32", [1.5]), "[1.5] is no shape"),
        (("float32", ["a b"]), "'a b' is not a valid name of a size"),
    ],
)
def test_what_is_no_type_or_shape_is_said(given: tuple[Any, Any], said: str) -> None:
    with pytest.raises(ad.UserError, match=re.escape(said)):
        ad.Builder("wrong").input("x", *given)


def test_names_of_numpy_and_torch_are_told() -> None:
    g = ad.Builder("names")
    assert all(name not in OPERATORS and own in OPERATORS for name, own in FAMILIAR.items())
    with pytest.raises(AttributeError, match="no operator 'sum'; use 'reduce_sum'"):
        g.sum  # noqa: B018


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda g, x: g.transpose(x, (1, 0)), "its attributes are given by name: perm=..."),
        (lambda g, x: g.cast(x, "int32"), "its attributes are given by name: to=..."),
        (lambda g, x: g.softmax(x, -1), "its attributes are given by name: axis=..."),
        (lambda g, x: g.relu(x, "a"), "it takes values of a Builder, arrays and, next to a"),
    ],
)  # fmt: skip
def test_attributes_by_place(call: Callable[[ad.Builder, Any], Any], hint: str) -> None:
    g = ad.Builder("places")
    x = g.input("x", ad.float32, (g.dim("n"), 4))
    with pytest.raises(GraphError) as caught:
        call(g, x)
    assert caught.value.hint.startswith(hint)

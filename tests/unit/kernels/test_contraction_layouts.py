"""Contractions with axes in any order, some fixed, some of any size, agree with numpy.einsum."""

from __future__ import annotations

import random

import numpy
import pytest

from anydim.lang.tree import Axis, Group
from anydim.sizes import parse
from tests.unit.kernels.contraction_cases import axes, compiled, product_statement, read, tensor

DIMS = {"M": 9, "N": 35, "K": 18, "H": 3}


def random_case(number: int) -> tuple[Group, str, dict[str, int], frozenset[str]]:
    """A group, its einsum, the sizes of its dims, and what is constant."""
    rng = random.Random(number)
    constant = rng.random() < 0.4
    roles = {role: rng.randint(0, 2) for role in ("batch", "m", "n", "k")}
    letters = iter("abcdefgh")
    names = {role: [next(letters) for _ in range(count)] for role, count in roles.items()}
    choices = ["1", "2", "5", "17"] if constant else ["1", "3", "20", *DIMS]
    extents = {letter: rng.choice(choices) for part in names.values() for letter in part}
    places = {
        "a": names["batch"] + names["m"] + names["k"],
        "b": names["batch"] + names["n"] + names["k"],
        "c": names["batch"] + names["m"] + names["n"],
    }
    for part in places.values():
        rng.shuffle(part)

    def axes(part: list[str]) -> tuple[Axis, ...]:
        return tuple(Axis(letter, parse(extents[letter])) for letter in part)

    def shape(part: list[str]) -> str:
        return " ".join(extents[letter] for letter in part)

    statement = product_statement(
        "c", read("a", *places["a"]), read("b", *places["b"]), axes(places["c"]), axes(names["k"])
    )
    group = Group(
        (tensor("a", shape(places["a"])), tensor("b", shape(places["b"]))),
        (tensor("c", shape(places["c"])),),
        (statement,),
    )
    subscripts = "{},{}->{}".format(*("".join(places[name]) for name in "abc"))
    return group, subscripts, DIMS, frozenset({"b"}) if constant else frozenset()


@pytest.mark.parametrize("number", range(150))
def test_any_order_of_axes(number: int) -> None:
    group, subscripts, env, constants = random_case(number)
    kernel = compiled(group, constants)
    if kernel is None:
        return
    rng = numpy.random.default_rng(number)
    arrays = {
        t.name: rng.standard_normal([s.evaluate(env) for s in t.type.shape]).astype("float32")
        for t in group.inputs
    }
    exact = numpy.einsum(subscripts, *(arrays[n].astype(float) for n in "ab"))
    for parts in (1, 3):
        found = kernel.run(env, arrays, parts)["c"]
        assert numpy.allclose(found, exact, atol=1e-3), subscripts


def test_most_orders_are_taken() -> None:
    taken = [compiled(*case[::3]) is not None for case in map(random_case, range(150))]
    assert sum(taken) > 50


@pytest.mark.parametrize("constant", [False, True])
def test_rows_are_the_axis_along_which_a_has_neighbours(constant: bool) -> None:
    """y[t, b, j] = sum over k of x[b, k, t] w[k, j]: the way from a convolution to an LSTM."""
    depth, width = "37", "61"
    statement = product_statement(
        "c", read("a", "i", "k", "s"), read("b", "k", "j"), axes(s="N", i="M", j=width),
        axes(k=depth),
    )  # fmt: skip
    group = Group(
        (tensor("a", f"M {depth} N"), tensor("b", f"{depth} {width}")),
        (tensor("c", f"N M {width}"),),
        (statement,),
    )
    kernel = compiled(group, frozenset({"b"}) if constant else frozenset())
    rng = numpy.random.default_rng(0)
    b = rng.standard_normal((37, 61)).astype("float32")
    for batch, steps in ((0, 3), (3, 0), (1, 1), (5, 1), (1, 9), (3, 17), (2, 100)):
        a = rng.standard_normal((batch, 37, steps)).astype("float32")
        exact = numpy.einsum("bks,kj->sbj", a.astype(float), b.astype(float))
        for parts in (1, 3):
            found = kernel.run({"M": batch, "N": steps}, {"a": a, "b": b}, parts)["c"]
            assert numpy.abs(found - exact).max(initial=0) < 1e-4

"""Contractions with axes in any order, some fixed, some of any size, agree with numpy.einsum."""

from __future__ import annotations

import random

import numpy
import pytest

from anydim.base.dtypes import float32, int64
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.contraction.contraction_template import TEMPLATE
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import Axis, Group, Index, Literal, Read, Statement, TensorType
from anydim.sizes import as_size, parse
from tests.unit.compiler.kernels.contraction_cases import (
    BOX,
    apply,
    axes,
    compiled,
    product_statement,
    read,
    tensor,
)
from tests.unit.compiler.kernels.launching import Prepared

AVX2 = Machine(32, 16)
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


@pytest.mark.sampled(most=30)
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


SIZES = (
    (0, 3), (3, 0), (1, 1), (5, 1), (40, 1), (1, 9), (8, 8), (3, 17), (17, 3), (7, 33), (2, 100)
)  # fmt: skip


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("width", [1, 61])
@pytest.mark.parametrize("order", ["iks", "isk", "kis"])
def test_rows_along_two_axes_are_the_longer_one(order: str, width: int, constant: bool) -> None:
    """y[t, b, j] = sum over k of x[b, k, t] w[k, j]: the way from a convolution to an LSTM."""
    depth, shape = 37, " ".join({"i": "M", "s": "N", "k": "37"}[axis] for axis in order)
    statement = product_statement(
        "t", read("a", *order), read("b", "k", "j"), axes(s="N", i="M", j=str(width)),
        axes(k=str(depth)),
    )  # fmt: skip
    total = apply("add", read("t", "s", "i", "j"), read("bias", "j"))
    after = Statement("c", axes(s="N", i="M", j=str(width)), apply("max", total, total))
    group = Group(
        (tensor("a", shape), tensor("b", f"{depth} {width}"), tensor("bias", str(width))),
        (tensor("c", f"N M {width}"),), (statement, after), (tensor("t", f"N M {width}"),),
    )  # fmt: skip
    kernel = compiled(group, frozenset({"b"}) if constant else frozenset())
    assert kernel is not None or width == 1
    if kernel is None:
        return
    rng = numpy.random.default_rng(0)
    b = rng.standard_normal((depth, width)).astype("float32")
    bias = rng.standard_normal(width).astype("float32")

    def run(x: numpy.ndarray, parts: int = 1) -> numpy.ndarray:
        a = numpy.ascontiguousarray(numpy.einsum(f"iks->{order}", x))
        env = {"M": x.shape[0], "N": x.shape[2]}
        return kernel.run(env, {"a": a, "b": b, "bias": bias}, parts)["c"]

    for batch, steps in SIZES:
        x = rng.standard_normal((batch, depth, steps)).astype("float32")
        found = run(x)
        exact = numpy.einsum("bks,kj->sbj", x.astype(float), b.astype(float)) + bias
        assert numpy.abs(found - exact).max(initial=0) < 1e-4
        assert run(x, 3).tobytes() == found.tobytes()
        if found.size and width > 1:
            assert run(x[-1:]).tobytes() == found[:, -1:].tobytes()
            assert run(x[..., -1:]).tobytes() == found[-1:].tobytes()


def test_every_access_of_rows_along_two_axes_is_inside() -> None:
    for order in ("iks", "isk"):
        shape = tuple(map(as_size, {"iks": "MKN", "isk": "MNK"}[order]))
        first = ",".join("MKN" if order == "iks" else "MNK")
        text = f"def f(float({first}) a, float(K,H) b) -> (c) {{ c(s,i,j) +=! "
        text += f"a({','.join(order)}) * b(k,j) }}"
        types = [TensorType(float32, each) for each in (shape, tuple(map(as_size, "KH")))]
        group = instantiate(parse_definition(text), types, box=BOX)
        made = Prepared(group, (TEMPLATE,), BOX, AVX2)
        # rows that lie along k are brought together, so that b is packed for all of them
        assert ("in 1 loop" in made.launch.reason) == (order == "iks")
        for batch, steps, depth, width in (
            (5, 1, 9, 19),
            (1, 5, 3, 2),
            (4, 2, 17, 9),
            (2, 9, 1, 1),
        ):
            rng = numpy.random.default_rng(depth)
            x = rng.standard_normal((batch, depth, steps)).astype("float32")
            b = rng.standard_normal((depth, width)).astype("float32")
            a = numpy.ascontiguousarray(numpy.einsum(f"iks->{order}", x))
            env = {"M": batch, "N": steps, "K": depth, "H": width}
            (found,) = made.outputs([a, b], env, 2, False)
            exact = numpy.einsum("bks,kj->sbj", x.astype(float), b.astype(float))
            assert numpy.abs(found - exact).max() < 1e-4


@pytest.mark.parametrize("constant, depth", [(False, 37), (True, 16), (True, 17), (False, 1)])
def test_elements_of_rows_that_lie_apart(constant: bool, depth: int) -> None:
    """y[i, j] = sum over k of x[i, k, 1] w[k, j]: half of the channels of a shuffle."""
    width = "61"
    x = Read("a", (Index("i"), Index("k"), Literal(1, int64)))
    statement = product_statement(
        "c", x, read("b", "k", "j"), axes(i="M", j=width), axes(k=str(depth))
    )
    group = Group(
        (tensor("a", f"M {depth} 2"), tensor("b", f"{depth} {width}")),
        (tensor("c", f"M {width}"),),
        (statement,),
    )
    kernel = compiled(group, frozenset({"b"}) if constant else frozenset())
    assert kernel is not None
    rng = numpy.random.default_rng(0)
    b = rng.standard_normal((depth, 61)).astype("float32")
    for rows in (0, 1, 2, 5, 6, 7, 17, 101):
        a = rng.standard_normal((rows, depth, 2)).astype("float32")
        exact = a[..., 1].astype(float) @ b.astype(float)
        for parts in (1, 3):
            found = kernel.run({"M": rows}, {"a": a, "b": b}, parts)["c"]
            assert numpy.abs(found - exact).max(initial=0) < 1e-4


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("vector_bytes", (16, 32, 64))
def test_a_row_by_columns_that_lie_along_k(vector_bytes: int) -> None:
    """Steps are read a few at a time, none behind a row, and added up as for many rows."""
    text = "def f(float(M,K) a, float(N,K) b) -> (c) { c(i,j) +=! a(i,k) * b(j,k) }"
    types = [TensorType(float32, tuple(map(as_size, shape))) for shape in ("MK", "NK")]
    group = instantiate(parse_definition(text), types, box=BOX)
    made = Prepared(group, (TEMPLATE,), BOX, Machine(vector_bytes, 32))
    rng = numpy.random.default_rng(vector_bytes)
    for depth in (0, 1, 2, 3, 4, 5, 7, 12, 17, 30, 47, 48, 51):
        for width in (1, 5, 17):
            a, b = (rng.standard_normal((n, depth)).astype("float32") for n in (9, width))
            one, some = (
                made.outputs([rows, b], {"M": len(rows), "N": width, "K": depth, "H": 1}, 1, False)[
                    0
                ]
                for rows in (a[:1], a)
            )
            assert numpy.abs(some - a.astype(float) @ b.T).max() < 1e-4
            assert width == 1 or one.tobytes() == some[:1].tobytes()

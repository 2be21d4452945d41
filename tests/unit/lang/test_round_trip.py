"""Printed programs and groups parse back to equal ones; broken texts give LanguageError only."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anydim.base.dtypes import boolean, float32, int64
from anydim.base.errors import LanguageError
from anydim.lang.functions import FUNCTIONS
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.group_text import parse_group
from anydim.lang.surface.parser import parse, parse_definition
from anydim.lang.surface.printer import print_definition, print_group
from anydim.lang.tree import (
    Apply,
    Axis,
    Cast,
    Group,
    Index,
    Literal,
    Read,
    SizeTerm,
    Statement,
    Tensor,
    TensorType,
)
from anydim.lang.tree.typing import dtype_of, identity
from anydim.sizes import Box, Dim, Guard, as_size
from tests.unit.lang.generated import programs
from tests.unit.lang.language import random

QUICK = settings(max_examples=150, deadline=None, derandomize=True)
TYPES = [
    TensorType(float32, (as_size("n"), as_size("m"))),
    TensorType(float32, (as_size("m"),)),
    TensorType(int64, (as_size("n"),)),
    TensorType(float32, ()),
    TensorType(float32, (as_size(2), as_size("m"))),
]
BOX = Box.of(Dim("n", 0, 9), Dim("m", 0, 9))


@given(programs)
@QUICK
def test_definitions(definition):
    text = print_definition(definition)
    again = parse_definition(text)
    assert again == definition
    assert print_definition(again) == text


@given(programs)
@QUICK
def test_groups_parse_back_and_mean_what_they_say(definition):
    definition = parse_definition(print_definition(definition))
    try:
        group = instantiate(definition, TYPES, {}, BOX)
    except LanguageError:
        return
    text = print_group(group)
    again = parse_group(text)
    assert again == group
    assert print_group(again) == text
    for n, m in ((0, 2), (1, 1), (3, 2), (2, 0)):
        arrays = (random(n, m), random(m), np.arange(n) - 1, random().reshape(()), random(2, m))
        tensors = dict(zip(("a", "b", "ids", "s", "e"), arrays))
        sizes = {"n": n, "m": m}
        expected = one_by_one(group, tensors, sizes)
        result = evaluate(group, tensors, sizes)["y"]
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4)


def one_by_one(group, tensors, sizes):
    """The single statement of a group, one element at a time."""
    (statement,) = group.statements
    types = {t.name: t.type for t in group.inputs}
    dtype = dtype_of(statement.body, types)
    lengths = [axis.extent.evaluate(sizes) for axis in (*statement.axes, *statement.reduced)]
    names = [axis.name for axis in (*statement.axes, *statement.reduced)]
    outer = len(statement.axes)
    start = identity(statement.combine or "add", dtype).value
    result = np.full(lengths[:outer], start, dtype.numpy)
    with np.errstate(all="ignore"):
        for place in itertools.product(*map(range, lengths)):
            value = scalar(statement.body, dict(zip(names, place)), tensors, sizes, types)
            if statement.combine:
                ufunc = FUNCTIONS[statement.combine].numpy
                value = ufunc(result[place[:outer]], dtype.numpy.type(value))
            result[place[:outer]] = value
    return result


def scalar(expr, where, tensors, sizes, types):
    if isinstance(expr, Literal):
        return expr.dtype.numpy.type(expr.value)
    if isinstance(expr, Index):
        return np.int64(where[expr.name])
    if isinstance(expr, SizeTerm):
        return np.int64(expr.size.evaluate(sizes))
    if isinstance(expr, Cast):
        return expr.dtype.numpy.type(scalar(expr.argument, where, tensors, sizes, types))
    if isinstance(expr, Apply):
        parts = [scalar(a, where, tensors, sizes, types) for a in expr.arguments]
        if expr.function == "select":
            return parts[1] if parts[0] else parts[2]
        value = FUNCTIONS[expr.function].numpy(*parts)
        return dtype_of(expr, types).numpy.type(value)
    array = tensors[expr.tensor].reshape(-1) if expr.flat else tensors[expr.tensor]
    place = tuple(int(scalar(i, where, tensors, sizes, types)) for i in expr.indices)
    if all(0 <= p < length for p, length in zip(place, array.shape)):
        return array[place]
    assert expr.default is not None, "an unguarded read is in bounds"
    return scalar(expr.default, where, tensors, sizes, types)


# ---- groups that no definition makes ------------------------------------------------------------

NAMES = ["x", "/encoder/MatMul_output_0", "exp", "float32", "where", 'a"b', "größe", "i 1", "guard"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_can_stand_in_a_group(name):
    n = as_size("n")
    read = Read(name, (Apply("add", (Index(name), SizeTerm(n - 1))),), default=Literal(1))
    statement = Statement("out", (Axis(name, n), Axis("n", as_size("2*n + 1"))), read)
    rank0 = Statement("r", (), Read("s", ()), "max", (Axis("k", as_size(3)),))
    group = Group(
        (Tensor(name, TensorType(float32, (as_size("min(n, 4)"),))), Tensor("s", TYPES[3])),
        (Tensor("out", TensorType(float32, statement.shape)),),
        (statement, rank0),
        (Tensor("r", TYPES[3]),),
        (Guard(n, "<", as_size("2*n"), 'because "so"'),),
    )
    assert parse_group(print_group(group)) == group


@pytest.mark.parametrize("value, dtype", [
    (0.1, float32), (-0.5, float32), (math.inf, float32), (-math.inf, float32), (1e-30, float32),
    (math.nan, float32), (-0.0, float32), (True, boolean), (False, boolean), (-7, int64),
    (2**62, int64), (3, None), (0.5, None),
])  # fmt: skip
def test_literals_in_a_group(value, dtype):
    statement = Statement("y", (), Apply("neg", (Literal(value, dtype),)))
    group = Group((), (Tensor("y", TYPES[3]),), (statement,))
    assert parse_group(print_group(group)) == group


# ---- broken texts --------------------------------------------------------------------------------

SOURCE = """def softmax(T(...p,C,...q) x; float alpha = 0.01, int k = 2) -> (y) {
  top(...p,...q)   max=! x(...p,c,...q)  # a comment
  e(...p,c,...q)       = exp(x(...p,c,...q) - top(...p,...q)) else 0
  y(...p,c,...q)       = -e(...p,c + 1,...q) else 0 / size(...p) where c in 0:C, exists x[i*2]
  z(i, j) +=! x.0 ? cast<float>(i // 2) : (j % k) where i in 0:10, j in i:10
}
"""
TEXTS = [
    SOURCE,
    "def matmul(float(M,K) A, float(K,N) B) -> C { C(m,n) +=! A(m,k) * B(k,n) }",
    "def f(T(N) x, int64(M) i) -> (y, z) { y(m) = x(i(m)) \n z +=! y(m) * 1.5e3 }",
]
JUNK = st.text(alphabet="(){}[]<>=!?:;,.+-*/%&|^~\"'#@ \n\tabiNT_0123456789é☃", max_size=4)


@st.composite
def broken(draw, texts):
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        stop = min(len(text), start + draw(st.integers(0, 6)))
        text = text[:start] + draw(JUNK) + text[stop:]
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


@given(broken(TEXTS))
@settings(max_examples=400, deadline=None, derandomize=True)
def test_a_broken_program_gives_a_definition_or_a_language_error(text):
    try:
        definitions = parse(text)
    except LanguageError as error:
        assert str(error).startswith("<text>")
        return
    for definition in definitions.values():
        assert parse_definition(print_definition(definition)) == definition
        types = [TYPES[0] if p.shape else TYPES[3] for p in definition.parameters]
        try:
            group = instantiate(definition, types, {"...p": 1} if "...p" in text else {}, BOX)
        except LanguageError:
            continue
        assert parse_group(print_group(group)) == group


GROUP = """group {
  input float32[n, 384] "/x/0"
  output float32[min(n, 4), 2*n] y
  guard {n} <= {4} "n is at most 4"
  y(i, j) +=! "/x/0"(i, k * {n + 1}) else float32(-0.5) * cast<int64>(j)
    where i in 0:n, j in 0:{2*n}, k in 0:3
}"""


@given(broken([GROUP]))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_a_broken_group_gives_a_group_or_a_language_error(text):
    try:
        group = parse_group(text)
    except LanguageError:
        return
    assert parse_group(print_group(group)) == group

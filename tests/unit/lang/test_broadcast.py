"""Parameters that share an ellipsis broadcast as in numpy, known sizes or not."""

import itertools

import numpy as np
import pytest

from anydim.base.dtypes import float32
from anydim.base.errors import DimError, LanguageError
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.lang.language import check, random, run, run_symbolic

ADD = "def add(T(...s) a, T(...s) b) -> (y) { y(...s) = a(...s) + 2 * b(...s) }"
SHAPES = [(), (1,), (3,), (0,), (2, 3), (1, 3), (2, 1), (0, 3), (2, 0), (1, 1, 1), (4, 1, 3)]


@pytest.mark.parametrize("left, right", list(itertools.product(SHAPES, SHAPES)))
def test_two_operands(left, right):
    a, b = random(*left), random(*right)
    try:
        expected = a + 2 * b
    except ValueError:
        with pytest.raises(LanguageError, match="cannot broadcast"):
            run(ADD, a, b)
        with pytest.raises(DimError, match="can broadcast"):
            run_symbolic(ADD, a, b, shared=False)
        return
    check(ADD, expected, a, b)


@pytest.mark.parametrize("shapes", [
    ((2, 3), (3,), (1, 1)), ((1,), (0,), (1,)), ((2, 1), (1, 3), (2, 3)), ((), (), ()),
])  # fmt: skip
def test_three_operands(shapes):
    a, b, c = (random(*shape) for shape in shapes)
    text = "def f(T(...s) a, T(...s) b, T(...s) c) -> (y) { y(...s) = a(...s) * b(...s) + c(...s) }"
    check(text, a * b + c, a, b, c)


def symbolic(text, *shapes, **dims):
    box = Box.of(*(Dim(name, *bounds) for name, bounds in dims.items()))
    types = [TensorType(float32, tuple(map(as_size, shape))) for shape in shapes]
    return instantiate(parse_definition(text), types, {}, box)


def test_a_dim_that_is_never_1_needs_no_choice_at_run_time():
    group = symbolic(ADD, ("n", 4), ("m", 4), n=(2, 9), m=(0, 9))
    assert str(group.outputs[0].type) == "float32[n, 4]"
    (guard,) = group.guards
    values = {(n, m): guard.left.evaluate({"n": n, "m": m}) for n in range(2, 6) for m in range(6)}
    assert all((value == 0) == (m in (1, n)) for (n, m), value in values.items())


def test_guards_of_large_sizes_fit_64_bits():
    group = symbolic(ADD, ("n",), ("m",), n=(0, None), m=(0, None))
    (guard,) = group.guards
    assert guard.left.evaluate({"n": 1 << 62, "m": 1 << 62}) == 0
    terms = str(guard.left)
    assert "*" not in terms, terms  # the factors of a product may not fit where it is 0


def test_equal_dims_and_constant_ones_need_no_guard():
    group = symbolic(ADD, ("n", 1), ("n", 4), n=(0, 9))
    assert str(group.outputs[0].type) == "float32[n, 4]"
    assert group.guards == ()


def test_unknown_dims_are_guarded():
    group = symbolic(ADD, ("n",), ("m",), n=(0, 9), m=(0, 9))
    for n, m in itertools.product(range(4), range(4)):
        a, b = random(n), random(m)
        sizes, tensors = {"n": n, "m": m}, {"a": a, "b": b}
        if n == m or 1 in (n, m):
            np.testing.assert_allclose(evaluate(group, tensors, sizes)["y"], a + 2 * b)
        else:
            with pytest.raises(DimError, match="can broadcast"):
                evaluate(group, tensors, sizes)


def test_the_rank_of_an_ellipsis_can_be_given():
    text = "def f(T(...p,N,...q) x) -> (y) { y(...p,...q) +=! x(...p,n,...q) }"
    x = random(2, 3, 4)
    check(text, x.sum(1), x, **{"...p": 1})
    check(text, x.sum(2), x, **{"...p": 2})
    with pytest.raises(LanguageError, match=r"give '\.\.\.p' or '\.\.\.q'"):
        run(text, x)
    with pytest.raises(LanguageError, match="at least 4 dimensions"):
        run(text, x, **{"...p": 3})


def test_sizes_bound_twice():
    text = "def f(float(N) a, float(N) b) -> (y) { y(i) = a(i) + b(i) }"
    with pytest.raises(LanguageError, match="size N, dimension 0 of a, is 3, but"):
        run(text, random(3), random(4))
    group = symbolic(text, ("n",), (4,), n=(0, 9))
    assert [str(g.left) + g.relation + str(g.right) for g in group.guards] == ["n==4"]
    assert str(group.outputs[0].type) == "float32[4]"
    assert symbolic(text, ("n",), ("n",), n=(0, 9)).guards == ()


def test_declared_sizes_are_checked():
    text = "def f(float(N, 2 * N) a) -> (y) { y(i,j) = a(i,j) }"
    assert run(text, random(2, 4)).shape == (2, 4)
    with pytest.raises(LanguageError, match="declared size is 4, but dimension 1 of a is 5"):
        run(text, random(2, 5))

"""Promise: `where s = a(i)` gives a term a name in one statement."""

import numpy
import pytest

import anydim as ad
from anydim.base.errors import LanguageError
from anydim.lang.surface.parser import parse
from anydim.lang.surface.printer import print_definition

HEAD = "def f(float(N) x, int64(M) a) -> (y) { %s }"
X = numpy.arange(1, 6, dtype=numpy.float32)
A = numpy.array([2, 0, 1])

STATEMENTS = [
    ("y(i) = x(s) * 2 where s = a(i)", [6, 2, 4]),
    ("y(i) = first ? 2 : x(s) where s = a(i), first = s == 1", [3, 1, 2]),
    ("y(s) +=! x(i) where s = i // 2, i in 0:N", [3, 7, 5]),
    ("y(i) = x(i) where i in 0:n, n = N - 1", [1, 2, 3, 4]),
    ("y(i) = x(s) where exists a(i), s = a(i)", [3, 1, 2]),
    ("y(i) = (x(s) else 0) where s = a(i) + 3", [0, 4, 5]),
]


@pytest.mark.parametrize("statement,expected", STATEMENTS, ids=[s for s, _ in STATEMENTS])
def test_a_name_is_its_term(statement: str, expected: list[float]) -> None:
    assert ad.define(HEAD % statement).f(X, A).tolist() == expected
    definition = parse(HEAD % statement)["f"]
    assert parse(print_definition(definition))["f"] == definition


REFUSED = [
    ("y(i) = x(i) where s = a(i)", "'s' is not used elsewhere in the statement"),
    ("y(i) = x(a) where x = a(i)", "'x' is not used elsewhere in the statement"),
    ("y(i) = x(i) * N where N = 2", "'N' cannot be defined here"),
    ("y(i) = x(s) where s = a(i), s = a(i)", "'s' is defined twice"),
    ("y(i) = x(s) where s += a(i)", "a name is defined by '=', not '+='"),
    ("y(i) = x(i) * s where s = t, t = 2", "'t' is used before it is defined"),
    ("y(i) = x(i) where in = a(i)", "'in' is a reserved word"),
]


@pytest.mark.parametrize("statement,problem", REFUSED, ids=[s for s, _ in REFUSED])
def test_what_no_name_can_mean(statement: str, problem: str) -> None:
    with pytest.raises(LanguageError) as caught:
        ad.define(HEAD % statement)
    assert problem in str(caught.value)


def test_names_of_names_have_a_limit() -> None:
    names = ", ".join(f"s{n + 1} = s{n} + s{n}" for n in range(40))
    with pytest.raises(LanguageError, match="the expression is too large"):
        ad.define(HEAD % f"y(i) = s40 where s0 = x(i), {names}")

"""What a recurrence without order is answered with: a loop, which is tried here as it is given."""

import numpy
import pytest

import anydim as ad

HEAD = "def f(float(N) x, float(N,M) m) -> (y) { %s }"
ADVICE = "where order matters, write a loop: "
SAYS = "a statement has no order"
X = numpy.arange(1, 6, dtype=numpy.float32)
M = numpy.arange(10, dtype=numpy.float32).reshape(5, 2)


def fibonacci(x: numpy.ndarray) -> numpy.ndarray:
    made = [0.0, 0.0]
    for value in x:
        made.append(made[-1] + made[-2] + value)
    return numpy.array(made[2:])


STATEMENTS = [
    ("y(i) = y(i-1) + x(i)", numpy.cumsum(X)),
    ("y(i) = x(i) + y(i-1)", numpy.cumsum(X)),
    ("y(i) = (y(i-1) else 0) + x(i)", numpy.cumsum(X)),
    ("y(i) = y(i-1) + x(i) where i in 1:N", numpy.cumsum(X)),
    ("y(i) = y(i-1) + x(i) where i in 0:N", numpy.cumsum(X)),
    ("y(i) = x(i) + y(i+1)", numpy.cumsum(X[::-1])[::-1]),
    ("y(i) = y(i-1) + y(i-2) + x(i)", fibonacci(X)),
    ("y(i,j) = y(i-1,j) + m(i,j)", numpy.cumsum(M, axis=0)),
    ("y(i,j) = y(i,j-1) + m(i,j)", numpy.cumsum(M, axis=1)),
    ("for i in N { y(i,j) = y(i,j-1) + m(i,j) }", numpy.cumsum(M, axis=1)),
]


@pytest.mark.parametrize("statement,expected", STATEMENTS, ids=[s for s, _ in STATEMENTS])
def test_the_loop_that_is_advised_does_what_was_meant(
    statement: str, expected: numpy.ndarray
) -> None:
    with pytest.raises(ad.LanguageError) as caught:
        ad.define(HEAD % statement).f(X, M)
    text = str(caught.value)
    assert SAYS in text
    advised = text.split(ADVICE)[1]
    inner = statement.removeprefix("for i in N { ").removesuffix(" }")
    made = HEAD % (statement.replace(inner, advised) if inner != statement else advised)
    numpy.testing.assert_array_equal(ad.define(made).f(X, M), expected)


def test_the_advice_in_words() -> None:
    with pytest.raises(ad.LanguageError) as caught:
        ad.define("def scan(float(N) x) -> (y) { y(i) = y(i-1) + x(i) }").scan(X)
    assert str(caught.value) == (
        "<text>:1:38: scan: the statement reads other elements of its target 'y', and a "
        "statement has no order\n"
        "    def scan(float(N) x) -> (y) { y(i) = y(i-1) + x(i) }\n"
        "                                         ^\n"
        "  where order matters, write a loop: for i in 0:N { y(i) = (y(i - 1) else 0) + x(i) }"
    )


def test_a_place_that_is_counted_on_the_left() -> None:
    with pytest.raises(ad.LanguageError, match=SAYS):
        ad.define("def f(float(N) x) -> (y) { y(i+1) = y(i) + x(i) }").f(X)


def test_what_is_defined_before_may_be_read_at_other_elements() -> None:
    made = ad.define("def f(float(N) y) -> (y) { y(i) = y(N - 1 - i) }")
    numpy.testing.assert_array_equal(made.f(X), X[::-1])

"""One mistake each with definitions as functions: what was expected, what came, what to do."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest

import anydim as ad

LIBRARY = ad.define("""
def matmul(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def scan(float(T,C) x) -> (y) { for t in 0:T { y(t,c) = x(t,c) + (y(t-1,c) else 0) } }
""")
A = numpy.zeros((2, 3), numpy.float32)
WRONG = numpy.zeros((2, 2), numpy.float64)

MISTAKES: dict[str, tuple[Callable[[], object], type[ad.UserError], str]] = {
    "an array for the result of another type": (
        lambda: LIBRARY.matmul(A, A.T, out=WRONG), ad.InputError,
        "matmul: the array for 'C' has dtype float64, the result has float32\n"
        "  allocate it with dtype 'float32'",
    ),
    "an array for the result of another shape": (
        lambda: LIBRARY.matmul(A, A.T, out=WRONG.astype("float32")[:1].copy()), ad.InputError,
        "matmul: the array for 'C' has shape (1, 2), the result has (2, 2)\n"
        "  give an array of that shape",
    ),
    "a size to fix that is none": (
        lambda: LIBRARY.matmul(A, A.T, fixed={"k": 3}), ad.OptionError,
        "matmul has no size 'k' to fix\n  its sizes are 'K', 'M', 'N'",
    ),
    "an option over a loop that runs in order": (
        lambda: ad.define(
            "def scan(float(T,C) x) -> (y) {"
            " for t in 0:T { y(t,c) = x(t,c) + (y(t-1,c) else 0) } }",
            options={"scan": "loop_nest(parallel=t)"},
        ).scan.options, ad.OptionError,
        "options of <text>:1: scan, loop_nest(parallel=t): 't' cannot be shared by threads: t runs "
        "in order: y(t - 1, c) is read 1 iteration after it is written as y(t, c)\n"
        "  it can be split along 'c'",
    ),
    "an option with a value that is none": (
        lambda: ad.define(
            "def f(float(N) x) -> (y) { y(i) = x(i) }", options={"f": "pointwise(lanes=12)"}
        ).f.options, ad.OptionError,
        "options of <text>:1: f, pointwise(lanes=12): option 'lanes' of 'pointwise' is 12, "
        "expected a power of two from 1 to 64",
    ),
    "an option for a function that is not there": (
        lambda: ad.define("def f(float(N) x) -> (y) { y(i) = x(i) }", options="g: rows(lanes=4)"),
        ad.OptionError, "options refer to 'g', which is not defined\n  there is 'f'",
    ),
    "None for an array": (
        lambda: LIBRARY.matmul(A, None), ad.InputError,
        "argument 'B': None is no number\n"
        "  give an array of float32, a number, or lists of equal lengths",
    ),
    "operators without a domain": (
        lambda: ad.compile(b"", operators={"my.ops": 1}), ad.OptionError,
        "operators for 'my.ops' are 1\n  give a path or a text",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told(mistake: str) -> None:
    call, kind, words = MISTAKES[mistake]
    with pytest.raises(kind) as raised:
        call()
    assert str(raised.value) == words

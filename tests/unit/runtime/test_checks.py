"""Promise: each check that fails makes one text: where, what came, what is expected, what to do."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from anydim.base.dtypes import float32
from anydim.base.errors import DimError
from anydim.runtime.checks import Check, failure, guard_error
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Box, Dim, Guard, parse

BOX = Box.of(Dim("n", 2, 9), Dim("m", 0, 5), constraints=(parse("8 - n - m"),))
MODEL = Signature(
    "f.onnx", BOX,
    tuple(
        TensorSpec(name, float32, tuple(map(parse, shape.split())))
        for name, shape in (("x", "2*n+1 m"), ("y", "m 3"), ("z", "n+m m"), ("w", "n+m"))
    ),
    (),
)  # fmt: skip
GUARD = Guard(parse("n % 3"), "!=", parse("1"), "lengths 4 and 7 are not taken")

FAILURES = {
    "an even size for 2*n+1": (
        Check("multiple", 0, 0, "n"), ((8, 5), (5, 3), (0, 0), (0,)), {},
        "input 'x' of f.onnx: axis 0 is 8, from which dim 'n' in 2*n + 1 cannot be determined\n"
        "  expected shape [2*n + 1, m], got [8, 5]",
    ),
    "below": (
        Check("low", 0, 0, "n"), ((3, 5), (5, 3), (0, 0), (0,)), {"n": 1, "m": 5},
        "input 'x' of f.onnx: dim 'n' is 1, below its bound 2\n"
        "  expected shape [2*n + 1, m], got [3, 5]; declared n=2..9; lower the bound",
    ),
    "above": (
        Check("high", 1, 0, "m"), ((5, 6), (6, 3), (0, 0), (0,)), {"n": 2, "m": 6},
        "input 'y' of f.onnx: dim 'm' is 6, above its bound 5\n"
        "  expected shape [m, 3], got [6, 3]; declared m=0..5; raise the bound, or split the input",
    ),
    "an axis that is a number": (
        Check("axis", 1, 1), ((5, 5), (5, 4), (0, 0), (0,)), {"n": 2, "m": 5},
        "input 'y' of f.onnx: axis 1 is 4, expected 3\n"
        "  expected shape [m, 3], got [5, 4]",
    ),
    "an axis that is a dim of another input": (
        Check("axis", 1, 0), ((5, 5), (4, 3), (7, 5), (7,)), {"n": 2, "m": 5},
        "input 'y' of f.onnx: axis 0 is 4, but dim 'm' is 5 in axis 1 of input 'x'\n"
        "  expected shape [m, 3], got [4, 3]; inputs must agree on every dim",
    ),
    "the first axis of a size": (
        Check("axis", 0, 1), ((5, 5), (4, 3), (6, 4), (6,)), {"n": 2, "m": 4},
        "input 'x' of f.onnx: axis 1 is 5, but dim 'm' is 4 in axis 0 of input 'y'\n"
        "  expected shape [2*n + 1, m], got [5, 5]; inputs must agree on every dim",
    ),
    "an axis that follows from two dims": (
        Check("axis", 2, 0), ((5, 5), (5, 3), (8, 5), (7,)), {"n": 2, "m": 5},
        "input 'z' of f.onnx: axis 0 is 8, but m + n is 7 at m = 5, n = 2 in axis 0 of input 'w'\n"
        "  expected shape [m + n, m], got [8, 5]; inputs must agree on every dim",
    ),
    "an axis of a size that no other has": (
        Check("axis", 0, 0), ((6, 5), (5, 3), (7, 5), (7,)), {"n": 2, "m": 5},
        "input 'x' of f.onnx: axis 0 is 6, but 2*n + 1 is 5 at n = 2\n"
        "  expected shape [2*n + 1, m], got [6, 5]; inputs must agree on every dim",
    ),
    "a constraint": (
        Check("constraint", size=parse("8 - n - m")), (), {"n": 5, "m": 4},
        "inputs of f.onnx: the constraint 8 - m - n >= 0 does not hold at m = 4, n = 5\n"
        "  choose sizes that meet it, or change the declared constraint",
    ),
    "a guard": (
        Check("guard", guard=GUARD), (), {"n": 4, "m": 0},
        "inputs of f.onnx: sizes do not fit at n = 4; 'n' must be another size, such as 3 or 5\n"
        "  lengths 4 and 7 are not taken: n % 3 != 1 does not hold",
    ),
    "sizes that are too large": (
        Check("large"), (), {"n": 4, "m": 0},
        "inputs of f.onnx: at n = 4, m = 0 a size of the program does not fit 64 bits or divides "
        "by 0\n  use smaller inputs, or give the dims upper bounds",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_the_whole_text_of_a_failure(name: str) -> None:
    check, shapes, dims, text = FAILURES[name]
    error = failure(check, MODEL, shapes, dims)
    assert type(error) is DimError
    assert str(error) == text


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_of_arguments_calls_them_so(name: str) -> None:
    check, shapes, dims, text = FAILURES[name]
    error = failure(check, replace(MODEL, noun="argument"), shapes, dims)
    assert str(error) == re.sub("input(?= '|s )", "argument", text)


def test_an_equality_that_fails_is_told_before_a_bound_of_an_index() -> None:
    """Sizes that meet the bound alone would not do."""
    box = Box.of(Dim("n", 0, None), Dim("m", 0, None))
    index = Guard(parse("124 - m*n"), "<=", parse("0"), "'x' is read at 0 to 123")
    whole = Guard(parse("m*n"), "==", parse("124"), "a reshape keeps every element")
    other = Guard(parse("n"), "==", parse("4"), "another node")
    model = replace(MODEL, box=box, guards=(index, other, whole))
    error = failure(Check("guard", guard=index), model, (), {"n": 3, "m": 5})
    assert str(error) == (
        "inputs of f.onnx: sizes do not fit at m = 5, n = 3; "
        "no 'n' fits at m = 5: 124 is no multiple of 5\n"
        "  a reshape keeps every element: m*n == 124 does not hold"
    )
    error = failure(Check("guard", guard=index), model, (), {"n": 30, "m": 4})
    assert "'n' must be 31 at m = 4" in str(error)


def relation(left: str, right: str, **dims: int) -> str:
    """What a broken guard says of its relation."""
    text = str(guard_error(Guard(parse(left), "==", parse(right), "why"), "f", dims, BOX))
    return text.partition("\n  why")[2]


def test_a_relation_of_more_than_48_letters_shows_the_numbers_of_its_sides() -> None:
    number = 10**38
    text = f"m == n + {number}"
    assert len(text) == 48
    assert relation("m", f"n + {number}", n=4, m=1) == f": {text} does not hold"
    number *= 10
    assert relation("m", f"n + {number}", n=4, m=1) == f": 1 == {number + 4} does not hold"
    assert relation(f"n + {number}", "m", n=4, m=1) == f": {number + 4} == 1 does not hold"


def test_of_a_long_relation_with_a_side_of_0_nothing_is_shown() -> None:
    assert relation("m", f"n + {10**40}", n=4, m=0) == ""
    assert relation(f"n + {10**40}", "m", n=4, m=0) == ""


def test_a_guard_without_dims_does_not_fit_at_any_size() -> None:
    error = guard_error(Guard(parse("2"), "==", parse("3"), "why"), "f", {}, BOX)
    assert str(error) == "f: sizes do not fit at any size\n  why: 2 == 3 does not hold"


def test_a_guard_names_the_dims_that_decide_it() -> None:
    error = guard_error(
        Guard(parse("n + m"), "==", parse("m + 2"), "why"), "f", {"n": 4, "m": 3}, BOX
    )
    assert error.problem.startswith("f: sizes do not fit at n = 4; ")

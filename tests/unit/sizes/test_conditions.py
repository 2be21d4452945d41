"""Conditions mean what Python's comparisons mean, print in words, and are decided over boxes."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anydim.base.errors import DimError, InternalError, OptionError
from anydim.sizes import (
    ALWAYS,
    NEVER,
    Box,
    Condition,
    Dim,
    Truth,
    as_size,
    at_least,
    at_most,
    condition,
    decide,
    parse,
    parse_condition,
    prove,
    settle,
    simplify,
)
from tests.unit.sizes.strategies import Question, boxes, points, questions
from tests.unit.sizes.strategies import checked as thorough

checked = settings(thorough, max_examples=60)

M, N = parse("m"), parse("n")
TEXTS = [
    "m >= 9", "9 <= m <= 13", "m == 4", "m <= 3 or m >= 5", "m*n <= 12", "n <= 2*m", "n < 2*m",
    "k >= 256 and n >= 64", "(k >= 256 or m == 1) and n >= 64", "m <= n + 3", "m - n >= 3",
    "m >= -3", "k % 4 >= 1", "min(k, n) + m >= 3", "never", "always",
]  # fmt: skip


def _defined(question: Condition, env: dict[str, int]) -> bool | None:
    try:
        return question.holds(env)
    except DimError:
        return None


@checked
@given(questions(), boxes())
def test_a_condition_holds_where_python_says(question: Question, box: Box) -> None:
    for env in points(box):
        try:
            wanted = question.meaning(env)
        except ZeroDivisionError:
            continue
        assert question.condition.holds(env) == wanted
        assert question.condition.flag.evaluate(env) == int(wanted)


@checked
@given(questions(), boxes(constrained=True))
def test_decisions_hold_in_the_whole_box(question: Question, box: Box) -> None:
    found = question.condition
    truth, settled = decide(found, box), settle(found, box)
    for env in points(box):
        value = _defined(found, env)
        assert value is None or truth is not {True: Truth.REFUTED, False: Truth.PROVED}[value]
        assert value is None or settled.holds(env) == value


@checked
@given(questions())
def test_parse_reads_what_print_wrote(question: Question) -> None:
    found = question.condition
    assert parse_condition(str(found)).flag == found.flag
    assert parse(str(found.flag)) == found.flag
    assert pickle.loads(pickle.dumps(found)) == found


@checked
@given(questions(), st.integers(-3, 9))
def test_a_condition_substitutes_like_its_sizes(question: Question, value: int) -> None:
    env = {"a": 2, "b": 3, "n": value}
    held = _defined(question.condition, env)
    if held is not None:
        assert question.condition.substitute(env).constant == held


@pytest.mark.parametrize("text", TEXTS)
def test_text(text: str) -> None:
    found = parse_condition(text)
    assert parse_condition(str(found)) == found
    if "k" not in text and "-" not in text:
        assert str(found) == text


@pytest.mark.parametrize("given_text, text", [
    ("2*m >= 5", "m >= 3"), ("(m + 7)//8 >= 3", "m >= 17"), ("(m + 7)//8 <= 3", "m <= 24"),
    ("m > 5", "m >= 6"), ("m <= 4 or m >= 3", "always"), ("m >= 4 and m <= 3", "never"),
    ("m >= 4 and m >= 9", "m >= 9"), ("m != 4", "m <= 3 or m >= 5"), ("3 >= 2", "always"),
    ("m >= 3 and 2 >= 3", "never"), ("0 < m", "m >= 1"),
])  # fmt: skip
def test_normal_form(given_text: str, text: str) -> None:
    assert str(parse_condition(given_text)) == text


def test_a_choice_prints_in_words() -> None:
    unit = (at_least(M, 9) & at_most(M, 13)).where(32, 48)
    assert str(unit) == "(32 if 9 <= m <= 13 else 48)"
    assert str(2 * unit + N) == "2*(32 if 9 <= m <= 13 else 48) + n"
    assert parse("32 if 9 <= m <= 13 else 48") == unit
    assert [unit.evaluate({"m": m}) for m in (8, 9, 13, 14)] == [48, 32, 32, 48]


def test_choices_that_bounds_decide_are_removed() -> None:
    box = Box.of(Dim("m", 20, 30), Dim("n", 0, 4))
    assert simplify(at_least(M, 9).where(M, N), box) == M
    assert simplify(at_most(M, 9).where(M, N), box) == N
    assert at_least(M, 9).where(N, N) == N
    assert settle(at_least(M, 9) & at_least(N, 2), box) == at_least(N, 2)
    assert settle(at_least(M, 9), box) == ALWAYS
    assert settle(at_most(M, 9), box) == NEVER


def test_a_choice_is_bounded_by_its_operands() -> None:
    box = Box.of(Dim("m", 0, 30))
    assert prove(at_least(M, 9).where(M, 0), "<=", M, box) is Truth.PROVED
    assert prove(at_least(M, 9).where(M, 3 * M), ">=", M, box) is Truth.PROVED
    assert prove(at_least(M, 9).flag, "<=", 1, box) is Truth.PROVED


def test_a_condition_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match="m >= 9 has no truth value"):
        bool(at_least(M, 9))
    with pytest.raises(InternalError, match="relation '=>'"):
        condition(M, "=>", as_size(1))


@pytest.mark.parametrize("text, problem", [
    ("m <= 3", "expected a size, found a condition"),
    ("3 if m else 4", "expected a condition, found a size"),
    ("(m < 3) + 1", "expected a size, found a condition"),
    ("-(m < 3)", "expected a size, found a condition"),
    ("min(m < 3, 1)", "expected a size, found a condition"),
    ("1 if m < 3", "expected 'else', found the end"),
    ("1 if m < 3 and n else 2", "expected a condition, found a size"),
    ("m if n >= 0 or 3 else 2", "expected a condition, found a size"),
    ("(m <= 3) <= n", "expected a size, found a condition"),
])  # fmt: skip
def test_conditions_and_sizes_are_told_apart(text: str, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        parse(text)


def test_names_of_the_language_of_sizes_are_names() -> None:
    assert parse("if + or").symbols == {"if", "or"}
    assert str(parse("if if or >= 3 else else")) == "(if if or >= 3 else else)"

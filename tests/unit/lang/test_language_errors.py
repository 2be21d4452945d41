"""One program per mistake, and the whole message each gives."""

import pytest

from anydim.base.errors import LanguageError
from anydim.lang.parser import parse
from tests.unit.lang.language import group_of, random

PARSE_ERRORS = [
    (
        "def f(float(N) x) -> (y) { y(i) = x(i) + }",
        """demo.tc:1:42: expected an expression, found '}'
    def f(float(N) x) -> (y) { y(i) = x(i) + }
                                             ^""",
    ),
    (
        "def f(float(N) x -> (y) { y(i) = x(i) }",
        """demo.tc:1:18: expected ')', ',' or ';', found '->'
    def f(float(N) x -> (y) { y(i) = x(i) }
                     ^""",
    ),
    (
        "def f(float(N) x) -> (y) {\n  y(i) = x(i)\n",
        """demo.tc:2:14: the text ends early; expected a statement or '}'
      y(i) = x(i)
                 ^""",
    ),
    (
        "def f(float(N) x) -> (y) {\n  // add\n  y(i) = x(i) }",
        """demo.tc:2:3: expected a statement or '}', found '//'
      // add
      ^
  comments start with '#'; '//' is floor division""",
    ),
    (
        "def f(flaot(N) x) -> (y) { y(i) = x(i) }",
        """demo.tc:1:7: f: there is no element type 'flaot'
    def f(flaot(N) x) -> (y) { y(i) = x(i) }
          ^
  did you mean 'float'?""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = exq(x(i)) }",
        """demo.tc:1:35: f: there is no tensor or function 'exq'
    def f(float(N) x) -> (y) { y(i) = exq(x(i)) }
                                      ^
  did you mean 'exp'?""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = max(x(i)) }",
        """demo.tc:1:35: f: 'max' takes 2 arguments, not 1
    def f(float(N) x) -> (y) { y(i) = max(x(i)) }
                                      ^""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = x(i,i) }",
        """demo.tc:1:35: f: tensor 'x' has 1 dimensions, not 2
    def f(float(N) x) -> (y) { y(i) = x(i,i) }
                                      ^""",
    ),
    (
        "def f(float(N,M) x) -> (y) { y(i) = x(i,j) }",
        """demo.tc:1:41: f: index 'j' is not on the left, so the statement reduces over it
    def f(float(N,M) x) -> (y) { y(i) = x(i,j) }
                                            ^
  write '+=!', '*=!', 'min=!' or 'max=!' instead of '='""",
    ),
    (
        "def f(float(N) x) -> (z) { y(i) = x(i) }",
        """demo.tc:1:5: f: no statement assigns result 'z'
    def f(float(N) x) -> (z) { y(i) = x(i) }
        ^""",
    ),
    (
        "def f(float(N) x) -> (y) { y(...i) = x(...i) }",
        """demo.tc:1:30: f: no parameter has '...i'
    def f(float(N) x) -> (y) { y(...i) = x(...i) }
                                 ^""",
    ),
    (
        "def f(float(N) x; real a = 1) -> (y) { y(i) = x(i) }",
        """demo.tc:1:19: an attribute cannot be of kind 'real'
    def f(float(N) x; real a = 1) -> (y) { y(i) = x(i) }
                      ^
  kinds: int, float, bool, size, type""",
    ),
    (
        "def f(float s) -> (y) { y = s }\n\ndef f(float s) -> (y) { y = s }",
        """demo.tc:3:5: 'f' is defined twice
    def f(float s) -> (y) { y = s }
        ^""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = x }",
        """demo.tc:1:35: f: tensor 'x' needs indices
    def f(float(N) x) -> (y) { y(i) = x }
                                      ^""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = x(i) else x(0) else 1 where j in 0:2, }",
        """demo.tc:1:73: expected 'exists' or a name, found '}'
    def f(float(N) x) -> (y) { y(i) = x(i) else x(0) else 1 where j in 0:2, }
                                                                            ^""",
    ),
]


@pytest.mark.parametrize("text, message", PARSE_ERRORS, ids=range(len(PARSE_ERRORS)))
def test_parse_errors(text, message):
    with pytest.raises(LanguageError) as caught:
        parse(text, "demo.tc")
    assert str(caught.value) == message


INSTANTIATE_ERRORS = [
    (
        "def f(float(N) x) -> (y) { y(i) = x(i + 1) }",
        """<text>:1:30: f: the reads give 'i' a range from -1, not from 0
    def f(float(N) x) -> (y) { y(i) = x(i + 1) }
                                 ^
  add: where i in 0:..., or shift the index""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i,j) = x(i) }",
        """<text>:1:32: f: the range of 'j' does not follow from any read
    def f(float(N) x) -> (y) { y(i,j) = x(i) }
                                   ^
  add: where j in 0:...""",
    ),
    (
        "def f(float(N) x) -> (y) {\n  y(i) = x(i) * x(4) }",
        """<text>:2:17: f: 'x' is read at 4 to 4 of dimension 0, whose size is 4
      y(i) = x(i) * x(4) }
                    ^
  give the read a default: x(...) else 0, or the index a range: where i in lo:hi""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = x(i - 1) where i in 0:N }",
        """<text>:1:35: f: 'x' is read at -1 to 2 of dimension 0, whose size is 4: with i = 0 at -1
    def f(float(N) x) -> (y) { y(i) = x(i - 1) where i in 0:N }
                                      ^
  give the read a default: x(...) else 0, or the index a range: where i in lo:hi""",
    ),
    (
        "def f(float(N,M) x) -> (y) { y(i) = x(i,0) }",
        """<text>:1:7: f: 'x' has 2 dimensions, and the argument has 1: float32[4]
    def f(float(N,M) x) -> (y) { y(i) = x(i,0) }
          ^""",
    ),
    (
        "def f(float(N) x, float s) -> (y) { y(i) = x(i) * s }",
        """<text>:1:5: f: takes 2 tensors (x, s), not 1
    def f(float(N) x, float s) -> (y) { y(i) = x(i) * s }
        ^""",
    ),
    (
        "def f(float(N) x; int k) -> (y) { y(i) = x(i) * k }",
        """<text>:1:23: f: attribute 'k' is not given
    def f(float(N) x; int k) -> (y) { y(i) = x(i) * k }
                          ^""",
    ),
]


@pytest.mark.parametrize("text, message", INSTANTIATE_ERRORS, ids=range(len(INSTANTIATE_ERRORS)))
def test_instantiate_errors(text, message):
    with pytest.raises(LanguageError) as caught:
        group_of(text, random(4))
    assert str(caught.value) == message


def test_attributes_are_checked():
    text = "def f(float(N) x; int count = 1, bool on = true) -> (y) { y(i) = x(i) * count }"
    with pytest.raises(LanguageError, match=r"there is no attribute 'cuont'\n.*\n.*\n.*did you"):
        group_of(text, random(4), cuont=2)
    with pytest.raises(LanguageError, match=r"attribute 'count' is a int, and 1.5 is not"):
        group_of(text, random(4), count=1.5)


@pytest.mark.parametrize("depth", [90, 5_000])
@pytest.mark.parametrize("deep", [
    lambda n: "(" * n + "x(0)" + ")" * n, lambda n: "-" * n + "x(0)",
    lambda n: "x(0) + " * n + "x(0)", lambda n: "exp(" * n + "x(0)" + ")" * n,
    lambda n: "x(0) > 0 ? 1 : " * n + "2", lambda n: "x(0) else " * n + "1",
])  # fmt: skip
def test_deep_nesting_is_a_value_or_an_error(deep, depth):
    text = f"def f(float(N) x) -> (y) {{ y(i) = {deep(depth)} where i in 0:N }}"
    try:
        definition = parse(text)["f"]
    except LanguageError as error:
        assert "nested more than 100 deep" in str(error)
        assert depth > 90
    else:
        assert definition.name == "f"
        assert depth == 90 or "((((" in text

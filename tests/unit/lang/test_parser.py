"""Promise: texts of the documented grammar are read; an error says where another text is wrong."""

from __future__ import annotations

import inspect
import random
import sys

import pytest

from anydim.base.errors import LanguageError
from anydim.lang.surface.descent import DefinitionReader
from anydim.lang.surface.parser import parse
from anydim.lang.surface.syntax import CallTerm, Problem
from tests.unit.lang.grammar import Grammar

GRAMMAR = Grammar()
NO_SYNTAX_ERRORS = ("expected", "the text ends")


@pytest.mark.parametrize("rule", ["text", "definition", "structure", "block", "term"])
@pytest.mark.parametrize("block", range(4))
def test_texts_of_the_grammar_are_read(rule: str, block: int) -> None:
    """What else is wrong with them is no matter of syntax."""
    for seed in range(block, 400, 4):
        text = GRAMMAR.text(rule, random.Random(seed))
        if rule == "term":
            text = f"{{ y = {text} }}"
        if rule in ("term", "block"):
            text = f"def f(float(N,M) x, int64(N) at, T(...s) z) -> (y) {text}"
        try:
            DefinitionReader(text).read()
        except Problem as problem:
            assert not problem.text.startswith(NO_SYNTAX_ERRORS), (text, problem.text)


EVERY_KIND = """
type Tree { leaf(float(D) x); node(Tree left, Tree right) }
type List<A> { nil; cons(A head, List<A> tail) }
type Pair<A, B> { pair(A first, B second) ; }
type Bush { bush(float(D) x, Bush(K) children) }

def f(T(...b,M) x, float(N) y; float scale = -0.5, bool flag = true, size S, type to = int64) ->
    (z, w) {
  z(...b,i) +=! scale * (x(...b,i+j) else inf) * size(...b) + y[j // 2] where j in 0:y.0
  w(i) = flag ? cast<to>(!x[i] else 1) : nan where exists y(i), i in 0:S
  for t in N-1:-1:-S {
    if t == 0 || y(t) > 0 { w(t) += 1 } else if t > 3 { w(t) *= 2 } else { w(0) max= y(t) }
  }
}
def both(Tree t, List<List<Tree>> trees, Bush(L) more, List<float(D)> rows) -> (y) {
  match t, trees {
    leaf(x), nil { y = g(x) };
    node(leaf(a), node(_, b)), cons(cons(c, _), rest) {
      match b { leaf(x) { y = x(0) } node() { while y < 1 { y = 2 } } }
    }
    _, _ { match rest { } y = 1 }
  }
}
"""


def test_every_kind_of_statement() -> None:
    types, definitions = DefinitionReader(EVERY_KIND).read()
    assert [each.name for each in types] == ["Tree", "List", "Pair", "Bush"]
    assert [each.name for each in definitions] == ["f", "both"]
    assert [type(each).__name__ for each in definitions[0].statements] == [
        "Assignment", "Assignment", "LoopBlock",
    ]  # fmt: skip
    text = EVERY_KIND.index("g(x)")
    leaf = definitions[1].statements[0].cases[0].body[0].value
    assert isinstance(leaf, CallTerm) and leaf.position == text


def test_a_damaged_text_is_read_or_an_error_at_a_position() -> None:
    """With one character removed, and cut off, anywhere."""
    for at in range(len(EVERY_KIND)):
        for text in (EVERY_KIND[:at] + EVERY_KIND[at + 1 :], EVERY_KIND[:at]):
            try:
                DefinitionReader(text).read()
            except Problem as problem:
                assert 0 <= problem.position <= len(text) and problem.text


HEAD = "def f(float(N,M) x, T(...s) z; float a = -1) -> (y, w) "


@pytest.mark.parametrize("statement, names", [
    ("type(i) = 1", "type"), ("match(i) = 1", "match"), ("match min= 1", "match"),
    ("match min=! 2", "match"), ("size(i) = 1", "size"), ("y min=!1", "y"), ("y = a - - 1", "y"),
    ("y =\n1 w(\t) = f(;b=1)", "y w"), ("y = (((1)))", "y"), ("y = 1.e5 # comment }", "y"),
    ("y = 1 ? 2 : 3 ? 4 : 5", "y"), ("y = true + nan", "y"), ("y = maxi(1)", "y"),
])  # fmt: skip
def test_words_that_are_names_where_no_other_meaning_is_possible(
    statement: str, names: str
) -> None:
    _, (definition,) = DefinitionReader(f"{HEAD}{{ {statement}\n }}").read()
    assert [each.target for each in definition.statements] == names.split()


@pytest.mark.parametrize("text, message", [
    ("", "expected '->'"),
    ("-> (y) { y = }", "expected an expression, found '}'"),
    ("-> (y) { y = x(i }", "expected ')', ',' or ';', found '}'"),
    ("-> (y) { y(i) x }", "expected an assignment, found 'x'"),
    ("-> (y) { y $ }", "expected '(', ',' or an assignment, found '$'"),
    ("-> (y) { y = 1 $ }", "expected a statement or '}', found '$'"),
    ("-> (y) { y = 1 else = 2 }", "expected a statement or '}', found 'else'"),
    ("-> (y) { for t on N { } }", "expected 'in', found 'on'"),
    ("-> (y) { for t in 0:N }", "expected ':' or '{', found '}'"),
    ("-> (y) { y(i) = x where j }", "expected 'in' or an assignment, found '}'"),
    ("-> (y) { if a { } else 1 }", "expected 'if' or '{', found '1'"),
    ("-> (y) { y = for }", "'for' is a reserved word, not a name"),
    ("-> (y) { y = if(1) }", "'if' is a reserved word, not a function"),
    ("-> (y) {", "the text ends early; expected a statement or '}'"),
    ("-> (y) { y = " + "(" * 200, "expression nested more than 100 deep"),
    ("-> (y) { y = " + "-" * 200, "expression nested more than 100 deep"),
    ("-> (y) { y = " + "f(" * 200, "expression nested more than 100 deep"),
    ("-> (y) { " + "if a { " * 200, "blocks nested more than 32 deep"),
    ("-> (y) { " + "for t in N { " * 9, "loops nested more than 8 deep"),
    ("-> (y) { } type A { a(" + "A<" * 99, "types nested more than 32 deep"),
    ("-> (y) { match a { " + "b(" * 250, "a pattern has more than 200 names"),
])  # fmt: skip
def test_errors(text: str, message: str) -> None:
    with pytest.raises(LanguageError) as caught:
        parse(f"def f(float x) {text}")
    assert message in str(caught.value)


def test_little_is_left_of_the_stack() -> None:
    text = f"def f(float x) -> (y) {{ y = {'f(' * 90}x{')' * 90} }}"
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 200)
    try:
        with pytest.raises(LanguageError, match="<text>: the text is nested too deep"):
            parse(text)
    finally:
        sys.setrecursionlimit(limit)
    with pytest.raises(LanguageError, match="calls itself"):
        parse(text)

"""Promise: the two parsers build the same trees, positions included, from what both read."""

from __future__ import annotations

import ast
import re
from dataclasses import astuple
from pathlib import Path

import pytest

import anydim.compiler.ops  # noqa: F401  fills the registry
from anydim.base.errors import LanguageError
from anydim.compiler.graph.operator import OPERATORS
from anydim.lang.surface.descent import read_definitions
from anydim.lang.surface.parser import grammar, parse, run_grammar

ROOT = Path(__file__).parents[3]
LIBRARY = [record.text for record in OPERATORS.values() if isinstance(record.text, str)]
HEAD = re.compile(r"->[^:]*\{")  # of a definition, not of a function of Python


def texts_in(folder: str) -> set[str]:
    """The texts with definitions in the literals of Python files."""
    found = {path.read_text("utf-8") for path in ROOT.joinpath(folder).rglob("*.tc")}
    for path in ROOT.joinpath(folder).rglob("*.py"):
        code = path.read_text("utf-8")
        for node in ast.walk(ast.parse(code)) if HEAD.search(code) else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {node.value} if "def " in node.value else set()
    return found


def by_grammar(text: str):
    """Types and definitions by the parser of the grammar, with positions; None: invalid."""
    try:
        types, definitions = run_grammar(grammar(), text, "text")
    except LanguageError:
        return None
    return [list(map(repr, map(astuple, each))) for each in (types, definitions)]


def by_descent(text: str):
    """The same by descent; None where it does not read the text."""
    found = read_definitions(text)
    return None if found is None else [list(map(repr, map(astuple, each))) for each in found]


@pytest.mark.parametrize("longest", [2_000, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("folder", ["tests/unit/lang", "tests/unit/compiler/frontends", "src"])
def test_trees_are_alike(folder: str, longest: int | None) -> None:
    read = 0
    for text in texts_in(folder):
        if longest is not None and len(text) > longest:
            continue
        made = by_descent(text)
        if made is not None:
            read += 1
            assert made == by_grammar(text), text
    assert read >= 5


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
def both(Tree t, List<List<Tree>> trees, Bush<>(L) more, List<float(D)> rows) -> (y) {
  match t, trees {
    leaf(x), nil { y = g(x) };
    node(leaf(a), node(_, b)), cons(cons(c, _), rest) {
      match b { leaf(x) { y = x(0) } node() { while y < 1 { y = 2 } } }
    }
    _, _ { match rest { } y = 1 }
  }
}
"""
TREES = "type Tree { leaf(float(D) x); node(Tree left, Tree right) }"


def test_usual_texts_are_read_by_descent() -> None:
    texts = [*LIBRARY, TREES, EVERY_KIND.replace("<>", "")]
    assert not [text for text in texts if by_descent(text) is None]


@pytest.mark.sampled(most=60)
@pytest.mark.parametrize("at", range(len(EVERY_KIND)))
def test_damaged_texts_are_alike(at: int) -> None:
    for each in (
        EVERY_KIND[:at] + EVERY_KIND[at + 1 :],
        EVERY_KIND[:at] + EVERY_KIND[at + 1 :].replace("<>", ""),
        EVERY_KIND[:at] + EVERY_KIND[at:].replace("<>", ""),
    ):
        made = by_descent(each)
        assert made in (None, by_grammar(each)), each


PREFIX = "def f(float(N,M) x, T(...s) z; float a = -1) -> (y, w) { "
STATEMENTS = (
    "y(i) +=! x(i,j)", "y max= x(0,1) else -1", "y(i) = x(i,0) * -2 + 3 ** 4", "y = size(...s)",
    "y(i) = x[i // 2 + 1] else inf where i in 0:N-1, exists x(i,0)", "y = cast < T > (a) ? 1 : 2",
    "y, w = softmax(x; axis = 1)", "y(i) = s where s = x(i,0) < 1 && !a, i in 0:N", "y =! 2",
    "for t in N-1:-1:-2 { y(t) = 1; if t == 0 { w = 1 } else if t > 1 { w = 2 } else { } }",
    "while x(0,0) < 1 { y = 1 }", "y = x.0 * .5e-3 2", "y = a - - 1 # comment }", "else = 1",
    "y = where", "type(i) = 1", "match(i) = 1", "size(i) = 1", "y = x(i,0) else x(i) else 1",
    "y(...s) = z(...s) w = 1", "y =\n1 w(\t) = f(;b=1)", "y = (((1)))", "y = 1 ? 2 : 3 ? 4 : 5",
    "match t { leaf(x) { y = x } node(l, node(_, r)), b { y = 1 } ; }", "match a, b { }",
    "match a min= 1", "match min { }", "match min=! 2", "match\n# no\n x { nil() { } }",
    "y = true + nan", "y = maxi(1)", "y min=!1", "y = x.1.2", "y = 1.e5", "y = a->b", "y == 1",
)  # fmt: skip


@pytest.mark.sampled(most=12)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements_are_alike(statement: str) -> None:
    for text in (
        f"{PREFIX}{statement} }}",
        f"{PREFIX}{statement};{statement} }} def g() -> y {{}}",
    ):
        made = by_descent(text)
        assert made in (None, by_grammar(text))
        damaged = [text[:at] + text[at + 1 :] for at in range(len(text))]
        for each in damaged + [text[:at] for at in range(len(text))]:
            made = by_descent(each)
            assert made in (None, by_grammar(each)), each


@pytest.mark.parametrize("name", ["for", "in", "size", "match", "type", "true", "where", "cast"])
def test_words_of_the_language_are_alike(name: str) -> None:
    for text in (
        f"def {name}(float x) -> (y) {{ y = x }}", f"def f({name} x) -> (y) {{ y = x }}",
        f"def f(float {name}) -> (y) {{ y = {name} }}",
        f"def f(float x) -> {name} {{ {name} = x }}",
        f"def f(float x; {name} a) -> (y) {{ y = x }}", f"def f(float x; int {name}) -> (y) {{ }}",
        f"def f(float x) -> (y) {{ y = {name}(x) + {name} }}", f"def f(float({name}) x) -> y {{ }}",
        f"def f(float x) -> (y) {{ y(i) = x where {name} in 0:1 }}",
        f"def f(float x) -> (y) {{ y(i) = x where {name} = 1 }}",
        f"def f(float x) -> (y) {{ y = g(x; {name} = 1) }}",
    ):  # fmt: skip
        made = by_descent(text)
        assert made in (None, by_grammar(text)), text


def test_deep_texts_are_left_to_the_grammar() -> None:
    deep = f"def f(float x) -> (y) {{ y = {'(' * 3000}x{')' * 3000} }}"
    assert read_definitions(deep) is None
    assert read_definitions("def f(float x) -> (y) { y = x }" + " " * 60_000) is None
    with pytest.raises(LanguageError, match="expected an expression"):
        parse("def f(float x) -> (y) { y = }")

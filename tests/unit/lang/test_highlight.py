"""Promise: every text of the language is highlighted without an error, and by its own words."""

import re
from importlib import import_module
from pathlib import Path

import pytest
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, Text

from anydim.lang.surface.highlight import ComprehensionLexer
from tests.unit.lang.catalogue import PROGRAMS

ROOT = Path(__file__).parents[3]
LIBRARY = [path.read_text("utf-8") for path in (ROOT / "src/anydim/compiler/ops").glob("*.tc")]


def tokens(text):
    return [(kind, part) for kind, part in ComprehensionLexer().get_tokens(text) if part.strip()]


@pytest.mark.parametrize("text", [*LIBRARY, *(program.text for program in PROGRAMS)])
def test_every_text_is_understood(text):
    found = tokens(text)
    assert "".join("".join(part for _, part in found).split()) == "".join(text.split())
    assert not [part for kind, part in found if kind in (Error, Text)]


def test_words_have_their_kinds():
    text = """def f(float(N) x; int k = 2) -> (y) { # say
      for t in 0:N { y(t) max=! exp(x(t)) * 1.5 + x.0 + size(...s) } }"""
    kinds = {part: kind for kind, part in tokens(text)}
    assert kinds["def"] is kinds["for"] is kinds["in"] is Keyword
    assert kinds["f"] is Name.Function
    assert kinds["float"] is kinds["int"] is Keyword.Type
    assert kinds["max=!"] is kinds["->"] is Operator
    assert kinds["exp"] is kinds["size"] is Name.Builtin
    assert kinds["...s"] is Name.Variable
    assert kinds["1.5"] is Number.Float
    assert kinds["# say"] is Comment.Single
    assert kinds["N"] is kinds["y"] is Name


def test_type_and_match_are_words_only_where_they_begin_something():
    found = tokens(
        "type Tree<A> { leaf } def f(Tree t, float type) { match s, t { _ { match(i) = type } } }"
    )
    words = [(kind, part) for kind, part in found if part in ("type", "match", "Tree")]
    assert words == [
        (Keyword, "type"), (Name.Class, "Tree"), (Name, "Tree"), (Keyword.Type, "type"),
        (Keyword, "match"), (Name, "match"), (Keyword.Type, "type"),
    ]  # fmt: skip


def test_the_lexer_is_registered():
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    (target,) = re.findall(r'entry-points."pygments.lexers"\]\ntc = "([^"]+)"', text)
    module, _, name = target.partition(":")
    assert getattr(import_module(module), name) is ComprehensionLexer

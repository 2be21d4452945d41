"""Promise: a definition read back from disk is the one that was parsed, and needs no parser.

Usual texts need none anyway, and are not kept.
"""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path

import pytest

import anydim.ops  # noqa: F401  fills the registry
from anydim.base import settings
from anydim.base.errors import LanguageError
from anydim.graph.operator import OPERATORS
from anydim.lang.surface import parser, stored
from anydim.lang.surface.parser import parse_definition
from anydim.lang.surface.stored import from_json, stored_definition, to_json

TEXTS = [record.text for record in OPERATORS.values() if isinstance(record.text, str)]
EVERY_KIND = """
def f(T(...b,M) x, float(N) y; float scale = -0.5, bool flag = true, size S, type to = int64) ->
    (z, w) {
  z(...b,i) +=! scale * (x(...b,i+j) else inf) * size(...b) + y[j // 2] where j in 0:y.0
  w(i) = flag ? cast<to>(!x[i] else 1) : nan where exists y(i), i in 0:S
}
"""


ORDERED = """
def f(float(N) x, int64(N) at; int k = 2) -> (y) {
  y(i) = x(i)
  for t in N-1:-1:-k {
    if t == 0 || x(t) > 0 { y(at(t)) += 1 } else if t > 3 { y(t) *= 2 } else { y(0) max= x(t) }
  }
}
"""

STRUCTURE = """
type Tree { leaf(float x); node(Tree left, Tree right) }
def f(Tree t) -> (y) {
  match t { leaf(x) { y = x } node(left, right) { a = f(left) b = f(right) y = a + b } }
}
"""


def wholly(definition: object) -> str:
    """Everything in a definition, positions included, as text (nan equals nan there)."""
    return repr(astuple(definition))  # type: ignore[call-overload]


@pytest.mark.parametrize("text", [*TEXTS, EVERY_KIND, ORDERED])
def test_json_gives_back_the_definition(text: str) -> None:
    definition = parse_definition(text, "here.tc")
    again = from_json(to_json(definition))
    assert (again.text, again.file) == ("", "")
    assert wholly(again) == wholly(replace(definition, text="", file=""))
    assert "nan" in text or again == definition


def test_what_was_parsed_before_needs_no_parser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with settings.override(cache_dir=tmp_path, use_cache=True):
        first = stored_definition(STRUCTURE, "first.tc")
        monkeypatch.setattr(stored, "parse_definition", lambda *_: pytest.fail("parsed again"))
        again = stored_definition(STRUCTURE, "again.tc")
    assert (again.text, again.file) == (STRUCTURE, "again.tc")
    assert wholly(again).replace("again.tc", "first.tc") == wholly(first)


@pytest.mark.parametrize("text", [*TEXTS, EVERY_KIND, ORDERED])
def test_usual_texts_need_neither_the_grammar_nor_a_file(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parser, "run_grammar", lambda *_: pytest.fail("the grammar was run"))
    parser._parsed.cache_clear()
    parser.unlinked.cache_clear()
    with settings.override(cache_dir=tmp_path, use_cache=True):
        assert stored_definition(text, "some.tc").text == text
    assert not any(tmp_path.rglob("*"))


def test_a_damaged_file_is_parsed_again(tmp_path: Path) -> None:
    with settings.override(cache_dir=tmp_path, use_cache=True):
        first = stored_definition(STRUCTURE, "some.tc")
        (path,) = (path for path in tmp_path.rglob("*") if path.is_file())
        path.write_bytes(path.read_bytes()[:-3])
        assert wholly(stored_definition(STRUCTURE, "some.tc")) == wholly(first)
        assert path.is_file()


def test_bad_texts_are_not_kept(tmp_path: Path) -> None:
    with settings.override(cache_dir=tmp_path, use_cache=True):
        for _ in range(2):
            with pytest.raises(LanguageError, match="bad"):
                stored_definition("def f(", "bad.tc")
    assert not any(tmp_path.rglob("*"))


def test_a_text_of_many_definitions_comes_back_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "type Tree { leaf(float x) }\ndef f0(float(N) x) -> (y) { y(i) = 2 * x(i) }\n"
    text += "def g0(float(N) x) -> (y) { y = f0(x) }\n"
    for n in range(1, 15):  # twice as many ways down with every level
        for name in "fg":
            head = f"def {name}{n}(float(N) x) -> (y)"
            text += f"{head} {{ a = f{n - 1}(x) b = g{n - 1}(x) y(i) = a(i) + b(i) }}\n"
    with settings.override(cache_dir=tmp_path, use_cache=True):
        first = stored.stored_definitions(text, "first.tc")
        monkeypatch.setattr(stored, "parse", lambda *_: pytest.fail("parsed again"))
        again = stored.stored_definitions(text, "again.tc")
    assert list(again) == list(first)
    assert again["f1"] == first["f1"]
    assert [callee.file for callee in again["g9"].callees] == ["again.tc", "again.tc"]
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 50_000

"""Promise: what users hold is a table in a notebook and in a terminal, whatever names it has."""

from __future__ import annotations

import pickle
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy
import pytest

import anydim as ad
from anydim.base.sheet import Sheet, Table
from anydim.compiler.checking.report import CheckReport, Failure

EVIL = "<script>alert('x')</script>&\"'"


class Read(HTMLParser):
    """The tags of a page that are open and closed in order, and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.attributes: set[str] = set()
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def network(name: str = "net") -> ad.Model:
    graph = ad.Builder(name)
    x = graph.input(f"{name}x", ad.float32, (graph.dim("n", 0, 64), 8))
    y = graph.softmax(graph.matmul(x, graph.constant(numpy.ones((8, 8), numpy.float32))), axis=-1)
    graph.output(f"{name}y", y)
    return ad.compile(graph, strategy="generic")


LIBRARY = ad.define("""
def matmul(float(M,K) A, float(K,N) B; float scale = 0.5) -> (C) {
  C(m,n) +=! A(m,k) * B(k,n) * scale
}
def same(T(...b) x) -> (y) { y(...b) = x(...b) < x(...b) }
""")


def held(name: str, tmp_path: Path) -> dict[str, object]:
    model = network(name)
    model.save(tmp_path / "net.anydim")
    return {
        "model": model, "memory": model.memory, "plan": model.plan(n=3),
        "profile": model.profile(n=3, repeat=2), "trace": model.trace(n=3),
        "file": ad.inspect(tmp_path / "net.anydim"), "loaded": ad.load(tmp_path / "net.anydim"),
        "library": LIBRARY, "function": LIBRARY.same, "schedules": LIBRARY.matmul.options,
        "explained": model.explain(), "dims": model.dims, "check": model.check(samples=3),
        "ragged": ad.Ragged(numpy.ones((3, 2)), [0, 1, 3]),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["net", EVIL])
def test_what_users_hold_is_a_table(name: str, tmp_path: Path) -> None:
    for what, each in held(name, tmp_path).items():
        read = Read(each._repr_html_())  # type: ignore[attr-defined]
        assert "table" in read.tags, what
        assert read.tags <= {"div", "b", "table", "tr", "td", "th", "pre"}, what
        assert read.attributes <= {"style", "colspan"}, what
        shown = " ".join(read.texts)
        if what in ("model", "memory", "plan", "profile", "trace", "file", "loaded", "explained"):
            assert name in shown, what


def test_colours_are_those_of_the_notebook(tmp_path: Path) -> None:
    """By day and by night: nothing is black or white but what the notebook makes so."""
    for what, each in held("net", tmp_path).items():
        styles = re.findall(r'style="([^"]*)"', each._repr_html_())  # type: ignore[attr-defined]
        colours = {c for style in styles for c in re.findall(r"(?:color|ground):([^;]*)", style)}
        assert colours <= {"inherit", "none"}, what


def test_prompts_show_the_same(tmp_path: Path) -> None:
    for what in ("memory", "plan", "profile", "trace", "file", "library"):
        each = held("net", tmp_path)[what]
        assert repr(each) == str(each), what
        assert max(map(len, str(each).split("\n"))) <= 100, what
    assert "float scale = 0.5" in repr(LIBRARY)


def test_texts_stay_beside_the_tables_of_a_notebook() -> None:
    model = network()
    dims, ragged = model.dims, ad.Ragged(numpy.ones((3, 2)), [0, 1, 3])
    assert repr(dims).startswith("Box(") and str(dims) == "n=0..64"
    assert repr(ragged) == "<ragged: 2 rows of 1, 2; values float64[3, 2]>"
    assert repr(ad.Ragged(numpy.ones(3), [0, 3])) == "<ragged: 1 row of 3; values float64[3]>"
    assert repr(ad.Ragged(numpy.ones(0), [0])) == "<ragged: no rows; values float64[0]>"
    told = model.explain()
    assert isinstance(told, str) and told.startswith("net(") and "explain(details=True)" in told
    assert repr(told) == repr(str(told)) and not hasattr(told[:9], "_repr_html_")
    again = pickle.loads(pickle.dumps(told))
    assert again == told and again._repr_html_() == told._repr_html_()
    details = model.explain(details=True)
    assert "kernel " in unescape(details._repr_html_())


def test_differences_are_rows() -> None:
    failures = tuple(Failure({"n": n}, EVIL, f"<b>{n}</b>") for n in range(300))
    report = CheckReport(300, 0, 1.0, {"n": 0}, failures, sizes=300)
    read = Read(report._repr_html_())
    assert EVIL in read.texts and "n = 199" in read.texts and "n = 200" not in read.texts
    assert "and 100 more rows" in read.texts and read.texts[0].endswith("300 differ")


@pytest.mark.parametrize(("count", "more"), [(0, ""), (1, ""), (200, ""), (1000, "800")])
def test_many_rows_are_cut(count: int, more: str) -> None:
    ragged = ad.Ragged(numpy.ones((count, 2)), numpy.arange(count + 1))
    read = Read(ragged._repr_html_())
    assert read.texts.count("1, 2") == min(count, 200)
    assert [text for text in read.texts if text.startswith("and ")] == (
        [f"and {more} more rows"] if more else []
    )


def test_a_library_says_what_is_compiled() -> None:
    library = ad.define("def twice(T(N) x) -> (y) { y(n) = x(n) + x(n) }")
    assert "nothing yet" in str(library)
    library.twice(numpy.ones(3, numpy.float32))
    library.twice(numpy.ones(3, numpy.int32))
    assert "float32[?]; int32[?]" in str(library)
    assert "y(n) = x(n) + x(n)" in unescape(library.twice._repr_html_())


def test_definitions_may_be_called_as_the_methods_of_a_table() -> None:
    library = ad.define("def sheet(float(N) x) -> (y) { y(n) = x(n) }")
    assert library.sheet(numpy.ones(2, numpy.float32)).tolist() == [1, 1]


def test_a_sheet_as_text() -> None:
    facts = [("inputs", "a"), ("inputs", "b"), ("", "a sentence"), ("memory", "m " * 60), ("x", "")]
    tables = [Table(("name", "time"), [("a", "1")], 1, "rows", "and 2 more")]
    lines = Sheet("the title", facts, tables, "code\n  as it is").text().split("\n")
    assert lines[:4] == ["the title", "  inputs    a", "            b", "  a sentence"]
    assert lines[4].startswith("  memory    m m") and lines[5].startswith("            m m")
    assert lines[6:] == [
        "  x", "", "  rows", "  name  time", "  a        1", "  and 2 more", "",
        "code", "  as it is",
    ]  # fmt: skip

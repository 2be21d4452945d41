"""Reports for people: a title, facts and tables, as lines of text and as HTML.

An object with a `_sheet` is printed by `print`, and shown as tables by a notebook.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from anydim.base.records import dataclass
from anydim.base.text import hanging, table

# A notebook has its own colours, by day and by night, so none are given but shades of its own.
_LINE = "border:0;border-bottom:1px solid rgba(128,128,128,.35);padding:2px 10px;vertical-align:top"
_CELL = f"{_LINE};text-align:left"
_NUMBER = f"{_LINE};text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums"
_TABLE = "border-collapse:collapse;margin:4px 0 8px;color:inherit;background:none"
_ROW = "background:none"
_MOST_ROWS = 200  # of a table in a notebook
_WIDTH = 9  # of the names of facts, at least: one below the other they look alike
_BOX = "max-height:32em;overflow:auto"
_CODE = "overflow-x:auto;color:inherit;background:none"
_NAME = "overflow-wrap:anywhere"
_WHOLE = "white-space:nowrap"


@dataclass(frozen=True)
class Table:
    """Rows under headers; the first `left` columns are texts, the others numbers.

    `title` stands above the rows, `more` below them.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    title: str = ""
    more: str = ""

    def lines(self) -> Iterator[str]:
        """The table as text."""
        if self.title:
            yield f"  {self.title}"
        yield table(self.headers, self.rows, self.left)
        if self.more:
            yield hanging(self.more, "  ", "    ")

    def html(self) -> Iterator[str]:
        """The table as HTML; all texts are escaped. A line counts the rows that are cut."""
        if self.title:
            yield f"<div>{escape(self.title)}</div>"
        yield f'<div style="{_BOX}"><table style="{_TABLE}">'
        yield self._line("th", self.headers)
        yield from (self._line("td", row) for row in self.rows[:_MOST_ROWS])
        yield "</table></div>"
        if len(self.rows) > _MOST_ROWS:
            yield f"<div>and {len(self.rows) - _MOST_ROWS} more rows</div>"
        if self.more:
            yield f"<div>{escape(self.more)}</div>"

    def _line(self, tag: str, cells: Sequence[str]) -> str:
        breaks = _NAME if tag == "td" else _WHOLE
        styles = (f"{_CELL if at < self.left else _NUMBER};{breaks}" for at in range(len(cells)))
        each = (f'<{tag} style="{s}">{escape(c)}</{tag}>' for s, c in zip(styles, cells))
        return f'<tr style="{_ROW}">{"".join(each)}</tr>'


@dataclass(frozen=True)
class Sheet:
    """A title, facts by name, tables and code. A fact without a name is a sentence.

    A fact whose name is that of the one before it continues it.
    """

    title: str
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    code: str = ""

    def text(self) -> str:
        """Lines of at most 100 columns; code is printed as it is."""
        width = max([_WIDTH, *(len(name) for name, _ in self.facts)])
        lines = [hanging(self.title, "", "    ")]
        for name, value in self._facts():
            lead = f"  {name:{width}} " if name is not None else " " * (width + 3)
            lead = lead if name != "" else "  "
            lines.append(hanging(value, lead, " " * max(4, len(lead))))
        for each in self.tables:
            lines += ["", *each.lines()]
        if self.code:
            lines += ["", self.code]
        return "\n".join(lines)

    def html(self) -> str:
        """HTML without scripts or style sheets; every text is escaped."""
        rows = "".join(
            f'<tr style="{_ROW}"><td style="{_CELL};{_WHOLE}">{escape(name or "")}</td>'
            f'<td style="{_CELL};{_NAME}">{escape(value)}</td></tr>'
            if name != "" else f'<tr style="{_ROW}"><td colspan="2" style="{_CELL}">'
            f"{escape(value)}</td></tr>"
            for name, value in self._facts()
        )  # fmt: skip
        parts = [f"<div><b>{escape(self.title)}</b></div>"]
        if rows:
            parts.append(f'<table style="{_TABLE}">{rows}</table>')
        for each in self.tables:
            parts += each.html()
        if self.code:
            parts.append(f'<pre style="{_CODE}">{escape(self.code)}</pre>')
        return "\n".join(parts)

    def _facts(self) -> Iterator[tuple[str | None, str]]:
        """The facts; None for a name that repeats the one above."""
        last = ""
        for name, value in self.facts:
            yield (None if name and name == last else name), value
            last = name


class Shown:
    """Base of objects with a sheet: printed as text, shown as tables by a notebook."""

    def _sheet(self) -> Sheet:
        """The title, facts and tables."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self._sheet().text()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self._sheet().html()


class Report(str):
    """Text that a notebook shows as tables, with what the tables lack below them."""

    _html: str

    def __new__(cls, text: str, html: str) -> Report:
        report = super().__new__(cls, text)
        report._html = html
        return report

    @classmethod
    def of(cls, sheet: Sheet | None, *paragraphs: str) -> Report:
        """A sheet and paragraphs of text."""
        below = "\n\n".join(paragraphs)
        parts = [sheet.html()] if sheet is not None else []
        parts += [f'<pre style="{_CODE}">{escape(below)}</pre>'] if below else []
        first = [sheet.text()] if sheet is not None else []
        return cls("\n\n".join([*first, *paragraphs]), "\n".join(parts))

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # for pickle and copy
        return str(self), self._html

    def _repr_html_(self) -> str:
        return self._html


def facts(name: str, values: Iterable[str], none: str = "none") -> list[tuple[str, str]]:
    """A fact for each value, all under one name."""
    return [(name, value) for value in values] or [(name, none)]

"""Text helpers: carets, suggestions of similar names, lists, plurals, tables."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

COLUMNS = 100  # of a text for people, where no terminal says how wide it is
_NAMED = 36  # of the nodes of a launch in a table
_DIGEST = re.compile("_[0-9a-f]{12}$")  # at the end of a kernel's name
_VOWEL = re.compile(r"[AEIOaeio]|[Uu](?!ni|int|s)")
_HALF = 6
_WORD = 4  # columns that a line has beside its indent
_LEAST = 16  # columns that a cell keeps when its table is too wide


def caret(text: str, position: int, margin: str = "    ") -> str:
    """The line of `text` that contains `position` (0-based), and a caret below it."""
    position = max(0, min(position, len(text)))
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[start:] if end < 0 else text[start:end]
    lead = "".join("\t" if c == "\t" else " " for c in line[: position - start])
    return f"{margin}{line}\n{margin}{lead}^"


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """1-based line and column of a 0-based position."""
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def suggestion(name: str, known: Iterable[str]) -> str:
    """ "did you mean 'seq'?" if a known name is close to `name`, else ''."""
    from difflib import get_close_matches  # slow to import, and only needed for errors

    if not isinstance(name, str):  # a caller's mapping may have any key
        return ""
    close = get_close_matches(name, list(known), n=1)
    return f"did you mean '{close[0]}'?" if close else ""


def matches(pattern: str, names: Iterable[str]) -> bool:
    """Whether one of some names matches a pattern with *, ? and [...], or begins with it."""
    return any(fnmatchcase(name, pattern) or name.startswith(pattern) for name in names)


def quote_list(names: Iterable[str], none: str = "none") -> str:
    """'a', 'b', 'c' for a message; `none` without names."""
    return ", ".join(f"'{name}'" for name in names) or none


def count_of(number: int, thing: str, ending: str = "s") -> str:
    """ "1 dimension", "2 dimensions", with the plural formed by `ending`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}{ending}"


def article(noun: str) -> str:
    """ "a tensor", "an index", "an Expr"."""
    return f"{'an' if _VOWEL.match(noun) else 'a'} {noun}"


def axes_text(number: int) -> str:
    """ "1 axis", "2 axes"."""
    return f"{number} axis" if number == 1 else f"{number} axes"


def time_text(seconds: float) -> str:
    """A time as text: 1.31 s, 4.52 ms, 17 us."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def nodes_text(source: str, columns: int = _NAMED) -> str:
    """The nodes of a launch in at most `columns`: the end of the first name, and how many more.

    A source is "file: first + second + third".
    """
    first, *others = (source.partition(": ")[2] or source).split(" + ")
    more = f" +{len(others)}" if others else ""
    room = max(4, columns - len(more))
    first = first if len(first) <= room else f"...{first[3 - room :]}"
    return first + more


def kernel_text(name: str) -> str:
    """The name of a kernel with half of its digest, which a pattern finds."""
    return name[:-_HALF] if _DIGEST.search(name) else name


def cut(text: str, width: int) -> str:
    """A text in at most `width` columns: "..." stands for its middle, of names the ends differ."""
    if len(text) <= width:
        return text
    end = max(0, width - 3) * 2 // 3
    return f"{text[: max(0, width - 3 - end)]}...{text[len(text) - end :]}"[:width]


def table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, margin: str = "  ",
    columns: int = COLUMNS,
) -> str:  # fmt: skip
    """Lines with aligned cells: the first `left` ones to the left, the others to the right.

    No line is longer than `columns`: the longest cells are cut, and what still does not fit is a
    second table below, which begins with the same first column.
    """
    lines = [list(headers), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    room = columns - len(margin) + 2
    while sum(widths) + 2 * len(widths) > room and max(widths) > _LEAST:
        widest = widths.index(max(widths))
        spare = sum(widths) + 2 * len(widths) - room
        second = max([_LEAST, *(width for width in widths if width < widths[widest])])
        widths[widest] -= min(spare, max(1, widths[widest] - second))
    return "\n\n".join(
        "\n".join(
            margin
            + "  ".join(
                f"{cut(line[at], widths[at]):{'<' if at < left else '>'}{widths[at]}}"
                for at in block
            ).rstrip()
            for line in lines
        )
        for block in _blocks(widths, room)
    )


def _blocks(widths: Sequence[int], room: int) -> list[list[int]]:
    """Split columns into tables that fit `room`; each repeats the first column."""
    blocks: list[list[int]] = [[0]] if widths else [[]]
    for at in range(1, len(widths)):
        taken = sum(widths[each] + 2 for each in blocks[-1])
        if taken + widths[at] + 2 > room and len(blocks[-1]) > 1:
            blocks.append([0])
        blocks[-1].append(at)
    return blocks


def fold_lines(text: str, columns: int = COLUMNS) -> str:
    """Wrap lines longer than `columns`; continuations are indented deeper."""
    lines = text.split("\n")
    return "\n".join(line if len(line) <= columns else _fold(line, columns) for line in lines)


def _fold(line: str, columns: int) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    return hanging(line.strip(), indent, indent + "    ", columns)


def hanging(text: str, first: str, other: str, columns: int = COLUMNS) -> str:
    """A text in lines of at most `columns`: the first begins with `first`, others with `other`."""
    width = max(columns, len(other) + _WORD)
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=other, break_on_hyphens=False
    ) or first.rstrip()  # fmt: skip

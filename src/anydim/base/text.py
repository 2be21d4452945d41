"""Text helpers: carets, suggestions of similar names, lists, plurals, tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


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


def listed(names: Iterable[str], none: str = "none") -> str:
    """'a', 'b', 'c' for a message; `none` without names."""
    return ", ".join(f"'{name}'" for name in names) or none


def counted(number: int, thing: str, ending: str = "s") -> str:
    """ "1 dimension", "2 dimensions", with the plural formed by `ending`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}{ending}"


def axes_text(number: int) -> str:
    """ "1 axis", "2 axes"."""
    return f"{number} axis" if number == 1 else f"{number} axes"


def time_text(seconds: float) -> str:
    """A time as text: 1.31 s, 4.52 ms, 17 us."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, margin: str = "  "
) -> str:
    """A table as text: the first `left` columns left-aligned, the others right-aligned."""
    lines = [list(headers), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(
        margin
        + "  ".join(
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    )

"""A picture of a plan as a file: the picture alone (.svg), or a page with tables (.html).

Both are complete in themselves and hold no scripts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from anydim.base.errors import OptionError
from anydim.base.files import write_text
from anydim.cli.report.pages import MONO, frame_page
from anydim.cli.report.plot import escape_lines, svg
from anydim.cli.report.text import sizes_text
from anydim.runtime.program.memory_map import Arena, ArenaValue

KINDS = (".svg", ".html")
LARGEST = 30  # rows of the table of a page


def write(arena: Arena, path: str) -> None:
    """Write the picture of a plan; the name's ending says which of KINDS it is."""
    check(path)
    text = f"{svg(arena)}\n" if path.endswith(".svg") else page(arena)
    try:
        write_text(path, text)
    except OSError as error:
        raise OptionError(f"{path} cannot be written: {error.strerror}") from None


def check(path: str) -> None:
    """Raise OptionError for a path at which no picture can be written."""
    if not path.endswith(KINDS):
        raise OptionError(f"{path}: pictures are .svg or .html", f"write {path}.svg")
    if not Path(path).parent.is_dir():
        raise OptionError(f"{path}: there is no folder {Path(path).parent}", "make it")


def page(arena: Arena) -> str:
    """A page with the picture, the largest values, and those of the peak."""
    title = escape_lines(f"{arena.name} at {sizes_text(arena.sizes)}")
    values = sorted(arena.placed, key=lambda value: (-value.bytes, value.first))
    peak = [value for value in values if arena.at_peak(value)]
    kernel, source = arena.launches[arena.peak] if arena.launches else ("", "")
    return frame_page(title, _PAGE_STYLE, [
        svg(arena),
        f"<h2>Live at the peak, launch {arena.peak}</h2>",
        f"<p>{escape_lines(kernel, source)}</p>",
        *_table(arena, peak),
        f"<h2>The largest values{_of(values)}</h2>",
        *_table(arena, values[:LARGEST]),
    ])  # fmt: skip


_PAGE_STYLE = (
    f"td:first-child{{font:12px {MONO};overflow-wrap:anywhere}}svg{{max-width:100%;height:auto}}"
)
_HEADERS = (("value", ""), ("bytes", "n"), ("of the bound", "n"), ("formula", ""),
            ("offset", "n"), ("launches", "n"), ("made by", ""))  # fmt: skip


def _of(values: Sequence[ArenaValue]) -> str:
    return f": {LARGEST} of {len(values)}" if len(values) > LARGEST else ""


def _table(arena: Arena, values: Sequence[ArenaValue]) -> Iterator[str]:
    yield '<div class="wide"><table>'
    yield _row("th", [(kind, name) for name, kind in _HEADERS])
    for value in values:
        share = value.bytes / arena.lower_bound if arena.lower_bound else 0.0
        cells = [
            ("", value.name), ("n", str(value.bytes)), ("n", f"{share:.1%}"), ("f", value.takes),
            ("n", str(value.offset)), ("n", f"{value.first} to {value.last}"),
            ("f", arena.launches[value.first][0]),
        ]  # fmt: skip
        yield _row("td", cells)
    yield "</table></div>"


def _row(tag: str, cells: Sequence[tuple[str, str]]) -> str:
    heads = (f'{tag} class="{kind}"' if kind else tag for kind, _ in cells)
    made = (f"<{head}>{escape_lines(text)}</{tag}>" for head, (_, text) in zip(heads, cells))
    return f"<tr>{''.join(made)}</tr>"

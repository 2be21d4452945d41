"""The arena of a plan as an SVG picture without scripts.

The x axis is launches, the y axis bytes; every value is a box. Values that are live at the peak
have a separate colour. Names come from models, so they are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from anydim.base.amounts import bytes_text, exact_bytes_text
from anydim.base.records import dataclass
from anydim.cli.report.text import sizes_text
from anydim.runtime.program.memory_map import Arena, ArenaValue

WIDTH, HEIGHT = 1240, 720
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 150, 74, 66
_LETTER = 6.1  # width of a letter of the font for labels, at its size of 10
_GAP = 15  # minimum distance of two lines of text

# fill of boxes, by whether they live at the peak and whether they are scratch
_FILLS = {
    (False, False): "#b9cde3",
    (True, False): "#f2a65a",
    (False, True): "#d9d9d9",
    (True, True): "#c9a27e",
}
_LEGEND = (
    ("lives at the peak", _FILLS[True, False]),
    ("other values", _FILLS[False, False]),
    ("scratch", _FILLS[False, True]),
)
_STYLE = (
    "text{font:12px 'DejaVu Sans',Arial,sans-serif;fill:#222}"
    ".label{font:10px 'DejaVu Sans Mono',Menlo,Consolas,monospace;pointer-events:none}"
    ".title{font-size:15px;font-weight:bold}"
    ".box{stroke:#fff;stroke-width:.7}.box:hover{stroke:#111;stroke-width:1.5}"
    ".grid{stroke:#e4e4e4}.axis{stroke:#555}.bound{stroke:#1a6e3c;stroke-dasharray:6 4}"
    ".peak{fill:#c0392b;fill-opacity:.13;pointer-events:none}.tick{fill:#8aa;stroke:#fff}"
    ".paper{fill:#fff}@media(prefers-color-scheme:dark){.paper{fill:#1b1e23}text{fill:#dcdfe4}"
    ".label{fill:#111}.grid{stroke:#31363d}.axis{stroke:#9aa3ad}.box,.tick{stroke:#1b1e23}"
    ".bound{stroke:#5fbf85}}"
)


@dataclass(frozen=True)
class _Scale:
    """Maps launches and bytes to coordinates."""

    launches: int
    bytes: int

    def x(self, launch: float) -> float:
        return _LEFT + launch * (WIDTH - _LEFT - _RIGHT) / max(1, self.launches)

    def y(self, byte: float) -> float:
        return HEIGHT - _BOTTOM - byte * (HEIGHT - _TOP - _BOTTOM) / max(1, self.bytes)


def svg(arena: Arena) -> str:
    """Return the picture, one element per line."""
    scale = _Scale(len(arena.launches), max([arena.bytes, *(v.end for v in arena.placed)]))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        *_heading(arena),
        *_axes(arena, scale),
        *(_box(arena, value, scale) for value in arena.placed),
        *_peak(arena, scale),
        *(label for value in arena.placed if (label := _label(value, scale))),
        *_lines(arena, scale),
        "</svg>",
    ]
    return "\n".join(parts)


def _heading(arena: Arena) -> Iterator[str]:
    title = f"{arena.name} at {sizes_text(arena.sizes)}"
    yield f'<text class="title" x="{_LEFT}" y="26">{escape_lines(_short(title, 110))}</text>'
    yield f'<text x="{_LEFT}" y="48">{escape_lines(summary(arena))}</text>'
    x = WIDTH - _RIGHT - 150.0 * len(_LEGEND) + 10
    for name, fill in _LEGEND:
        yield f'<rect x="{x:.0f}" y="56" width="11" height="11" fill="{fill}"/>'
        yield f'<text x="{x + 16:.0f}" y="66">{name}</text>'
        x += 150


def summary(arena: Arena) -> str:
    """Return the figures of the picture in a line."""
    over = arena.bytes / arena.lower_bound if arena.lower_bound else 1.0
    values = sum(not value.scratch for value in arena.placed)
    parts = [
        f"arena {exact_bytes_text(arena.bytes)}",
        f"{over:.3f} of the {bytes_text(arena.lower_bound)} that live at launch {arena.peak}",
        f"{values} values, {len(arena.launches)} launches",
    ]
    if arena.between:
        parts.append(f"beside it at most {bytes_text(arena.between)} between steps")
    return "; ".join(parts)


def _axes(arena: Arena, scale: _Scale) -> Iterator[str]:
    left, right, bottom = scale.x(0), scale.x(scale.launches), scale.y(0)
    for byte in _binary_ticks(scale.bytes, 8):
        y = scale.y(byte)
        yield f'<line class="grid" x1="{left}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        label = bytes_text(byte)
        yield f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    yield f'<line class="axis" x1="{left}" x2="{left}" y1="{_TOP}" y2="{bottom:.1f}"/>'
    for number, (kernel, source) in enumerate(arena.launches):
        x, wide = scale.x(number), scale.x(number + 1) - scale.x(number)
        told = escape_lines(f"launch {number}: {kernel}", source)
        yield (
            f'<rect class="tick" x="{x:.2f}" y="{bottom + 2:.1f}" width="{wide:.2f}" height="10">'
            f"<title>{told}</title></rect>"
        )
    for number in _ticks(max(0, scale.launches - 1), 20):
        x = (scale.x(number) + scale.x(number + 1)) / 2
        yield f'<text x="{x:.1f}" y="{bottom + 28:.1f}" text-anchor="middle">{number}</text>'
    middle = (left + right) / 2
    yield (
        f'<text x="{middle:.1f}" y="{HEIGHT - 14}" text-anchor="middle">'
        f"launches in the order of the program</text>"
    )


def _ticks(most: int, count: int) -> range:
    """Return about `count` round numbers from 0 to `most`."""
    step = 1
    while most // step > count:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return range(0, most + 1, step)


def _binary_ticks(most: int, count: int) -> range:
    """Return about `count` multiples of a power of two from 0 to `most`."""
    step = 1
    while most // step > count:
        step *= 2
    return range(0, most + 1, step)


def _box(arena: Arena, value: ArenaValue, scale: _Scale) -> str:
    x, y = scale.x(value.first), scale.y(value.end)
    wide, high = scale.x(value.last + 1) - x, scale.y(value.offset) - y
    fill = _FILLS[arena.at_peak(value), value.scratch]
    return (
        f'<rect class="box" x="{x:.2f}" y="{y:.2f}" width="{wide:.2f}" height="{high:.2f}" '
        f'fill="{fill}"><title>{escape_lines(*about(arena, value))}</title></rect>'
    )


def about(arena: Arena, value: ArenaValue) -> list[str]:
    """Return lines on one value."""
    (first, _), (last, _) = arena.launches[value.first], arena.launches[value.last]
    return [
        value.name,
        f"{value.bytes} bytes = {value.takes}",
        f"at {value.offset} = {value.at}",
        f"launches {value.first} ({first}) to {value.last} ({last})",
    ]


def _label(value: ArenaValue, scale: _Scale) -> str:
    """Return the name of a value and its bytes, if its box has space for them."""
    x, y = scale.x(value.first), scale.y(value.end)
    wide, high = scale.x(value.last + 1) - x, scale.y(value.offset) - y
    upright = high > 2 * wide and wide >= 12
    along, across = (high, wide) if upright else (wide, high)
    letters = int((along - 6) / _LETTER)
    if letters < 4 or across < 12:
        return ""
    lines = [_tail(value.name, letters)]
    if across >= 26 and len(bytes := bytes_text(value.bytes)) <= letters:
        lines.append(bytes)
    cx, cy = x + wide / 2, y + high / 2
    turned = f' transform="rotate(-90 {cx:.1f} {cy:.1f})"' if upright else ""
    top = cy + 3.5 - 6 * (len(lines) - 1)
    return "".join(
        f'<text class="label" text-anchor="middle" x="{cx:.1f}" y="{top + 12 * n:.1f}"{turned}>'
        f"{escape_lines(line)}</text>"
        for n, line in enumerate(lines)
    )


def _peak(arena: Arena, scale: _Scale) -> Iterator[str]:
    if arena.launches:
        x, wide = scale.x(arena.peak), scale.x(arena.peak + 1) - scale.x(arena.peak)
        top, high = scale.y(scale.bytes), scale.y(0) - scale.y(scale.bytes)
        yield (
            f'<rect class="peak" x="{x:.2f}" y="{top:.2f}" width="{wide:.2f}" height="{high:.2f}"/>'
        )


def _lines(arena: Arena, scale: _Scale) -> Iterator[str]:
    """Yield the lines for the end of the arena and the lower bound, with labels."""
    left, right = scale.x(0), scale.x(scale.launches)
    texts = ((arena.bytes, "axis", "arena"), (arena.lower_bound, "bound", "lower bound"))
    y_text = 0.0
    for bytes, kind, name in texts:
        y = scale.y(bytes)
        y_text = max(y + 4, y_text + 2 * _GAP)
        yield f'<line class="{kind}" x1="{left}" x2="{right + 6:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{right + 10:.1f}" y="{y_text:.1f}">{name}</text>'
        figure = bytes_text(bytes)
        yield f'<text x="{right + 10:.1f}" y="{y_text + 13:.1f}">{figure}</text>'
    y_text = max(y_text, _TOP) + 2 * _GAP
    yield f'<text x="{right + 10:.1f}" y="{y_text:.1f}">peak: launch {arena.peak}</text>'


_CONTROL = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape_lines(*lines: str) -> str:
    """Escape lines as text of an element; characters invalid in XML become question marks."""
    return escape(_CONTROL.sub("?", "\n".join(line for line in lines if line)))


def _short(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _tail(name: str, letters: int) -> str:
    """Return the end of a name, which is more specific than its beginning."""
    name = name.removesuffix("_output_0")
    return name if len(name) <= letters else f"…{name[1 - letters :]}"

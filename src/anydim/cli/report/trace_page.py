"""A trace as a page: a row for each thread and queue, time to the right. It holds no scripts.

Names come from models, so they are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anydim.base.text import time_text
from anydim.cli.report.pages import MONO, frame_page
from anydim.cli.report.plot import escape_lines
from anydim.runtime.program.profile.trace import CALL, HOST, Span, Trace

LONGEST = 30  # rows of the table
_ROW, _TOP = 26, 30  # pixels
_TICKS = 10
_ZOOMS = (1, 4, 16, 64)  # times the width of the page
_LETTER = 0.7  # percent of the width that a letter takes, on a page of 1000 pixels
_FEWEST = 4  # letters of a name that are worth showing

_FILLS = {
    CALL: "#c3cad3", "launch": "#8fb4dc", "copy": "#f2a65a", "wait": "#d9776a", "memory": "#b9b9b9",
}  # fmt: skip
_STYLE = (
    ".drawn{display:flex;border:1px solid var(--line);margin-top:8px}"
    ".names{flex:none;padding:30px 10px 0 8px}"
    ".names div{height:26px;line-height:26px;white-space:nowrap}"
    ".time{overflow-x:auto;flex:1}.time svg.all{display:block}"
    f".grid{{stroke:var(--grid)}}.tick{{font-size:11px;fill:var(--faint)}}.label{{font:10px {MONO};"
    "pointer-events:none}.span:hover{stroke:var(--ink);stroke-width:1.5}"
    ".key{display:inline-block;width:11px;height:11px;margin:0 5px 0 14px}td.w{white-space:nowrap}"
) + "".join(f"#zoom{each}:checked~.drawn svg.all{{width:{100 * each}%}}" for each in _ZOOMS)
_STYLE += "".join(  # names of what is too narrow for them at a zoom
    f"#zoom{each}:checked~.drawn .from{later}{{display:none}}"
    for each in _ZOOMS for later in _ZOOMS if later > each
)  # fmt: skip
_Row = tuple[str, str, bool]  # device, lane, and whether it is that of calls


def page(trace: Trace) -> str:
    """The whole text of the page."""
    title = escape_lines(str(trace).split("\n", 1)[0])
    spans = [span for span in trace.spans if span.kind != CALL]
    longest = sorted(spans, key=lambda span: span.begin - span.end)[:LONGEST]
    of = f": {LONGEST} of {len(spans)}" if len(spans) > LONGEST else ""
    return frame_page(title, _STYLE, [
        f"<h1>{title}</h1>",
        *_controls(),
        '<div class="drawn">', *_names(trace), '<div class="time">', *svg(trace), "</div></div>",
        f"<pre>{escape_lines(str(trace))}</pre>",
        f"<h2>What took longest{of}</h2>",
        '<div class="wide"><table>', *_table(longest), "</table></div>",
    ])  # fmt: skip


def _controls() -> Iterator[str]:
    """What chooses the width, and what the colours mean."""
    yield "width"
    for each in _ZOOMS:
        on = " checked" if each == 1 else ""
        yield f'<input type="radio" name="zoom" id="zoom{each}"{on}>'
        yield f'<label for="zoom{each}">{each}</label>'
    for kind, fill in _FILLS.items():
        yield f'<span class="key" style="background:{fill}"></span>{kind}'


def _rows(trace: Trace) -> list[_Row]:
    order = {device: number for number, device in enumerate(("", *trace.devices))}
    found = {(span.device, span.lane, span.kind == CALL) for span in trace.spans}
    lanes = {lane: number for number, lane in enumerate(trace.lanes)}
    return sorted(found, key=lambda row: (order[row[0]], lanes[row[:2]], not row[2]))


def _names(trace: Trace) -> Iterator[str]:
    yield '<div class="names">'
    for device, lane, calls in _rows(trace):
        name = f"{device or HOST}: {'calls' if calls else lane}"
        yield f"<div>{escape_lines(name)}</div>"
    yield "</div>"


def svg(trace: Trace) -> Iterator[str]:
    """The picture: places along the time are percents of it."""
    rows = {row: number for number, row in enumerate(_rows(trace))}
    whole = max([1, *(span.end for span in trace.spans)])
    high = _TOP + _ROW * len(rows) + 4
    yield f'<svg xmlns="http://www.w3.org/2000/svg" class="all" width="100%" height="{high}">'
    for tick in range(_TICKS):
        at, seconds = 100 * tick / _TICKS, whole * tick / _TICKS * 1e-9
        yield f'<line class="grid" x1="{at:g}%" x2="{at:g}%" y1="0" y2="{high}"/>'
        label = time_text(seconds) if tick else "0"
        yield f'<text class="tick" x="{at:g}%" dx="4" y="16">{label}</text>'
    for span in trace.spans:
        yield _draw_span(span, _TOP + _ROW * rows[span.device, span.lane, span.kind == CALL], whole)
    yield "</svg>"


def _draw_span(span: Span, top: int, whole: int) -> str:
    at, wide = 100 * span.begin / whole, 100 * (span.end - span.begin) / whole
    least = _LETTER * (1 + min(_FEWEST, len(span.name)))
    zoom = next((each for each in _ZOOMS if wide * each >= least), None)
    label = ""
    if zoom is not None:
        label = f'<text class="label from{zoom}" x="4" y="15">{escape_lines(span.name)}</text>'
    return (
        f'<svg x="{at:.4f}%" y="{top}" width="{max(wide, 0.01):.4f}%" height="{_ROW - 4}">'
        f'<rect class="span" width="100%" height="100%" fill="{_FILLS[span.kind]}">'
        f"<title>{escape_lines(*_describe_span(span))}</title></rect>{label}</svg>"
    )


def _describe_span(span: Span) -> Iterator[str]:
    yield span.name
    yield f"{time_text(span.seconds)} from {time_text(span.begin * 1e-9)}"
    for key, value in span.about.items():
        if key != "nodes" and value != "":
            yield f"{key}: {_value(value)}"


def _dims(span: Span) -> dict[str, int]:
    """The sizes of a launch that are dims; a pointer on its box shows all of them."""
    sizes = span.about.get("sizes", {})
    return {name: size for name, size in sizes.items() if name.isidentifier()}


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} = {size}" for name, size in value.items())
    return str(value)


def _table(spans: Sequence[Span]) -> Iterator[str]:
    yield (
        '<tr><th>what</th><th>where</th><th class="n">begin</th><th class="n">time</th>'
        "<th>kernel</th><th>sizes</th></tr>"
    )
    for span in spans:
        sizes = _dims(span) or {
            key: span.about[key] for key in ("direction", "bytes") if key in span.about
        }
        begin, taken = time_text(span.begin * 1e-9), time_text(span.seconds)
        cells = [
            ("f", span.name), ("w", f"{span.device or HOST}: {span.lane}"), ("n", begin),
            ("n", taken), ("k", str(span.about.get("kernel", ""))), ("", _value(sizes)),
        ]  # fmt: skip
        made = "".join(f'<td class="{kind}">{escape_lines(text)}</td>' for kind, text in cells)
        yield f"<tr>{made}</tr>"

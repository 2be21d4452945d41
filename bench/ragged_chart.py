"""The picture of docs/guides/ragged.md: padded and ragged calls over the spread of lengths.

    python -m bench.ragged_chart            # two minutes; draws docs/images/ragged-*.svg
    python -m bench.ragged_chart --redraw   # draws the figures in docs/images/ragged.json again

MiniLM, 32 rows of 768 tokens in all, one thread. The lengths of rows are lognormal: at a spread of
0 all are 24 tokens, at 0.7 they are like sentences, at 1.2 like texts of any kind. Ways take turns
in one process. A point is the fastest call of a way, by processor time, divided by that of anydim's
padded call for rows of one length. Padding is part of the time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy

from bench.chart import BASE, FONT, HIGH, IMAGES, THEMES, WIDE, Theme, fastest_calls, processor
from bench.isolated import pinned
from bench.ragged import Engines, Rows

SPREADS = (0.0, 0.2, 0.4, 0.7, 1.0, 1.2)
ROWS, TOKENS, LONGEST = 32, 768, 512
WAYS = {"ragged": "anydim", "padded": "openvino", "onnxruntime padded": BASE}  # and the colour
LABELS = {"ragged": "ragged", "padded": "padded", "onnxruntime padded": "onnxruntime,"}
LEFT, RIGHT, TOP, BOTTOM = 48, 116, 64, 66


@click.command(help=__doc__)
@click.option("--redraw", is_flag=True, help="Measure nothing.")
@click.option("--rounds", default=3, show_default=True, help="Turns at each spread.")
@click.option("--out", default=IMAGES, type=click.Path(path_type=Path), help="The folder.")
def main(redraw: bool, rounds: int, out: Path) -> None:
    source = out / "ragged.json"
    if not redraw:
        source.write_text(json.dumps(measured(rounds), indent=1) + "\n", "utf-8")
    report = json.loads(source.read_text("utf-8"))
    for name, theme in THEMES.items():
        (out / f"ragged-{name}.svg").write_text(svg(report, theme), "utf-8")


def rows_of(spread: float) -> Rows:
    """Rows of lognormal lengths with `TOKENS` tokens in all; always the same ones."""
    places = (numpy.arange(ROWS) + 0.5) / ROWS
    normal = numpy.sort(numpy.random.default_rng(0).normal(size=100_000))
    weights = numpy.exp(spread * numpy.quantile(normal, places))
    exact = weights * (TOKENS / weights.sum())
    lengths = numpy.maximum(1, numpy.diff(numpy.append(0, exact.cumsum().round().astype(int))))
    chance = numpy.random.default_rng(1)
    drawn = chance.permutation(lengths.clip(1, LONGEST))
    return [chance.integers(1000, 30_000, length) for length in drawn]


def measured(rounds: int) -> dict[str, Any]:
    """The milliseconds of each way at each spread, and the lengths."""
    pinned(1)
    engines, found = Engines(1), []
    for spread in SPREADS:
        rows = rows_of(spread)
        ways = engines.ways(rows)
        fastest = fastest_calls({name: ways[name] for name in WAYS}, 0.0, rounds)
        lengths = [len(row) for row in rows]
        found.append({
            "spread": spread, "longest": max(lengths), "tokens": sum(lengths),
            "ms": {name: round(1e3 * time, 2) for name, time in fastest.items()},
        })  # fmt: skip
        print(found[-1], flush=True)
    return {"processor": processor(), "rows": found}


def svg(report: Mapping[str, Any], theme: Theme) -> str:
    """One variant of the picture: spreads along the axis, times above 0."""
    rows = report["rows"]
    base = rows[0]["ms"]["padded"]
    ratios = [{name: row["ms"][name] / base for name in WAYS} for row in rows]
    top = int(max(max(each.values()) for each in ratios)) + 1

    def x(spread: float) -> float:
        return LEFT + 12 + spread / SPREADS[-1] * (WIDE - LEFT - RIGHT - 24)

    def y(ratio: float) -> float:
        return HIGH - BOTTOM - ratio / top * (HIGH - TOP - BOTTOM)

    most = {name: max(each[name] for each in ratios) for name in WAYS}
    said = (
        f"32 rows of 768 tokens: a ragged call takes at most {most['ragged']:.1f} times that of "
        f"rows of one length, a padded one up to {most['padded']:.1f} times"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" width="{WIDE}"'
        f' height="{HIGH}" role="img" aria-label="{said}">',
        f"<style>text{{font:13px {FONT};fill:{theme.faint}}}"
        f".title{{font-size:15px;font-weight:600;fill:{theme.text}}}</style>",
        '<text class="title" x="16" y="24">Processor time of a call, rows of one length = 1'
        " (lower is better)</text>",
        f'<text x="16" y="44">MiniLM-L6, float32, 32 rows of 768 tokens in all, one thread,'
        f" {report['processor']}.</text>",
    ]
    for step in range(0, top + 1, 2 if top > 8 else 1):
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y(step):.1f}" y2="{y(step):.1f}"'
            f' stroke="{theme.grid}"/><text x="{LEFT - 8}" y="{y(step) + 4:.1f}"'
            f' text-anchor="end">{step}</text>'
        )
    for row in rows:
        parts.append(
            f'<text x="{x(row["spread"]):.1f}" y="{HIGH - BOTTOM + 20}" text-anchor="middle">'
            f"{row['longest']}</text>"
        )
    middle = (LEFT + WIDE - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HIGH - BOTTOM + 42}" text-anchor="middle">tokens of the longest'
        " row (on average 24)</text>"
    )
    for name, colour in reversed(WAYS.items()):
        own, bold = theme.lines[colour], name == "ragged"
        points = [(x(row["spread"]), y(each[name])) for row, each in zip(rows, ratios)]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        dots = "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{3 + bold / 2}"/>' for a, b in points)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{own}" stroke-width="{2 + bold}"/>'
            f'<g fill="{own}">{dots}</g>'
        )
        at, style = points[-1][1], f'style="fill:{own};font-weight:600"'
        edge = WIDE - RIGHT + 4
        parts.append(f'<text x="{edge}" y="{at + 4:.1f}" {style}>{LABELS[name]}</text>')
        if name == "onnxruntime padded":
            parts.append(f'<text x="{edge}" y="{at + 20:.1f}" {style}>padded</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    main()

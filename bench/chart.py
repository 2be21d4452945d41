"""The chart of the README: MiniLM, batch 1, over lengths, beside onnxruntime and OpenVINO.

    python -m bench.chart            # measures for five minutes; draws docs/images/minilm-*.svg
    python -m bench.chart --redraw   # draws the figures in docs/images/minilm.json again

Each engine loads the same file once. At each length the engines take turns in one process. Times
are processor times, because other work may share the machine. Such work only ever adds time, so a
point is the engine's fastest call divided by onnxruntime's fastest call.
"""

from __future__ import annotations

import json
import math
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import click

from anydim.cli.report.measure import quiet_collector
from bench.engines import ENGINES
from bench.isolated import ROOT, pinned
from bench.workloads import draw
from examples.minilm.model import model_path

BASE, ROUNDS = "onnxruntime", 30
LENGTHS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
LABELS = {"anydim": "anydim", "openvino": "OpenVINO", BASE: "onnxruntime"}
IMAGES = ROOT / "docs" / "images"


@dataclass(frozen=True)
class Theme:
    """Colours of one variant. The background stays transparent."""

    text: str
    faint: str
    grid: str
    lines: Mapping[str, str]


THEMES = {
    "light": Theme(
        text="#1f2328", faint="#59636e", grid="#d1d9e0",
        lines={"anydim": "#0969da", "openvino": "#bc4c00", BASE: "#59636e"},
    ),
    "dark": Theme(
        text="#e6edf3", faint="#9198a1", grid="#3d444d",
        lines={"anydim": "#4493f8", "openvino": "#f0883e", BASE: "#9198a1"},
    ),
}  # fmt: skip


@click.command(help=__doc__)
@click.option("--redraw", is_flag=True, help="Measure nothing.")
@click.option("--seconds", default=8.0, show_default=True, help="For a length.")
@click.option("--out", default=IMAGES, type=click.Path(path_type=Path), help="The folder.")
def main(redraw: bool, seconds: float, out: Path) -> None:
    source = out / "minilm.json"
    if not redraw:
        out.mkdir(parents=True, exist_ok=True)
        source.write_text(json.dumps(measured(seconds), indent=1) + "\n", "utf-8")
    report = json.loads(source.read_text("utf-8"))
    for name, theme in THEMES.items():
        (out / f"minilm-{name}.svg").write_text(svg(report, theme), "utf-8")


def measured(seconds: float) -> dict[str, Any]:
    """Versions, and the milliseconds and ratios of each engine at each length."""
    pinned(1)
    path = Path(model_path())
    if not ENGINES[BASE].installed:
        raise ModuleNotFoundError(f"there is no {BASE}", name=BASE)
    calls = {name: ENGINES[name].load(path, 1) for name in LABELS if ENGINES[name].installed}
    rows = []
    for length in LENGTHS:
        feeds = draw(1, length)
        bound = {name: partial(call, feeds) for name, call in calls.items()}
        fastest = fastest_calls(bound, seconds)
        milliseconds = {name: round(1e3 * time, 3) for name, time in fastest.items()}
        ratios = {name: round(time / fastest[BASE], 3) for name, time in fastest.items()}
        rows.append({"length": length, "ms": milliseconds, "ratio": ratios})
        print(length, ratios, flush=True)
    versions = {name: _version(ENGINES[name].module) for name in calls if name != "anydim"}
    return {"processor": processor(), "versions": versions, "rows": rows}


def fastest_calls(
    calls: Mapping[str, Callable[[], Any]], seconds: float, rounds: int = ROUNDS
) -> dict[str, float]:
    """Processor time of the fastest call of each, in turns and about `seconds` in all."""
    share = seconds / (rounds * len(calls))
    fastest = dict.fromkeys(calls, math.inf)
    with quiet_collector():
        for _ in range(rounds):
            for name, call in calls.items():
                call()  # brings its own weights into the caches
                until = perf_counter() + share
                while True:
                    start = process_time()
                    call()
                    fastest[name] = min(fastest[name], process_time() - start)
                    if perf_counter() >= until:
                        break
    return fastest


def _version(module: str) -> str:
    found = re.match(r"[\d.]*\d", __import__(module).__version__)
    return found[0] if found else ""


def processor() -> str:
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*:\s*(.*)", info.read_text("utf-8")) if info.exists() else []
    return str(names[0]) if names else platform.machine()


WIDE, HIGH, LEFT, RIGHT, TOP, BOTTOM = 660, 360, 48, 106, 64, 48
FONT = "-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
TICKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def svg(report: Mapping[str, Any], theme: Theme) -> str:
    """One variant of the chart: lengths along a logarithmic axis, ratios above 0."""
    rows = report["rows"]
    top = max(1.2, math.ceil(5 * max(max(row["ratio"].values()) for row in rows)) / 5)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" width="{WIDE}"'
        f' height="{HIGH}" role="img" aria-label="{_said(rows)}">',
        f"<style>text{{font:13px {FONT};fill:{theme.faint}}}"
        f".title{{font-size:15px;font-weight:600;fill:{theme.text}}}</style>",
        '<text class="title" x="16" y="24">Processor time of one call, onnxruntime = 1'
        " (lower is better)</text>",
        f'<text x="16" y="44">MiniLM-L6, float32, batch 1, one thread, {report["processor"]}'
        f"; one compiled program for all lengths</text>",
    ]
    for step in range(round(top * 5) + 1):
        y = _y(step / 5, top)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"'
            f' stroke="{theme.grid}"/><text x="{LEFT - 8}" y="{y + 4:.1f}"'
            f' text-anchor="end">{step / 5:.1f}</text>'
        )
    for length in TICKS:
        parts.append(
            f'<text x="{_x(length):.1f}" y="{HIGH - BOTTOM + 20}"'
            f' text-anchor="middle">{length}</text>'
        )
    middle = (LEFT + WIDE - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HIGH - 8}" text-anchor="middle">tokens</text>')
    shown = _shown(rows)
    parts += [
        _line(rows, name, theme, top) for name in (BASE, "openvino", "anydim") if name in shown
    ]
    parts += _labels(rows, theme, top)
    return "\n".join([*parts, "</svg>", ""])


def _shown(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The engines that were installed."""
    return [name for name in LABELS if name in rows[0]["ratio"]]


def _x(length: int) -> float:
    share = math.log2(length) / math.log2(LENGTHS[-1])
    return LEFT + 12 + share * (WIDE - LEFT - RIGHT - 24)


def _y(ratio: float, top: float) -> float:
    return HIGH - BOTTOM - ratio / top * (HIGH - TOP - BOTTOM)


def _line(rows: Sequence[Mapping[str, Any]], name: str, theme: Theme, top: float) -> str:
    points = [(_x(row["length"]), _y(row["ratio"][name], top)) for row in rows]
    colour, bold = theme.lines[name], name == "anydim"
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    drawn = f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{2 + bold}"/>'
    if name == BASE:
        return drawn
    dots = (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{3 + bold / 2}"/>' for x, y in points)
    return f'{drawn}<g fill="{colour}">{"".join(dots)}</g>'


def _labels(rows: Sequence[Mapping[str, Any]], theme: Theme, top: float) -> list[str]:
    """Names at the ends of the lines, pushed apart where two lines end at one height."""
    ends = sorted((_y(rows[-1]["ratio"][name], top), name) for name in _shown(rows))
    placed: list[tuple[float, str]] = []
    for y, name in ends:
        placed.append((max(y, placed[-1][0] + 17) if placed else y, name))
    return [
        f'<text x="{WIDE - RIGHT + 4}" y="{y + 4:.1f}"'
        f' style="fill:{theme.lines[name]};font-weight:600">{LABELS[name]}</text>'
        for y, name in placed
    ]


def _said(rows: Sequence[Mapping[str, Any]]) -> str:
    """The chart in one sentence, for readers who cannot see it."""
    spans = []
    for name in _shown(rows):
        if name == BASE:
            continue
        ratios = [row["ratio"][name] for row in rows]
        spans.append(f"{LABELS[name]} takes {min(ratios):.2f} to {max(ratios):.2f}")
    return f"MiniLM at 1 to 512 tokens: {', '.join(spans)} of the time of onnxruntime"


if __name__ == "__main__":
    main()

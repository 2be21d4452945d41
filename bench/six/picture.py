"""Bars of the warm streams, one group a workload, for one second of onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

COLOURS = {"anydim": "#2c7fb8", "onnxruntime": "#bbbbbb", "openvino": "#e39b4e"}
LEFT, WIDE, BAR, GAP, TOP = 170, 560, 16, 14, 56
STYLE = "text{font:13px 'DejaVu Sans',Arial,sans-serif;fill:#222}"


def svg(rows: Sequence[Mapping[str, Any]], names: Sequence[str], threads: int) -> str:
    """The picture; bars beyond twice onnxruntime's time are cut and say their figure."""
    step = BAR * len(names) + GAP
    height, unit = TOP + step * len(rows) + 10, WIDE / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDE + 80} {height}">',
        f"<style>{STYLE}</style>", f'<rect width="100%" height="{height}" fill="#fff"/>',
        f'<text x="12" y="22">Warm streams on {threads} thread{"s" * (threads > 1)}: seconds for'
        " one of onnxruntime, less is better</text>",
        *_legend(names),
    ]  # fmt: skip
    for number, row in enumerate(rows):
        top = TOP + number * step
        parts.append(f'<text x="12" y="{top + step / 2 + 1:.0f}">{escape(row["workload"])}</text>')
        for place, name in enumerate(names):
            ratio, y = row["ratio"].get(name), top + place * BAR
            if ratio is None:
                parts.append(f'<text x="{LEFT + 4}" y="{y + 12}">{name}: fails</text>')
                continue
            wide = unit * min(ratio, 2.0)
            parts.append(
                f'<rect x="{LEFT}" y="{y}" width="{wide:.1f}" height="{BAR - 2}"'
                f' fill="{COLOURS[name]}"/><text x="{LEFT + wide + 5:.1f}" y="{y + 12}">'
                f"{ratio:.2f}</text>"
            )
    x = LEFT + unit
    parts.append(f'<line x1="{x}" x2="{x}" y1="{TOP - 4}" y2="{height - 8}" stroke="#555"/>')
    return "\n".join([*parts, "</svg>", ""])


def _legend(names: Sequence[str]) -> list[str]:
    return [
        f'<rect x="{LEFT + 130 * n}" y="32" width="12" height="12" fill="{COLOURS[name]}"/>'
        f'<text x="{LEFT + 130 * n + 17}" y="43">{name}</text>'
        for n, name in enumerate(names)
    ]

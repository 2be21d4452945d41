"""A page of heat maps: families down, sizes across, colour by ratio. It needs no other file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from bench.cliffs.running import Found
from bench.cliffs.summary import AIM, JUMP, even, jumps, mean, share

STYLE = """
body{font:14px 'DejaVu Sans',Arial,sans-serif;margin:2em auto;max-width:1500px;color:#222}
h2{margin:1.6em 0 .3em}p{margin:.3em 0;color:#555}
table{border-collapse:separate;border-spacing:1px;font-size:12px}
td{padding:2px 6px;text-align:right;min-width:2.6em}
th{padding:2px 6px;font-weight:normal;text-align:left;color:#333}
thead th{vertical-align:bottom;max-width:5em;text-align:right;color:#777;font-size:10px}
"""
WORST = 50


def page(found: Sequence[Found], title: str) -> str:
    """The whole page as text."""
    worst = sorted(found, key=lambda one: -one.ratio)[:WORST]
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", "</head>", "<body>",
        f"<h1>{escape(title)}</h1>", f"<p>{_said(found)}</p>",
        "<p>A cell is the time of a call for one of the peer's: green is faster, red slower."
        " Hold the pointer over it for both times and the share of the machine's limit.</p>",
        *_maps(found),
        f"<h2>The worst {WORST}</h2>", *_list(worst),
        "<h2>Jumps between neighbouring sizes</h2>", *_jumps(found),
        "</body>", "</html>", "",
    ])  # fmt: skip


def colour(ratio: float) -> str:
    """Green at half the time, white at one, red at four times and more."""
    depth = max(-1.0, min(1.0, math.log2(ratio) / (2 if ratio > 1 else 1)))
    pale, full = round(255 - 150 * abs(depth)), round(255 - 17 * abs(depth))
    return f"#ff{pale:02x}{pale:02x}" if depth > 0 else f"#{pale:02x}{full:02x}{pale:02x}"


def _said(found: Sequence[Found]) -> str:
    parts = []
    for threads in sorted({one.threads for one in found}):
        part = [one for one in found if one.threads == threads]
        parts.append(
            f"{threads} thread{'s' * (threads > 1)}: {len(part)} cases, geometric mean "
            f"{mean(part):.2f}, {share(part):.0%} at most {AIM}, worst "
            f"{max(one.ratio for one in part):.1f}; of {len(jumps(part))} neighbours "
            f"{even(jumps(part)):.0%} with jumps of at most {JUMP}."
        )
    return " ".join(parts)


def _maps(found: Sequence[Found]) -> Iterator[str]:
    """Families that are measured at the same sizes share a table."""
    for (area, threads), group in groupby(found, lambda one: (one.area, one.threads)):
        part = list(group)
        yield f"<h2>{escape(area)}, {threads} thread{'s' * (threads > 1)}: {mean(part):.2f}</h2>"
        rows: dict[tuple[str, ...], list[list[Found]]] = {}
        for _, family in groupby(part, lambda one: one.family):
            row = list(family)
            rows.setdefault(tuple(one.label for one in row), []).append(row)
        for labels, families in rows.items():
            heads = "".join(f"<th>{escape(label)}</th>" for label in labels)
            yield f"<table><thead><tr><th></th>{heads}</tr></thead>"
            for row in families:
                cells = "".join(_cell(one) for one in row)
                yield f"<tr><th>{escape(row[0].family)}</th>{cells}</tr>"
            yield "</table>"


def _cell(one: Found) -> str:
    said = f"{one.ours:.1f} us, {one.peer} {one.theirs:.1f} us, {one.share:.0%} of the limit"
    return f'<td style="background:{colour(one.ratio)}" title="{escape(said)}">{one.ratio:.2f}</td>'


def _list(found: Sequence[Found]) -> Iterator[str]:
    yield "<table>"
    for one in found:
        yield (
            f"<tr><th>{escape(one.family)}</th><th>{escape(one.label)}</th><td>{one.threads}</td>"
            f"<td>{one.ours:.1f} us</td><td>{one.theirs:.1f} us</td>{_cell(one)}</tr>"
        )
    yield "</table>"


def _jumps(found: Sequence[Found]) -> Iterator[str]:
    yield "<table><thead><tr><th></th><th>size</th><th>beside</th><th>jump</th><th>peer's</th>"
    yield "</tr></thead>"
    for jump in jumps(found)[:WORST]:
        yield (
            f"<tr><th>{escape(jump.slow.family)}</th><th>{escape(jump.slow.label)}</th>"
            f"<th>{escape(jump.fast.label)}</th><td>{jump.ratio:.1f}</td>"
            f"<td>{jump.peer:.1f}</td></tr>"
        )
    yield "</table>"

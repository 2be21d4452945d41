"""Samples as a picture, SVG without scripts: a panel for each measure, time to the right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anydim.cli.report.plot import escape_lines
from tests.soak.samples import WARM, Sample

PANELS = (
    ("anonymous", "anonymous memory, MiB", 2**20), ("resident", "resident set, MiB", 2**20),
    ("in_use", "given out by malloc, MiB", 2**20), ("mappings", "mappings", 1),
    ("handles", "file handles", 1),
    ("threads", "threads", 1),
)  # fmt: skip
_WIDTH, _HIGH, _LEFT, _TOP, _GAP = 960, 110, 90, 60, 36
_STYLE = (
    "text{font:12px 'DejaVu Sans',Arial,sans-serif;fill:#222}"
    ".title{font-size:15px;font-weight:bold}.line{fill:none;stroke:#1f5f99;stroke-width:1.3}"
    ".frame{fill:none;stroke:#999}.warm{fill:#f3ead9}"
)


def svg(samples: Sequence[Sample], title: str) -> str:
    """The picture; each panel begins at 0, so a line that looks flat is."""
    high = _TOP + len(PANELS) * (_HIGH + _GAP) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {high}" '
        f'width="{_WIDTH}" height="{high}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{high}" fill="#fff"/>',
        f'<text class="title" x="{_LEFT}" y="26">{escape_lines(title)}</text>',
        f'<text x="{_LEFT}" y="44">minutes to the right; shaded: the warm-up</text>',
    ]
    for number, panel in enumerate(PANELS):
        parts += _panel(samples, *panel, _TOP + number * (_HIGH + _GAP))
    return "\n".join([*parts, "</svg>"])


def _panel(
    samples: Sequence[Sample], name: str, label: str, unit: int, top: float
) -> Iterator[str]:
    values = [getattr(sample, name) / unit for sample in samples]
    end, most, wide = max(samples[-1].seconds, 1e-9), max(*values, 1e-9), _WIDTH - _LEFT - 20
    bottom = top + 16 + _HIGH - 16

    def place(sample: Sample, value: float) -> str:
        return (
            f"{_LEFT + wide * sample.seconds / end:.1f},{bottom - (_HIGH - 16) * value / most:.1f}"
        )

    yield f'<text x="{_LEFT}" y="{top + 10}">{escape_lines(label)}</text>'
    shape = f'x="{_LEFT}" y="{top + 16}" height="{_HIGH - 16}"'
    yield f'<rect class="warm" {shape} width="{wide * WARM:.1f}"/>'
    yield f'<rect class="frame" {shape} width="{wide}"/>'
    for value, y in ((most, top + 26), (0, bottom)):
        yield f'<text x="{_LEFT - 6}" y="{y}" text-anchor="end">{value:,.4g}</text>'
    points = " ".join(map(place, samples, values))
    yield f'<polyline class="line" points="{points}"/>'
    for share in (0, 0.25, 0.5, 0.75, 1):
        x = _LEFT + wide * share
        told = f"{end * share / 60:.0f}"
        yield f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{told}</text>'

"""A picture of latencies: each request over its length, and the percentiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10

from anydim.serving.server.arrivals import SentRequest

_WIDE, _TALL, _EDGE = 440, 300, 74
_STYLE = (
    "svg{font:12px system-ui,sans-serif;background:#fff}text{fill:#555}.l{stroke:#ddd}"
    "circle{fill:#3b5bdb;fill-opacity:.45}polyline{fill:none;stroke:#e8590c;stroke-width:2}"
    ".h{font-weight:600;fill:#1d2330}"
)
_MARKS = (0.5, 0.9, 0.99, 0.999)


def chart(sent: Sequence[SentRequest], title: str) -> str:
    """An SVG text with two drawings: milliseconds over length, and over percentiles."""
    wide = 2 * (_WIDE + _EDGE) + 40
    seconds = [max(each.latency, 1e-5) for each in sent]
    low, high = floor(log10(min(seconds))), ceil(log10(max(seconds)))
    high = max(high, low + 1)
    body = [*_points(sent, low, high), *_percentiles(sorted(seconds), low, high)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {_TALL + 84}" width="{wide}">'
        f'<style>{_STYLE}</style><text class="h" x="12" y="22">{title}</text>'
        + "".join(body) + "</svg>\n"
    )  # fmt: skip


def _y(seconds: float, low: int, high: int) -> float:
    return 44 + _TALL * (1 - (log10(seconds) - low) / (high - low))


def _frame(left: float, low: int, high: int, under: str) -> Iterator[str]:
    for power in range(low, high + 1):
        y = _y(10.0**power, low, high)
        yield f'<line class="l" x1="{left}" x2="{left + _WIDE}" y1="{y:.1f}" y2="{y:.1f}"/>'
        label = f"{10.0 ** (power + 3):g} ms"
        yield f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    yield f'<text x="{left + _WIDE / 2}" y="{_TALL + 80}" text-anchor="middle">{under}</text>'


def _points(sent: Sequence[SentRequest], low: int, high: int) -> Iterator[str]:
    yield from _frame(_EDGE, low, high, "length of a request")
    last = max(1.0, log10(max(each.length for each in sent) or 1))
    for power in range(ceil(last) + 1):
        if power <= last:
            x = _EDGE + _WIDE * power / last
            yield f'<text x="{x:.1f}" y="{_TALL + 60}" text-anchor="middle">{10**power}</text>'
    for each in sent:
        x = _EDGE + _WIDE * log10(max(each.length, 1)) / last
        y = _y(max(each.latency, 1e-5), low, high)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2"/>'


def _percentiles(ordered: Sequence[float], low: int, high: int) -> Iterator[str]:
    left, count = 2 * _EDGE + _WIDE, len(ordered)
    yield from _frame(left, low, high, "share of requests that are as fast")
    most = max(3.0, log10(count)) if count > 1 else 3.0

    def x(share: float) -> float:
        return left + _WIDE * min(most, -log10(max(1 - share, 10**-most))) / most

    for share in _MARKS:
        label = f"{100 * share:g} %"
        yield f'<text x="{x(share):.1f}" y="{_TALL + 60}" text-anchor="middle">{label}</text>'
    points = (
        f"{x(number / count):.1f},{_y(value, low, high):.1f}"
        for number, value in enumerate(ordered)
    )
    yield f'<polyline points="{" ".join(points)}"/>'

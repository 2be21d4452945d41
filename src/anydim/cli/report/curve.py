"""A curve in a terminal: columns of blocks, eight heights to a character."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT = 60, 8  # characters
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def curve(points: Sequence[tuple[float, float]], label: str = "{:.1%}", unit: str = "s") -> str:
    """Steps of a value over time, from the first point on; '' where there is nothing to see.

    Values are 0 or more, `label` prints the greatest; below stand the times of both ends.
    """
    last, most = points[-1][0] if points else 0.0, max((value for _, value in points), default=0.0)
    if last <= 0 or most <= 0:
        return ""
    heights = [_at(points, last * (column + 1) / WIDTH) / most for column in range(WIDTH)]
    top, bottom = label.format(most), label.format(0)
    left = max(len(top), len(bottom))
    lines = []
    for row in range(HEIGHT - 1, -1, -1):
        name = top if row == HEIGHT - 1 else bottom if row == 0 else ""
        cells = (min(8, max(0, round(8 * (height * HEIGHT - row)))) for height in heights)
        lines.append(f"{name:>{left}} {''.join(_EIGHTHS[cell] for cell in cells)}".rstrip())
    end = f"{last:.0f} {unit}"
    return "\n".join([*lines, f"{'':{left}} 0{end:>{WIDTH - 1}}"])


def _at(points: Sequence[tuple[float, float]], time: float) -> float:
    """The value of the last point that is not later."""
    return next((value for at, value in reversed(points) if at <= time), 0.0)

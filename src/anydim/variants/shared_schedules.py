"""What one search for a body tells those for other sizes: schedules to try there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_MOST_ALIKE = 4  # schedules of other recipes that are tried

Row = tuple[str, float | None]  # a schedule, and its share of the generic time


def shared(
    tried: Mapping[int, Sequence[Row]], generic: Mapping[int, str], most: float
) -> dict[int, tuple[str, ...]]:
    """Schedules for other sizes of each recipe: those that were tried, the best first.

    What is not the best at some sizes may be at others. Before them comes what takes `most` of the
    time for other recipes whose `generic` schedule is of the same kind: its code is made already.
    """
    right = {
        number: sorted((ratio, text) for text, ratio in rows if ratio is not None)
        for number, rows in tried.items()
    }
    paid = sorted(row for rows in right.values() for row in rows if row[0] <= most)
    found = dict[int, tuple[str, ...]]()
    for number, rows in right.items():
        alike = [text for _, text in paid if _kind(text) == _kind(generic[number])]
        own = [text for _, text in rows]
        found[number] = tuple(dict.fromkeys([*alike[:_MOST_ALIKE], *own]))
    return found


def _kind(schedule: str) -> str:
    return schedule.partition("(")[0]

"""Schedules shared between searches: results at some sizes to try at others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_MAX_SIMILAR = 4  # schedules of other recipes to try

Row = tuple[str, float | None]  # a schedule, and its ratio to the generic time


def share_schedules(
    tried: Mapping[int, Sequence[Row]], generic: Mapping[int, str], most: float
) -> dict[int, tuple[str, ...]]:
    """Schedules to try at other sizes of each recipe: those tried, best first.

    A schedule that is not the best at some sizes may be at others. First come schedules with a
    ratio of at most `most` for other recipes with a `generic` schedule of the same kind: their code
    is compiled already.
    """
    right = {
        number: sorted((ratio, text) for text, ratio in rows if ratio is not None)
        for number, rows in tried.items()
    }
    paid = sorted(row for rows in right.values() for row in rows if row[0] <= most)
    found = dict[int, tuple[str, ...]]()
    for number, rows in right.items():
        similar = [text for _, text in paid if _kind(text) == _kind(generic[number])]
        own = [text for _, text in rows]
        found[number] = tuple(dict.fromkeys([*similar[:_MAX_SIMILAR], *own]))
    return found


def _kind(schedule: str) -> str:
    return schedule.partition("(")[0]

"""The search for a schedule: one option after another, each from the best that was found so far."""

from __future__ import annotations

import time
from collections.abc import Iterator

from anydim.targets.target import Target
from anydim.variants.candidates import (
    Sized,
    fitting,
    generic_candidate,
    neighbours,
    options_of,
)
from anydim.variants.trial import Trials, Tried


def search(site: Sized, target: Target, seconds: float) -> Iterator[Tried]:
    """Schedules of a site at its sizes, as they are tried; ends after so many seconds.

    First the generic one with sizes known and what templates would take, then the neighbours of
    the best of them. Each is tried once.
    """
    trials, end = Trials(site, target), time.monotonic() + seconds
    if not trials.possible:
        return
    best = trials.run(generic_candidate(site))
    yield best
    taken, templates = {best.candidate.schedule}, target.templates
    options: list[str] | None = None
    rest = fitting(site, templates)
    while time.monotonic() < end:
        candidate = next(rest, None)
        if candidate is None:
            options = options_of(best.candidate.schedule) if options is None else options[1:]
            if not options:
                return
            rest = neighbours(site, templates, best.candidate.schedule, options[0])
        elif candidate.schedule not in taken:
            taken.add(candidate.schedule)
            tried = trials.run(candidate)
            best = faster(best, tried)
            yield tried


def faster(one: Tried, other: Tried) -> Tried:
    """The one that took less time; one that gave other bits took too long."""
    if other.ratio is None:
        return one
    return other if one.ratio is None or other.ratio < one.ratio else one

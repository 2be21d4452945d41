"""The search for a schedule: one option after another, each from the best that was found so far."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import reduce

from anydim.kernels.template import Template
from anydim.targets.target import Target
from anydim.variants.candidates import (
    Sized,
    fitting,
    generic_candidate,
    neighbours,
    options_of,
)
from anydim.variants.trial import Trials, Tried

SURE = 31  # rounds: the least of many times is often luck, so it is measured again


def search(site: Sized, target: Target, seconds: float, threads: int = 1) -> list[Tried]:
    """Schedules of a site at its sizes that were tried, the best one last; for so many seconds."""
    trials = Trials(site, target, threads=threads)
    if not trials.possible:
        return []
    tried = list(_search(site, trials, target.templates, time.monotonic() + seconds))
    best = reduce(faster, tried)
    if best.ratio is None:
        return tried
    return [*(each for each in tried if each is not best), trials.run(best.candidate, SURE)]


def _search(
    site: Sized, trials: Trials, templates: Sequence[Template], end: float
) -> Iterator[Tried]:
    """First the generic schedule with sizes known and what templates would take, then neighbours.

    Those are of the best one so far, one option after another. Each schedule is tried once.
    """
    best = trials.run(generic_candidate(site))
    yield best
    taken = {best.candidate.schedule}
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

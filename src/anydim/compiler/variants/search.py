"""Coordinate search for a schedule: one option after another, from the best so far."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import chain
from typing import Protocol, TypeVar

from anydim.compiler.kernels.template import Template
from anydim.compiler.targets.target import Target
from anydim.compiler.variants.candidates import (
    Candidate,
    SizedSite,
    by_text,
    fitting,
    generic_candidate,
    neighbours,
    options_of,
)
from anydim.compiler.variants.trial import Trials, Tried


class _HasRatio(Protocol):
    @property
    def ratio(self) -> float | None: ...


Timed = TypeVar("Timed", bound=_HasRatio)
SURE = 31  # rounds: the minimum of many times is biased, so the winner is measured again


def search(
    site: SizedSite, target: Target, seconds: float, threads: int = 1, near: bool = False,
    found: Sequence[str] = (),
) -> list[Tried]:  # fmt: skip
    """Try schedules of a site at its sizes for `seconds`; the best one is last.

    `near`: results need not be equal in bits. With schedules `found` by a search at other sizes
    of the recipe, these are tried instead of neighbours.
    """
    trials = Trials(site, target, threads=threads, near=near)
    if not trials.possible:
        return []
    end = time.monotonic() + seconds
    tried = list(_search(site, trials, target.templates, end, found))
    best = reduce(faster, tried) if tried else None
    if best is None or best.ratio is None:
        return tried
    return [*(each for each in tried if each is not best), trials.run(best.candidate, SURE)]


def _search(
    site: SizedSite, trials: Trials, templates: Sequence[Template], end: float, found: Sequence[str]
) -> Iterator[Tried]:
    """The generic schedule with constant sizes, templates' choices, then neighbours of the best.

    Neighbours change one option after another; schedules `found` elsewhere replace them. Each
    schedule is tried once.
    """
    best: Tried | None = None
    taken = {site.generic.schedule}
    options: list[str] | None = [""] if found else None
    first = filter(None, [generic_candidate(site, templates)])
    known = filter(None, (by_text(site, templates, text) for text in found))
    rest: Iterator[Candidate] = chain(first, fitting(site, templates), known)
    while best is None or time.monotonic() < end:
        candidate = next(rest, None)
        if candidate is None:
            schedule = site.generic.schedule if best is None else best.candidate.schedule
            options = options_of(schedule, templates) if options is None else options[1:]
            if not options or time.monotonic() > end:
                return
            rest = neighbours(site, templates, schedule, options[0])
        elif best is None or candidate.schedule not in taken:
            taken.add(candidate.schedule)
            tried = trials.run(candidate)
            best = tried if best is None else faster(best, tried)
            yield tried


def faster(one: Timed, other: Timed) -> Timed:
    """The faster one; a candidate with different bits, which has no ratio, loses."""
    if other.ratio is None:
        return one
    return other if one.ratio is None or other.ratio < one.ratio else one

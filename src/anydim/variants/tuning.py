"""Bodies for the sizes that a model really gets, the costliest launches first, within some time.

Recorded sizes give each launch its weight: the seconds of their calls, shared out by the work that
plans count. What is found is kept in the ledger, for every later process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait

from anydim.base.records import dataclass
from anydim.program.recording import Recorded
from anydim.program.segment import Site
from anydim.runtime.choices import Sizes
from anydim.variants.serving import Serving
from anydim.variants.workers import Reply

FLOPS_A_BYTE = 8  # what a core computes while it moves a byte, to compare launches with each other
Tell = Callable[[int, int, float], None]  # launches done, of how many, the share of time saved


@dataclass(frozen=True)
class Wanted:
    """Sizes of a place, and the seconds that its launches at these sizes are taken to cost."""

    number: int
    sizes: Sizes
    seconds: float


@dataclass(frozen=True)
class Tuned:
    """What came of a search: of `seconds` of recorded calls, `saved` are not spent any more.

    `tried` sizes of launches were searched for, `found` have a faster body; `left` were not tried.
    """

    seconds: float
    saved: float
    tried: int
    found: int
    left: int

    def __str__(self) -> str:
        share = 100 * self.saved / self.seconds if self.seconds else 0.0
        left = f", {self.left} not reached" if self.left else ""
        return (
            f"{self.found} of {self.tried} launches have a faster body{left}: "
            f"{share:.1f} % of recorded time saved, by what trials measured"
        )


def wanted(serving: Serving, recorded: Sequence[Recorded]) -> list[Wanted]:
    """Launches at recorded sizes, as far as these tell theirs; the costliest first."""
    costs: dict[tuple[int, Sizes], float] = {}
    for row in recorded:
        launches = [
            (number, site, serving.key(site, row.dims))
            for number, place in enumerate(serving.places)
            for site in place.sites
        ]
        work = [_work(site, row) for _, site, sizes in launches if sizes is not None]
        total = sum(work) or 1.0
        told = ((number, sizes) for number, _, sizes in launches if sizes is not None)
        for key, share in zip(told, work):
            costs[key] = costs.get(key, 0.0) + row.seconds * share / total
    rows = [Wanted(number, sizes, cost) for (number, sizes), cost in costs.items()]
    return sorted(rows, key=lambda each: -each.seconds)


def tune(serving: Serving, rows: Sequence[Wanted], seconds: float, tell: Tell) -> Tuned:
    """Search for bodies of launches in this order, until the time is over."""
    end, total = time.monotonic() + seconds, sum(row.seconds for row in rows)
    running: dict[Future[Reply], Wanted] = {}
    tried = found = 0
    saved = 0.0
    waiting = list(rows)
    while waiting or running:
        while waiting and len(running) < serving.workers and time.monotonic() < end:
            row = waiting.pop(0)
            running[serving.ask(row.number, row.sizes)] = row
        if not running:
            break
        for done in wait(running, return_when=FIRST_COMPLETED).done:
            row, ratio = running.pop(done), done.result().ratio
            tried += 1
            if ratio is not None and ratio <= serving.most:
                found, saved = found + 1, saved + (1 - ratio) * row.seconds
            tell(tried, len(rows), saved / total if total else 0.0)
    return Tuned(total, saved, tried, found, len(waiting))


def _work(site: Site, row: Recorded) -> float:
    """What a launch costs beside others."""
    flops, moved = (max(0, size.evaluate(row.dims)) for size in (site.flops, site.moved))
    return 1.0 + moved + flops / FLOPS_A_BYTE

"""Tuning: search for schedules and variants at recorded sizes, within a time budget.

Recorded sizes weight each launch: the seconds of their calls are divided by the work that plans
count. First a general schedule is searched for each recipe, on a few representative sizes; then
variants for single sizes, most expensive first. Results are stored in the ledger, for all later
processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TypeVar

from anydim.base.records import dataclass
from anydim.compiler.variants.ledger import Verdict
from anydim.compiler.variants.serving import Serving
from anydim.compiler.variants.solved_dims import dims_that_give
from anydim.compiler.variants.workers import Reply
from anydim.runtime.program.recording import Recorded
from anydim.runtime.program.segment import Site
from anydim.runtime.program.site_recording import RecordedSite
from anydim.runtime.variant_tables import Sizes
from anydim.sizes import Box

FLOPS_A_BYTE = 8  # arithmetic intensity of a core, to compare launches
SAMPLES = 6  # representative sizes of a recipe
_MIN_SECONDS, _MAX_SECONDS = 3.0, 30.0  # seconds of a search for a general schedule
_ABOVE_RECORDED = 2  # guards: multiple of the largest recorded sizes
Key = TypeVar("Key")
Tell = Callable[[int, int, float], None]  # searches done, total, share of time saved


@dataclass(frozen=True)
class RecordedLaunch:
    """Sizes of a call site, with the estimated seconds of its launches at these sizes.

    `work` orders sizes by the work of a launch.
    """

    number: int
    sizes: Sizes
    seconds: float
    work: float = 0.0


@dataclass(frozen=True)
class Improvement:
    """A better general schedule of a kernel, with its time ratio to the previous one."""

    kernel: str
    source: str
    before: str
    schedule: str
    ratio: float

    def __str__(self) -> str:
        return f"{self.kernel} at all sizes: {self.schedule}, {self.ratio:.2f} of the previous time"


@dataclass(frozen=True)
class Tuned:
    """The result of a search: of `seconds` of recorded calls, the share `saved` is saved.

    `tried` counts searches of kernels and sizes, `found` those with faster code, `left` those not
    reached. `whole` are general schedules, which later compilations use. `curve` has pairs of
    search seconds and the share of time saved.
    """

    seconds: float
    saved: float
    tried: int
    found: int
    left: int
    whole: tuple[Improvement, ...] = ()
    curve: tuple[tuple[float, float], ...] = ()

    def __str__(self) -> str:
        share = 100 * self.saved / self.seconds if self.seconds else 0.0
        left = f", {self.left} not reached" if self.left else ""
        return (
            f"{self.found} of {self.tried} searches found faster code{left}: "
            f"{share:.1f} % of recorded time saved, as measured in trials"
        )

    def with_more(self, other: Tuned) -> Tuned:
        """Combine with the result of a second search that followed this one."""
        start, saved = (self.curve or ((0.0, 0.0),))[-1]
        rest = tuple((start + at, saved + (1 - saved) * share) for at, share in other.curve)
        return Tuned(
            self.seconds, self.saved + (1 - saved) * other.saved, self.tried + other.tried,
            self.found + other.found, self.left + other.left, self.whole + other.whole,
            self.curve + rest,
        )  # fmt: skip


def wanted_launches(
    serving: Serving, recorded: Sequence[Recorded], sites: Sequence[RecordedSite] = ()
) -> list[RecordedLaunch]:
    """Launches at recorded sizes, most expensive first.

    Launches whose sizes the inputs do not determine are taken from `sites`, weighted by work.
    """
    costs: dict[tuple[int, Sizes], float] = {}
    works: dict[tuple[int, Sizes], float] = {}
    whole = 0.0  # the work of all recorded calls
    for row in recorded:
        launches = determined_launches(serving, row.dims)
        total = sum(work for *_, work in launches) or 1.0
        whole += row.count * total
        for number, sizes, work in launches:
            key = number, sizes
            costs[key] = costs.get(key, 0.0) + row.seconds * work / total
            works[key] = work
    rate = sum(row.seconds for row in recorded) / (whole or 1.0)  # seconds per unit of work
    for number, sizes, work_of_site, count in _undetermined_sizes(serving, sites):
        if (number, sizes) not in costs:
            costs[number, sizes], works[number, sizes] = rate * count * work_of_site, work_of_site
    rows = [RecordedLaunch(*key, cost, works[key]) for key, cost in costs.items()]
    return sorted(rows, key=lambda each: -each.seconds)


def determined_launches(
    serving: Serving, dims: Mapping[str, int]
) -> list[tuple[int, Sizes, float]]:
    """The launches of a call whose sizes the dims determine: call site, sizes and work."""
    return [
        (number, sizes, work_of(site, dims))
        for number, call_site in enumerate(serving.call_sites)
        for site in call_site.sites
        if (sizes := serving.key(site, dims)) is not None
    ]


def _undetermined_sizes(
    serving: Serving, sites: Sequence[RecordedSite]
) -> Iterator[tuple[int, Sizes, float, int]]:
    """Recorded sizes of call sites: number, sizes, work and count."""
    for row in sites:
        for number, call_site in enumerate(serving.call_sites):
            sizes = (*call_site.site.sizes, call_site.site.parallel)
            if row.subject == call_site.recipe.subject and len(row.sizes) == len(sizes):
                dims = dims_that_give(sizes, row.sizes)
                if dims is not None:
                    known = dict.fromkeys(
                        call_site.site.flops.symbols | call_site.site.moved.symbols, 1
                    )
                    yield number, row.sizes, work_of(call_site.site, {**known, **dims}), row.count


class Clock:
    """Progress of a search: the share of time saved, over time, reported to `tell`."""

    def __init__(self, total: float, launches: int, tell: Tell) -> None:
        self._start, self._total, self._launches = time.monotonic(), total, launches
        self._tell = tell
        self.done, self.saved = 0, 0.0
        self.curve: list[tuple[float, float]] = [(0.0, 0.0)]

    def step(self, saved: float) -> None:
        """Count one more search and the seconds that it saved."""
        self.done, self.saved = self.done + 1, self.saved + saved
        share = self.saved / self._total if self._total else 0.0
        self.curve.append((time.monotonic() - self._start, share))
        self._tell(self.done, self._launches, share)


def tune_whole(
    serving: Serving, rows: Sequence[RecordedLaunch], recorded: Sequence[Recorded], seconds: float,
    tell: Tell,
) -> Tuned:  # fmt: skip
    """Search for a general schedule of each call site, most expensive first."""
    end, total = time.monotonic() + seconds, sum(row.seconds for row in rows)
    by_site: dict[int, list[RecordedLaunch]] = {}
    for row in rows:
        by_site.setdefault(row.number, []).append(row)
    order = sorted(by_site, key=lambda number: -_cost(by_site[number]))
    clock, found = Clock(total, len(order), tell), list[Improvement]()
    waiting, guard_rows = list(order), list(guard_sizes(serving, [row.dims for row in recorded]))

    def orders() -> Iterator[tuple[int, Future[Reply]]]:
        if waiting and time.monotonic() < end:
            left = (end - time.monotonic()) * serving.tuners / len(waiting)
            number = waiting.pop(0)
            budget = min(_MAX_SECONDS, max(_MIN_SECONDS, left), end - time.monotonic())
            guards = tuple(sizes for at, sizes in guard_rows if at == number)
            yield number, serving.search_general(number, samples(by_site[number]), guards, budget)

    for number, reply in answers(orders, serving.tuners):
        ratio, saved = reply.ratio, 0.0
        if ratio is not None and ratio <= serving.most:
            call_site, schedule = serving.call_sites[number], reply.tried[-1][0]
            serving.keep_general(number, Verdict(schedule, ratio))
            names = (call_site.site.kernel, call_site.site.source, call_site.recipe.schedule)
            found.append(Improvement(*names, schedule, ratio))
            saved = (1 - ratio) * _cost(by_site[number])
        clock.step(saved)
    rest = (len(found), len(waiting), tuple(found), tuple(clock.curve))
    return Tuned(total, clock.saved, clock.done, *rest)


def tune(
    serving: Serving, rows: Sequence[RecordedLaunch], recorded: Sequence[Recorded], seconds: float,
    tell: Tell,
) -> Tuned:  # fmt: skip
    """Search for variants of launches in this order, within `seconds`; ignores `recorded`."""
    end, total = time.monotonic() + seconds, sum(row.seconds for row in rows)
    clock, waiting, found = Clock(total, len(rows), tell), list(rows), 0

    def orders() -> Iterator[tuple[RecordedLaunch, Future[Reply]]]:
        if waiting and time.monotonic() < end:
            row = waiting.pop(0)
            yield row, serving.search(row.number, row.sizes)

    for row, reply in answers(orders, serving.tuners):
        ratio, saved = reply.ratio, 0.0
        if ratio is not None and ratio <= serving.most:
            found, saved = found + 1, (1 - ratio) * row.seconds
        clock.step(saved)
    return Tuned(total, clock.saved, clock.done, found, len(waiting), (), tuple(clock.curve))


def prepare(
    serving: Serving, rows: Sequence[RecordedLaunch], seconds: float, most_bytes: float, tell: Tell
) -> int:
    """Compile profitable variants of launches, in order, within limits of time and code size."""
    end, total = time.monotonic() + seconds, sum(row.seconds for row in rows)
    clock, waiting, count, held = Clock(total, len(rows), tell), list(rows), 0, 0

    def orders() -> Iterator[tuple[RecordedLaunch, Future[Reply]]]:
        if waiting and time.monotonic() < end and held < most_bytes:
            row = waiting.pop(0)
            yield row, serving.make(row.number, row.sizes)

    for row, reply in answers(orders, serving.tuners):
        saved = 0.0
        if reply.made is not None:
            count, held = count + 1, held + sum(map(len, reply.made.objects))
            saved = 0.0 if reply.ratio is None else (1 - reply.ratio) * row.seconds
        clock.step(saved)
    return count


def answers(
    next_order: Callable[[], Iterator[tuple[Key, Future[Reply]]]], limit: int
) -> Iterator[tuple[Key, Reply]]:
    """Run orders, at most `limit` at once, and yield replies; `next_order` yields one or none."""
    running: dict[Future[Reply], Key] = {}
    while True:
        while len(running) < limit:
            more = next(next_order(), None)
            if more is None:
                break
            running[more[1]] = more[0]
        if not running:
            return
        for done in wait(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(done), done.result()


def samples(rows: Sequence[RecordedLaunch]) -> tuple[tuple[Sizes, float], ...]:
    """Representative sizes of a call site, with the seconds that each represents.

    Sizes in the order of their work are partitioned into parts of equal cost; the median of each
    part represents it.
    """
    ordered = sorted(rows, key=lambda row: (row.work, row.sizes))
    total, at = _cost(ordered), 0.0
    parts: dict[int, list[RecordedLaunch]] = {}
    for row in ordered:
        middle = (at + row.seconds / 2) / total if total else 0.0
        parts.setdefault(min(SAMPLES - 1, int(SAMPLES * middle)), []).append(row)
        at += row.seconds
    return tuple((_middle(part), _cost(part)) for part in parts.values())


def _middle(rows: Sequence[RecordedLaunch]) -> Sizes:
    half, at = _cost(rows) / 2, 0.0
    for row in rows:
        at += row.seconds
        if at >= half:
            return row.sizes
    return rows[-1].sizes


def guard_sizes(
    serving: Serving, recorded: Sequence[Mapping[str, int]]
) -> Iterator[tuple[int, Sizes]]:
    """Guard sizes of call sites: with all dims minimal, or above the recorded maxima."""
    box = serving.box
    names = {name for each in recorded for name in each}
    above = {name: _ABOVE_RECORDED * max(each.get(name, 0) for each in recorded) for name in names}
    for given in (dict.fromkeys(names, 1), above):
        inside = {name: _inside(box, name, size) for name, size in given.items()}
        for number, call_site in enumerate(serving.call_sites):
            sizes = {serving.key(site, inside) for site in call_site.sites}
            yield from ((number, each) for each in sizes if each is not None and each[-1] > 0)


def _inside(box: Box, name: str, size: int) -> int:
    """The nearest size within the bounds of a dim."""
    dim = next((each for each in box.dims if each.name == name), None)
    if dim is None:
        return size
    return max(dim.lo, size if dim.hi is None else min(size, dim.hi))


def _cost(rows: Iterable[RecordedLaunch]) -> float:
    return sum(row.seconds for row in rows)


def work_of(site: Site, dims: Mapping[str, int]) -> float:
    """Estimated cost of a launch in bytes moved, relative to other launches."""
    flops, moved = (max(0, size.evaluate(dims)) for size in (site.flops, site.moved))
    return 1.0 + moved + flops / FLOPS_A_BYTE

"""The finder's cases on two threads beside one: python -m bench.cliffs.threaded

    python -m bench.cliffs.threaded --slice 1/4            # a fourth of all families
    python -m bench.cliffs.threaded --area rows --least 20
    python -m bench.cliffs.threaded --again out/threads.json   # those below the aim once more

What takes at least so long on one thread is measured in turns, whole calls with new results; the
fastest of the rounds counts. It says which are less than 1.8 times faster on two threads, which
are slower, which have other bits, how much faster onnxruntime is on two, and how near the bytes of
a call come to what two cores copy: from 55 % on memory holds a case up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import click
import numpy
from rich.console import Console
from rich.table import Table

import anydim as ad
from anydim.cli.report.measure import time_call, time_interleaved
from bench.cliffs.families import families
from bench.cliffs.family import Family
from bench.cliffs.machine import SIZES, Limits, copied
from bench.cliffs.running import NoPeer, as_label, peer, touched

Feeds = Mapping[str, numpy.ndarray]
AIM, SLOWER = 1.8, 0.97  # times faster; below the second one more than noise is lost
HELD = 0.55  # of the speed of a copy, which does not read what it writes over
ROUNDS = 9


@dataclass(frozen=True)
class Pair:
    """A case: microseconds on one thread and on two; `memory` is what two cores copy its bytes in.

    `peer` is how many times faster onnxruntime is on two, 0 where it has no such operator.
    """

    area: str
    family: str
    sizes: str
    one: float
    two: float
    memory: float
    alike: bool
    peer: float = 0.0

    @property
    def faster(self) -> float:
        """How many times."""
        return self.one / self.two

    @property
    def held(self) -> bool:
        """Whether memory holds it up: two threads move bytes about as fast as two cores copy."""
        return self.memory > HELD * self.two


@click.command(help=__doc__)
@click.option("--only", multiple=True, help="Families whose name has this; again for more.")
@click.option("--area", "areas", multiple=True, help="Families of this module; again for more.")
@click.option("--slice", "part", default="1/1", show_default=True, help="Which part of how many.")
@click.option("--least", default=100.0, show_default=True, help="Microseconds on one thread.")
@click.option("--seconds", default=0.1, show_default=True, help="For a case.")
@click.option("--count", default=40, show_default=True, help="Of the worst.")
@click.option(
    "--again",
    type=click.Path(path_type=Path),
    help="Of an earlier run, what gained too little; the better of both counts.",
)
@click.option("--out", default="out/threads.json", type=click.Path(path_type=Path))
def main(
    only: tuple[str, ...], areas: tuple[str, ...], part: str, least: float, seconds: float,
    count: int, again: Path | None, out: Path,
) -> None:  # fmt: skip
    console = Console()
    console = console if console.is_terminal else Console(width=130)
    chosen = [
        family for family in families()
        if (not areas or family.area in areas)
        and (not only or any(word in family.name for word in only))
    ]  # fmt: skip
    number, parts = map(int, part.split("/"))
    before = {} if again is None else earlier(again)
    if again is not None:
        wanted = {name for (name, _), case in before.items() if case.faster < AIM}
        chosen = [family for family in chosen if family.name in wanted]
    limits = Limits(0.0, tuple((size, copied_by_two(size)) for size in SIZES))
    found = dict(before)
    with console.status("") as status:
        for family in chosen[number - 1 :: parts]:
            status.update(family.name)
            try:
                for case in pairs(family, limits, least, seconds, before):
                    key = (case.family, case.sizes)
                    found[key] = max(case, before.get(key, case), key=lambda one: one.faster)
            except Exception as error:  # the others go on
                console.print(f"left out: {family.name}: {type(error).__name__}: {error}"[:200])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps([asdict(one) for one in found.values()], indent=1), "utf-8")
    show(console, list(found.values()), count)


def earlier(path: Path) -> dict[tuple[str, str], Pair]:
    """The cases of a run by family and sizes."""
    cases = [Pair(**case) for case in json.loads(path.read_text("utf-8"))]
    return {(one.family, one.sizes): one for one in cases}


def copied_by_two(size: int) -> float:
    """Bytes a second of two cores that copy half of so many each."""
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(copied, (size // 2, size // 2)))


def pairs(
    family: Family, limits: Limits, least: float, seconds: float,
    before: Mapping[tuple[str, str], Pair],
) -> Iterator[Pair]:  # fmt: skip
    """The family at those sizes that take `least` microseconds; of earlier ones, below the aim."""
    source = family.model()
    one, two = (ad.compile(source, threads=threads) for threads in (1, 2))
    for sizes in family.sizes:
        label = as_label(sizes)
        if before and ((seen := before.get((family.name, label))) is None or seen.faster >= AIM):
            continue
        feeds = family.feeds(sizes)
        if 1e6 * min(time_call(partial(one, **feeds)) for _ in range(3)) >= least:
            results, others = one(**feeds), two(**feeds)
            alike = all(
                numpy.asarray(a).tobytes() == numpy.asarray(b).tobytes()
                for a, b in zip(results.values(), others.values())
            )
            bytes = touched(feeds, results)
            times = fastest(partial(one, **feeds), partial(two, **feeds), seconds)
            memory = 1e6 * bytes / limits.rate(bytes)
            gain = peer_gain(family, source, feeds, seconds)
            yield Pair(family.area, family.name, label, *times, memory, alike, gain)


def peer_gain(family: Family, source: bytes, feeds: Feeds, seconds: float) -> float:
    """How many times faster onnxruntime is on two threads; 0 where it has no such operator."""
    try:
        one, two = (peer(family, source, threads) for threads in (1, 2))
    except NoPeer:
        return 0.0
    if one[0] != "onnxruntime":
        return 0.0
    times = fastest(partial(one[1], feeds), partial(two[1], feeds), seconds)
    return times[0] / times[1]


def fastest(
    one: Callable[[], Mapping[str, Any]], two: Callable[[], Mapping[str, Any]], seconds: float
) -> list[float]:
    """Microseconds on one thread and on two: whatever else runs disturbs two more than one."""
    rounds = time_interleaved({"one": one, "two": two}, rounds=ROUNDS, seconds=seconds).rounds
    return [1e6 * min(rounds[name]) for name in ("one", "two")]


def show(console: Console, found: Sequence[Pair], count: int) -> None:
    """Counts by area, and the cases that gain least."""
    areas = Table(title="times faster on two threads")
    columns = ("area", "cases", "mean", f">= {AIM}", "held by memory", f"< {SLOWER}", "other bits")
    for column in columns:
        areas.add_column(column, justify="left" if column == "area" else "right")
    for area in (*dict.fromkeys(one.area for one in found), "all"):
        here = [one for one in found if area in (one.area, "all")]
        if here:
            areas.add_row(
                area, str(len(here)), f"{geometric_mean(one.faster for one in here):.2f}",
                f"{sum(one.faster >= AIM for one in here) / len(here):.0%}",
                str(sum(one.faster < AIM and one.held for one in here)),
                str(sum(one.faster < SLOWER for one in here)),
                str(sum(not one.alike for one in here)),
            )  # fmt: skip
    console.print(areas)
    worst = Table(title="the least")
    for column in ("family", "sizes", "one us", "two us", "faster", "peer", "of memory"):
        worst.add_column(column, justify="left" if column in ("family", "sizes") else "right")
    for one in sorted(found, key=lambda each: each.faster)[:count]:
        worst.add_row(
            one.family, one.sizes, f"{one.one:.1f}", f"{one.two:.1f}", f"{one.faster:.2f}",
            f"{one.peer:.2f}", f"{one.memory / one.two:.0%}",
        )  # fmt: skip
    console.print(worst)


if __name__ == "__main__":
    main()

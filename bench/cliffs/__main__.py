"""Where sizes, forms and types are far slower than their neighbours or than a peer.

    python -m bench.cliffs                          # all families: some minutes
    python -m bench.cliffs --only Transpose --only Resize
    python -m bench.cliffs --before out/old.json    # what changed since

One model of one operator each, all its sizes free, compiled once; onnxruntime (numpy where it has
no such kernel) and anydim take turns on the same arrays, whole calls with new results. First all on
one thread, then on two what took long enough for threads. The share of the limit is the least time
of the work, by fused multiply-adds and by bytes to and fro as measured at the start, over the time
of the call; bytes are those of inputs, results and constants.

A jump is what an element of work costs at one size for what it costs at the next one of the
family. Beside all jumps up to 1.5 the table counts those that are no more than the peer's at the
same two sizes, or vanish with another cost of a call taken off; the list has the others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import click
from rich.console import Console

from bench.cliffs import machine
from bench.cliffs.families import families
from bench.cliffs.family import Family
from bench.cliffs.page import page
from bench.cliffs.running import Found, measured
from bench.cliffs.summary import show, show_changes

THREADED = 200.0  # microseconds: below, a second thread has nothing to gain


@click.command(help=__doc__)
@click.option("--only", multiple=True, help="Families whose name has this; again for more.")
@click.option("--area", "areas", multiple=True, help="Families of this module; again for more.")
@click.option("--threads", default=2, show_default=True, help="Of the second run; 1: none.")
@click.option("--seconds", default=0.06, show_default=True, help="For a case.")
@click.option("--count", default=50, show_default=True, help="Of the worst.")
@click.option("--before", type=click.Path(path_type=Path), help="The JSON file of an earlier run.")
@click.option("--out", default="out/cliffs", show_default=True, type=click.Path(path_type=Path))
def main(
    only: tuple[str, ...], areas: tuple[str, ...], threads: int, seconds: float, count: int,
    before: Path | None, out: Path,
) -> None:  # fmt: skip
    console, start = Console(), perf_counter()
    if not console.is_terminal:
        console = Console(width=140)
    chosen = [
        family for family in families()
        if (not areas or family.area in areas)
        and (not only or any(word in family.name for word in only))
    ]  # fmt: skip
    limits = machine.measured()
    console.print(f"FMA peak {limits.flops / 1e9:.0f} GFLOP/s; a copy of", end=" ")
    console.print(
        ", ".join(f"{size >> 10} KB {rate / 1e9:.0f} GB/s" for size, rate in limits.rates)
    )
    left_out: dict[str, str] = {}
    found = one_thread(console, chosen, limits, seconds, left_out)
    if threads > 1:
        found += several(console, chosen, found, threads, limits, seconds)
    show(console, found, count)
    for name, reason in left_out.items():
        console.print(f"left out: {name}: {reason}")
    console.print(f"{len(found)} cases in {perf_counter() - start:.0f} s")
    out.parent.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"limits": asdict(limits), "left out": left_out}
    record["cases"] = [asdict(one) for one in found]
    out.with_suffix(".json").write_text(json.dumps(record, indent=1), "utf-8")
    out.with_suffix(".html").write_text(page(found, "Operators beside their peers"), "utf-8")
    console.print(f"written: {out}.json, {out}.html")
    if before is not None:
        cases = json.loads(before.read_text("utf-8"))["cases"]
        show_changes(console, [Found(**case) for case in cases], found)


def one_thread(
    console: Console, chosen: list[Family], limits: machine.Limits, seconds: float,
    left_out: dict[str, str],
) -> list[Found]:  # fmt: skip
    """Every family, on one core."""
    found: list[Found] = []
    with console.status("") as status, one_core():
        for number, family in enumerate(chosen):
            status.update(f"{number} of {len(chosen)}: {family.name}")
            try:
                found += measured(family, 1, limits, seconds)
            except Exception as error:  # told at the end; the others go on
                left_out[family.name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return found


@contextmanager
def one_core() -> Iterator[None]:
    """This process on one core, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def several(
    console: Console, chosen: list[Family], before: list[Found], threads: int,
    limits: machine.Limits, seconds: float,
) -> list[Found]:  # fmt: skip
    """The largest sizes of each family that took long enough on one thread."""
    found: list[Found] = []
    long = {}
    for one in before:
        if one.ours > THREADED:
            long[one.family] = max(long.get(one.family, one), one, key=lambda case: case.limit)
    with console.status("") as status:
        for family in chosen:
            if family.name in long:
                status.update(f"{threads} threads: {family.name}")
                sizes = (long[family.name].sizes,)
                found += measured(replace(family, sizes=sizes), threads, limits, seconds)
    return found


if __name__ == "__main__":
    main()

"""Six workloads, each cold and warm, every installed engine in turn.

    python -m bench.six                          # table, out/six.json, out/six.svg: minutes
    python -m bench.six --only W2 --threads 2
    python -m bench.six --losses                 # and the three largest losses of each

Warm: the second pass over the stream; engines take 16 requests in turn in one process, and a ratio
is that of the sums. Cold: a fresh process for each engine, from the file to the last result, its
load and first call, and the memory that it had at most. Results are compared with onnxruntime's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from anydim.cli.report.measure import largest_difference, time_stream
from bench.isolated import ROOT, pinned
from bench.six.engines import LOADED, Call, carrying, installed
from bench.six.losses import losses
from bench.six.picture import svg
from bench.six.workloads import WORKLOADS, Workload
from bench.workloads import Feeds

BASE = "onnxruntime"
PASSES = 2  # after the one that warms up
BYTECODE = ROOT / "out" / "bytecode"


@click.command(help=__doc__)
@click.option("--only", default="", help="Workloads whose name has this.")
@click.option("--threads", default=1, show_default=True)
@click.option("--no-cold", "cold", is_flag=True, default=True, flag_value=False)
@click.option("--losses", "lost", is_flag=True, help="Profile each.")
@click.option("--out", default="out/six", show_default=True, type=click.Path(path_type=Path))
def main(only: str, threads: int, cold: bool, lost: bool, out: Path) -> None:
    pinned(threads)
    console, rows = Console(), []
    names = [name for name in LOADED if installed(name)]
    if BASE not in names:
        raise ModuleNotFoundError(f"there is no {BASE}", name=BASE)
    for work in WORKLOADS:
        if only not in work.name:
            continue
        with console.status(work.name):
            row = warm(work, names, threads)
            if cold:
                row["cold"] = {name: cold_run(name, work.name, threads) for name in names}
            if lost:
                found = losses(work, work.requests(), threads)
                row |= {"share": found.share, "worst": found.worst}
        rows.append(row)
        console.print(f"{work.name}: {row['ratio']}")
    console.print(table(rows, names, threads))
    for row in rows if lost else []:
        worst = ", ".join(f"{name} {share:.0%}" for name, share in row["worst"])
        console.print(f"{row['workload']}: {row['share']:.0%} of the limit; {worst}")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(
        json.dumps({"threads": threads, "rows": rows}, indent=1), "utf-8"
    )
    out.with_suffix(".svg").write_text(svg(rows, names, threads), "utf-8")
    console.print(f"written: {out}.json, {out}.svg")


def warm(work: Workload, names: list[str], threads: int) -> dict[str, Any]:
    """Seconds of the stream for each engine, and how far its results are from onnxruntime's."""
    source, requests = work.model().SerializeToString(), work.requests()
    calls, failed, apart = {}, {}, {}
    for name in sorted(names, key=lambda each: each != BASE):
        try:
            calls[name] = carrying(LOADED[name](source, threads), work.carried)
            apart[name] = difference(calls, name, requests)
        except Exception as error:  # a peer that cannot run this is told as such
            failed[name] = str(error)[:300]
            calls.pop(name, None)
    passes = [time_stream(calls, requests) for _ in range(PASSES)]
    seconds = {name: min(sum(each[name]) for each in passes) for name in calls}
    ratio = {name: median(sum(each[name]) / sum(each[BASE]) for each in passes) for name in calls}
    return {
        "workload": work.name, "requests": len(requests), "seconds": seconds, "ratio": ratio,
        "difference": apart, "failed": failed,
    }  # fmt: skip


def difference(calls: Mapping[str, Call], name: str, requests: tuple[Feeds, ...]) -> float:
    """The largest over all requests, for one of the largest number; the pass warms up, too."""
    worst = 0.0
    for feeds in requests:
        found = calls[name](feeds)
        if name != BASE and BASE in calls:
            expected = calls[BASE](feeds)
            for key, array in expected.items():
                scale = max(1.0, float(numpy.abs(array).max(initial=0.0)))
                worst = max(worst, largest_difference(found[key], array) / scale)
    return worst


def cold_run(name: str, workload: str, threads: int) -> dict[str, float] | None:
    """In a process of its own, bytecode and code on disk from one before; None where it fails."""
    command = [sys.executable, "-m", "bench.six.cold", name, workload, "--threads", str(threads)]
    given = {**os.environ, "PYTHONPYCACHEPREFIX": str(BYTECODE)}
    given.pop("PYTHONDONTWRITEBYTECODE", None)
    for _ in range(2):
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, env=given
        )
    return None if done.returncode else json.loads(done.stdout.splitlines()[-1])


def table(rows: list[dict[str, Any]], names: list[str], threads: int) -> Table:
    """Warm seconds and ratios, then cold ones."""
    title = f"{threads} thread(s): seconds (for one of {BASE}'s); cold: from the file on"
    made = Table(title=title, box=SIMPLE)
    made.add_column("", no_wrap=True)
    columns = [*names, *(f"{name}\ncold" for name in names if any("cold" in row for row in rows))]
    for name in columns:
        made.add_column(name, justify="right")
    made.add_column("differs", justify="right")
    for row in rows:
        cells = [_cell(row["seconds"].get(name), row["ratio"].get(name)) for name in names]
        for name in names if "cold" in row else ():
            cold = row["cold"][name]
            cells.append(f"{cold['total']:.2f}" if cold else "fails")
        apart = row["difference"].get("anydim", float("nan"))
        made.add_row(row["workload"], *cells, f"{apart:.0e}")
    return made


def _cell(seconds: float | None, ratio: float | None) -> str:
    return "fails" if seconds is None else f"{seconds:.2f} ({ratio:.2f})"


if __name__ == "__main__":
    main()

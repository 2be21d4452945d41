"""How two threads do against one on MiniLM: python -m bench.threads

Each engine is loaded with one thread and with two; all four take turns in one process.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from anydim.report.measure import interleaved
from bench.engines import ENGINES
from bench.workloads import draw
from examples.minilm.model import model_path

SIZES = [(1, 22), (1, 128), (8, 22), (8, 128)]
NAMES = ("anydim", "onnxruntime")


def main() -> None:
    console = Console()
    path = Path(model_path())
    calls = {(name, n): ENGINES[name].load(path, n) for name in NAMES for n in (1, 2)}
    table = Table(title="milliseconds on one and two threads, and times faster on two")
    table.add_column("batch x seq")
    for name in NAMES:
        for column in (f"{name} 1", f"{name} 2", "faster"):
            table.add_column(column, justify="right")
    for batch, seq in SIZES:
        feeds = draw(batch, seq)
        bound = {
            f"{name} {n}": (lambda call=call, feeds=feeds: call(feeds))
            for (name, n), call in calls.items()
        }
        with console.status(f"{batch} x {seq}"):
            timings = interleaved(bound, rounds=11, seconds=12.0)
        cells = []
        for name in NAMES:
            one, two = timings.median(f"{name} 1"), timings.median(f"{name} 2")
            faster = timings.ratio(f"{name} 1", f"{name} 2")
            cells += [f"{1e3 * one:.2f}", f"{1e3 * two:.2f}", f"{faster:.2f}"]
        table.add_row(f"{batch} x {seq}", *cells)
    console.print(table)


if __name__ == "__main__":
    main()

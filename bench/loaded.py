"""A saved model in fresh processes beside onnxruntime: time to the first result, and memory.

    python -m bench.loaded                     # MiniLM: 15 processes of each kind, half a minute
    python -m bench.loaded --model resnet.onnx --dim batch=1..8 --at batch=1 --runs 5

Every time is that of a whole process: from the moment at which it is started until its first
result, inputs of ones, with what it does before as stages. The kinds take turns; a ratio is the
median of the ratios of neighbours. Processes run on one core, with one thread. Memory is
the proportional set size (PSS) that Linux tells of several processes that all have one file loaded,
all weights read (verify=True), and have called it: what they share counts in parts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.table import Table

import anydim as ad
from anydim.cli.options import DIM, SIZES, dims_by_name
from anydim.cli.report.measure import median_ratio
from bench.isolated import pinned
from examples.minilm.model import model_path

HEAD = """
import sys, time
def at(stage):
    print(stage, time.clock_gettime_ns(time.CLOCK_MONOTONIC), flush=True)
at("python")
import numpy
at("import numpy")
"""
CALL = """
import json
shapes = json.loads(sys.argv[2])
call({name: numpy.ones(shape, dtype) for name, (dtype, shape) in shapes.items()})
at("first call")
"""
CHILDREN: Mapping[str, str] = {
    "anydim, loaded": """
import anydim
at("import")
model = anydim.load(sys.argv[1])
at("load")
call = lambda inputs: model(**inputs)
""",
    "onnxruntime": """
import onnxruntime
at("import")
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, ["CPUExecutionProvider"])
at("load")
call = lambda inputs: session.run(None, inputs)
""",
}
OURS, THEIRS = CHILDREN
STAGES = ("python", "import numpy", "import", "load", "first call")
MINILM = {"batch": ad.Dim(0, 64), "seq": ad.Dim(1, 512)}
VERIFIED = ("load(sys.argv[1])", "load(sys.argv[1], verify=True)")
WAIT = "\nsys.stdin.read()\n"

Stages = dict[str, float]  # seconds that each took


@dataclass(frozen=True)
class Case:
    """The file that each kind of process loads, and the inputs of a call, as JSON."""

    paths: Mapping[str, str]
    shapes: str


@click.command(help=__doc__)
@click.option("--model", help="An ONNX file; else MiniLM.")
@click.option("--dim", "dims", type=DIM, multiple=True, help="Bounds of its dims.")
@click.option("--at", type=SIZES, default="batch=1,seq=22", show_default=True)
@click.option("--runs", default=15, show_default=True, help="Processes of each kind.")
@click.option("--processes", default=4, show_default=True, help="That hold one file at once.")
def main(
    model: str | None, dims: Sequence[ad.Dim], at: dict[str, int], runs: int, processes: int
) -> None:
    pinned(1)
    console = Console()
    source = model or str(model_path())
    bounds = dims_by_name(dims) if model else MINILM
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "saved.anydim")
        made = ad.compile(source, bounds, threads=1)
        made.save(saved)
        shapes = {
            spec.name: (spec.dtype.name, [size.evaluate(at) for size in spec.shape])
            for spec in made.inputs
        }
        case = Case({OURS: str(saved), THEIRS: source}, json.dumps(shapes))
        found: dict[str, list[Stages]] = {name: [] for name in CHILDREN}
        for name in CHILDREN:
            started(name, case)  # files come into memory
        with console.status(f"{runs} processes of each kind"):
            for number in range(runs):
                for name in list(CHILDREN)[:: -1 if number % 2 else 1]:
                    found[name].append(started(name, case))
        console.print(times(found))
        first, again = repeated(saved)
        console.print(f"ad.load in a process that runs: {first:.1f} ms, again {again:.1f} ms")
        console.print(shared(case, processes, ad.inspect(saved).weight_bytes))


def child(name: str, case: Case, more: str = "") -> subprocess.Popen[str]:
    """A process of a kind."""
    script = HEAD + (CHILDREN[name].replace(*VERIFIED) if more else CHILDREN[name]) + CALL + more
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-c", script, case.paths[name], case.shapes], env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip


def started(name: str, case: Case) -> Stages:
    """What a fresh process needs for each stage, and in all."""
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    text, _ = child(name, case).communicate()
    took: Stages = {}
    for line in text.splitlines():
        stage, stamp = line.rsplit(" ", 1)
        took[stage] = (int(stamp) - before) / 1e9 - sum(took.values())
    return took


def times(found: Mapping[str, Sequence[Stages]]) -> Table:
    table = Table(title="milliseconds from the start of a process to its first result")
    table.add_column("")
    for stage in (*STAGES, "in all"):
        table.add_column(stage, justify="right")
    for name, runs in found.items():
        cells = [median(run[stage] for run in runs) for stage in STAGES]
        table.add_row(name, *(f"{1e3 * cell:.0f}" for cell in (*cells, median(map(total, runs)))))
    ours, theirs = (list(map(total, found[name])) for name in (OURS, THEIRS))
    table.add_row("ratio", *[""] * len(STAGES), f"{median_ratio(ours, theirs):.2f}")
    return table


def total(run: Stages) -> float:
    return sum(run.values())


def repeated(path: Path) -> tuple[float, float]:
    """Milliseconds of the first load here, and the median of others."""
    taken = []
    for _ in range(21):
        start = time.perf_counter()
        ad.load(path)
        taken.append(1e3 * (time.perf_counter() - start))
    return taken[0], median(taken[1:])


def shared(case: Case, count: int, weights: int) -> Table:
    table = Table(title=f"memory of {count} processes at once, MB (weights {weights / 1e6:.1f})")
    for column in ("", "PSS of all", "beyond the weights, each", "resident, each"):
        table.add_column(column, justify="left" if not column else "right")
    for name in CHILDREN:
        running = [child(name, case, WAIT) for _ in range(count)]
        for process in running:
            assert process.stdout is not None
            while (line := process.stdout.readline()) and not line.startswith("first call"):
                pass
        sizes = [memory(process.pid) for process in running]
        for process in running:
            process.communicate()
        pss, resident = (sum(size[key] for size in sizes) for key in ("Pss", "Rss"))
        beyond = (pss - weights / 1e6) / count
        table.add_row(name, f"{pss:.0f}", f"{beyond:.1f}", f"{resident / count:.0f}")
    return table


def memory(pid: int) -> dict[str, float]:
    """Megabytes of a process as Linux tells them: 'Rss', 'Pss', ..."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()[1:]
    return {row.split(":")[0]: int(row.split()[1]) * 1024 / 1e6 for row in rows}


if __name__ == "__main__":
    main()

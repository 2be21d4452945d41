"""Starts of processes with a model from a file, beside onnxruntime: python -m bench.starts FILE ...

Without files, light networks of the package onnx with random weights and MiniLM are measured. Each
figure is the median of fresh processes in turns, in milliseconds:

    first       ad.compile with empty caches of code and of programs
    second      ad.compile in another process
    ort         onnxruntime.InferenceSession
    ratio       second over ort
    result      the whole process of a second start, to the end of a first call, over onnxruntime's

Imports of `anydim` and `onnxruntime` are in no figure but the last one, which has the start of
Python and `import numpy` too. Starts with empty caches, which take long, need `--first`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean, median

import onnx
from rich.console import Console
from rich.table import Table

from anydim.base.records import dataclass
from bench.arguments import parser
from bench.isolated import ROOT, pinned
from bench.light import light_model
from examples.minilm.model import model_path

_INPUTS = """
import numpy
def inputs(described):
    made = {}
    for name, shape, kind in described:
        shape = [size if isinstance(size, int) and size > 0 else 8 for size in shape]
        made[name] = numpy.ones(shape, kind)
    return made
"""
_KINDS = (
    "{'tensor(float)': 'f4', 'tensor(int64)': 'i8', 'tensor(int32)': 'i4', 'tensor(double)': 'f8',"
    " 'tensor(uint8)': 'u1', 'tensor(bool)': '?'}"
)
_OURS = f"""import sys, time, json
{_INPUTS}
import anydim as ad
start = time.perf_counter()
model = ad.compile(sys.argv[1])
made = time.perf_counter() - start
given = inputs([(i.name, [int(str(d)) if str(d).isdigit() else 0 for d in i.shape], str(i.dtype))
                for i in model.inputs])
model(**given)
print(json.dumps(made))
"""
_THEIRS = f"""import sys, time, json
{_INPUTS}
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2])
options.log_severity_level = 4
start = time.perf_counter()
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
made = time.perf_counter() - start
kinds = {_KINDS}
session.run(None, inputs([(i.name, i.shape, kinds[i.type]) for i in session.get_inputs()]))
print(json.dumps(made))
"""


@dataclass(frozen=True)
class Start:
    """Milliseconds that a model took, and those of the whole process with a first call."""

    made: float
    process: float


def started(work: str, path: str, threads: int, cache: str) -> Start:
    """One process. Raises RuntimeError where it fails."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", work, path, str(threads)], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "ANYDIM_CACHE_DIR": cache, "OMP_NUM_THREADS": str(threads)},
    )  # fmt: skip
    process = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return Start(1e3 * float(json.loads(done.stdout.splitlines()[-1])), 1e3 * process)


def files(folder: str) -> Iterator[Path]:
    """The files at hand; those of networks are written to a folder."""
    for name in _NETWORKS:
        path = Path(folder, f"{name}.onnx")
        onnx.save(light_model(name), path)
        yield path
    yield model_path()


def measured(path: str, rounds: int, threads: int, first: bool) -> dict[str, float]:
    """The figures of one file."""
    ours: list[Start] = []
    theirs: list[Start] = []
    empty: list[Start] = []
    with tempfile.TemporaryDirectory() as warm:
        started(_OURS, path, threads, warm)
        for _ in range(rounds):
            ours.append(started(_OURS, path, threads, warm))
            theirs.append(started(_THEIRS, path, threads, warm))
            if first:
                with tempfile.TemporaryDirectory() as cold:
                    empty.append(started(_OURS, path, threads, cold))
    found = {"first": median(each.made for each in empty)} if empty else {}
    second, ort = (median(each.made for each in starts) for starts in (ours, theirs))
    whole, beside = (median(each.process for each in starts) for starts in (ours, theirs))
    return {**found, "second": second, "ort": ort, "ratio": second / ort, "result": whole / beside}


_NETWORKS = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
    "squeezenet", "zfnet512",
)  # fmt: skip
_COLUMNS = ("first", "second", "ort", "ratio", "result")


def main() -> None:
    words = parser(__doc__)
    words.add_argument("files", nargs="*", metavar="FILE")
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--threads", type=int, default=1, help="cores, 1 unless given")
    words.add_argument("--first", action="store_true", help="with empty caches too")
    given = words.parse_args()
    pinned(given.threads)
    table = Table("model", *_COLUMNS)
    every: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in map(str, given.files or files(folder)):
            found = measured(path, given.rounds, given.threads, given.first)
            for name, value in found.items():
                every.setdefault(name, []).append(value)
            table.add_row(Path(path).stem, *(_text(name, found.get(name)) for name in _COLUMNS))
    means = (geometric_mean(every[name]) if name in every else None for name in _COLUMNS)
    table.add_row("geometric mean", *(map(_text, _COLUMNS, means)))
    Console(width=110).print(table)


def _text(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if name in ("ratio", "result") else f"{value:.0f}"


if __name__ == "__main__":
    main()

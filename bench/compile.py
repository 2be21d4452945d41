"""Compile time of MiniLM and of a definition, in fresh processes: python -m bench.compile

MiniLM on one core: without a cache on disk, with the kernels there, and with the whole program
there (`import anydim` included). Beside them stands what reading the weights alone costs: the file
into memory and through the protobuf parser (`onnx.load`).

A matrix product in the language, from its text to the end of its first call, by all cores and by
one. What `import anydim` does is not in these figures but has its own: it also brings LLVM into
memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.arguments import no_words
from bench.isolated import ROOT, pinned
from examples.minilm.model import model_path

ROUNDS = 5
IMPORT = "import anydim"
DEFINE = """import numpy, anydim as ad
a, b = numpy.ones((4, 5), "f4"), numpy.ones((5, 6), "f4")
start = time.perf_counter()
text = "def matmul(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
ad.define(text).matmul(a, b)"""
READ = "import onnx\nstart = time.perf_counter()\nonnx.load(path)"
COMPILE = """import onnx, anydim as ad
dims = {"batch": ad.Dim(0, 64), "seq": ad.Dim(1, 512)}
start = time.perf_counter()
ad.compile(path, dims=dims, threads=1)"""
START = """dims = {"batch": (0, 64), "seq": (1, 512)}
import anydim as ad
ad.compile(path, dims=dims, threads=1)"""
FRAME = """import json, sys, time
path = sys.argv[1]
start = time.perf_counter()
{work}
print(json.dumps(time.perf_counter() - start))
"""


def seconds(work: str, cache: str, programs: bool = False) -> float:
    """Seconds that a piece of work takes in a process of its own; `programs` are kept or not."""
    command = [sys.executable, "-c", FRAME.format(work=work), str(model_path())]
    known = {"ANYDIM_CACHE_DIR": cache, "ANYDIM_KEEP_PROGRAMS": str(int(programs))}
    settings = {**os.environ, **known}
    done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return float(json.loads(done.stdout.splitlines()[-1]))


def definition(cores: str, folder: str) -> Table:
    """Times of a definition, and of importing anydim, by the cores this process may use."""
    times: dict[str, list[float]] = {}
    warm = str(Path(folder, "warm"))
    seconds(DEFINE, warm)
    for number in range(ROUNDS):
        cold = str(Path(folder, f"{cores}{number}"))
        times.setdefault("import numpy", []).append(seconds("import numpy", warm))
        times.setdefault("import anydim (with numpy)", []).append(seconds(IMPORT, warm))
        times.setdefault("define and call, from nothing", []).append(seconds(DEFINE, cold))
        times.setdefault("define and call, with a warm cache", []).append(seconds(DEFINE, warm))
    return rows(f"A matrix product in a fresh process, {cores}, milliseconds", times, 1e3)


def minilm(folder: str) -> Table:
    """Times of MiniLM on one core."""
    times: dict[str, list[float]] = {}
    warm = str(Path(folder, "warm"))
    seconds(COMPILE, warm, programs=True)
    for number in range(ROUNDS):
        cold = str(Path(folder, f"cold{number}"))
        times.setdefault("import anydim", []).append(seconds(IMPORT, warm))
        times.setdefault("read the weights (onnx.load)", []).append(seconds(READ, warm))
        times.setdefault("compile from nothing", []).append(seconds(COMPILE, cold))
        times.setdefault("compile with a warm cache", []).append(seconds(COMPILE, warm))
        times.setdefault("find the program", []).append(seconds(START, warm, programs=True))
    return rows("MiniLM in a fresh process on one core, seconds", times, 1.0)


def rows(title: str, times: dict[str, list[float]], scale: float) -> Table:
    table = Table(title=title)
    for column in ("what", "median", "least"):
        table.add_column(column, justify="left" if column == "what" else "right")
    digits = 3 if scale == 1.0 else 1
    for what, row in times.items():
        cells = (f"{scale * time:.{digits}f}" for time in (median(row), min(row)))
        table.add_row(what, *cells)
    return table


def main() -> None:
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        console.print(definition("all cores", folder))
        pinned(1)
        console.print(definition("one core", folder))
        console.print(minilm(folder))


if __name__ == "__main__":
    no_words(__doc__)
    main()

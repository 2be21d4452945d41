"""Compile time of MiniLM in fresh processes on one core: python -m bench.compile

Without a cache on disk, with a warm one, and beside them what reading the weights alone costs: the
file into memory and through the protobuf parser (`onnx.load`).
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

from bench.isolated import ROOT, pinned
from examples.minilm.model import model_path

ROUNDS = 5
IMPORT = "import anydim"
READ = "import onnx\nstart = time.perf_counter()\nonnx.load(path)"
COMPILE = """import onnx, llvmlite.binding, anydim as ad
dims = {"batch": ad.Dim(0, 64), "seq": ad.Dim(1, 512)}
start = time.perf_counter()
ad.compile(path, dims=dims)"""
FRAME = """import json, sys, time
path = sys.argv[1]
start = time.perf_counter()
{work}
print(json.dumps(time.perf_counter() - start))
"""


def seconds(work: str, cache: str) -> float:
    """Seconds that a piece of work takes in a process of its own."""
    command = [sys.executable, "-c", FRAME.format(work=work), str(model_path())]
    settings = {**os.environ, "ANYDIM_CACHE_DIR": cache}
    done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    pinned(1)
    console = Console()
    table = Table(title="MiniLM in a fresh process on one core, seconds")
    for column in ("what", "median", "least"):
        table.add_column(column, justify="left" if column == "what" else "right")
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, console.status("measuring"):
        warm = str(Path(folder, "warm"))
        seconds(COMPILE, warm)
        for number in range(ROUNDS):
            cold = str(Path(folder, f"cold{number}"))
            times.setdefault("import anydim", []).append(seconds(IMPORT, warm))
            times.setdefault("read the weights (onnx.load)", []).append(seconds(READ, warm))
            times.setdefault("compile from nothing", []).append(seconds(COMPILE, cold))
            times.setdefault("compile with a warm cache", []).append(seconds(COMPILE, warm))
    for what, row in times.items():
        table.add_row(what, f"{median(row):.3f}", f"{min(row):.3f}")
    console.print(table)


if __name__ == "__main__":
    main()

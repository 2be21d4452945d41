"""Memory of processes with a model from a file, beside onnxruntime: python -m bench.footprint

Without files, those of `bench.starts` are measured. Processes are fresh, have one thread, and are
seen after the model is there and after its first call, in MiB:

    compile    ad.compile with empty caches
    load       ad.compile in another process
    ort        onnxruntime.InferenceSession
    rss        resident: what is shared with other processes counts as well
    anonymous  resident and of no file: what the system can take back by swapping alone
    peak       the most that was resident until then

Python and numpy are in every figure: some 28 MiB. Ratios are to onnxruntime's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import geometric_mean

from rich.console import Console
from rich.table import Table

from bench.arguments import parser
from bench.isolated import ROOT, pinned
from bench.starts import INPUTS, KINDS, files, installed

_SEEN = """
def seen(stage):
    with open('/proc/self/smaps_rollup') as file:
        rows = [line.split() for line in file.readlines()[1:]]
    kib = {row[0].rstrip(':'): int(row[1]) for row in rows}
    with open('/proc/self/status') as file:
        peak = [int(line.split()[1]) for line in file if line.startswith('VmHWM')][0]
    kib = {'rss': kib['Rss'], 'anonymous': kib['Anonymous'], 'peak': peak}
    found[stage] = {name: value / 1024 for name, value in kib.items()}
found = {}
"""
_OURS = f"""{INPUTS}{_SEEN}
import anydim as ad
model = ad.compile(path, threads=1)
seen('ready')
model(**inputs([(i.name, [int(str(d)) if str(d).isdigit() else 0 for d in i.shape], str(i.dtype))
                for i in model.inputs]))
seen('called')
print(json.dumps(found))
"""
_THEIRS = f"""{INPUTS}{_SEEN}
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
options.log_severity_level = 4
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
seen('ready')
kinds = {KINDS}
session.run(None, inputs([(i.name, i.shape, kinds[i.type]) for i in session.get_inputs()]))
seen('called')
print(json.dumps(found))
"""
_STAGES, _FIGURES = ("ready", "called"), ("rss", "anonymous", "peak")

Seen = dict[str, dict[str, float]]


def seen(work: str, path: str, cache: str) -> Seen:
    """MiB of one process. Raises RuntimeError where it fails."""
    known = {"ANYDIM_CACHE_DIR": cache, "OMP_NUM_THREADS": "1", "PYTHONPATH": installed()}
    done = subprocess.run(
        [sys.executable, "-c", work, path], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, **known},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: Seen = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(path: str) -> dict[str, Seen]:
    """Processes with an empty cache, with a full one, and with onnxruntime."""
    with tempfile.TemporaryDirectory() as cache:
        first, _, load = (seen(_OURS, path, cache) for _ in range(3))  # the second one compares
    return {"compile": first, "load": load, "ort": seen(_THEIRS, path, "")}


def main() -> None:
    words = parser(__doc__)
    words.add_argument("files", nargs="*", metavar="FILE")
    given = words.parse_args()
    pinned(1)
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(path) for path in given.files or files(folder)]
        every = {Path(path).stem: measured(path) for path in paths}
    console = Console(width=110)
    for stage in _STAGES:
        for figure in _FIGURES:
            console.print(_table(every, stage, figure))


def _table(every: dict[str, dict[str, Seen]], stage: str, figure: str) -> Table:
    table = Table("", "compile", "load", "ort", "compile", "load", title=f"{figure}, {stage}")
    ratios = []
    for name, found in every.items():
        compile, load, ort = (found[kind][stage][figure] for kind in ("compile", "load", "ort"))
        ratios.append((compile / ort, load / ort))
        mib = (f"{value:.0f}" for value in (compile, load, ort))
        table.add_row(name, *mib, *(f"{ratio:.2f}" for ratio in ratios[-1]))
    means = (f"{geometric_mean(column):.2f}" for column in zip(*ratios))
    table.add_row("geometric mean", "", "", "", *means)
    return table


if __name__ == "__main__":
    main()

"""Starts of processes with a model from a file, beside onnxruntime: python -m bench.starts FILE ...

Without files, light networks of the package onnx with random weights and MiniLM are measured. Each
figure is the median of fresh processes in turns, in milliseconds:

    first       ad.compile with empty caches of code and of programs
    second      ad.compile in another process
    ort         onnxruntime.InferenceSession
    ratio       second over ort
    imports     the same with the imports of both engines in the times of both
    result      the whole process of a second start, to the end of a first call, over onnxruntime's

`ad.compile` has the imports of anydim in it, as `import anydim` imports next to nothing; that of
onnxruntime is in the last two figures alone. Figures are processor time, but for the last one, and
for `--wall`. Whole processes have the start of Python and `import numpy`, too. The package is
measured as it is when it is installed, with the RECORD that installers write; `--tree` measures the
tree itself, of which a start looks at all files. Starts with empty caches, which take long, need
`--first`.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import geometric_mean, median

import onnx
from rich.console import Console
from rich.table import Table

import anydim
from anydim.base.records import dataclass
from bench.arguments import parser
from bench.isolated import ROOT, pinned
from bench.light import light_model
from examples.minilm.model import model_path

INPUTS = """
import os, numpy
SIZE = int(os.environ.get('START_SIZE', 8))
def inputs(described):
    made = {}
    for name, shape, kind in described:
        shape = [size if isinstance(size, int) and size > 0 else SIZE for size in shape]
        made[name] = numpy.ones(shape, kind)
    return made
"""
KINDS = (
    "{'tensor(float)': 'f4', 'tensor(int64)': 'i8', 'tensor(int32)': 'i4', 'tensor(double)': 'f8',"
    " 'tensor(uint8)': 'u1', 'tensor(bool)': '?'}"
)
_OURS = f"""import sys, time, json
{INPUTS}
from time import {{clock}} as clock
start = clock()
import anydim as ad
loaded = clock()
model = ad.compile(sys.argv[1])
made = clock()
given = inputs([(i.name, [int(str(d)) if str(d).isdigit() else 0 for d in i.shape], str(i.dtype))
                for i in model.inputs])
model(**given)
print(json.dumps([loaded - start, made - loaded]))
"""
_THEIRS = f"""import sys, time, json
{INPUTS}
from time import {{clock}} as clock
start = clock()
import onnxruntime
loaded = clock()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2])
options.log_severity_level = 4
begun = clock()
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
made = clock()
kinds = {KINDS}
session.run(None, inputs([(i.name, i.shape, kinds[i.type]) for i in session.get_inputs()]))
print(json.dumps([loaded - start, made - begun]))
"""


@dataclass(frozen=True)
class Start:
    """Milliseconds of the import and of a model, and of the whole process with a first call."""

    imported: float
    made: float
    process: float

    @property
    def both(self) -> float:
        """With the import."""
        return self.imported + self.made


@cache
def installed() -> str:
    """A folder with the package and its RECORD, as an installer leaves them."""
    folder = tempfile.mkdtemp(prefix="anydim-installed-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    package = Path(anydim.__file__).parent
    shutil.copytree(package, Path(folder, package.name), ignore=shutil.ignore_patterns("*.pyc"))
    about = Path(folder, f"{package.name}-{anydim.__version__}.dist-info")
    about.mkdir()
    rows = (
        f"{path.relative_to(folder)},sha256={hashlib.sha256(path.read_bytes()).hexdigest()},\n"
        for path in sorted(Path(folder, package.name).rglob("*")) if path.is_file()
    )  # fmt: skip
    (about / "RECORD").write_text("".join(rows), "utf-8")
    return folder


def started(work: str, path: str, threads: int, folder: str) -> Start:
    """One process. Raises RuntimeError where it fails."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", work, path, str(threads)], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "ANYDIM_CACHE_DIR": folder, "OMP_NUM_THREADS": str(threads)},
    )  # fmt: skip
    process = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    imported, made = json.loads(done.stdout.splitlines()[-1])
    return Start(1e3 * imported, 1e3 * made, 1e3 * process)


def files(folder: str) -> Iterator[Path]:
    """The files at hand; those of networks are written to a folder."""
    for name in _NETWORKS:
        path = Path(folder, f"{name}.onnx")
        onnx.save(light_model(name), path)
        yield path
    yield model_path()


def measured(path: str, rounds: int, threads: int, first: bool, clock: str) -> dict[str, float]:
    """The figures of one file."""
    ours: list[Start] = []
    theirs: list[Start] = []
    empty: list[Start] = []
    our_work, their_work = (work.replace("{clock}", clock) for work in (_OURS, _THEIRS))
    with tempfile.TemporaryDirectory() as warm:
        for _ in range(2):  # the second one compares what the first one has kept
            started(our_work, path, threads, warm)
        for _ in range(rounds):
            ours.append(started(our_work, path, threads, warm))
            theirs.append(started(their_work, path, threads, warm))
            if first:
                with tempfile.TemporaryDirectory() as cold:
                    empty.append(started(our_work, path, threads, cold))
    found = {"first": median(each.made for each in empty)} if empty else {}
    second, ort = (median(each.made for each in starts) for starts in (ours, theirs))
    whole, beside = (median(each.process for each in starts) for starts in (ours, theirs))
    both, other = (median(each.both for each in starts) for starts in (ours, theirs))
    return {
        **found, "second": second, "ort": ort, "ratio": second / ort, "imports": both / other,
        "result": whole / beside,
    }  # fmt: skip


_NETWORKS = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
    "squeezenet", "zfnet512",
)  # fmt: skip
_RATIOS = ("ratio", "imports", "result")
_COLUMNS = ("first", "second", "ort", *_RATIOS)


def main() -> None:
    words = parser(__doc__)
    words.add_argument("files", nargs="*", metavar="FILE")
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--threads", type=int, default=1, help="cores, 1 unless given")
    words.add_argument("--first", action="store_true", help="with empty caches too")
    words.add_argument("--size", type=int, default=8, help="of open dims in the first call")
    words.add_argument("--tree", action="store_true", help="the tree itself, not installed")
    words.add_argument("--wall", action="store_true", help="time on the wall")
    given = words.parse_args()
    pinned(given.threads)
    os.environ["START_SIZE"] = str(given.size)
    if not given.tree:
        os.environ["PYTHONPATH"] = installed()
    clock = "perf_counter" if given.wall else "process_time"
    table = Table("model", *_COLUMNS)
    every: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in map(str, given.files or files(folder)):
            found = measured(path, given.rounds, given.threads, given.first, clock)
            for name, value in found.items():
                every.setdefault(name, []).append(value)
            table.add_row(Path(path).stem, *(_text(name, found.get(name)) for name in _COLUMNS))
    means = (geometric_mean(every[name]) if name in every else None for name in _COLUMNS)
    table.add_row("geometric mean", *(map(_text, _COLUMNS, means)))
    Console(width=110).print(table)


def _text(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if name in _RATIOS else f"{value:.0f}"


if __name__ == "__main__":
    main()

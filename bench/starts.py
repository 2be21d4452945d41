"""Starts of processes with a model from a file, beside onnxruntime: python -m bench.starts FILE ...

    python -m bench.starts FILE@sr=16000,input=1x576 ...   # a scalar, or the shape of an input
    python -m bench.starts FILE@lengths=1*64 ...           # a shape and the value of all elements
    python -m bench.starts --calls FILE ...                # to the first result, and 100 calls
    python -m bench.starts --together 6 FILE ...           # processes that start at once

Without files, light networks of the package onnx with random weights and MiniLM are measured. Each
figure is the median of fresh processes in turns, in milliseconds:

    first       ad.compile with empty caches of code and of programs
    family      ad.compile of the file with other weights, after the file
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

Figures of `--calls`, on the wall: `result` is the time from the start of the process to the end of
its first call, `calls` the sum of its first 100 calls, `ratio` to onnxruntime's; of a start with
empty caches, and of a second one.

`--together N`, on the wall and with empty caches: the time until a process alone has its first
result, and until the last of N that start at once has it; the same where the process that compiles
is killed halfway. `processor ratio` is the processor time of all N over that of one. The results of
all must be equal. A graph in Python, `Builder`, is a file, too.
"""

from __future__ import annotations

import atexit
import compileall
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from glob import glob
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np
import onnx
from onnx import numpy_helper
from rich.console import Console
from rich.table import Table

import anydim
from anydim.base.records import dataclass
from bench.arguments import parser
from bench.isolated import ROOT, pinned
from bench.light import light_model
from examples.minilm.model import model_path

BUILDER = "Builder"
CALLS = 100
INPUTS = """
import os, sys, time, json, numpy
path, _, given = sys.argv[1].partition("@")
given = dict(each.split("=") for each in given.split(",") if each)
size = int(os.environ.get("START_SIZE", 8))
def inputs(described):
    made = {}
    for name, shape, kind in described:
        text, _, value = given.get(name, "").partition("*")
        words = [int(word) for word in text.split("x") if word]
        if shape:
            sizes = [each if isinstance(each, int) and each > 0 else size for each in shape]
            made[name] = numpy.full(words or sizes, int(value or 1), kind)
        else:
            made[name] = numpy.array(words[0] if words else 1, kind)
    return made
"""
_REPORT = """
from time import {clock} as clock
def report(imported, made, call):
    ends = [time.perf_counter()]
    for _ in range(int(os.environ["START_CALLS"])):
        results = call()
        ends.append(time.perf_counter())
    results = results.values() if isinstance(results, dict) else results
    sums = [float(numpy.nan_to_num(each).sum()) for each in results if each.dtype.kind in "fiub"]
    print(json.dumps([imported, made, ends[1], ends[-1] - ends[0], sums]))
"""
KINDS = (
    "{'tensor(float)': 'f4', 'tensor(int64)': 'i8', 'tensor(int32)': 'i4', 'tensor(double)': 'f8',"
    " 'tensor(uint8)': 'u1', 'tensor(bool)': '?'}"
)
_OURS = f"""{INPUTS}{_REPORT}
start = clock()
import anydim as ad
loaded = clock()
def layers():
    random = numpy.random.default_rng(0)
    g = ad.Builder("layers")
    x = g.input("x", ad.float32, (g.dim("n", 0, 512), 128))
    def linear(x):
        return g.matmul(x, g.constant(random.standard_normal((128, 128), numpy.float32) / 11))
    for _ in range(4):
        q, k, v = linear(x), linear(x), linear(x)
        scores = g.softmax(g.matmul(q, g.transpose(k, perm=(1, 0))), axis=-1)
        x = g.add(x, linear(g.gelu(linear(g.matmul(scores, v)))))
    g.output("y", x)
    return g
model = ad.compile(layers() if path == "{BUILDER}" else path)
made = clock()
given_to = inputs([(i.name, [int(str(d)) if str(d).isdigit() else 0 for d in i.shape], str(i.dtype))
                   for i in model.inputs])
report(loaded - start, made - loaded, lambda: model(**given_to))
"""
_THEIRS = f"""{INPUTS}{_REPORT}
start = clock()
import onnxruntime
loaded = clock()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2])
options.log_severity_level = 4
begun = clock()
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
made = clock()
kinds = {KINDS}
feeds = inputs([(i.name, i.shape, kinds[i.type]) for i in session.get_inputs()])
report(loaded - start, made - begun, lambda: session.run(None, feeds))
"""


@dataclass(frozen=True)
class Start:
    """Milliseconds of the import and of a model, and of the whole process with its calls.

    `result` is the time from the start of the process to the end of its first call, `calls` that of
    all calls, `sums` those of the results.
    """

    imported: float
    made: float
    process: float
    result: float
    calls: float
    sums: tuple[float, ...]

    @property
    def both(self) -> float:
        """With the import."""
        return self.imported + self.made


@cache
def installed() -> str:
    """A folder with the package, its RECORD and bytecode, as an installer leaves them."""
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
    compileall.compile_dir(folder, quiet=1)
    return folder


class Started:
    """A process at work."""

    def __init__(self, work: str, path: str, threads: int, folder: str, calls: int = 1) -> None:
        self._begin = time.perf_counter()
        self.running = subprocess.Popen(
            [sys.executable, "-c", work, path, str(threads)], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={
                **os.environ, "ANYDIM_CACHE_DIR": folder, "OMP_NUM_THREADS": str(threads),
                "START_CALLS": str(calls),
            },
        )  # fmt: skip

    def ended(self) -> Start | None:
        """Wait for it; None where it was killed. Raises RuntimeError where it fails."""
        text, errors = self.running.communicate()
        process = time.perf_counter() - self._begin
        if self.running.returncode == -signal.SIGKILL:
            return None
        if self.running.returncode:
            raise RuntimeError(errors[-2000:])
        imported, made, first, calls, sums = json.loads(text.splitlines()[-1])
        return Start(
            1e3 * imported, 1e3 * made, 1e3 * process, 1e3 * (first - self._begin), 1e3 * calls,
            tuple(sums),
        )  # fmt: skip


def started(work: str, path: str, threads: int, folder: str, calls: int = 1) -> Start:
    """One process. Raises RuntimeError where it fails."""
    found = Started(work, path, threads, folder, calls).ended()
    if found is None:
        raise RuntimeError("the process was killed")
    return found


def files(folder: str) -> Iterator[Path]:
    """The files at hand; those of networks are written to a folder."""
    for name in _NETWORKS:
        path = Path(folder, f"{name}.onnx")
        onnx.save(light_model(name), path)
        yield path
    yield model_path()


def measured(path: str, rounds: int, threads: int, first: bool, clock: str) -> dict[str, float]:
    """The figures of one file."""
    ours, theirs, empty = alternated(path, rounds, threads, first, clock)
    found = {"first": median(each.made for each in empty)} if empty else {}
    if first:
        found["family"] = retrained(path, threads, clock).made
    second, ort = (median(each.made for each in starts) for starts in (ours, theirs))
    whole, beside = (median(each.process for each in starts) for starts in (ours, theirs))
    both, other = (median(each.both for each in starts) for starts in (ours, theirs))
    return {
        **found, "second": second, "ort": ort, "ratio": second / ort, "imports": both / other,
        "result": whole / beside,
    }  # fmt: skip


def called(path: str, rounds: int, threads: int, clock: str) -> dict[str, float]:
    """The figures of `--calls` of one file."""
    ours, theirs, empty = alternated(path, rounds, threads, True, clock, CALLS)
    found: dict[str, float] = {}
    for name in ("result", "calls"):
        first, second, ort = (
            median(getattr(each, name) for each in starts) for starts in (empty, ours, theirs)
        )
        found |= {
            f"first {name}": first, f"second {name}": second, f"ort {name}": ort,
            f"first {name} ratio": first / ort, f"second {name} ratio": second / ort,
        }  # fmt: skip
    return found


def alternated(
    path: str, rounds: int, threads: int, first: bool, clock: str, calls: int = 1
) -> tuple[list[Start], list[Start], list[Start]]:
    """Second starts, onnxruntime's and, where wanted, those with empty caches, in turns."""
    ours: list[Start] = []
    theirs: list[Start] = []
    empty: list[Start] = []
    our_work, their_work = (work.replace("{clock}", clock) for work in (_OURS, _THEIRS))
    with tempfile.TemporaryDirectory() as warm:
        for _ in range(2):  # the second one compares what the first one has kept
            started(our_work, path, threads, warm)
        for _ in range(rounds):
            ours.append(started(our_work, path, threads, warm, calls))
            theirs.append(started(their_work, path, threads, warm, calls))
            if first:
                with tempfile.TemporaryDirectory() as cold:
                    empty.append(started(our_work, path, threads, cold, calls))
    return ours, theirs, empty


def retrained(path: str, threads: int, clock: str) -> Start:
    """A start with the file's network and other weights, where the file was compiled before."""
    name, _, given = path.partition("@")
    work = _OURS.replace("{clock}", clock)
    model = onnx.load(name)
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.size > 64:
            tensor.CopyFrom(numpy_helper.from_array(np.float32(1.01) * values, tensor.name))
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder, "other.onnx")
        onnx.save(model, other)
        started(work, path, threads, folder)
        return started(work, f"{other}@{given}" if given else str(other), threads, folder)


def together(path: str, count: int, rounds: int, threads: int) -> dict[str, float]:
    """The figures of `--together` of one file."""
    work = _OURS.replace("{clock}", "perf_counter")
    alone, last, killed, busy, busy_together = (list[float]() for _ in range(5))
    sums = set()
    for _ in range(rounds):
        spent = _processor_time()
        with tempfile.TemporaryDirectory() as folder:
            only = started(work, path, threads, folder)
        alone.append(only.result)
        busy.append(_processor_time() - spent)
        sums.add(only.sums)
        for found, pause in ((last, None), (killed, only.made / 2e3)):
            with tempfile.TemporaryDirectory() as folder:
                begin, spent = time.perf_counter(), _processor_time()
                every = [Started(work, path, threads, folder) for _ in range(count)]
                if pause is not None:
                    while not (holder := _compiling(folder, every)):
                        time.sleep(0.01)
                    time.sleep(pause)
                    os.kill(holder, signal.SIGKILL)
                ends = [each.ended() for each in every]
                assert sum(end is None for end in ends) == (pause is not None)
                found.append(1e3 * (time.perf_counter() - begin))
                if pause is None:
                    busy_together.append(_processor_time() - spent)
                sums |= {end.sums for end in ends if end is not None}
    if len(sums) > 1:
        raise RuntimeError(f"results differ: {sums}")
    one, many, rest = median(alone), median(last), median(killed)
    return {
        "alone": one, "together": many, "ratio": many / one, "killed": rest,
        "killed ratio": rest / one, "processor ratio": median(busy_together) / median(busy),
    }  # fmt: skip


def _processor_time() -> float:
    """Seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _compiling(folder: str, every: list[Started]) -> int:
    """The process that holds the lock of a program, by the system's list of locks; 0: none yet."""
    own = {each.running.pid for each in every}
    nodes = {os.stat(path).st_ino for path in glob(f"{folder}/sources/*/*.lock")}
    for line in Path("/proc/locks").read_text("utf-8").splitlines():
        words = line.replace("->", "").split()
        if int(words[4]) in own and int(words[5].rpartition(":")[2]) in nodes:
            return int(words[4])
    return 0


_NETWORKS = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
    "squeezenet", "zfnet512",
)  # fmt: skip
_COLUMNS = ("first", "family", "second", "ort", "ratio", "imports", "result")
_CALLED = tuple(
    f"{start} {name}{ratio}" for name in ("result", "calls")
    for start, ratio in (
        ("first", ""), ("second", ""), ("ort", ""), ("first", " ratio"), ("second", " ratio")
    )
)  # fmt: skip
_TOGETHER = ("alone", "together", "ratio", "killed", "killed ratio", "processor ratio")


def main() -> None:
    words = parser(__doc__)
    words.add_argument("files", nargs="*", metavar="FILE")
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--threads", type=int, default=1, help="cores, 1 unless given")
    words.add_argument("--first", action="store_true", help="with empty caches too")
    words.add_argument("--calls", action="store_true", help="the first result and 100 calls")
    words.add_argument("--together", type=int, metavar="N", help="processes that start at once")
    words.add_argument("--size", type=int, default=8, help="of open dims in the first call")
    words.add_argument("--tree", action="store_true", help="the tree itself, not installed")
    words.add_argument("--wall", action="store_true", help="time on the wall")
    given = words.parse_args()
    pinned(given.threads)
    os.environ["START_SIZE"] = str(given.size)
    if not given.tree:
        os.environ["PYTHONPATH"] = installed()
    clock = "perf_counter" if given.wall else "process_time"
    columns = _TOGETHER if given.together else _CALLED if given.calls else _COLUMNS
    table = Table("model", *columns)
    every: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in map(str, given.files or files(folder)):
            if given.together:
                found = together(path, given.together, given.rounds, given.threads)
            elif given.calls:
                found = called(path, given.rounds, given.threads, clock)
            else:
                found = measured(path, given.rounds, given.threads, given.first, clock)
            for name, value in found.items():
                every.setdefault(name, []).append(value)
            name = "/".join(Path(path.partition("@")[0]).with_suffix("").parts[-2:])
            row = [_text(each, found.get(each)) for each in columns]
            print(name, *row, file=sys.stderr, flush=True)
            table.add_row(name, *row)
    means = (geometric_mean(every[name]) if name in every else None for name in columns)
    table.add_row("geometric mean", *map(_text, columns, means))
    Console(width=150).print(table)


def _text(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name in ("imports", "result") or name.endswith("ratio"):
        return f"{value:.2f}"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


if __name__ == "__main__":
    main()

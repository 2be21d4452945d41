"""Whole models with ragged="auto": right for every row, and beside padded and single calls.

    python -m bench.ragged_models models/                  # every .onnx file of a folder
    python -m bench.ragged_models bert.onnx --batches 50   # more random batches

Rows of random batches (of 0, 1, 2, 7 and 33 rows; shortest rows, primes, one row 100 times the
others) are compared with onnxruntime's result for the row alone: an error is the largest
difference, in roundings of its element type (float32: 2^-23) of the largest element of the result,
and a model is right up to 500. "bits" says whether a row has the same bits in a ragged call of its
own ("row"), and also in the model compiled without ragged ("same"). Each file has a process of its
own, and each of its two compiles an empty cache. Times are processor time for 32 rows of lognormal
lengths, in turns: a ragged call for one padded call, and for single calls.

The metadata of a file may have "lengths.DIM": {"natural": median, "most": largest, "step": 1,
"least": 0}, and "below.INPUT" for the bound of integers; the defaults are below.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy
import onnx
import onnxruntime
from rich.console import Console
from rich.table import Table

import anydim as ad

ROWS = (1, 2, 7, 33, 0)
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 31, 37, 61, 127)
SPREAD, RIGHT = 0.68, 500.0
BELOW = {"token_type_ids": 2, "positions": 64}
NATURAL = {"natural": 24, "most": 200, "step": 1}
Row = Mapping[str, numpy.ndarray]
COLUMNS = (
    "file", "tokens", "in loops", "loops", "compile s", "ragged s", "error", "bits",
    "of padded", "of single", "problem",
)  # fmt: skip


@click.command(help=__doc__)
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--batches", default=10, show_default=True, help="Random batches of a model.")
@click.option("--seconds", default=3.0, show_default=True, help="For the times of a model.")
@click.option("--one", type=click.Choice(["check", "padded"]), hidden=True)
def main(paths: tuple[Path, ...], batches: int, seconds: float, one: str | None) -> None:
    if one is not None:
        found = _checked(paths[0], batches, seconds) if one == "check" else _compiled(paths[0])
        print(json.dumps(found))
        return
    files = [file for path in paths for file in sorted(path.glob("*.onnx")) or [path]]
    table = Table(title="ragged models, one thread")
    for column in COLUMNS:
        left = column in ("file", "problem")
        table.add_column(column, justify="left" if left else "right", no_wrap=not left)
    for file in files:
        found = {"file": file.stem}
        for kind in ("padded", "check"):
            found |= _child(file, kind, batches, seconds)
        cells = [str(found.get(column, "")) for column in COLUMNS]
        print("  ".join(cells), file=sys.stderr, flush=True)
        table.add_row(*cells)
    Console(width=200).print(table)


def _child(file: Path, kind: str, batches: int, seconds: float) -> dict[str, Any]:
    """What a process with an empty cache finds."""
    command = [sys.executable, "-m", "bench.ragged_models", str(file), "--one", kind]
    command += ["--batches", str(batches), "--seconds", str(seconds)]
    with tempfile.TemporaryDirectory() as cache:
        surroundings = {**os.environ, "XDG_CACHE_HOME": cache}
        done = subprocess.run(
            command, env=surroundings, capture_output=True, text=True, check=False
        )
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        return {"problem": f"{kind}: {last}"}
    return dict(json.loads(lines[-1]))


def _timed(make: Callable[[], Any]) -> tuple[Any, str]:
    start = time.process_time()
    made = make()
    return made, f"{time.process_time() - start:.2f}"


def _compiled(file: Path) -> dict[str, Any]:
    return {"compile s": _timed(lambda: ad.compile(str(file), threads=1))[1]}


def _checked(file: Path, batches: int, seconds: float) -> dict[str, Any]:
    """A row of the table."""
    found: dict[str, Any] = {}
    try:
        found |= _counts(file)
        ragged, found["ragged s"] = _timed(lambda: ad.compile(str(file), ragged="auto", threads=1))
        work = _Work(file)
        check = _Check(work, ragged, ad.compile(str(file), threads=1))
        for number in range(batches):
            check.batch(work.rows(ROWS[number % len(ROWS)], number))
        found["error"] = f"{check.error:.0f}" + (" wrong" if check.error > RIGHT else "")
        found["bits"] = "same" if check.same else "row" if check.stable else "other"
        found["problem"] = "; ".join(check.problems)
        found |= _times(work, check, seconds)
    except Exception as problem:  # any: it is the row's result
        found["problem"] = f"{type(problem).__name__}: {problem}"
    return found


def _counts(file: Path) -> dict[str, Any]:
    """The nodes of the ragged graph outside of loops over rows, and inside."""
    read = import_module("anydim.compiler.frontends.table").read
    rewrite = import_module("anydim.compiler.passes.ragged.rows").RaggedRows("auto")
    graph, _ = rewrite.run(read(str(file)))
    loops = [node.region.body for node in graph.nodes if node.operator == "loop"]

    def own(nodes: Sequence[Any]) -> int:
        return sum(node.source != "rows" for node in nodes)

    inside = [own(body.nodes) for body in loops]
    return {"tokens": own(graph.nodes), "in loops": sum(inside), "loops": len(loops)}


@dataclass
class _Work:
    """Random rows for a model, and the original model's results for them."""

    file: Path
    session: Any = field(init=False)
    lengths: dict[str, dict[str, int]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        self.session = onnxruntime.InferenceSession(
            str(self.file), options, ["CPUExecutionProvider"]
        )
        held = onnx.load(str(self.file), load_external_data=False).metadata_props
        self.told = {each.key: json.loads(each.value) for each in held if "." in each.key
                     and each.key.split(".")[0] in ("lengths", "below")}  # fmt: skip
        for given in self.session.get_inputs():
            for size in given.shape[1:]:
                if isinstance(size, str):
                    self.lengths[size] = {**NATURAL, **self.told.get(f"lengths.{size}", {})}

    @cached_property
    def least(self) -> int:
        """The smallest size of ragged dims that the original model takes, in steps."""
        right = max(held.get("least", 0) for held in self.lengths.values())
        wrong = right - 1
        while not self.takes(right):
            wrong, right = right, 2 * right + 1
            if right > 1 << 16:
                raise ValueError("onnxruntime takes no row")
        while right - wrong > 1:
            middle = (wrong + right) // 2
            wrong, right = (wrong, middle) if self.takes(middle) else (middle, right)
        return right

    def takes(self, size: int) -> bool:
        chance = numpy.random.default_rng(0)
        try:
            self.alone(self.row({dim: size * held["step"] for dim, held in self.lengths.items()},
                                chance))  # fmt: skip
        except Exception:  # any: it is the peer's
            return False
        return True

    def row(self, sizes: Mapping[str, int], chance: numpy.random.Generator) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for given in self.session.get_inputs():
            shape = [sizes[size] if isinstance(size, str) else size for size in given.shape[1:]]
            if "float" in given.type:
                made[given.name] = chance.standard_normal(shape, numpy.float32)
            elif "mask" in given.name:
                dtype = bool if "bool" in given.type else numpy.int64
                made[given.name] = numpy.full(shape, "pad" not in given.name, dtype)
            else:
                bound = self.told.get(f"below.{given.name}", BELOW.get(given.name, 500))
                made[given.name] = chance.integers(min(3, bound - 2), bound, shape)
        return made

    def rows(self, count: int, number: int) -> list[Row]:
        """The rows of a random batch."""
        chance = numpy.random.default_rng((count, number))
        kinds = [self.short(chance) for _ in range(count)]
        if count > 2:
            kinds[int(chance.integers(count))] = {
                dim: min(held["most"], 100 * self.least * held["step"] + 101) // held["step"]
                * held["step"] for dim, held in self.lengths.items()
            }  # fmt: skip
        return [self.row(sizes, chance) for sizes in kinds]

    def short(self, chance: numpy.random.Generator) -> dict[str, int]:
        made = {}
        for dim, held in self.lengths.items():
            more = int(chance.choice((0, 0, 1, *PRIMES)))
            size = (self.least + more) * held["step"]
            if chance.random() < 0.3:
                size = self.natural(dim, chance)
            made[dim] = min(size, held["most"])
        return made

    def natural(self, dim: str, chance: numpy.random.Generator) -> int:
        held = self.lengths[dim]
        size = held["natural"] * float(numpy.exp(chance.normal(0, SPREAD)))
        steps = max(self.least, round(min(size, held["most"]) / held["step"]))
        return int(steps) * int(held["step"])

    def alone(self, row: Row) -> list[numpy.ndarray]:
        """The original model's results for a row, without the axis of the batch."""
        feeds = {name: value[None] for name, value in row.items()}
        return [numpy.asarray(made)[0] for made in self.session.run(None, feeds)]

    def padded(self, rows: Sequence[Row]) -> dict[str, numpy.ndarray]:
        made = {}
        for name in rows[0]:
            parts = [row[name] for row in rows]
            sizes = [max(axes) for axes in zip(*(part.shape for part in parts))]
            whole = numpy.zeros((len(rows), *sizes), parts[0].dtype)
            for place, part in zip(whole, parts):
                place[tuple(map(slice, part.shape))] = part
            made[name] = whole
        return made


@dataclass
class _Check:
    work: _Work
    ragged: Any
    plain: Any
    error: float = 0.0
    same: bool = True
    stable: bool = True
    problems: list[str] = field(default_factory=list)

    def call(self, rows: Sequence[Row]) -> list[Sequence[numpy.ndarray]]:
        """The results of a ragged call, a sequence of rows each."""
        names = [given.name for given in self.work.session.get_inputs()]
        omitted = {name for name, port in self.ragged.lists.items() if port.ones}
        feeds = {name: [row[name] for row in rows] for name in names if name not in omitted}
        return list(self.ragged(**feeds).values())

    def single(self, row: Row) -> list[numpy.ndarray]:
        made = self.plain(**{name: value[None] for name, value in row.items()})
        return [numpy.asarray(value)[0] for value in made.values()]

    def batch(self, rows: Sequence[Row]) -> None:
        try:
            made = self.call(rows)
        except Exception as problem:  # any: it is the row's result
            self.problem(f"{len(rows)} rows: {type(problem).__name__}: {problem}")
            return
        for number, row in enumerate(rows):
            sizes = ", ".join(str(list(value.shape)) for value in row.values())
            try:
                expected = self.work.alone(row)
            except Exception:  # any: it is the peer's
                continue
            for result, single in zip(made, self.call([row])):
                self.stable &= _bits(result[number]) == _bits(single[0])
            try:
                plain = self.single(row)
            except Exception as problem:  # any: it is the row's result
                self.problem(f"alone {sizes}: {type(problem).__name__}: {problem}")
                plain = [value[number] for value in made]
            for result, want, own in zip(made, expected, plain):
                got = numpy.asarray(result[number])
                if got.shape != want.shape and got.shape == own.shape:
                    self.problem(f"alone {sizes}: shape {own.shape}, of the peer {want.shape}")
                elif got.shape != want.shape:
                    self.problem(f"row {sizes}: shape {got.shape}, expected {want.shape}")
                    self.error = numpy.inf
                else:
                    self.error = max(self.error, _error(got, want))
                self.same &= _bits(got) == _bits(own)

    def problem(self, text: str) -> None:
        if len(self.problems) < 2 and text not in self.problems:
            self.problems.append(text)


def _bits(value: Any) -> bytes:
    return numpy.asarray(value).tobytes()


def _error(got: numpy.ndarray, want: numpy.ndarray) -> float:
    """The largest difference, in roundings of the largest element."""
    if not got.size:
        return 0.0
    if got.dtype.kind != "f":
        return 0.0 if (got == want).all() else float("inf")
    apart = numpy.isfinite(got) != numpy.isfinite(want)
    if apart.any():
        return float("inf")
    finite = numpy.isfinite(want)
    largest = numpy.abs(want[finite]).max(initial=1e-30)
    apart_by = numpy.abs(got.astype(float) - want)[finite].max(initial=0.0)
    return float(apart_by / largest / numpy.finfo(want.dtype).eps)


def _times(work: _Work, check: _Check, seconds: float) -> dict[str, Any]:
    """The time of a ragged call for one of a padded call, and of single calls."""
    chance = numpy.random.default_rng(7)
    sizes = [{dim: work.natural(dim, chance) for dim in work.lengths} for _ in range(32)]
    rows = [work.row(each, chance) for each in sizes]
    whole = work.padded(rows)
    singles = [{name: value[None] for name, value in row.items()} for row in rows]
    calls: dict[str, Callable[[], Any]] = {
        "ragged": lambda: check.call(rows),
        "padded": lambda: check.plain(**whole),
        "single": lambda: [check.plain(**row) for row in singles],
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["single"]) < 3:
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    spent = {name: median(each) for name, each in times.items()}
    return {f"of {name}": f"{spent['ragged'] / spent[name]:.2f}" for name in ("padded", "single")}


if __name__ == "__main__":
    main()

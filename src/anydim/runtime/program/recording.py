"""Recordings of the sizes and times of calls.

    {"model": "encoder", "dims": {"batch": 8, "seq": 77}, "count": 2, "seconds": 0.31, "least": 0.1}

A file consists of such lines and is append-only; each line is written at once. Several processes
may write to one file, and truncation loses only the truncated part. Lines with the same sizes are
summed. Unreadable lines are skipped with one warning. Lines of launches may be interleaved
(`site_recording.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from anydim.base.errors import OptionError
from anydim.base.fork_locks import fork_lock
from anydim.base.records import dataclass
from anydim.runtime.executable import Executable
from anydim.runtime.program.binding import Source, solve
from anydim.sizes import LARGEST

BETWEEN = 10.0  # seconds between writes
_MOST_LINE = 1 << 16  # bytes
SITE = "site"  # first word of a line of launches
_OF_SITE = b'{"site":'
_MOST_KEPT = 4096  # maximum unwritten sizes


@dataclass(frozen=True)
class Recorded:
    """Sizes of calls: their count, the seconds of all calls, and of the fastest one."""

    model: str
    dims: Mapping[str, int]
    count: int
    seconds: float
    least: float

    @property
    def key(self) -> tuple[Any, ...]:
        """The common part of lines that are summed."""
        return (self.model, *sorted(self.dims.items()))

    def with_more(self, other: Recorded) -> Recorded:
        """Return the sum of both."""
        return Recorded(
            self.model, self.dims, self.count + other.count, self.seconds + other.seconds,
            min(self.least, other.least),
        )  # fmt: skip

    def line(self) -> str:
        """Return the line of a file."""
        return json.dumps({
            "model": self.model, "dims": dict(self.dims), "count": self.count,
            "seconds": round(self.seconds, 9), "least": round(self.least, 9),
        })  # fmt: skip


class Watcher(Protocol):
    """Records the sizes of launches, from `start` to `stop`.

    `lines` returns lines since the previous call; with `last`, the totals of all calls.
    """

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def lines(self, rows: Sequence[Recorded], last: bool) -> Iterable[str]: ...


class Recording:
    """Records calls of an executable in all threads, from `start` to `stop`.

    A `watcher` adds lines of launches.
    """

    def __init__(
        self, path: str | os.PathLike[str], executable: Executable[Any],
        watcher: Watcher | None = None,
    ) -> None:  # fmt: skip
        self.path = Path(path)
        self._executable, self._watcher = executable, watcher
        self._all: dict[tuple[Any, ...], Recorded] = {}  # for a watcher
        self._sources: tuple[Source, ...] = solve(executable.signature, frozenset())
        self._ranks = [spec.rank for spec in executable.signature.inputs]
        self._lock = fork_lock(self, "_lock")
        self._came: dict[tuple[int, ...], list[float]] = {}
        self._next = 0.0
        self._said = False

    def start(self) -> Recording:
        """Start recording. Raises OptionError for a file that is not writable."""
        try:
            with open(self.path, "a", encoding="utf-8"):
                pass
        except OSError as error:
            raise OptionError(f"{self.path} cannot be written: {error.strerror}") from None
        if self._executable.noted is not None:
            raise OptionError(
                f"{self._executable.signature.name}: a recording is already in progress"
            )
        self._executable.noted, self._next = self._note, time.monotonic() + BETWEEN
        if self._watcher is not None:
            self._watcher.start()
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Stop recording and write the rest."""
        if self._executable.noted == self._note:
            self._executable.noted = None
        atexit.unregister(self.stop)
        self._write(last=True)
        if self._watcher is not None:
            self._watcher.stop()
        self._watcher = None

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _note(self, shapes: Sequence[int], seconds: float) -> None:
        with self._lock:
            row = self._came.setdefault(tuple(shapes), [0, 0.0, float("inf")])
            row[0] += 1
            row[1] += seconds
            row[2] = min(row[2], seconds)
            full = len(self._came) > _MOST_KEPT or time.monotonic() > self._next
        if full:
            self._write()

    def _write(self, last: bool = False) -> None:
        with self._lock:
            came, self._came = self._came, {}
            self._next = time.monotonic() + BETWEEN
        name = self._executable.signature.name
        rows = sum_records(
            Recorded(name, self._dims(shapes), int(count), seconds, least)
            for shapes, (count, seconds, least) in came.items()
        )
        lines = [row.line() for row in rows]
        if self._watcher is not None:
            self._all = {row.key: row for row in sum_records([*self._all.values(), *rows])}
            lines += self._watcher.lines(list(self._all.values()), last)
        try:
            _append(self.path, lines)
        except OSError as error:
            if not self._said:
                self._said = True
                with contextlib.suppress(Warning):  # warnings must not fail the call
                    warnings.warn(
                        f"{self.path}: sizes are not written ({error})", RuntimeWarning,
                        stacklevel=1,
                    )  # fmt: skip

    def _dims(self, shapes: Sequence[int]) -> dict[str, int]:
        """Return the dims that follow from all sizes of the inputs, concatenated."""
        known: dict[str, int] = {}
        for source in self._sources:
            size = shapes[sum(self._ranks[: source.input]) + source.axis]
            factor = source.factor.evaluate(known)
            known[source.dim] = (size - source.rest.evaluate(known)) // max(1, factor)
        return known


def read_recorded(paths: Iterable[str | os.PathLike[str]]) -> list[Recorded]:
    """Read files; rows of the same sizes are summed and sorted by seconds, descending.

    Invalid lines are skipped with a warning. Raises OptionError for an unreadable file.
    """
    rows: list[Recorded] = []
    for path in paths:
        found = [_row(line) for line in lines_of(path) if not line.startswith(_OF_SITE)]
        some = [row for row in found if row is not None]
        if len(some) < len(found):
            warnings.warn(
                f"{path}: {len(found) - len(some)} of {len(found)} lines say no sizes, and are "
                "left out", RuntimeWarning, stacklevel=2,
            )  # fmt: skip
        rows += some
    return sorted(sum_records(rows), key=lambda row: -row.seconds)


def _append(path: Path, lines: Sequence[str]) -> None:
    """Append lines to a file, after a truncated last line. Raises OSError if not all are
    written."""
    with open(path, "a+b", buffering=0) as file:
        last = b"\n"
        if file.tell():
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
        data = b"".join(line.encode() + b"\n" for line in lines)
        data = data if last == b"\n" else b"\n" + data
        if file.write(data) != len(data):
            raise OSError("there is no room for all of it")


def sum_records(rows: Iterable[Recorded]) -> list[Recorded]:
    """Sum rows of the same model and sizes."""
    found: dict[tuple[Any, ...], Recorded] = {}
    for row in rows:
        before = found.get(row.key)
        found[row.key] = row if before is None else before.with_more(row)
    return list(found.values())


def lines_of(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yield the lines of a file. Raises OptionError for an unreadable file."""
    try:
        with open(path, "rb") as file:
            while line := file.readline(_MOST_LINE):
                if not line.isspace():
                    yield line
    except OSError as error:
        hint = "model.record(path) writes one"
        raise OptionError(f"{path} cannot be read: {error.strerror}", hint) from None


def _row(line: bytes) -> Recorded | None:
    """Parse a line; None if it is invalid."""
    try:
        found = json.loads(line)
        dims, numbers = found["dims"], (found["seconds"], found["least"])
        count = found["count"]
        fine = (
            isinstance(found["model"], str)
            and isinstance(dims, dict)
            and all(type(size) is int and 0 <= size <= LARGEST for size in dims.values())
            and type(count) is int
            and 0 < count <= LARGEST
            and all(isinstance(number, (int, float)) for number in numbers)
            and all(number >= 0 and math.isfinite(number) for number in numbers)
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return Recorded(found["model"], dims, count, *map(float, numbers)) if fine else None

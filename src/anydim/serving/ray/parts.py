"""The files of results of a job: a Parquet file for each chunk, complete or missing.

A part is written under another name and renamed when it is complete, so that a worker that is
killed leaves no part, and two workers that run the same chunk leave one.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy

from anydim.serving.ray.items import Chunk, items_of
from anydim.serving.ray.packages import ray_module

_UNFINISHED = "_unfinished-"  # readers of Parquet folders skip names with _
ITEM, ERROR = "item", "error"


def part_of(output: Path, number: int) -> Path:
    """The file of a chunk's results."""
    return output / f"part-{number:07d}.parquet"


def finished_chunks(output: Path, count: int) -> set[int]:
    """The numbers of the chunks that have a part; removes files of parts that never ended."""
    for path in output.glob(f"{_UNFINISHED}*"):
        path.unlink(missing_ok=True)
    names = {path.name for path in output.glob("part-*.parquet")}
    return {number for number in range(count) if part_of(output, number).name in names}


Row = tuple[Mapping[str, Any], Mapping[str, Any] | None, str | None]


class PartFile:
    """Writes the results of a chunk: numbers of items, columns that are kept, results.

    A result of rank 0 is a column of numbers, one of rank 1 a column of lists; of other ranks, a
    column of lists in row-major order beside `NAME.shape`.
    """

    def __init__(
        self, output: Path, chunk: Chunk, kept: Sequence[str], names: Sequence[str],
        with_errors: bool,
    ) -> None:  # fmt: skip
        self._path = part_of(output, chunk.number)
        self._own = output / f"{_UNFINISHED}{self._path.name}-{uuid.uuid4().hex}"
        self._kept, self._names, self._with_errors = tuple(kept), tuple(names), with_errors
        self._next = chunk.first
        self._held: list[Row] = []  # whose columns have no type yet: none of them has results
        self._writer: Any = None

    def write(self, rows: list[Row]) -> None:
        """Append rows, one an item: the item, its results or None, and why it has none."""
        rows = [*self._held, *rows]
        if self._writer is None and all(results is None for _, results, _ in rows):
            self._held = rows
            return
        self._held = []
        self._append(rows)

    def _append(self, rows: list[Row]) -> None:
        pyarrow = ray_module("pyarrow")
        columns: dict[str, Any] = {ITEM: numpy.arange(self._next, self._next + len(rows))}
        columns.update((name, [item.get(name) for item, _, _ in rows]) for name in self._kept)
        for name in self._names:
            arrays = [None if results is None else results[name] for _, results, _ in rows]
            columns.update(_columns(name, arrays))
        if self._with_errors:
            columns[ERROR] = pyarrow.array([error for _, _, error in rows], pyarrow.string())
        table = pyarrow.table(columns)
        if self._writer is None:
            writer = ray_module("pyarrow.parquet").ParquetWriter
            kept = list(self._kept)  # results hardly repeat
            self._writer = writer(self._own, table.schema, use_dictionary=kept)
        self._writer.write_table(table.cast(self._writer.schema))
        self._next += len(rows)

    def close(self) -> None:
        """Give the part its name."""
        if self._held or self._writer is None:
            self._append(self._held)
        self._writer.close()
        with open(self._own, "rb") as file:
            os.fsync(file.fileno())
        os.replace(self._own, self._path)

    def discard(self) -> None:
        """Leave nothing behind."""
        if self._writer is not None:
            self._writer.close()
        self._own.unlink(missing_ok=True)


def warm_up(kept: Sequence[str]) -> None:
    """Write and read a small part, so that what the packages take by themselves is there."""
    with tempfile.TemporaryDirectory() as folder:
        chunk = Chunk(0, "", 0, 1024, 0, 0)
        part = PartFile(Path(folder), chunk, kept, ["x"], True)
        part.write([(dict.fromkeys(kept, "x"), {"x": numpy.ones((9, 9))}, None)] * chunk.count)
        part.close()
        written = replace(chunk, path=str(part_of(Path(folder), 0)))
        for _ in items_of(written, None):
            pass


def _columns(name: str, arrays: Sequence[Any]) -> dict[str, Any]:
    """The columns of a result; None stands for a missing one."""
    pyarrow = ray_module("pyarrow")
    there = [array for array in arrays if array is not None]
    if not there:
        return {name: pyarrow.nulls(len(arrays))}
    if there[0].dtype.name == "bfloat16":
        there = [array.astype(numpy.float32) for array in there]
    if there[0].ndim == 0:
        values = [None if array is None else array.item() for array in arrays]
        return {name: pyarrow.array(values, pyarrow.from_numpy_dtype(there[0].dtype))}
    flat = pyarrow.array(numpy.concatenate([array.reshape(-1) for array in there]))
    sizes = [0 if array is None else array.size for array in arrays]
    offsets = numpy.concatenate([[0], numpy.cumsum(sizes)])
    missing = pyarrow.array([array is None for array in arrays])
    lists = pyarrow.LargeListArray.from_arrays(offsets, flat, mask=missing)
    if there[0].ndim == 1:
        return {name: lists}
    shapes = [None if array is None else list(array.shape) for array in arrays]
    return {name: lists, f"{name}.shape": pyarrow.array(shapes, pyarrow.list_(pyarrow.int64()))}

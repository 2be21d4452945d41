"""The items of input files: rows of Parquet files and lines of JSON, in chunks of known extent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy

from anydim.base.errors import InputError, OptionError
from anydim.base.records import dataclass
from anydim.serving.ray.packages import ray_module

PARQUET, LINES = (".parquet",), (".jsonl", ".ndjson")
_READ = 1 << 20  # bytes of a file at a time
_ROWS, _DECODED = 1024, 1 << 22  # most rows and bytes that are decoded at a time
Item = dict[str, Any]


@dataclass(frozen=True)
class Chunk:
    """Items that follow one another in a file; the results of a chunk are one part.

    `first` is the number of its first item among those of all files. `start` is the first row of
    its row group `group` (Parquet), or the position of its first byte (lines).
    """

    number: int
    path: str
    first: int
    count: int
    start: int
    group: int

    def text(self) -> str:
        """It as a text, for `of_text`."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_text(text: str) -> Chunk:
        """The chunk of a text."""
        return Chunk(**json.loads(text))


def chunks_of(paths: Sequence[str], most: int) -> list[Chunk]:
    """The chunks of files, each of at most `most` items; raises OptionError for other files."""
    found: list[Chunk] = []
    first = 0
    for path in paths:
        for group, start, count in _extents(path, most):
            found.append(Chunk(len(found), path, first, count, start, group))
            first += count
    return found


def _extents(path: str, most: int) -> Iterator[tuple[int, int, int]]:
    """Row group, start and count of each chunk of a file."""
    suffix = Path(path).suffix
    if not Path(path).is_file():
        raise OptionError(f"there is no file {path}")
    if suffix in PARQUET:
        about = ray_module("pyarrow.parquet").ParquetFile(path).metadata
        for group in range(about.num_row_groups):
            rows = about.row_group(group).num_rows
            yield from ((group, start, min(most, rows - start)) for start in range(0, rows, most))
    elif suffix in LINES:
        yield from ((0, start, count) for start, count in _lines(path, most))
    else:
        raise OptionError(f"{path} has another format",
                          f"files of items end in {', '.join((*PARQUET, *LINES))}")  # fmt: skip


def _lines(path: str, most: int) -> Iterator[tuple[int, int]]:
    """First byte and count of each `most` lines."""
    start, position, count, is_open = 0, 0, 0, False
    with open(path, "rb") as file:
        while block := file.read(_READ):
            ends = numpy.flatnonzero(numpy.frombuffer(block, numpy.uint8) == 10) + position + 1
            position += len(block)
            is_open = block[-1:] != b"\n"
            while count + len(ends) >= most:
                end = int(ends[most - count - 1])
                yield start, most
                ends, start, count = ends[most - count :], end, 0
            count += len(ends)
    if count + is_open:
        yield start, count + is_open


def read_bytes(chunk: Chunk, columns: Sequence[str] | None) -> int:
    """Bytes that reading a chunk holds: pyarrow reads the columns of a whole row group."""
    if Path(chunk.path).suffix not in PARQUET:
        return 0
    about = ray_module("pyarrow.parquet").ParquetFile(chunk.path).metadata.row_group(chunk.group)
    found = (about.column(number) for number in range(about.num_columns))
    return sum(
        each.total_compressed_size for each in found
        if columns is None or each.path_in_schema.split(".")[0] in columns
    )  # fmt: skip


def items_of(chunk: Chunk, columns: Sequence[str] | None) -> Iterator[Item]:
    """The items of a chunk, by column; None: all columns. Raises InputError for a wrong line."""
    read = _of_parquet if Path(chunk.path).suffix in PARQUET else _of_lines
    return read(chunk, columns)


def _of_lines(chunk: Chunk, columns: Sequence[str] | None) -> Iterator[Item]:
    with open(chunk.path, "rb") as file:
        file.seek(chunk.start)
        for number in range(chunk.count):
            try:
                found = json.loads(file.readline())
            except ValueError as error:
                found = error
            if not isinstance(found, dict):
                raise InputError(f"{chunk.path}: item {chunk.first + number} is no object of JSON")
            yield found if columns is None else {name: found.get(name) for name in columns}


def _of_parquet(chunk: Chunk, columns: Sequence[str] | None) -> Iterator[Item]:
    file = ray_module("pyarrow.parquet").ParquetFile(chunk.path, buffer_size=_READ)
    begin, end, position = chunk.start, chunk.start + chunk.count, 0
    names = None if columns is None else list(columns)
    about = file.metadata.row_group(chunk.group)
    bytes_of_a_row = about.total_byte_size // max(about.num_rows, 1) + 1
    count = max(1, min(_ROWS, _DECODED // bytes_of_a_row))
    for batch in file.iter_batches(
        count, row_groups=[chunk.group], columns=names, use_threads=False
    ):
        low, high = max(begin - position, 0), min(end - position, batch.num_rows)
        if low < high:
            part = batch.slice(low, high - low)
            values = [_values(part.column(name)) for name in part.schema.names]
            for row in zip(*values):
                yield dict(zip(part.schema.names, row))
        position += batch.num_rows
        if position >= end:
            return


def _values(column: Any) -> Sequence[Any]:
    """The values of a column: arrays of lists of numbers, without copies; else Python's."""
    pyarrow = ray_module("pyarrow")
    kind = column.type
    if not pyarrow.types.is_list(kind) and not pyarrow.types.is_large_list(kind):
        return list(column.to_pylist())
    inner = kind.value_type
    is_number = pyarrow.types.is_integer(inner) or pyarrow.types.is_floating(inner)
    if not is_number or column.null_count or column.values.null_count:
        return list(column.to_pylist())
    flat = column.values.to_numpy()
    offsets = column.offsets.to_numpy()
    return [flat[start:stop] for start, stop in pairwise(offsets)]

"""Ragged batches: rows of their own sizes, stored one after another without padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.errors import InputError
from anydim.base.keywords import public
from anydim.base.records import dataclass
from anydim.base.text import listed
from anydim.sizes import Size, as_size, product


@public
class Ragged:
    """Rows of a batch that differ in size, stored back to back.

    A row is a view of `values`: `ragged[3]`, or by iteration; `len(ragged)` is the number of rows.

    Args:
        values: All rows along axis 0, `[total, ...]`.
        offsets: `[rows + 1]`, increasing from 0 to `total`; row `i` is
            `values[offsets[i]:offsets[i + 1]]`.
        shapes: The shape of each row. None: rows have the shape of their part of `values`.

    Raises:
        InputError: The offsets do not fit the values.
    """

    def __init__(
        self, values: Any, offsets: Any, shapes: Sequence[tuple[int, ...]] | None = None
    ) -> None:
        self.values = numpy.asarray(values)
        self.offsets = numpy.asarray(offsets)
        found = self.offsets
        if self.values.ndim == 0 or found.ndim != 1 or not len(found) or found.dtype.kind not in "iu":
            raise InputError(
                "a ragged batch needs values with an axis, and integer offsets [rows + 1]",
                "ad.Ragged.of([row, row, ...]) makes both from a list of rows",
            )
        self.offsets = found = found.astype(numpy.int64, copy=False)
        total = len(self.values)
        if found[0] != 0 or found[-1] != total or (found[1:] < found[:-1]).any():
            raise InputError(
                f"offsets of a ragged batch increase from 0 to {total}, the number of elements; "
                f"they start with {found[0]} and end with {found[-1]}"
            )
        self.shapes = None if shapes is None else list(shapes)

    @staticmethod
    def of(rows: Iterable[Any]) -> Ragged:
        """A ragged batch of rows that differ in the size of axis 0.

        Args:
            rows: Arrays of one element type and rank.

        Raises:
            InputError: The rows differ in more than the size of axis 0, or there are none.
        """
        held = [numpy.asarray(row) for row in rows]
        if not held:
            raise InputError("a ragged batch of no rows has no element type",
                             "give ad.Ragged(values, offsets) for it")  # fmt: skip
        _same_kind("rows", held)
        lengths = [row.shape[0] if row.ndim else -1 for row in held]
        if min(lengths) < 0 or len({row.shape[1:] for row in held}) > 1:
            raise InputError(f"rows of shapes {_shapes(held)} differ in more than axis 0")
        return Ragged(joined(held), numpy.concatenate([[0], numpy.cumsum(lengths)]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> numpy.ndarray:
        number = range(len(self))[row]
        part = self.values[self.offsets[number] : self.offsets[number + 1]]
        return part if self.shapes is None else part.reshape(self.shapes[number])

    def __iter__(self) -> Iterator[numpy.ndarray]:
        return (self[row] for row in range(len(self)))

    @property
    def lengths(self) -> numpy.ndarray:
        """The number of elements of each row along axis 0 of `values`, int64."""
        return numpy.diff(self.offsets)

    def padded(self, fill: Any = 0) -> numpy.ndarray:
        """The rows as one array, each padded behind to the largest size of each axis.

        Args:
            fill: The value of the padding.
        """
        rows = list(self)
        rank = self.values.ndim if self.shapes is None else len(rows[0].shape) if rows else 1
        sizes = [max((row.shape[axis] for row in rows), default=0) for axis in range(rank)]
        if self.shapes is None:
            sizes[1:] = self.values.shape[1:]
        made = numpy.full((len(rows), *sizes), fill, self.values.dtype)
        for number, row in enumerate(rows):
            made[(number, *(slice(size) for size in row.shape))] = row
        return made

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, self.lengths[:6].tolist()))
        more = ", ..." if len(self) > 6 else ""
        kind = f"{self.values.dtype}[{', '.join(map(str, self.values.shape))}]"
        return f"<ragged: {len(self)} rows of {sizes}{more}; values {kind}>"


@dataclass(frozen=True)
class RaggedPort:
    """An input or output that users see as a ragged batch.

    The program has the value `values` for it: all rows along axis 0, or, when `flat`, all elements
    in one axis. `shape` is the shape of a row; its sizes use the dims of `lengths`, whose columns
    are the sizes of each row, and other dims. `counted` is the size of a row's part of `values`.
    An input that is `ones` is not in the program: it marks padding, of which there is none.
    """

    values: str
    lengths: str
    dims: tuple[str, ...]
    shape: tuple[Size, ...]
    counted: Size
    flat: bool = False
    ones: bool = False


Ports = Mapping[str, RaggedPort]


def packed(
    model: str, ports: Ports, given: Mapping[str, Any], dims: Mapping[str, tuple[int, int | None]]
) -> dict[str, Any]:
    """Convert ragged inputs to arrays, with the lengths of rows; other inputs are kept.

    `dims` are the bounds of the ragged dims. Raises InputError for rows that do not fit each other.
    """
    feeds = dict(given)
    sizes: dict[str, numpy.ndarray] = {}
    source: dict[str, str] = {}
    first = next(iter(ports.values()))
    for name, port in ports.items():
        if name not in feeds:
            continue
        rows = feeds.pop(name)
        values, shapes = _read(model, name, rows, port)
        if port.ones:
            _check_ones(model, name, values)
        else:
            feeds[port.values] = values
        for dim, found in _solved(model, name, port, shapes).items():
            _agree(model, name, dim, found, sizes, source)
    for dim, found in sizes.items():
        _within(model, dim, found, source[dim], dims.get(dim, (0, None)))
    if all(dim in sizes for dim in first.dims):
        columns = [sizes[dim] for dim in first.dims]
        feeds[first.lengths] = numpy.stack(columns, axis=1).astype(numpy.int64)
    return feeds


def unpacked(
    results: Mapping[str, Any], ports: Ports, lengths: numpy.ndarray, others: Mapping[str, int]
) -> dict[str, Any]:
    """Convert results to ragged batches; `others` are the sizes of dims that rows share."""
    made: dict[str, Any] = {}
    for name, value in results.items():
        port = ports.get(name)
        if port is None:
            made[name] = value
            continue
        table = {dim: lengths[:, axis] for axis, dim in enumerate(port.dims)}
        counts = numpy.array([
            port.counted.evaluate({**others, **row}) for row in _rows(table, len(lengths))
        ], numpy.int64)  # fmt: skip
        offsets = numpy.concatenate([[0], numpy.cumsum(counts)]).astype(numpy.int64)
        shapes = None
        if port.flat:
            shapes = [
                tuple(size.evaluate({**others, **row}) for size in port.shape)
                for row in _rows(table, len(lengths))
            ]
        made[name] = Ragged(value, offsets, shapes)
    return made


def _rows(table: Mapping[str, numpy.ndarray], count: int) -> Iterator[dict[str, int]]:
    for row in range(count):
        yield {dim: int(sizes[row]) for dim, sizes in table.items()}


def _read(
    model: str, name: str, given: Any, port: RaggedPort
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """The values of a ragged input, and the shape of each row [rows, rank]."""
    rank = len(port.shape)
    parts = _parts(given)
    if parts is not None:
        ragged = Ragged(*parts)
        inner = ragged.values.shape[1:]
        if ragged.shapes is not None:
            shapes = numpy.array(ragged.shapes, numpy.int64).reshape(len(ragged), rank)
        else:
            shapes = numpy.empty((len(ragged), 1 + len(inner)), numpy.int64)
            shapes[:, 0], shapes[:, 1:] = ragged.lengths, inner
        values = ragged.values.reshape(-1) if port.flat else ragged.values
    else:
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise InputError(
                f"{model}: input '{name}' is {type(given).__name__}, expected a list of rows",
                "give one array per row, or ad.Ragged(values, offsets)",
            )
        rows = [numpy.asarray(row) for row in given]
        where = f"{model}: input '{name}'"
        _same_kind(where, rows)
        if rows and rows[0].ndim != rank:
            wanted = ", ".join(map(str, port.shape))
            raise InputError(f"{where}: row 0 has shape {list(rows[0].shape)}, expected [{wanted}]")
        shapes = numpy.array([row.shape for row in rows], numpy.int64).reshape(len(rows), rank)
        if port.flat:
            rows = [row.reshape(-1) for row in rows]
        elif len({row.shape[1:] for row in rows}) > 1:
            raise InputError(f"{where}: rows of shapes {_shapes(rows)} differ in more than axis 0")
        values = joined(rows) if rows else None
    if shapes.shape[1] != rank:
        wanted = ", ".join(map(str, port.shape))
        raise InputError(f"{model}: input '{name}': rows have {shapes.shape[1]} axes, "
                         f"expected [{wanted}]")  # fmt: skip
    if values is None:
        fixed = [size.constant or 0 for size in port.shape[1:]]
        values = numpy.zeros(0 if port.flat else (0, *fixed), numpy.int64)
    return values, shapes


def _parts(given: Any) -> tuple[Any, ...] | None:
    """Values and offsets of a ragged batch, a nested tensor or an Arrow list; None for others."""
    if isinstance(given, Ragged):
        return given.values, given.offsets, given.shapes
    if isinstance(given, tuple) and len(given) == 2 and numpy.ndim(given[0]) and hasattr(
        given[1], "shape"
    ) and numpy.asarray(given[1]).dtype.kind in "iu":
        return given
    values, offsets = getattr(given, "values", None), getattr(given, "offsets", None)
    if isinstance(given, (Mapping, numpy.ndarray)) or values is None or offsets is None:
        return None
    found = [numpy.asarray(each() if callable(each) else each) for each in (values, offsets)]
    return found[0], found[1]


def joined(rows: Sequence[numpy.ndarray]) -> numpy.ndarray:
    """Concatenate rows along axis 0; a view, without a copy, where they lie back to back."""
    base = rows[0].base
    if base is not None and all(row.base is base and row.flags.c_contiguous for row in rows):
        address = rows[0].ctypes.data
        for row in rows:
            if row.ctypes.data != address and row.size:
                break
            address += row.nbytes
        else:
            count = sum(len(row) for row in rows)
            shape = (count, *rows[0].shape[1:])
            strides = rows[0].strides
            if isinstance(base, numpy.ndarray) and len(rows) > 1:
                return numpy.lib.stride_tricks.as_strided(rows[0], shape, strides, writeable=False)
    return numpy.concatenate(rows)


def _same_kind(where: str, rows: Sequence[numpy.ndarray]) -> None:
    for number, row in enumerate(rows):
        if row.dtype != rows[0].dtype or row.ndim != rows[0].ndim:
            raise InputError(
                f"{where}: row {number} is {row.dtype} with {row.ndim} axes, "
                f"row 0 {rows[0].dtype} with {rows[0].ndim}"
            )


def _solved(
    model: str, name: str, port: RaggedPort, shapes: numpy.ndarray
) -> dict[str, numpy.ndarray]:
    """The ragged dims that the shapes of rows give; raises InputError for a wrong fixed size."""
    found: dict[str, numpy.ndarray] = {}
    for axis, size in enumerate(port.shape):
        fixed = size.constant
        if fixed is not None:
            wrong = numpy.flatnonzero(shapes[:, axis] != fixed)
            if len(wrong):
                row = int(wrong[0])
                raise InputError(
                    f"{model}: input '{name}', row {row}: axis {axis} has size "
                    f"{shapes[row, axis]}, expected {fixed}"
                )
        for dim in port.dims:
            if size == Size.symbol(dim):
                found[dim] = shapes[:, axis]
    return found


def _agree(
    model: str, name: str, dim: str, found: numpy.ndarray, sizes: dict[str, numpy.ndarray],
    source: dict[str, str],
) -> None:  # fmt: skip
    if dim not in sizes:
        sizes[dim], source[dim] = found, name
        return
    other = sizes[dim]
    if len(other) != len(found):
        raise InputError(f"{model}: input '{name}' has {len(found)} rows, "
                         f"input '{source[dim]}' has {len(other)}")  # fmt: skip
    wrong = numpy.flatnonzero(other != found)
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            f"{model}: row {row}: '{dim}' is {found[row]} in input '{name}', "
            f"{other[row]} in input '{source[dim]}'"
        )


def _within(
    model: str, dim: str, found: numpy.ndarray, name: str, bounds: tuple[int, int | None]
) -> None:
    low, high = bounds
    wrong = (found < low) if high is None else (found < low) | (found > high)
    rows = numpy.flatnonzero(wrong)
    if len(rows):
        row, most = int(rows[0]), "" if high is None else high
        raise InputError(
            f"{model}: input '{name}', row {row}: '{dim}' is {found[row]}, declared {low}..{most}"
        )


def _check_ones(model: str, name: str, values: numpy.ndarray) -> None:
    if not (values == 1).all():
        raise InputError(
            f"{model}: input '{name}' is not all ones",
            "rows have no padding: leave the mask away, and cut rows to what it marks",
        )


def _shapes(rows: Sequence[numpy.ndarray]) -> str:
    return listed([str(list(shape)) for shape in dict.fromkeys(row.shape for row in rows)][:4])


def elements(shape: Sequence[Size]) -> Size:
    """The number of elements of a row."""
    return product(shape) if shape else as_size(1)

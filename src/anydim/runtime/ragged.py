"""Ragged batches: rows of their own sizes, stored one after another without padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.errors import DimError, InputError
from anydim.base.keywords import public
from anydim.base.records import dataclass
from anydim.base.text import listed
from anydim.runtime.signature import TensorSpec
from anydim.sizes import LARGEST, Dim, Size


@public
class Ragged:
    """Rows of a batch that differ in size, stored back to back.

    A row is a view of `values`: `ragged[3]`, or by iteration; `len(ragged)` is the number of rows.

    Args:
        values: All rows along axis 0, `[total, ...]`.
        offsets: `[rows + 1]`, increasing from 0 to `total`; row `i` is
            `values[offsets[i]:offsets[i + 1]]`.
        shapes: The shape of each row. None: rows have the shape of their part of `values`.
        axis: The axis of a row that is axis 0 of `values`.

    Raises:
        InputError: The offsets do not fit the values.
    """

    def __init__(
        self, values: Any, offsets: Any, shapes: Sequence[tuple[int, ...]] | None = None,
        axis: int = 0,
    ) -> None:  # fmt: skip
        self.values = numpy.asarray(values)
        self.offsets = numpy.asarray(offsets)
        found = self.offsets
        if (
            self.values.ndim == 0
            or found.ndim != 1
            or not len(found)
            or found.dtype.kind not in "iu"
        ):
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
        self.axis = axis

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
        if self.axis:
            part = numpy.moveaxis(part, 0, self.axis)
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
        if self.shapes is None:  # also of no rows
            sizes = list(self.values.shape[1:])
            sizes.insert(self.axis, int(self.lengths.max(initial=0)))
        made = numpy.full((len(rows), *sizes), fill, self.values.dtype)
        for number, row in enumerate(rows):
            made[number][tuple(map(slice, row.shape))] = row
        return made

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, self.lengths[:6].tolist()))
        more = ", ..." if len(self) > 6 else ""
        kind = f"{self.values.dtype}[{', '.join(map(str, self.values.shape))}]"
        return f"<ragged: {len(self)} rows of {sizes}{more}; values {kind}>"


@dataclass(frozen=True)
class RowTable:
    """The inputs of a program that describe the rows of a ragged batch.

    `rows` is int64 [rows, units + dims]: the first index of a row in each unit, then its size of
    each ragged dim. `sums` is int64: the total of each unit of `summed`, which no input determines,
    then the largest size of each ragged dim. `totals` and `longest` are the names of these dims.
    """

    rows: str
    sums: str
    dims: tuple[Dim, ...]
    longest: tuple[str, ...]
    units: tuple[Size, ...]
    totals: tuple[str, ...]
    summed: tuple[str, ...]

    def arrays(
        self, lengths: Mapping[str, numpy.ndarray], others: Mapping[str, int]
    ) -> dict[str, numpy.ndarray]:
        """The inputs; `lengths` are the sizes of rows by dim, `others` those of other dims."""
        columns = [lengths[dim.name] for dim in self.dims]
        count = len(columns[0])
        made = numpy.empty((count, len(self.units) + len(columns)), numpy.int64)
        sums = []
        for column, (counts, total) in enumerate(zip(self.counts(lengths, others), self.totals)):
            ends = numpy.cumsum(counts)
            made[:, column] = ends - counts
            if total in self.summed:
                sums.append(int(ends[-1]) if count else 0)
        for column, dim in enumerate(self.dims):
            made[:, len(self.units) + column] = columns[column]
            sums.append(max(int(columns[column].max(initial=0)), dim.lo))
        return {self.rows: made, self.sums: numpy.array(sums, numpy.int64)}

    def counts(
        self, lengths: Mapping[str, numpy.ndarray], others: Mapping[str, int]
    ) -> list[numpy.ndarray]:
        """The part of each row in each total."""
        count = len(lengths[self.dims[0].name])
        return [_sizes_of(unit, lengths, others, count) for unit in self.units]

    def sizes(
        self, lengths: Mapping[str, numpy.ndarray], others: Mapping[str, int]
    ) -> dict[str, int]:
        """The dims that describe these rows: totals and largest sizes."""
        counts = self.counts(lengths, others)
        found = {total: int(each.sum()) for total, each in zip(self.totals, counts)}
        for dim, name in zip(self.dims, self.longest):
            found[name] = max(int(lengths[dim.name].max(initial=0)), dim.lo)
        return found


@dataclass(frozen=True)
class RaggedPort:
    """An input or output that users see as a ragged batch.

    The program has the value `values` for it: all rows along axis 0, or, when `flat`, all elements
    in one axis. `shape` is the shape of a row, over the ragged dims and others. `counted` is the
    size of a row's part of `values`, and `axis` the axis of a row that is axis 0 of `values`. An
    input that is `ones` is not in the program: it marks padding, of which there is none.
    """

    values: str
    table: RowTable
    shape: tuple[Size, ...]
    counted: Size
    flat: bool = False
    ones: bool = False
    axis: int = 0

    @property
    def elements(self) -> str:
        """The value of the program with the elements, as of a list."""
        return self.values

    @property
    def hidden(self) -> tuple[str, ...]:
        """The inputs of the program that users do not see."""
        return self.table.rows, self.table.sums


Ports = Mapping[str, RaggedPort]


def packed(
    model: str, ports: Ports, given: Mapping[str, Any], specs: Mapping[str, TensorSpec]
) -> dict[str, Any]:
    """Convert ragged inputs to arrays, with the table of rows; other inputs are kept.

    `specs` are the inputs of the program. Raises InputError for rows that do not fit each other,
    and DimError for sizes out of bounds.
    """
    missing = [name for name, port in ports.items() if not port.ones and name not in given]
    if missing:
        raise InputError(f"{model}: input '{missing[0]}' is missing", f"inputs: {listed(ports)}")
    feeds, shapes = dict(given), dict[str, numpy.ndarray]()
    for name, port in ports.items():
        if name not in feeds:
            continue
        dtype = None if port.ones else specs[port.values].dtype.numpy
        values, shapes[name] = _read(model, name, feeds.pop(name), port, dtype)
        if port.ones:
            check_ones(model, name, values)
        else:
            feeds[port.values] = values
    lengths = row_lengths(model, ports, shapes)
    table = next(iter(ports.values())).table
    return {**feeds, **table.arrays(lengths, shared_sizes(feeds, specs))}


def row_lengths(
    model: str, ports: Ports, shapes: Mapping[str, numpy.ndarray]
) -> dict[str, numpy.ndarray]:
    """The sizes of rows by ragged dim, from the shapes [rows, rank] of each input.

    Raises InputError for shapes that do not fit each other, and DimError for sizes out of bounds.
    """
    sizes, source = dict[str, numpy.ndarray](), dict[str, str]()
    for name, found in shapes.items():
        for dim, column in _solved(model, name, ports[name], found).items():
            _agree(model, name, dim, column, sizes, source)
    for each in next(iter(ports.values())).table.dims:
        _within(model, each, sizes[each.name], source[each.name])
    return sizes


def described(
    model: str, port: RaggedPort, lengths: Any, specs: Mapping[str, TensorSpec],
    others: Mapping[str, int],
) -> dict[str, int]:  # fmt: skip
    """The dims of a call with rows of these lengths: a list, or a mapping from dims to lists."""
    table = port.table
    names = [dim.name for dim in table.dims]
    given = lengths if isinstance(lengths, Mapping) else {names[0]: lengths}
    try:
        columns = {name: numpy.asarray(given[name], numpy.int64) for name in names}
        counts = {column.shape for column in columns.values()}
        (count,) = next(iter(counts))
        fits = len(counts) == 1 == len(given) - len(names) + 1
    except (KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        wanted = names[0] if len(names) == 1 else listed(names)
        raise InputError(
            f"{model}: lengths are {lengths!r}", f"give the size of each row: lists for {wanted}"
        )
    for dim in table.dims:
        _within(model, dim, columns[dim.name], "lengths")
    rows = str(specs[table.rows].shape[0])
    return {rows: count, **table.sizes(columns, others)}


def shared_sizes(feeds: Mapping[str, Any], specs: Mapping[str, TensorSpec]) -> dict[str, int]:
    """The sizes of dims that are an axis of an input."""
    return {
        str(size): length
        for name, spec in specs.items() if name in feeds
        for size, length in zip(spec.shape, numpy.shape(feeds[name])) if size.atom is not None
    }  # fmt: skip


def unpacked(
    results: Mapping[str, Any], ports: Ports, rows: numpy.ndarray, others: Mapping[str, int]
) -> dict[str, Any]:
    """Convert results to ragged batches; `others` are the sizes of dims that rows share."""
    made: dict[str, Any] = {}
    for name, value in results.items():
        port = ports.get(name)
        if port is None:
            made[name] = value
            continue
        first = len(port.table.units)
        columns = {dim.name: rows[:, first + n] for n, dim in enumerate(port.table.dims)}
        counts = _sizes_of(port.counted, columns, others, len(rows))
        offsets = numpy.zeros(len(rows) + 1, numpy.int64)
        numpy.cumsum(counts, out=offsets[1:])
        shapes = None
        if port.flat:
            axes = [_sizes_of(size, columns, others, len(rows)) for size in port.shape]
            shapes = list(zip(*(axis.tolist() for axis in axes)))
        made[name] = Ragged(value, offsets, shapes, port.axis)
    return made


def _sizes_of(
    size: Size, columns: Mapping[str, numpy.ndarray], others: Mapping[str, int], rows: int
) -> numpy.ndarray:
    """A size of each row, int64 [rows]."""
    for name, column in columns.items():
        if size == Size.symbol(name):
            return column
    used = [name for name in columns if name in size.symbols]
    if not used:
        return numpy.full(rows, size.evaluate(others), numpy.int64)
    known: dict[tuple[int, ...], int] = {}  # rows of one length are common
    found = numpy.empty(rows, numpy.int64)
    for row, key in enumerate(zip(*(columns[name].tolist() for name in used))):
        if key not in known:
            known[key] = size.evaluate({**others, **dict(zip(used, key))})
        found[row] = known[key]
    return found


def _read(
    model: str, name: str, given: Any, port: RaggedPort, dtype: Any
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """The values of a ragged input, and the shape of each row [rows, rank]."""
    rank, values = len(port.shape), None
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
        values = numpy.zeros(0 if port.flat else (0, *fixed), dtype)
    return values, shapes


def _parts(given: Any) -> tuple[Any, ...] | None:
    """Values and offsets of a ragged batch, a nested tensor or an Arrow list; None for others."""
    if isinstance(given, Ragged):
        return given.values, given.offsets, given.shapes
    if (
        isinstance(given, tuple)
        and len(given) == 2
        and numpy.ndim(given[0])
        and hasattr(given[1], "shape")
        and numpy.asarray(given[1]).dtype.kind in "iu"
    ):
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
        for dim in port.table.dims:
            if size == dim.size:
                found[dim.name] = shapes[:, axis]
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


def _within(model: str, dim: Dim, found: numpy.ndarray, name: str) -> None:
    rows = numpy.flatnonzero((found < dim.lo) | (found > (LARGEST if dim.hi is None else dim.hi)))
    if len(rows):
        raise DimError(
            f"{model}: input '{name}', row {rows[0]}: '{dim.name}' is {found[rows[0]]}",
            f"declared {dim}",
        )


def check_ones(model: str, name: str, values: numpy.ndarray) -> None:
    """Raise InputError for a mask that marks padding."""
    if not (values == 1).all():
        raise InputError(
            f"{model}: input '{name}' is not all ones",
            "rows have no padding: leave the mask away, and cut rows to what it marks",
        )


def _shapes(rows: Sequence[numpy.ndarray]) -> str:
    return listed([str(list(shape)) for shape in dict.fromkeys(row.shape for row in rows)][:4])

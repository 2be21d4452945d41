"""Ragged batches: rows of their own sizes, stored one after another without padding."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from operator import add, floordiv, index, mod, mul
from typing import Any

import numpy

from anydim.base.errors import DimError, InputError
from anydim.base.frozen import FrozenMapping
from anydim.base.keywords import public
from anydim.base.text import axes_text, count_of, quote_list
from anydim.base.user_values import items_of, short_repr
from anydim.runtime.arrays import as_array, missing_input
from anydim.runtime.lists import RaggedPort, RowTable
from anydim.runtime.signature import TensorSpec
from anydim.sizes import Dim, Factor, Guard, Size, holds, maximum, minimum


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
        self.values = as_array(values, "values")
        self.offsets = as_array(offsets, "offsets")
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

    @staticmethod
    def of(rows: Iterable[Any]) -> Ragged:
        """A ragged batch of rows that differ in the size of axis 0.

        Args:
            rows: Arrays of one element type and rank.

        Raises:
            InputError: The rows differ in more than the size of axis 0, or there are none.
        """
        given = items_of("rows", rows, "give a list of arrays")
        held = [as_array(row, f"row {number}") for number, row in enumerate(given)]
        if not held:
            raise InputError("a ragged batch of no rows has no element type",
                             "give ad.Ragged(values, offsets) for it")  # fmt: skip
        _same_kind("rows", held)
        lengths = [row.shape[0] if row.ndim else -1 for row in held]
        if min(lengths) < 0 or len({row.shape[1:] for row in held}) > 1:
            raise InputError(f"rows of shapes {_shapes(held)} differ in more than axis 0")
        return Ragged(join_rows(held), numpy.concatenate([[0], numpy.cumsum(lengths)]))

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

        Raises:
            InputError: `fill` is no number.
        """
        value = as_array(fill, "fill")
        if value.ndim or value.dtype.kind not in "biufc":
            raise InputError(f"fill is {short_repr(fill)}", "give a number")
        rows = list(self)
        rank = self.values.ndim if self.shapes is None else len(rows[0].shape) if rows else 1
        sizes = [max((row.shape[axis] for row in rows), default=0) for axis in range(rank)]
        if self.shapes is None:  # also of no rows
            sizes = [int(self.lengths.max(initial=0)), *self.values.shape[1:]]
        made = numpy.full((len(rows), *sizes), fill, self.values.dtype)
        for number, row in enumerate(rows):
            made[number][tuple(map(slice, row.shape))] = row
        return made

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, self.lengths[:6].tolist()))
        more = ", ..." if len(self) > 6 else ""
        kind = f"{self.values.dtype}[{', '.join(map(str, self.values.shape))}]"
        rows = f"{count_of(len(self), 'row')} of {sizes}{more}" if len(self) else "no rows"
        return f"<ragged: {rows}; values {kind}>"

    def _repr_html_(self) -> str:
        """A table of the rows for notebooks."""
        axes = self.values.shape[1:]
        shapes = ((n, *axes) for n in self.lengths.tolist()) if self.shapes is None else self.shapes
        rows = [(str(at), ", ".join(map(str, shape))) for at, shape in enumerate(shapes)]
        kind = f"{self.values.dtype}[{', '.join(map(str, self.values.shape))}]"
        facts = [("rows", str(len(self))), ("values", kind)]
        from anydim.base import sheet  # only a notebook needs it

        html: str = sheet.Sheet(
            "ragged batch", facts, [sheet.Table(("row", "shape"), rows, 2)]
        ).html()
        return html


Lengths = Mapping[str, Sequence[int]]  # by ragged dim: the size of each row
_COPIED = 1 << 14  # bytes up to which rows are copied rather than looked up in memory
NOTHING: Mapping[str, Sequence[int]] = FrozenMapping({})
Specs = Mapping[str, TensorSpec]


class Packing:
    """Converts the ragged inputs and results of a program; made once for all calls.

    `specs` are the inputs of the program by name.
    """

    def __init__(self, model: str, lists: Mapping[str, Any], specs: Specs) -> None:
        ports = {name: each for name, each in lists.items() if isinstance(each, RaggedPort)}
        self.model, self.specs = model, specs
        self.inputs = {name: p for name, p in ports.items() if p.ones or p.values in specs}
        self.results = {name: p for name, p in ports.items() if name not in self.inputs}
        self.table = next(iter(ports.values())).table
        self.dims = {dim.name: dim for dim in self.table.dims}
        sizes = [
            *self.table.units,
            *(size for p in ports.values() for size in (*p.shape, p.counted)),
        ]
        used = frozenset[str]().union(*(size.symbols for size in sizes))
        self.shares = not used <= self.dims.keys()  # sizes of rows depend on other dims

    def pack(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], Lengths, dict[str, int]]:
        """The inputs of the program; the sizes of rows; the sizes of dims that rows share.

        Raises InputError for rows that do not fit each other, and DimError for sizes out of bounds.
        """
        feeds, lengths = self.read(given)
        shared = shared_sizes(feeds, self.specs) if self.shares else {}
        return {**feeds, **self.describe_rows(lengths, shared)}, lengths, shared

    def read(
        self, given: Mapping[str, Any], others: Collection[str] = (), known: Lengths = NOTHING
    ) -> tuple[dict[str, Any], Lengths]:
        """The inputs of the program but those that describe rows, and the sizes of rows.

        Inputs in `others` are not read; `known` are sizes of rows that inputs may depend on. Raises
        as `pack`.
        """
        feeds, shapes = dict(given), dict[str, Sequence[Sequence[int]]]()
        for name, port in self.inputs.items():
            if name in others:
                continue
            if name not in feeds:
                if port.ones:
                    continue
                raise missing_input(self.model, name, given, self.inputs)
            dtype = None if port.ones else self.specs[port.values].dtype.numpy
            where = f"{self.model}: input '{name}'"
            values, shapes[name] = _read(where, feeds.pop(name), port, dtype)
            if port.ones:
                check_ones(where, values)
            else:
                feeds[port.values] = values
        return feeds, self.lengths(shapes, known)

    def lengths(
        self, shapes: Mapping[str, Sequence[Sequence[int]]], known: Lengths = NOTHING
    ) -> Lengths:
        """The sizes of rows; `shapes` are, by input, for each axis of a row the size in each row.

        `known` are others. Raises InputError for rows that do not fit each other, and DimError for
        sizes out of bounds.
        """
        lengths, source = dict[str, Sequence[int]](), dict[str, str]()
        for name, axes in shapes.items():
            self._learn(name, self.inputs[name], axes, lengths, source)
        for name, sizes in lengths.items():
            _within(self.model, self.dims[name], sizes, f"input '{source[name]}'")
        for name, axes in shapes.items():
            self._check_derived(name, self.inputs[name], axes, {**lengths, **known})
        return lengths

    def counts(self, lengths: Lengths, shared: Mapping[str, int]) -> list[Sequence[int]]:
        """The part of each row in each total."""
        sizes = RowSizes(lengths, shared)
        return [sizes.of(unit) for unit in self.table.units]

    def _learn(
        self, name: str, port: RaggedPort, axes: Sequence[Sequence[int]],
        lengths: dict[str, Sequence[int]], source: dict[str, str],
    ) -> None:  # fmt: skip
        """Take the sizes of rows from an input, and compare them with those of other inputs."""
        for axis, (size, found) in enumerate(zip(port.shape, axes)):
            fixed, dim = size.constant, str(size)
            if fixed is not None and found and (min(found) != fixed or max(found) != fixed):
                row = next(n for n, each in enumerate(found) if each != fixed)
                raise InputError(
                    f"{self.model}: input '{name}', row {row}: axis {axis} has size {found[row]}, "
                    f"expected {fixed}"
                )
            if dim not in self.dims:
                continue
            other = lengths.setdefault(dim, found)
            first = source.setdefault(dim, name)
            if other is found or other == found:
                continue
            if len(other) != len(found):
                raise InputError(
                    f"{self.model}: input '{name}' has {count_of(len(found), 'row')}, "
                    f"input '{first}' has {len(other)}"
                )
            row = next(n for n, each in enumerate(found) if each != other[n])
            raise InputError(
                f"{self.model}: row {row}: '{dim}' is {found[row]} in input '{name}', "
                f"{other[row]} in input '{first}'"
            )

    def _check_derived(
        self, name: str, port: RaggedPort, axes: Sequence[Sequence[int]], lengths: Lengths
    ) -> None:
        """Raise InputError for a row whose size is not that of an expression over known sizes."""
        for axis, (size, found) in enumerate(zip(port.shape, axes)):
            if size.atom is not None or not size.symbols or not size.symbols <= lengths.keys():
                continue
            for row, (got, wanted) in enumerate(zip(found, RowSizes(lengths, {}).of(size))):
                if got != wanted:
                    raise InputError(
                        f"{self.model}: input '{name}', row {row}: axis {axis} has size {got}, "
                        f"expected {size} = {wanted}"
                    )

    def describe_rows(
        self, lengths: Lengths, shared: Mapping[str, int],
        starts: Mapping[str, Sequence[int]] = NOTHING,
    ) -> dict[str, numpy.ndarray]:  # fmt: skip
        """The inputs of the program that describe rows.

        `starts` are, by total, the first indices of rows that do not lie back to back.
        """
        table = self.table
        columns: list[Sequence[int]] = []
        sums = []
        for counts, total in zip(self.counts(lengths, shared), table.totals):
            if total in starts:
                columns.append(starts[total])
                continue
            ends = [0, *accumulate(counts)]
            columns.append(ends[:-1])
            if total in table.summed:
                sums.append(ends[-1])
        columns += [lengths[name] for name in self.dims]
        sums += _longest(table, lengths)
        rows = numpy.array(columns, numpy.int64).reshape(len(columns), -1)
        return {
            table.rows: numpy.ascontiguousarray(rows.T),
            table.sums: numpy.array(sums, numpy.int64),
        }

    def unpack(
        self, results: Mapping[str, Any], lengths: Lengths, shared: Mapping[str, int]
    ) -> dict[str, Any]:
        """Convert results to ragged batches."""
        made: dict[str, Any] = {}
        sizes = RowSizes(lengths, shared)
        for name, value in results.items():
            port = self.results.get(name)
            if port is None:
                made[name] = value
                continue
            ends = [0, *accumulate(sizes.of(port.counted))]
            shapes = None
            if port.flat:
                shapes = list(zip(*map(sizes.of, port.shape)))
            ragged = object.__new__(Ragged)  # its offsets fit
            ragged.values, ragged.offsets, ragged.shapes = value, numpy.array(ends), shapes
            made[name] = ragged
        return made

    @cached_property
    def guards(self) -> list[Guard]:
        """Relations between the dims of any call: a total is at most that of `rows` longest rows,
        and at least that of the longest one beside shortest ones. Those of units that need not grow
        with the sizes of a row are left out."""
        longest = {dim: Size.symbol(name) for dim, name in zip(self.dims, self.table.longest)}
        shortest = {name: dim.lo for name, dim in self.dims.items()}
        rows, found = Size.symbol(self.rows_dim), list[Guard]()
        for unit, name in zip(self.table.units, self.table.totals):
            atoms = {atom for monomial in unit.coefficients for atom in monomial}
            if atoms <= unit.symbols and min(unit.coefficients.values(), default=0) >= 0:
                most, least = unit.substitute(longest), unit.substitute(shortest)
                text = f"rows of '{rows}' have {{}} each, and the longest has {most}"
                low = minimum(rows, 1) * most + maximum(rows - 1, 0) * least
                total = Size.symbol(name)
                found.append(Guard(total, "<=", rows * most, text.format(f"at most {most}")))
                found.append(Guard(low, "<=", total, text.format(f"at least {least}")))
        return found

    def check_totals(self, sizes: Mapping[str, int]) -> None:
        """Raises DimError for totals that no rows of these sizes have."""
        check_totals(self.model, self.guards, sizes)

    @property
    def rows_dim(self) -> str:
        """The dim of rows."""
        return str(self.specs[self.table.rows].shape[0])

    def known_lengths(self, lengths: Any) -> dict[str, list[int]]:
        """The sizes of rows that a user gives: a list, or a mapping from dims to lists.

        Raises InputError for what is none, and DimError for sizes out of bounds.
        """
        names = list(self.dims)
        given = lengths if isinstance(lengths, Mapping) else {names[0]: lengths}
        try:
            columns = {name: [index(size) for size in given[name]] for name in names}
            fits = len(given) == len(names) and len({len(each) for each in columns.values()}) == 1
        except Exception:  # any error of the object
            fits = False
        if not fits:
            raise InputError(
                f"{self.model}: lengths are {short_repr(lengths)}",
                f"give the size of each row: a list for {quote_list(names)}",
            )
        for name, column in columns.items():
            _within(self.model, self.dims[name], column, "lengths")
        return columns

    def sizes(self, lengths: Lengths, others: Mapping[str, int]) -> dict[str, int]:
        """The dims of a call with rows of these lengths."""
        table = self.table
        found = {
            total: sum(each) for each, total in zip(self.counts(lengths, others), table.totals)
        }
        found.update(zip(table.longest, _longest(table, lengths)))
        return {self.rows_dim: len(next(iter(lengths.values()))), **found}


def check_totals(model: str, guards: Sequence[Guard], sizes: Mapping[str, int]) -> None:
    """Raises DimError for totals that no rows have; `guards` are those of a packing."""
    for guard in guards:
        if guard.symbols <= sizes.keys() and not holds(guard, sizes):
            upper = isinstance(guard.left.atom, str)  # the other side of a lower bound is longer
            total, bound = (guard.left, guard.right)[:: 1 if upper else -1]
            raise DimError(
                f"{model}: dim '{total}' is {total.evaluate(sizes)}, "
                f"{'above' if upper else 'below'} {bound} = {bound.evaluate(sizes)}",
                guard.message,
            )


def _longest(table: RowTable, lengths: Lengths) -> list[int]:
    """The largest size of each ragged dim; of no rows, its lower bound."""
    return [max(max(lengths[dim.name], default=0), dim.lo) for dim in table.dims]


def shared_sizes(feeds: Mapping[str, Any], specs: Specs) -> dict[str, int]:
    """The sizes of dims that are an axis of an input."""
    return {
        str(size): length
        for name, spec in specs.items() if name in feeds
        for size, length in zip(spec.shape, numpy.shape(feeds[name])) if size.atom is not None
    }  # fmt: skip


class RowSizes:
    """Sizes of each row. Rows of equal lengths are computed once, and so is what sizes share."""

    def __init__(self, lengths: Lengths, shared: Mapping[str, int]) -> None:
        self.lengths, self.shared = lengths, shared
        rows = list(zip(*lengths.values()))
        kinds = {row: number for number, row in enumerate(dict.fromkeys(rows))}
        self.numbers = [kinds[row] for row in rows]
        self.columns: dict[str, Sequence[int]] = dict(zip(lengths, zip(*kinds)))
        self.known: dict[Factor, Sequence[int]] = {}  # of atoms

    def of(self, size: Size) -> Sequence[int]:
        whole = self.lengths.get(str(size))
        if whole is not None or not self.numbers:
            return whole or []
        if size.symbols.isdisjoint(self.columns):
            return [size.evaluate(self.shared)] * len(self.numbers)
        try:
            found = size.fold(self._constant, self._symbol, _apply, self.known)
        except ArithmeticError:  # raise DimError, with the dims
            for row in zip(*self.columns.values()):
                size.evaluate({**self.shared, **dict(zip(self.columns, row))})
            raise
        return [found[number] for number in self.numbers]

    def _constant(self, value: int) -> Sequence[int]:
        return [value] * len(next(iter(self.columns.values())))

    def _symbol(self, name: str) -> Sequence[int]:
        found = self.columns.get(name)
        return self._constant(self.shared[name]) if found is None else found


_FUNCTIONS: dict[str, Callable[..., int]] = {
    "add": add,
    "mul": mul,
    "floordiv": floordiv,
    "mod": mod,
    "min": min,
    "max": max,
    "where": lambda test, then, otherwise: then if test >= 0 else otherwise,
}


def _apply(function: str, operands: tuple[Sequence[int], ...]) -> Sequence[int]:
    return list(map(_FUNCTIONS[function], *operands))


def _read(
    where: str, given: Any, port: RaggedPort, dtype: Any
) -> tuple[numpy.ndarray, Sequence[Sequence[int]]]:
    """The values of a ragged input, and for each axis of a row the size in each row."""
    rank = len(port.shape)
    parts = parts_of(given)
    if parts is not None:
        ragged = Ragged(*parts)
        if ragged.shapes is not None:
            axes: Sequence[Sequence[int]] = list(zip(*ragged.shapes)) or [()] * rank
        else:
            inner = ragged.values.shape[1:]
            axes = [ragged.lengths.tolist(), *([size] * len(ragged) for size in inner)]
        if len(axes) != rank:
            raise InputError(
                f"{where}: rows have {axes_text(len(axes))}, expected [{_shape_text(port)}]"
            )
        return ragged.values.reshape(-1) if port.flat else ragged.values, axes
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise InputError(
            f"{where} is {type(given).__name__}, expected a list of rows",
            "give one array per row, or ad.Ragged(values, offsets)",
        )
    rows = [
        row if type(row) is numpy.ndarray else as_array(row, f"{where}: row {number}")
        for number, row in enumerate(given)
    ]
    if not rows:
        fixed = [size.constant or 0 for size in port.shape[1:]]
        return numpy.zeros(0 if port.flat else (0, *fixed), dtype), [()] * rank
    _same_kind(where, rows)
    shapes = [row.shape for row in rows]
    if len(shapes[0]) != rank:
        raise InputError(
            f"{where}: row 0 has shape {list(shapes[0])}, expected [{_shape_text(port)}]"
        )
    if port.flat:
        rows = [row.reshape(-1) for row in rows]
    elif rank > 1 and len({shape[1:] for shape in shapes}) > 1:
        raise InputError(f"{where}: rows of shapes {_shapes(rows)} differ in more than axis 0")
    return join_rows(rows), list(zip(*shapes))


def _shape_text(port: RaggedPort) -> str:
    return ", ".join(map(str, port.shape))


def parts_of(given: Any) -> tuple[Any, ...] | None:
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


def join_rows(rows: Sequence[numpy.ndarray]) -> numpy.ndarray:
    """Concatenate rows along axis 0; a view of large ones, without a copy, if back to back."""
    large = len(rows) * rows[0].nbytes > _COPIED or sum(row.nbytes for row in rows) > _COPIED
    whole = rows[0] if len(rows) == 1 else together(rows) if large else None
    return numpy.concatenate(rows) if whole is None else whole


def together(rows: Sequence[numpy.ndarray], writeable: bool = False) -> numpy.ndarray | None:
    """A view of rows that lie back to back in one array; None if they do not."""
    base = rows[0].base
    if not isinstance(base, numpy.ndarray) or not all(
        row.base is base and row.flags.c_contiguous for row in rows
    ):
        return None
    address = rows[0].ctypes.data
    for row in rows:
        if row.ctypes.data != address and row.size:
            return None
        address += row.nbytes
    shape = (sum(len(row) for row in rows), *rows[0].shape[1:])
    strided = numpy.lib.stride_tricks.as_strided
    return strided(rows[0], shape, rows[0].strides, writeable=writeable)


def _same_kind(where: str, rows: Sequence[numpy.ndarray]) -> None:
    for number, row in enumerate(rows):
        if row.dtype != rows[0].dtype or row.ndim != rows[0].ndim:
            raise InputError(
                f"{where}: row {number} is {row.dtype} with {row.ndim} axes, "
                f"row 0 {rows[0].dtype} with {rows[0].ndim}"
            )


def _within(model: str, dim: Dim, sizes: Sequence[int], where: str) -> None:
    """Raise DimError for a row whose size is out of bounds."""
    if sizes and (min(sizes) < dim.lo or (dim.hi is not None and max(sizes) > dim.hi)):
        row = next(n for n, size in enumerate(sizes) if size not in dim)
        raise DimError(f"{model}: {where}, row {row}: '{dim.name}' is {sizes[row]}",
                       f"declared {dim}")  # fmt: skip


def check_ones(where: str, values: numpy.ndarray) -> None:
    """Raise InputError for a mask that marks padding."""
    if not (values == 1).all():
        raise InputError(
            f"{where} is not all ones",
            "rows have no padding: omit the mask, and cut rows to what it marks",
        )


def _shapes(rows: Sequence[numpy.ndarray]) -> str:
    return quote_list([str(list(shape)) for shape in dict.fromkeys(row.shape for row in rows)][:4])

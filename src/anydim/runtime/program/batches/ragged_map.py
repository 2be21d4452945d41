"""`map` of models with ragged batches: groups are consecutive items, without padding or sorting.

An item is one row. A group grows until the cost of a call by itself (launches, and weights that are
read once) is a small share of its time, or until it exceeds the memory limit. Many items are
grouped with arrays of their sizes, a few without.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy

from anydim.base.dtypes import from_numpy
from anydim.base.errors import (
    InputError,
    MemoryLimitError,
    OptionError,
    OutOfMemoryError,
    UserError,
)
from anydim.base.records import dataclass
from anydim.runtime.arrays import Wrap, as_array, plain, rank_of, wrapper
from anydim.runtime.executable import Executable
from anydim.runtime.lists import RaggedPort, RowTable
from anydim.runtime.program.batches.layout import of_item, values_of
from anydim.runtime.program.batches.map_arguments import axis_of, wanted_results
from anydim.runtime.program.batches.mapping import FEW, KNOWN, Job, Ran, Windows, near
from anydim.runtime.program.batches.work import Columns, Rates, work
from anydim.runtime.program.program import Program
from anydim.runtime.ragged import Lengths, Packing, check_ones, join_rows
from anydim.runtime.signature import TensorSpec
from anydim.sizes import Size

_SHARE = 0.02  # of the time of a group, what a call costs by itself


@dataclass(frozen=True)
class RowInput:
    """An input as items have it: `row` is its tensor without the batch axis.

    An input without a `port` is not ragged; without an `axis`, it has no batch axis either, and
    items of a group share it. A mask has a port and no `dtype`.
    """

    row: TensorSpec
    dtype: numpy.dtype | None
    port: RaggedPort | None
    axis: int | None

    def read(self, value: Any, model: str) -> tuple[numpy.ndarray, bool]:
        """Return (array of a row, whether it came without the batch axis)."""
        if type(value) is numpy.ndarray and value.dtype == self.dtype:
            if value.ndim == self.row.rank:
                return value, True
        if self.dtype is None:
            value = as_array(value, f"input '{self.row.name}' of {model}")
        row, axis = self.row, self.axis
        single = axis is None or rank_of(value) != row.rank + 1
        if axis is not None and not single:
            shape = list(row.shape)
            shape.insert(axis, Size.symbol("batch"))
            row = replace(row, shape=tuple(shape))
        array = plain(value, row, self.dtype or value.dtype, model)
        if axis is None or single:
            return array, single
        if array.shape[axis] != 1:
            raise InputError(
                f"input '{row.name}' has {array.shape[axis]} rows, and an item is one row",
                "give each row as an item",
            )
        return array.squeeze(axis), False


def row_inputs(packing: Packing, names: Sequence[str]) -> dict[str, RowInput]:
    """Return these inputs as items have them."""
    return {name: _row_input(packing, name) for name in names}


def _row_input(packing: Packing, name: str) -> RowInput:
    port = packing.inputs.get(name)
    if port is None:
        spec, batch = packing.specs[name], packing.rows_dim
        has = any(batch in size.symbols for size in spec.shape)
        axis = axis_of(packing.model, "input", spec, batch) if has else None
        shape = tuple(size for place, size in enumerate(spec.shape) if place != axis)
        return RowInput(replace(spec, shape=shape), spec.dtype.numpy, None, axis)
    dtype = None if port.ones else packing.specs[port.values].dtype
    row = TensorSpec(name, dtype or from_numpy(numpy.dtype(bool)), port.shape)
    return RowInput(row, dtype.numpy if dtype else None, port, 0)


@dataclass(frozen=True)
class Rows:
    """The items of a window: `columns` has the rows of each input that they give.

    `single`: whether an item came without the batch axis. `wraps` convert results of items to the
    library of their inputs. `lengths` are the sizes of ragged dims.
    """

    first: int
    columns: Mapping[str, list[numpy.ndarray]]
    single: Sequence[bool]
    wraps: Mapping[int, Wrap]
    lengths: Lengths


@dataclass(frozen=True)
class Family:
    """Consecutive items from `start` to `stop` that may share a call.

    `lengths` are those of each ragged dim, `counts` the parts of the totals, by unit; `others` are
    the sizes that items share.
    """

    start: int
    stop: int
    lengths: Mapping[str, Sequence[int]]
    counts: Sequence[Sequence[int]]
    others: Mapping[str, int]


@dataclass(frozen=True)
class Group:
    """The items of a call, from `start` to `stop`, its sizes, and those that rows share."""

    start: int
    stop: int
    sizes: Mapping[str, int]
    others: Mapping[str, int]


class _Spans:
    """The sizes of runs of items of a family, as arrays."""

    def __init__(self, table: RowTable, batch: str, family: Family) -> None:
        self.count, self.others = family.stop - family.start, family.others
        self._table, self._batch = table, batch
        self._counts = [numpy.array(each) for each in family.counts]
        self._lengths = {name: numpy.array(each) for name, each in family.lengths.items()}

    def columns(self, starts: numpy.ndarray, stops: numpy.ndarray) -> Columns:
        """Return the dims of groups, which follow each other, by name."""
        table = self._table
        found = {self._batch: stops - starts}
        found.update((name, numpy.full(len(starts), size)) for name, size in self.others.items())
        for name, counts in zip(table.totals, self._counts):
            found[name] = numpy.add.reduceat(counts, starts)
        for dim, name in zip(table.dims, table.longest):
            longest = numpy.maximum.reduceat(self._lengths[dim.name], starts)
            found[name] = numpy.maximum(longest, dim.lo)
        return found


class RaggedMapper(Windows):
    """Runs rows in groups through one model with ragged batches; `names` are its inputs."""

    def __init__(
        self, executable: Executable[Any], program: Program, lists: Mapping[str, Any],
        names: Sequence[str],
    ) -> None:  # fmt: skip
        self._specs = {spec.name: spec for spec in program.signature.inputs}
        self._packing = Packing(program.signature.name, lists, self._specs)
        self._ports, self._table = self._packing.inputs, self._packing.table
        described = frozenset((*self._table.totals, *self._table.longest))
        super().__init__(executable, program, work(program, described))
        self._batch = str(self._specs[self._table.rows].shape[0])
        self._least = max(1, self.signature.box.dim(self._batch).lo)
        # seconds of items alone by their sizes, at sizes of other dims; of none at ()
        self._known: dict[tuple[tuple[str, int], ...], dict[tuple[int, ...], float]] = {}
        masks = [name for name, port in self._ports.items() if port.ones]
        self._inputs = row_inputs(self._packing, (*names, *masks))
        self._names, self._masks = tuple(names), tuple(name for name in masks if name not in names)

    def _layout(
        self, batch: str | None, pad: Any, outputs: Sequence[str] | None, check: bool
    ) -> dict[str, int | None]:
        """Return the requested results, and the batch axis of those that are not ragged."""
        model = self.signature.name
        for name, given, hint in (
            ("pad", pad is not None, "leave it out: rows are not padded"),
            ("batch", batch is not None, f"leave it out: items are rows of '{self._batch}'"),
            ("check", check is not True, "leave it out: there is no padding to check"),
        ):
            if given:
                raise OptionError(f"{model} has ragged batches, and map got `{name}`", hint)
        return {
            spec.key: None if spec.key in self._packing.results
            else axis_of(model, "output", spec, self._batch)
            for spec in wanted_results(self.signature, outputs)
        }  # fmt: skip

    # ---- items -----------------------------------------------------------------------------------

    def _run(self, given: list[Any], first: int, job: Job) -> Iterator[Ran]:
        rows = self._rows(given, first)
        given.clear()
        groups = [
            group for family in self._families(rows) for group in self._groups(family, first, job)
        ]
        for group in groups:
            yield self._called(rows, group, job)

    def _rows(self, given: Sequence[Any], first: int) -> Rows:
        """Read the items of a window; raises InputError or DimError that name the item."""
        made: list[list[numpy.ndarray | None]] = [[] for _ in self._inputs]
        single, wraps = list[bool](), dict[int, Wrap]()
        number = first
        try:
            for number, each in enumerate(given, first):
                single.append(self._item(each, number, made, wraps))
        except UserError as error:
            raise of_item(number, error) from None
        columns: dict[str, list[numpy.ndarray]] = {}
        for name, column in zip(self._inputs, made):
            there = [row for row in column if row is not None]
            if there and len(there) < len(column):
                missing = [row is None for row in column]
                other = missing.index(not missing[0])
                raise of_item(first + other, InputError(
                    f"{self.signature.name}: some items have input '{name}', others do not",
                    "leave it out: rows have no padding",
                ))  # fmt: skip
            if there:
                columns[name] = there
        return Rows(first, columns, single, wraps, self._lengths(columns, first))

    def _item(
        self, given: Any, number: int, made: list[list[numpy.ndarray | None]],
        wraps: dict[int, Wrap],
    ) -> bool:  # fmt: skip
        """Append the arrays of an item; return whether it came without the batch axis."""
        model, foreign, singles = self.signature.name, False, set[bool]()
        values = values_of(given, model, self._names, self._masks)
        for rows, value, each in zip(made, values, self._inputs.values()):
            if value is None:
                rows.append(None)
                continue
            foreign = foreign or type(value) is not numpy.ndarray
            array, single = each.read(value, model)
            rows.append(array)
            if each.axis is not None:
                singles.add(single)
            if each.dtype is None:
                check_ones(f"{model}: input '{each.row.name}'", array)
        if len(singles) > 1:
            raise InputError(f"{model}: inputs have the batch axis, others do not",
                             "give all inputs of an item without it")  # fmt: skip
        wrap = wrapper(values) if foreign else None
        if wrap is not None:
            wraps[number] = wrap
        return singles != {False}

    def _lengths(self, columns: Mapping[str, Any], first: int) -> Lengths:
        shapes = {
            name: list(zip(*[row.shape for row in columns[name]]))
            for name in self._ports if name in columns
        }  # fmt: skip
        try:
            return self._packing.lengths(shapes)
        except UserError:
            for number in range(len(next(iter(columns.values())))):
                alone = {n: [axis[number : number + 1] for axis in s] for n, s in shapes.items()}
                try:
                    self._packing.lengths(alone)
                except UserError as error:
                    raise of_item(first + number, error) from None
            raise

    # ---- groups ----------------------------------------------------------------------------------

    def _families(self, rows: Rows) -> Iterator[Family]:
        """Yield runs of items with equal sizes of other dims, and equal inputs without batch."""
        count, dims = len(rows.single), {dim.name for dim in self._table.dims}
        apart = set[int]()  # the items that differ from those before
        axes: list[tuple[str, int, Size]] = []
        for name, column in rows.columns.items():
            each = self._inputs[name]
            free = [(n, s) for n, s in enumerate(each.row.shape) if s.constant is None]
            free = [(n, s) for n, s in free if not s.symbols & dims]
            axes += [(name, axis, size) for axis, size in free if size.atom is not None]
            for axis, _ in free:
                sizes = [row.shape[axis] for row in column]
                apart.update(n for n in range(1, count) if sizes[n] != sizes[n - 1])
            if each.axis is None:
                apart.update(n for n in range(1, count) if not _is_same(column[n], column[n - 1]))
        starts = [0, *sorted(apart)] if count else []
        for start, stop in zip(starts, [*starts[1:], count]):
            others = {str(size): rows.columns[name][start].shape[n] for name, n, size in axes}
            lengths = {name: each[start:stop] for name, each in rows.lengths.items()}
            counts = self._packing.counts(lengths, others)
            yield Family(start, stop, lengths, counts, others)

    def _groups(self, family: Family, first: int, job: Job) -> Iterator[Group]:
        """Yield the groups of a family; raises MemoryLimitError for an item that does not fit."""
        count = family.stop - family.start
        if count <= FEW:
            starts = self._enough(self._few(family), count)
            for start, stop in zip(starts, [*starts[1:], count]):
                yield from self._fitting(family, start, stop, first, job)
            return
        spans = _Spans(self._table, self._batch, family)
        starts = self._enough(self._worth(spans).tolist(), count)
        at = spans.columns(numpy.array(starts), numpy.array([*starts[1:], count]))
        fits = self._fit(at, job.limit)
        names, points = list(at), zip(*(column.tolist() for column in at.values()))
        for start, stop, fit, point in zip(starts, [*starts[1:], count], fits.tolist(), points):
            if fit:
                place = family.start
                yield Group(place + start, place + stop, dict(zip(names, point)), family.others)
            else:
                yield from self._fitting(family, start, stop, first, job)

    def _fitting(
        self, family: Family, start: int, stop: int, first: int, job: Job
    ) -> Iterator[Group]:
        """Yield a group, or its halves if it exceeds the limit; raises if a least one does."""
        sizes = self._sizes(family, start, stop)
        problem = self._problem(sizes, job.limit)
        if problem is None:
            yield Group(family.start + start, family.start + stop, sizes, family.others)
        elif stop - start < 2 * self._least:
            raise of_item(first + family.start + start, problem)
        else:
            middle = (start + stop) // 2
            yield from self._fitting(family, start, middle, first, job)
            yield from self._fitting(family, middle, stop, first, job)

    def _sizes(self, family: Family, start: int, stop: int) -> dict[str, int]:
        """Return the dims of a group."""
        table = self._table
        found = {self._batch: stop - start, **family.others}
        for name, counts in zip(table.totals, family.counts):
            found[name] = sum(counts[start:stop])
        for dim, name in zip(table.dims, table.longest):
            found[name] = max(max(family.lengths[dim.name][start:stop]), dim.lo)
        return found

    def _enough(self, starts: Sequence[int], count: int) -> list[int]:
        """Return the starts whose groups have the least rows of a call."""
        found = [0]
        for start in starts[1:] if self._least > 1 else ():
            if start - found[-1] >= self._least and count - start >= self._least:
                found.append(start)
        return found if self._least > 1 else list(starts)

    def _few(self, family: Family) -> list[int]:
        """Return the first items of groups, as `_worth`, of few items."""
        if family.stop - family.start == 1:
            return [0]
        others = tuple(family.others.items())
        known = self._known.setdefault(others, {})
        keys = list(zip(*family.lengths.values()))
        missing = [key for key in dict.fromkeys(keys) if key not in known]
        if missing:
            if len(self._known) > FEW or len(known) > KNOWN:
                self._known = {others: (known := {})}
            dims = self._table.dims
            if len(dims) == 1:  # with those near them: many cost no more than one
                missing = [(n,) for n in {n for (at,) in missing for n in near(at, dims[0])}]
            lengths = dict(zip(family.lengths, zip(*missing)))
            counts = self._packing.counts(lengths, family.others)
            some = Family(0, len(missing), lengths, counts, family.others)
            known.update(zip([*missing, ()], self._alone(_Spans(self._table, self._batch, some))))
        empty, done, ends = known[()], 0.0, list[float]()
        for key in keys:
            done += max(known[key] - empty, 0.0)
            ends.append(done)
        groups = max(1, min(len(keys), int(done * _SHARE / empty)))
        marks = (done * number / groups for number in range(1, groups))
        return sorted({0, *(bisect_right(ends, mark) for mark in marks)})

    def _worth(self, spans: _Spans) -> numpy.ndarray:
        """Return the first items of groups of equal work, in which a call by itself costs little.

        Launches, operations and bytes are added up, as if none overlapped.
        """
        *items, empty = self._alone(spans)
        ends = numpy.cumsum(numpy.maximum(numpy.array(items) - empty, 0.0))
        groups = max(1, min(spans.count, int(ends[-1] * _SHARE / empty)))
        marks = ends[-1] * numpy.arange(1, groups) / groups
        return numpy.unique(numpy.append(0, numpy.searchsorted(ends, marks, "right")))

    def _alone(self, spans: _Spans) -> list[float]:
        """Return the seconds of calls of one item each, and of no item, if nothing overlaps."""
        numbers = numpy.arange(spans.count)
        at = spans.columns(numbers, numbers + 1)
        empty = dict.fromkeys(at, 0) | dict(spans.others)
        both = {name: numpy.append(column, empty[name]) for name, column in at.items()}
        found: list[float] = Rates().serial(self.work.at(both), self.executable.threads).tolist()
        return found

    def _fit(self, at: Columns, limit: int) -> numpy.ndarray:
        """Return which calls are within the limits; a few calls with other problems, too."""
        done = self.work.at(at)
        fits = (done.bytes <= limit) & (done.arena <= self.executable.most_bytes)
        for dim in self.signature.box.dims:
            if dim.name in at:
                fits &= at[dim.name] >= dim.lo
            if dim.name in at and dim.hi is not None:
                fits &= at[dim.name] <= dim.hi
        return fits

    # ---- calls -----------------------------------------------------------------------------------

    def _called(self, rows: Rows, group: Group, job: Job) -> Ran:
        feeds, lengths = self._feeds(rows, group)
        self._make_room(group.sizes, job.limit)
        try:
            outputs = self.executable(feeds)
        except (OutOfMemoryError, MemoryLimitError):
            raise
        except InputError as error:
            self._find(rows, group)
            raise of_item(rows.first + group.start, error) from None
        wanted = {key: outputs[key] for key in job.layout}
        seen = self._packing.unpack(wanted, lengths, group.others)
        numbers = range(rows.first + group.start, rows.first + group.stop)
        return Ran(numbers, self._apart(seen, rows, group.start, job.layout), group.sizes)

    def _find(self, rows: Rows, group: Group) -> None:
        """Raise the error of the item that fails alone, if there is one."""
        for number in range(group.start, group.stop):
            try:
                feeds, _ = self._feeds(rows, replace(group, start=number, stop=number + 1))
                self.executable(feeds)
            except InputError as error:
                raise of_item(rows.first + number, error) from None

    def _feeds(self, rows: Rows, group: Group) -> tuple[dict[str, Any], Lengths]:
        """Return the inputs of the program, and the sizes of rows."""
        feeds, own = dict[str, Any](), slice(group.start, group.stop)
        for name, column in rows.columns.items():
            each, part = self._inputs[name], column[own]
            if each.port is None:
                feeds[name] = part[0] if each.axis is None else numpy.stack(part, each.axis)
            elif not each.port.ones:
                flat = [row.reshape(-1) for row in part] if each.port.flat else part
                feeds[each.port.values] = join_rows(flat)
        lengths = {name: each[own] for name, each in rows.lengths.items()}
        feeds.update(self._packing.describe_rows(lengths, group.others))
        return feeds, lengths

    def _apart(
        self, seen: Mapping[str, Any], rows: Rows, start: int, axes: Mapping[str, int | None]
    ) -> list[dict[str, Any]]:
        """Return the results of each item: views of the results of the call."""
        columns = [
            numpy.moveaxis(value, axes[key] or 0, 0) if axes[key] else value
            for key, value in seen.items()
        ]
        found = [dict(zip(seen, own)) for own in zip(*columns)]
        for place, single in enumerate(rows.single[start : start + len(found)]):
            if not single:
                found[place] = {
                    key: numpy.expand_dims(each, axes[key] or 0)
                    for key, each in found[place].items()
                }
        for number, wrap in rows.wraps.items():
            place = number - rows.first - start
            if 0 <= place < len(found):
                found[place] = {key: wrap(each) for key, each in found[place].items()}
        return found


def _is_same(one: numpy.ndarray, other: numpy.ndarray) -> bool:
    if one is other:
        return True
    return one.shape == other.shape and one.tobytes() == other.tobytes()

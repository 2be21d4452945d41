"""Requests of models with ragged dims: rows of any sizes share a call, without padding."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy

from anydim.base.errors import InputError
from anydim.base.records import dataclass
from anydim.runtime.arrays import as_array
from anydim.runtime.program.batches.layout import values_of
from anydim.runtime.program.batches.map_arguments import axis_of, wanted_results
from anydim.runtime.program.batches.ragged_map import RowInput, row_inputs
from anydim.runtime.program.batches.work import work
from anydim.runtime.program.callable_program import CallableProgram
from anydim.runtime.ragged import Packing, Ragged, check_ones, join_rows
from anydim.serving.costs import Costs
from anydim.serving.item import Item

MOST_ROWS = 1 << 16  # of a request
_SHORT = 1 << 12  # bytes of a mask that is compared as bytes
_KNOWN = 4096  # shapes of requests that are remembered
_PREDICTED = 640  # lengths whose calls are predicted at once
Rows = list[numpy.ndarray]


class _Content:
    """The rows of a request, by input, None for one that was left out.

    `lengths` are the sizes of rows by ragged dim, `shared` the inputs without rows, `others` the
    sizes that rows share. `given` are the sizes before rows were cut to what their mask marks, and
    `bytes` those of the rows, which are kept whole.
    """

    __slots__ = ("bytes", "given", "lengths", "others", "rows", "shared", "single", "wanted")

    def __init__(self, rows: dict[str, Rows], shared: dict[str, numpy.ndarray]) -> None:
        self.rows, self.shared = rows, shared
        self.lengths: Mapping[str, Sequence[int]] = {}
        self.others: dict[str, int] = {}
        self.given: dict[str, int] = {}
        self.bytes = 0
        self.single = False
        self.wanted: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Facts:
    """What the shapes of a request decide: see `Item` and `_Content`."""

    key: Hashable
    sizes: dict[str, int]
    rows: int
    extent: int
    own: float
    input_bytes: int
    output_bytes: int
    lengths: Mapping[str, Sequence[int]]
    others: dict[str, int]


class RaggedForm:
    """Reads requests of a ragged model, joins their rows, and splits results.

    A request has the inputs of the model's source: arrays with an axis of rows, arrays of a single
    row, or lists of rows. A mask may have zeros behind its ones: the rows are cut there, and
    ragged results are filled with zeros.
    """

    def __init__(self, model: CallableProgram, name: str = "") -> None:
        self.name, self.executable = name or model.name, model.executable
        self.constant_bytes = self.executable.constant_bytes
        self._specs = {spec.name: spec for spec in model.inputs}
        self._packing = packing = Packing(self.name, model.lists, self._specs)
        self._table, self._batch = packing.table, packing.rows_dim
        program = model.program
        described = frozenset((*self._table.totals, *self._table.longest))
        self.costs = Costs(work(program, described), self.executable.threads)
        self.most_rows = program.signature.box.dim(self._batch).hi
        names = model.input_names()
        masks = [n for n, port in packing.inputs.items() if port.ones and n not in names]
        self._names, self._masks = tuple(names), tuple(masks)
        self._inputs = row_inputs(packing, (*names, *masks))
        self._named_inputs = tuple(self._inputs.items())
        self._outputs = {spec.key: spec for spec in wanted_results(program.signature, None)}
        self._axes = {
            key: axis_of(self.name, "output", spec, self._batch)
            for key, spec in self._outputs.items() if key not in packing.results
        }  # fmt: skip
        self._first = next(iter(packing.dims))
        self._known: dict[Any, _Facts] = {}  # by the shapes of a request
        self._empty: dict[tuple[tuple[str, int], ...], float] = {}
        self._is_predicted = False  # whether calls of rows of each length are
        if len(packing.dims) == 1:
            self._predict_lengths(())

    # ---- reading ---------------------------------------------------------------------------------

    def read(self, given: Any, outputs: Sequence[str] | None) -> Item:
        """As `Form.read`. Raises InputError or DimError."""
        content = _Content({}, {})
        singles: set[bool] = set()
        values = values_of(given, self.name, self._names, self._masks)
        for (name, each), value in zip(self._named_inputs, values):
            if value is None and name in self._masks:
                continue
            if each.axis is None:
                content.shared[name] = each.read(value, self.name)[0]
                continue
            content.rows[name], single = self._rows(name, each, value)
            singles.add(single)
            if not content.rows[name]:  # results of no rows have the sizes of its other axes
                axes = (str(size) for size in each.row.shape)
                content.given.update(zip(axes, numpy.shape(value)[1:]))
        if len(singles) > 1:
            raise InputError(f"{self.name}: inputs have the axis of rows, others do not",
                             "give all inputs of a request with it")  # fmt: skip
        content.single = singles == {True}
        self._unpad(content)
        content.wanted = self._wanted(outputs)
        return self._item(content)

    def _rows(self, name: str, each: RowInput, value: Any) -> tuple[Rows, bool]:
        """The rows of an input, and whether it came as a row without the axis of rows."""
        if type(value) is numpy.ndarray and value.dtype == each.dtype and not each.axis:
            if value.ndim == each.row.rank + 1 and 0 < len(value) <= MOST_ROWS:
                return list(value), False
        if _is_list_of_rows(value):
            return [each.read(row, self.name)[0] for row in value], False
        array = as_array(value, f"input '{name}' of {self.name}")
        if array.ndim != each.row.rank + 1:
            return [each.read(value, self.name)[0]], True
        if each.axis:
            array = numpy.moveaxis(array, each.axis, 0)
        count = len(array)
        if count > MOST_ROWS:
            raise InputError(
                f"{self.name}: input '{name}' has {count} rows, at most {MOST_ROWS} are taken",
                "split the request",
            )
        if count == 0 and each.dtype is not None and array.dtype != each.dtype:
            raise InputError(f"{self.name}: input '{name}' is {array.dtype}, expected {each.dtype}")
        return [each.read(array[number], self.name)[0] for number in range(count)], False

    def _unpad(self, content: _Content) -> None:
        """Cut rows to the ones of their masks; raises InputError for other masks."""
        for name, port in self._packing.inputs.items():
            masks = content.rows.get(name)
            if not port.ones or masks is None or all(map(_is_ones, masks)):
                continue
            dim = str(port.shape[0]) if len(port.shape) == 1 else ""
            lengths = [_ones(mask) for mask in masks] if dim in self._packing.dims else [None]
            if None in lengths or not self._can_be_filled(dim):
                where = f"{self.name}: input '{name}'"
                for mask in masks:
                    check_ones(where, mask)
            content.given[dim] = len(masks[0])
            content.bytes = sum(row.nbytes for rows in content.rows.values() for row in rows)
            for other, rows in content.rows.items():
                axes = [str(size) for size in self._inputs[other].row.shape]
                if dim in axes:
                    axis = axes.index(dim)
                    content.rows[other] = [
                        row[(slice(None),) * axis + (slice(length),)]
                        for row, length in zip(rows, lengths)
                    ]
            return

    def _can_be_filled(self, dim: str) -> bool:
        """Whether results have the dim as axes, and in no other size."""
        shapes = [port.shape for port in self._packing.results.values()]
        return all(str(size) == dim or dim not in size.symbols for s in shapes for size in s)

    def _wanted(self, outputs: Sequence[str] | None) -> tuple[str, ...]:
        if outputs is None:
            return tuple(self._outputs)
        unknown = [name for name in outputs if name not in self._outputs]
        if unknown:
            known = ", ".join(self._outputs)
            raise InputError(f"{self.name} has no result '{unknown[0]}'", f"its results: {known}")
        return tuple(outputs)

    def _item(self, content: _Content) -> Item:
        """The item of a request; what its shapes decide is computed once for them."""
        rows = content.rows
        shapes = tuple([(name, *[row.shape for row in each]) for name, each in rows.items()])
        shared = content.shared
        if shared:
            shapes = (shapes, *((name, array.shape) for name, array in shared.items()))
        known = self._known.get(shapes)
        if known is None:
            known = self._facts(content)
            if len(self._known) >= _KNOWN:
                self._known = {}
            self._known[shapes] = known
        content.lengths, content.others = known.lengths, known.others
        key = known.key
        if shared:
            key = (key, *[(name, array.tobytes()) for name, array in shared.items()])
        inputs, outputs = known.input_bytes, known.output_bytes
        if content.given:
            inputs, outputs = max(inputs, content.bytes), max(outputs, self._filled_bytes(content))
        return Item(key, known.sizes, known.rows, known.extent, known.own, inputs, outputs, content)

    def _filled_bytes(self, content: _Content) -> int:
        """Bytes of results with zeros where the request has padding."""
        lengths = {
            name: [content.given.get(name, size) for size in sizes]
            for name, sizes in content.lengths.items()
        }
        count = len(next(iter(lengths.values())))
        return self.costs.taken(self._sized(count, lengths, content.others))[2]

    def _facts(self, content: _Content) -> _Facts:
        """What the shapes of a request decide; raises InputError or DimError for wrong ones."""
        counts = {name: len(rows) for name, rows in content.rows.items()}
        if len(set(counts.values())) > 1:
            texts = ", ".join(f"'{name}' has {count}" for name, count in counts.items())
            raise InputError(f"{self.name}: inputs differ in the number of rows: {texts}")
        shapes = {
            name: list(zip(*[row.shape for row in rows])) or [()] * self._inputs[name].row.rank
            for name, rows in content.rows.items() if self._inputs[name].port is not None
        }  # fmt: skip
        lengths = self._packing.lengths(shapes)
        others = self._others(content)
        count = next(iter(counts.values()))
        sizes = self._sized(count, lengths, others)
        arrays = [row for rows in content.rows.values() for row in rows]
        return _Facts(
            tuple(others.items()), sizes, count, sum(lengths[self._first]),
            sum(self._own(row, others) for row in zip(*lengths.values())),
            sum(array.nbytes for array in (*arrays, *content.shared.values())),
            self.costs.taken(sizes)[2], lengths, others,
        )  # fmt: skip

    def _others(self, content: _Content) -> dict[str, int]:
        """The sizes that rows share; rows of a request have equal ones."""
        found: dict[str, int] = {}
        for name, each in self._inputs.items():
            arrays = content.rows.get(name) or (
                [content.shared[name]] if name in content.shared else []
            )
            for axis, size in enumerate(each.row.shape):
                if size.constant is not None or str(size) in self._packing.dims:
                    continue
                if size.atom is not None and arrays:
                    found.setdefault(str(size), arrays[0].shape[axis])
        return found

    def _own(self, row: tuple[int, ...], others: Mapping[str, int]) -> float:
        """Predicted seconds that a row of these sizes adds to a call."""
        if not self._is_predicted and not others:
            self._predict_lengths(row)
        lengths = {name: [size] for name, size in zip(self._packing.dims, row)}
        alone = self.costs.predicted(self._sized(1, lengths, others))
        return max(alone - self._nothing(others), 0.0)

    def _predict_lengths(self, row: tuple[int, ...]) -> None:
        """Predict calls of a row of each length, so that a new length takes no time. Sizes of other
        ragged dims are those of `row`."""
        self._is_predicted = True
        *fixed, last = self._table.dims
        end = last.lo + _PREDICTED if last.hi is None else min(last.hi + 1, last.lo + _PREDICTED)
        count = end - last.lo
        lengths = {dim.name: [size] * count for dim, size in zip(fixed, row)}
        lengths[last.name] = list(range(last.lo, end))
        columns: dict[str, Sequence[int]] = {self._batch: [1] * count}
        columns.update(zip(self._table.totals, self._packing.counts(lengths, {})))
        columns.update(zip(self._table.longest, lengths.values()))
        self.costs.predict(columns)

    def _nothing(self, others: Mapping[str, int]) -> float:
        """Predicted seconds of a call without rows."""
        key = tuple(others.items())
        found = self._empty.get(key)
        if found is None:
            none: dict[str, Sequence[int]] = {name: [] for name in self._packing.dims}
            sizes = {**self._sized(0, none, others), **dict.fromkeys(self._table.longest, 0)}
            found = self._empty[key] = self.costs.predicted(sizes)
        return found

    def overhead(self, item: Item) -> float:
        """As `Form.overhead`."""
        return self._nothing(item.content.others)

    # ---- calls -----------------------------------------------------------------------------------

    def _sized(
        self, count: int, lengths: Mapping[str, Sequence[int]], others: Mapping[str, int]
    ) -> dict[str, int]:
        """The dims of a call, always in the same order."""
        table, found = self._table, {self._batch: count, **others}
        for total, counts in zip(table.totals, self._packing.counts(lengths, others)):
            found[total] = sum(counts)
        for dim, longest in zip(table.dims, table.longest):
            found[longest] = max(lengths[dim.name], default=dim.lo)
        return found

    def sizes(self, items: Sequence[Item]) -> dict[str, int]:
        """As `Form.sizes`: sums of rows and of totals, the largest of the longest rows."""
        first, longest = items[0], set(self._table.longest)
        others = first.content.others
        return {
            name: size if name in others
            else max(item.sizes[name] for item in items) if name in longest
            else sum(item.sizes[name] for item in items)
            for name, size in first.sizes.items()
        }  # fmt: skip

    def run(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        """As `Form.run`. Raises the errors of a call."""
        contents: list[_Content] = [item.content for item in items]
        lengths = {
            name: [size for content in contents for size in content.lengths[name]]
            for name in self._packing.dims
        }
        results = self.executable(self._feeds(contents, lengths))
        wanted = {name: results[name] for content in contents for name in content.wanted}
        seen = self._packing.unpack(wanted, lengths, contents[0].others)
        begin, found = 0, []
        for item, content in zip(items, contents):
            rows = range(begin, begin + item.rows)
            alone = len(items) == 1
            found.append({name: self._part(name, seen[name], content, rows, alone)
                          for name in content.wanted})  # fmt: skip
            begin += item.rows
        return found

    def _feeds(
        self, contents: Sequence[_Content], lengths: Mapping[str, Sequence[int]]
    ) -> dict[str, Any]:
        first = contents[0]
        feeds: dict[str, Any] = dict(first.shared)
        for name, each in self._inputs.items():
            if each.axis is None or (each.port is not None and each.port.ones):
                continue
            rows = [row for content in contents for row in content.rows[name]]
            if not rows:
                feeds[each.port.values if each.port else name] = self._none(name)
            elif each.port is None:
                feeds[name] = numpy.stack(rows, each.axis)
            else:
                flat = [row.reshape(-1) for row in rows] if each.port.flat else rows
                feeds[each.port.values] = join_rows(flat)
        feeds.update(self._packing.describe_rows(lengths, first.others))
        return feeds

    def _none(self, name: str) -> numpy.ndarray:
        """An input of no rows."""
        each = self._inputs[name]
        shape = [size.constant or 0 for size in each.row.shape]
        if each.port is not None:
            shape = [0] if each.port.flat else [0, *shape[1:]]
        else:
            shape.insert(each.axis or 0, 0)
        return numpy.zeros(shape, each.dtype)

    def _part(self, name: str, seen: Any, content: _Content, rows: range, alone: bool) -> Any:
        """The result of one request: an array, or a list of rows of unlike sizes."""
        if not isinstance(seen, Ragged):
            axis = self._axes[name]
            if content.single:
                return numpy.take(seen, rows.start, axis)
            if alone:
                return seen
            place = (slice(None),) * axis + (slice(rows.start, rows.stop),)
            return seen[place].copy()
        if content.given:
            return self._filled(name, seen, content, rows)
        if content.single:
            return seen[rows.start] if alone else seen[rows.start].copy()
        shapes = {seen[row].shape for row in rows}
        if len(shapes) > 1:
            return [seen[row].copy() for row in rows]
        start, stop = int(seen.offsets[rows.start]), int(seen.offsets[rows.stop])
        shape = next(iter(shapes), None)
        if shape is None:
            shape = tuple(size.constant or 0 for size in self._packing.results[name].shape)
        part = seen.values[start:stop].reshape(len(rows), *shape)
        return part if alone else part.copy()

    def _filled(self, name: str, seen: Ragged, content: _Content, rows: range) -> numpy.ndarray:
        """A ragged result with zeros where the request has padding."""
        axes = self._packing.results[name].shape
        found = [seen[row] for row in rows]
        sizes = found[0].shape if found else tuple(size.constant or 0 for size in axes)
        shape = [content.given.get(str(size), own) for size, own in zip(axes, sizes)]
        made = numpy.zeros((len(found), *shape), seen.values.dtype)
        for number, row in enumerate(found):
            made[number][tuple(map(slice, row.shape))] = row
        return made[0] if content.single else made

    def idle_bytes(self) -> int:
        """As `Form.idle_bytes`."""
        return self.executable.arena_bytes + self.executable.result_bytes

    def trim(self) -> None:
        """As `Form.trim`."""
        self.executable.trim()


def _is_list_of_rows(value: Any) -> bool:
    """Whether a value is a list of arrays, or of lists of unequal lengths."""
    if not isinstance(value, (list, tuple, Ragged)) or not len(value):
        return False
    first = value[0]
    return hasattr(first, "ndim") or (
        isinstance(first, (list, tuple))
        and any(isinstance(row, (list, tuple)) and len(row) != len(first) for row in value)
    )


@lru_cache(1024)
def _bytes_of_ones(dtype: numpy.dtype, count: int) -> bytes:
    return numpy.ones(count, dtype).tobytes()


def _is_ones(mask: numpy.ndarray) -> bool:
    """Whether all elements are 1; comparing bytes takes a fifth of the time of elements."""
    if mask.nbytes > _SHORT:
        return bool((mask == 1).all())
    return mask.tobytes() == _bytes_of_ones(mask.dtype, mask.size)


def _ones(mask: numpy.ndarray) -> int | None:
    """How many ones a mask begins with; None if anything but zeros follows them."""
    count = int((mask == 1).sum())
    return count if (mask[:count] == 1).all() and not mask[count:].any() else None

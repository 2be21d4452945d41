"""Requests of models with ragged dims: rows of any sizes share a call, without padding."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy

from anydim.base.errors import InputError
from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.base.user_values import texts_of
from anydim.runtime.executable import Executable
from anydim.runtime.program.batches.costs import Costs
from anydim.runtime.program.batches.item import Item
from anydim.runtime.program.batches.layout import input_values
from anydim.runtime.program.batches.map_arguments import axis_of, wanted_results
from anydim.runtime.program.batches.row_inputs import (
    RowInput,
    count_leading_ones,
    is_all_ones,
    row_input,
)
from anydim.runtime.program.batches.work import work_of
from anydim.runtime.program.program import Program
from anydim.runtime.ragged import Packing, Ragged, check_ones, join_rows

_KNOWN = 4096  # shapes of requests that are remembered
_PREDICTED = 640  # lengths whose calls are predicted at once
_NONE: Mapping[str, Any] = FrozenMapping({})
Rows = list[numpy.ndarray]


class _Content:
    """The rows of a request, by input, None for one that was left out.

    `lengths` are the sizes of rows by ragged dim, `shared` the inputs without rows, `others` the
    sizes that rows share. `given` are the sizes before rows were cut to what their mask marks, and
    `bytes` those of the rows, which are kept whole.
    """

    lengths: Mapping[str, Sequence[int]] = _NONE
    others: Mapping[str, int] = _NONE
    given: Mapping[str, int] = _NONE
    bytes = 0
    single = False
    wanted: tuple[str, ...] = ()

    def __init__(self, rows: dict[str, Rows], shared: dict[str, numpy.ndarray]) -> None:
        self.rows, self.shared = rows, shared


@dataclass(frozen=True)
class _Facts:
    """What the shapes of a request determine; see `Item` and `_Content`."""

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

    copies = True  # results of a request keep no memory of others alive

    def __init__(
        self, name: str, executable: Executable[Any], program: Program, lists: Mapping[str, Any],
        inputs: Sequence[str],
    ) -> None:  # fmt: skip
        self.name, self.executable = name, executable
        self.constant_bytes = executable.constant_bytes
        self._specs = {spec.name: spec for spec in program.signature.inputs}
        self._packing = packing = Packing(name, lists, self._specs)
        self._table, self.batch = packing.table, packing.rows_dim
        described = frozenset((*self._table.totals, *self._table.longest))
        self.costs = Costs(work_of(program, described), executable.threads)
        self.most_rows = program.signature.box.dim(self.batch).hi
        masks = [n for n, port in packing.inputs.items() if port.ones and n not in inputs]
        self._names, self._masks = tuple(inputs), tuple(masks)
        self._inputs = {each: row_input(packing, each) for each in (*inputs, *masks)}
        self._named_inputs = tuple(self._inputs.items())
        self._outputs = {spec.key: spec for spec in wanted_results(program.signature, None)}
        self._axes: dict[str, int] = {}  # of rows in results that are not ragged
        self.mask_names = [n for n, each in self._inputs.items() if each.dtype is None]
        self._first = next(iter(packing.dims))
        self._known: dict[Any, _Facts] = {}  # by the shapes of a request
        self._empty: dict[tuple[tuple[str, int], ...], float] = {}
        self._is_predicted = False  # whether calls of rows of each length are
        if len(packing.dims) == 1:
            self._predict_lengths(())

    def check_results(self, names: Iterable[str] | None = None) -> None:
        """Raises OptionError if a result is neither ragged nor has exactly one axis of rows."""
        for name in self._outputs if names is None else names:
            if name not in self._packing.results and name not in self._axes:
                self._axes[name] = axis_of(self.name, "output", self._outputs[name], self.batch)

    # ---- reading ---------------------------------------------------------------------------------

    def read(self, given: Any, outputs: Sequence[str] | None) -> Item:
        """As `Form.read`. Raises InputError or DimError."""
        content = _Content({}, {})
        singles = list[bool]()
        values = input_values(given, self.name, self._names, self._masks)
        for (name, each), value in zip(self._named_inputs, values):
            if value is None and name in self._masks:
                continue
            if each.axis is None:
                content.shared[name] = each.read_row(value, self.name)[0]
                continue
            content.rows[name], single = self._read(each, value)
            singles.append(single)
            if not content.rows[name]:  # results of no rows have the sizes of its other axes
                axes = (str(size) for size in each.row.shape)
                content.given = {**content.given, **dict(zip(axes, numpy.shape(value)[1:]))}
        content.single = True in singles
        if content.single and False in singles:
            raise InputError(f"{self.name}: inputs have the axis of rows, others do not",
                             "give all inputs of a request with it")  # fmt: skip
        if self.mask_names:
            self._unpad(content)
        content.wanted = self._wanted(outputs)
        return self._item(content)

    def _read(self, each: RowInput, value: Any) -> tuple[Rows, bool]:
        """Reads the rows of an input; whether it is one row without the batch axis."""
        return each.read_rows(value, self.name)

    def _unpad(self, content: _Content) -> None:
        """Remove the padding that masks mark at the end of rows; raises InputError for others."""
        for name, port in self._packing.inputs.items():
            masks = content.rows.get(name)
            if not port.ones or masks is None or all(map(is_all_ones, masks)):
                continue
            dim = str(port.shape[0]) if len(port.shape) == 1 else ""
            lengths = (
                [count_leading_ones(mask) for mask in masks]
                if dim in self._packing.dims
                else [None]
            )
            if None in lengths or not self._can_be_filled(dim):
                where = f"{self.name}: input '{name}'"
                for mask in masks:
                    check_ones(where, mask)
            content.given = {**content.given, dim: len(masks[0])}
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
        """Whether results use the dim only as whole axes, which padding can fill."""
        shapes = [port.shape for port in self._packing.results.values()]
        return all(str(size) == dim or dim not in size.symbols for s in shapes for size in s)

    def _wanted(self, outputs: Sequence[str] | None) -> tuple[str, ...]:
        if outputs is None:
            return tuple(self._outputs)
        outputs = texts_of("outputs", outputs)
        unknown = [name for name in outputs if name not in self._outputs]
        if unknown:
            known = ", ".join(self._outputs)
            raise InputError(f"{self.name} has no result '{unknown[0]}'", f"its results: {known}")
        return tuple(outputs)

    def _item(self, content: _Content) -> Item:
        """Return the item of a request; facts of its shapes are computed once and cached."""
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
            key = (key, *[blake2b(array.tobytes()).digest() for array in shared.values()])
        inputs, outputs = known.input_bytes, known.output_bytes
        if content.given:
            inputs, outputs = max(inputs, content.bytes), max(outputs, self._filled_bytes(content))
        return Item(key, known.sizes, known.rows, known.extent, known.own, inputs, outputs, content)

    def _filled_bytes(self, content: _Content) -> int:
        """Return the bytes of results padded as the request was."""
        lengths = {
            name: [content.given.get(name, size) for size in sizes]
            for name, sizes in content.lengths.items()
        }
        return self.costs.bytes_of_call(self._sizes(lengths, content.others))[2]

    def _facts(self, content: _Content) -> _Facts:
        """Check the shapes of a request and compute its facts; raises InputError or DimError."""
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
        sizes = self._sizes(lengths, others)
        arrays = [row for rows in content.rows.values() for row in rows]
        return _Facts(
            tuple(others.items()), sizes, count, sum(lengths[self._first]),
            sum(self._own(row, others) for row in zip(*lengths.values())),
            sum(array.nbytes for array in (*arrays, *content.shared.values())),
            self.costs.bytes_of_call(sizes)[2], lengths, others,
        )  # fmt: skip

    def _others(self, content: _Content) -> dict[str, int]:
        """Return the sizes of dims that are equal in all rows of a request."""
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
        """Return the predicted seconds that a row of these sizes adds to a call."""
        if not self._is_predicted and not others:
            self._predict_lengths(row)
        lengths = {name: [size] for name, size in zip(self._packing.dims, row)}
        alone = self.costs.predict_seconds(self._sizes(lengths, others))
        return max(alone - self._nothing(others), 0.0)

    def _predict_lengths(self, row: tuple[int, ...]) -> None:
        """Predict calls of one row for all short lengths at once: a new length then costs nothing.
        Sizes of other ragged dims are those of `row`."""
        self._is_predicted = True
        *fixed, last = self._table.dims
        end = last.lo + _PREDICTED if last.hi is None else min(last.hi + 1, last.lo + _PREDICTED)
        count = end - last.lo
        lengths = {dim.name: [size] * count for dim, size in zip(fixed, row)}
        lengths[last.name] = list(range(last.lo, end))
        columns: dict[str, Sequence[int]] = {self.batch: [1] * count}
        columns.update(zip(self._table.totals, self._packing.counts(lengths, {})))
        columns.update(zip(self._table.longest, lengths.values()))
        self.costs.predict_many(columns)

    def _nothing(self, others: Mapping[str, int]) -> float:
        """Return the predicted seconds of a call without rows: its fixed cost."""
        key = tuple(others.items())
        found = self._empty.get(key)
        if found is None:
            none: dict[str, Sequence[int]] = {name: [] for name in self._packing.dims}
            sizes = {**self._sizes(none, others), **dict.fromkeys(self._table.longest, 0)}
            found = self._empty[key] = self.costs.predict_seconds(sizes)
        return found

    def overhead(self, item: Item) -> float:
        """As `Form.overhead`."""
        return self._nothing(item.content.others)

    # ---- calls -----------------------------------------------------------------------------------

    def _sizes(
        self, lengths: Mapping[str, Sequence[int]], others: Mapping[str, int]
    ) -> dict[str, int]:
        """Returns the dims of a call with rows of these lengths, always in the same order."""
        return {**self._packing.sizes(lengths, others), **others}

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
        shares_memory = len(items) == 1 or not self.copies
        for item, content in zip(items, contents):
            rows = range(begin, begin + item.rows)
            found.append({name: self._part(name, seen[name], content, rows, shares_memory)
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
        """Return an input with no rows."""
        each = self._inputs[name]
        shape = [size.constant or 0 for size in each.row.shape]
        if each.port is not None:
            shape = [0] if each.port.flat else [0, *shape[1:]]
        else:
            shape.insert(each.axis or 0, 0)
        return numpy.zeros(shape, each.dtype)

    def _part(
        self, name: str, seen: Any, content: _Content, rows: range, shares_memory: bool
    ) -> Any:
        """The result of one request: an array, or a list of rows of different sizes."""
        if not isinstance(seen, Ragged):
            place: Any = rows.start if content.single else slice(rows.start, rows.stop)
            part = seen[(slice(None),) * self._axes[name] + (place,)]
        elif content.given:
            return self._filled(name, seen, content, rows)
        elif content.single:
            part = seen[rows.start]
        else:
            if len({seen[row].shape for row in rows}) > 1:
                return [seen[row].copy() for row in rows]
            start, stop = int(seen.offsets[rows.start]), int(seen.offsets[rows.stop])
            sizes = self._packing.results[name].shape
            shape = seen[rows.start].shape if rows else [size.constant or 0 for size in sizes]
            part = seen.values[start:stop].reshape(len(rows), *shape)
        return part if shares_memory else part.copy()

    def _filled(self, name: str, seen: Ragged, content: _Content, rows: range) -> numpy.ndarray:
        """Return a ragged result as an array, with zeros where the request had padding."""
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

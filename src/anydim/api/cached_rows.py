"""Continuous batching: compiled decoders whose rows have caches of different lengths.

model = ad.cached("decoder.onnx", ragged={"seq": "batch"})
first, second = model.join(), model.join()
logits = model.step({first: prompt, second: other})["logits"]       # ragged: a row each
third = model.join()
logits = model.step({first: word, second: next, third: prompt})["logits"]
model.leave(second)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy

from anydim.base.amounts import bytes_of
from anydim.base.errors import DimError, InputError, OptionError, UserError
from anydim.base.fork_locks import fork_lock
from anydim.base.keywords import public
from anydim.base.text import quote_list
from anydim.base.user_values import by_names, integer_of, items_of, short_repr, whole_within
from anydim.runtime.arrays import as_array
from anydim.runtime.frames import keep_freed_blocks
from anydim.runtime.lists import RaggedPort
from anydim.runtime.ragged import RowSizes, shared_sizes
from anydim.runtime.slabs import Cache, Slab, SlabKind, Slabs
from anydim.sizes import LARGEST, Size

if TYPE_CHECKING:  # a start that finds its program needs no compiler
    from anydim.api.model import Model
    from anydim.compiler.frontends.growing_caches import SpareCaches


@public
class CachedRows:
    """A compiled model whose rows keep caches of their own lengths between steps.

    Rows are numbers that `join` returns. Steps are serialised: they change the caches. A row's
    results have the same bits whatever other rows a step has.
    """

    def __init__(
        self, model: Model, made: SpareCaches, rows: str, room: int, cache_limit: int | str | None,
        usual: Mapping[str, numpy.ndarray] | None = None,
    ) -> None:  # fmt: skip
        self.model, self.caches = model, made.caches
        self._usual = dict(usual or {})  # inputs of rows that a step need not give
        packing = model._conversion.packing
        assert packing is not None  # rows with spare caches are ragged
        self._packing = packing
        self._past, self._batch = made.past, rows
        own = {each.input for each in made.caches}
        taken = {each.result for each in made.caches}
        table = self._packing.table
        self._starts = table.totals[table.units.index(Size.symbol(made.capacity))]
        self._capacity = made.capacity
        self._max_length = self._packing.dims[made.past].hi
        self._counted = made.caches[0].count
        self._new = [d for d in self._packing.dims if d not in (made.past, made.capacity)]
        ports = {n: port for n, port in self._packing.inputs.items() if n not in own}
        named = [name for name in model.input_names() if name not in own]
        specs = self._packing.specs
        self._of_rows = [  # an entry per row, of ragged size or not
            name for name in named
            if name in ports or any(rows in size.symbols for size in specs[name].shape)
        ]  # fmt: skip
        self._of_rows += [name for name, port in ports.items() if port.ones and name not in named]
        self._needed = [
            name for name in self._of_rows
            if name not in self._usual and not (name in ports and ports[name].ones)
        ]  # fmt: skip
        self._shared = [name for name in named if name not in self._of_rows]
        self._ports, self._own = ports, own
        self._results = [spec.key for spec in model.outputs if spec.key not in taken]
        results = [self._packing.results.get(key) for key in self._results]
        nothing = dict.fromkeys(self._new, 0)
        self._skips = all(name in ports for name in self._of_rows) and all(
            port is not None and port.counted.substitute(nothing) == 0 for port in results
        )
        self._limit = None if cache_limit is None else bytes_of(cache_limit, "cache_limit")
        kinds = [self._kind(each) for each in made.caches]
        self._slabs = Slabs(model.name, kinds, room, self._limit)
        keep_freed_blocks()
        self._next = 0
        self._lock = fork_lock(self, "_lock")
        pairs = {(each.result, each.input) for each in made.caches}
        self.in_place = pairs <= model.executable.updates

    def _kind(self, cache: Cache) -> SlabKind:
        """What a row has of a cache."""
        port: RaggedPort = self._packing.inputs[cache.input]
        sizes = [str(size) for size in port.shape]
        axis = sizes.index(self._capacity)
        rest = [size.evaluate({self._capacity: 0}) for size in port.shape]
        dtype = self._packing.specs[port.values].dtype.numpy
        return SlabKind(cache.input, dtype, tuple(rest[:axis]), tuple(rest[axis + 1 :]))

    # ---- rows ------------------------------------------------------------------------------------

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows that have joined and not left."""
        return tuple(self._slabs.rows)

    @property
    def row_inputs(self) -> tuple[str, ...]:
        """The inputs that each row of a step has, without masks of ones and optional ones."""
        return tuple(self._needed)

    @property
    def optional_inputs(self) -> tuple[str, ...]:
        """The inputs of rows that have a usual value."""
        return tuple(self._usual)

    def join(self) -> int:
        """A new row with an empty cache; takes no memory before its first step."""
        with self._lock:
            row, self._next = self._next, self._next + 1
            self._slabs.rows[row] = Slab()
        return row

    def copy(self, row: int, length: int) -> int:
        """A new row with a copy of the first `length` elements of a row's cache.

        Raises InputError for an unknown row, OptionError if it holds fewer, MemoryLimitError above
        `cache_limit`.
        """
        whole_within("length", length, 0, LARGEST, "give how many elements to copy")
        with self._lock:
            self._check_length(row, length)
            made, self._next = self._next, self._next + 1
            self._slabs.rows[made] = Slab()
            try:
                self._slabs.copy(row, made, length)
            except BaseException:
                self._slabs.remove(made)
                raise
        return made

    def leave(self, row: int) -> None:
        """End a row: its memory serves other rows. Raises InputError for an unknown row."""
        with self._lock:
            self._slab(row)
            self._slabs.remove(row)

    def length(self, row: int) -> int:
        """The number of cached elements of a row."""
        return self._slab(row).length

    def forget(self, row: int, length: int = 0, spare: int = 0) -> None:
        """Truncate the cache of a row to its first `length` elements; the memory of the others is
        given back, but for `spare` elements more."""
        whole_within("length", length, 0, LARGEST, "give how many elements to keep")
        whole_within("spare", spare, 0, LARGEST, "give for how many elements memory stays")
        with self._lock:
            self._check_length(row, length)
            self._slabs.shorten(row, length, length + spare)

    def _check_length(self, row: int, length: int) -> None:
        """Raise OptionError for more elements than a row holds."""
        if length > self._slab(row).length:
            held = self._slab(row).length
            raise OptionError(f"row {row} of {self.model.name} holds {held} elements")

    def held(self, row: int) -> dict[str, numpy.ndarray]:
        """Views of the cached elements of a row, by input, without the axis of the batch.

        The next step may move them or write after them.
        """
        self._slab(row)
        return self._slabs.view(row)

    def hold(self, row: int, caches: Mapping[str, Any]) -> None:
        """Set the cache of a row by input, as copies; arrays as `held` returns them.

        Raises InputError for arrays that do not fit.
        """
        where = f"{self.model.name}: row {row}"
        given = {
            name: as_array(array, f"{where}: cache '{name}'")
            for name, array in by_names("caches", caches).items()
        }
        if set(given) != self._own:
            raise InputError(f"{where}: its caches are {quote_list(sorted(self._own))}")
        lengths = set()
        for kind in self._slabs.kinds:
            array, axis = given[kind.name], len(kind.before)
            shape = (*array.shape[:axis], *array.shape[axis + 1 :])
            rank = axis + 1 + len(kind.after)
            if array.ndim != rank or shape != (*kind.before, *kind.after) or (
                array.dtype != kind.dtype
            ):  # fmt: skip
                sizes = ", ".join(map(str, (*kind.before, "length", *kind.after)))
                raise InputError(f"{where}: cache '{kind.name}' is {kind.dtype}[{sizes}]")
            lengths.add(array.shape[axis])
        if len(lengths) != 1:
            raise InputError(f"{where}: caches of {quote_list(sorted(map(str, lengths)))} elements")
        with self._lock:
            self._slab(row)
            (length,) = lengths
            self._slabs.reserve({row: length})
            self._slabs.rows[row].length = length
            for name, view in self._slabs.view(row).items():
                view[...] = given[name]

    def _slab(self, row: int) -> Slab:
        try:
            number = integer_of(row)
        except TypeError:
            number = -1
        slab = self._slabs.rows.get(number)
        if slab is None:
            known = f"rows: {quote_list([str(each) for each in self.rows])}" if self.rows else ""
            joined = 0 <= number < self._next
            problem = f"row {number} has left" if joined else f"{short_repr(row)} is no row"
            raise InputError(f"{self.model.name}: {problem}", known or "join() makes one")
        return slab

    # ---- memory ----------------------------------------------------------------------------------

    def cache_bytes(self, lengths: Iterable[int]) -> int:
        """Bytes of the caches of rows of these lengths: the pages that have one of their elements.

        A row keeps the memory of the longest length it had until it leaves or is truncated. Where
        the system takes no pages back, it serves other rows.
        """
        return sum(map(self._slabs.bytes, _sizes("lengths", lengths)))

    def held_bytes(self, rows: Iterable[int] | None = None) -> int:
        """Bytes that the caches of rows take now; None: of all rows. Others have none."""
        slabs = self._slabs
        if rows is None:
            return slabs.used
        known = map(slabs.rows.get, _sizes("rows", rows))
        return sum(slabs.bytes(slab.most) for slab in known if slab is not None)

    def step_bytes(
        self, lengths: Sequence[int], new: Sequence[int],
        optional: Mapping[str, Sequence[int]] | None = None,
    ) -> int:  # fmt: skip
        """Bytes that a step allocates beside the caches, by formula: values, inputs and results.

        Args:
            lengths: The cached elements of each row before the step.
            new: The new tokens of each row.
            optional: Elements of optional inputs of each row.
        """
        lengths = _sizes("lengths", lengths)
        columns = {self._new[0]: _sizes("new", new), self._past: lengths}
        given = by_names("optional", optional)
        for name, usual in self._usual.items():
            own = _sizes(name, given.get(name, [len(usual)] * len(lengths)))
            columns[str(self._ports[name].counted)] = own
        self._check_columns(columns)
        counts = self._counts(columns)
        columns[self._capacity] = [self._slabs.capacity(n + c) for n, c in zip(lengths, counts)]
        table, sizes = self._packing.table, {self._batch: len(lengths)}
        for total, parts in zip(table.totals, self._packing.counts(columns, {})):
            sizes[total] = sum(parts)
        for dim, longest in zip(table.dims, table.longest):
            sizes[longest] = max(columns[dim.name], default=0)
        return max(0, self.step_formula.evaluate(sizes))

    @cached_property
    def step_formula(self) -> Size:
        """Bytes of a step, of the sizes of a call."""
        from anydim.runtime.program.batches.work import work_of  # stored programs have the formula

        table, program = self._packing.table, self.model.program
        taken = {each.result for each in self.caches} if self.in_place else set()
        signature = program.signature
        specs = [spec for spec in signature.inputs if spec.name not in self._own]
        specs += [spec for spec in signature.outputs if spec.key not in taken]
        arena = work_of(program, frozenset((*table.totals, *table.longest))).arena
        return sum((spec.bytes for spec in specs), arena)

    def cache_room(self, memory: int, step: int) -> int:
        """Most bytes of caches within `cache_limit`, and within `memory` beside steps of `step`
        bytes.

        A cache that moves exists twice while it is copied.
        """
        memory, step = bytes_of(memory), bytes_of(step, "step")
        limits = [memory - step, self._slabs.most_within(memory)]
        return max(0, min(limits if self._limit is None else [*limits, self._limit]))

    def limit_caches(self, most: int) -> None:
        """Set the most bytes of the caches of all rows, at most `cache_limit`. Raises
        MemoryLimitError if the rows have more."""
        most = bytes_of(most, "most")
        with self._lock:
            self._slabs.set_limit(most if self._limit is None else min(most, self._limit))

    def plan(self, lengths: Sequence[int], new: Any) -> Any:
        """What a step will do, without the caches: its memory, launches and bytes moved.

        Args:
            lengths: The cached elements of each row before the step.
            new: The size of the ragged dim in each row: a list, or a mapping from dims to lists.
        """
        lengths = _sizes("lengths", lengths)
        columns = {name: _sizes(name, sizes) for name, sizes in by_names("new", new).items()} if (
            isinstance(new, Mapping)
        ) else {self._new[0]: _sizes("new", new)}  # fmt: skip
        missing = [name for name in self._new if name not in columns]
        if missing:
            raise InputError(
                f"new has no sizes of '{missing[0]}'", f"dims: {quote_list(self._new)}"
            )
        self._check_columns({**columns, self._past: lengths})
        counts = self._counts(columns)
        capacities = [self._slabs.capacity(n + more) for n, more in zip(lengths, counts)]
        columns |= {self._past: list(lengths), self._capacity: capacities}
        return self.model.plan(lengths=columns)

    def _check_columns(self, columns: Mapping[str, Sequence[int]]) -> None:
        """Raise InputError for dims with sizes of different numbers of rows."""
        rows = {name: len(sizes) for name, sizes in columns.items()}
        if len({*rows.values()}) > 1:
            counts = ", ".join(f"'{name}' of {count}" for name, count in rows.items())
            raise InputError(f"{self.model.name}: sizes of different rows: {counts}",
                             "give a size for each row")  # fmt: skip

    # ---- steps -----------------------------------------------------------------------------------

    def step(self, rows: Mapping[int, Any], **shared: Any) -> dict[str, Any]:
        """Run new elements of rows, prompts and single ones alike, and append to their caches.

        Args:
            rows: By row, its new tokens: the array of the only input, or a mapping by name. Arrays
                have no axis of the batch. A row without new tokens costs nothing.
            **shared: Inputs without an axis of the batch.

        Returns:
            The results that are not caches, by name, in the order of `rows`: `ad.Ragged` where they
            have a ragged size, else arrays with the axis of the batch.

        Raises:
            InputError: A row is unknown or has left, or an input does not fit.
            DimError: A size is out of bounds, or a row's cache is longer than its dim allows.
            MemoryLimitError: The caches need more than `cache_limit`, or the step more than
                `memory_limit`. In all cases, the caches keep their contents.
        """
        if not isinstance(rows, Mapping):
            raise InputError(f"{self.model.name}: rows is {short_repr(rows)}", "give {row: tokens}")
        with self._lock:
            slabs = [self._slab(row) for row in rows]
            feeds = {**self._columns(rows), **self._others(shared)}
            read, lengths = self._read(rows, feeds)
            counts = self._counts(lengths)
            grown = {row: slab.length + n for row, slab, n in zip(rows, slabs, counts)}
            self._check_lengths(rows, slabs)
            self._slabs.reserve(grown)
            results = self._run(read, lengths, rows, counts)
            for row, length in grown.items():
                self._slabs.rows[row].length = length
        return {name: results[name] for name in self._results}

    def _run(
        self, read: dict[str, Any], lengths: Mapping[str, Sequence[int]], rows: Iterable[int],
        counts: Sequence[int],
    ) -> dict[str, Any]:  # fmt: skip
        """Call the program; without rows that have nothing new, where no result is theirs."""
        slabs = [self._slabs.rows[row] for row in rows]
        whole = {name: lengths[name] for name in self._new}
        whole[self._past] = [slab.length for slab in slabs]
        whole[self._capacity] = [slab.capacity for slab in slabs]
        sizes = whole
        if self._skips and 0 in counts and any(counts):
            new = [whole[name] for name in self._new]
            chosen = [number for number, each in enumerate(zip(*new)) if any(each)]
            slabs = [slabs[number] for number in chosen]
            sizes = {name: [each[n] for n in chosen] for name, each in whole.items()}
        packing, arrays = self._packing, self._slabs.arrays
        others = shared_sizes(read, packing.specs) if packing.shares else {}
        starts = {self._starts: [slab.start for slab in slabs]}
        feeds = {**read, **arrays, **packing.describe_rows(sizes, others, starts)}
        into = {each.result: arrays[each.input] for each in self.caches}
        if self.in_place:
            results = self.model.executable(feeds, into)
        else:
            results = self.model.executable(feeds)
            self._slabs.replace({each.input: results[each.result] for each in self.caches})
        own = {name: results[name] for name in self._results}
        found: dict[str, Any] = packing.unpack(own, whole, others)
        return found

    def _columns(self, rows: Mapping[int, Any]) -> dict[str, Any]:
        """The inputs that rows have, by name: a list with an entry per row."""
        columns: dict[str, list[Any]] = {name: [] for name in self._of_rows}
        for row, given in rows.items():
            if type(given) is not numpy.ndarray and isinstance(given, Mapping):
                self._check_names(row, given)
                for name, array in given.items():
                    columns[name].append(self._array(row, name, array))
            elif len(self._needed) == 1:
                name = self._needed[0]
                columns[name].append(self._array(row, name, given))
            else:
                raise InputError(
                    f"{self.model.name}: row {row} has {quote_list(self._needed)} as inputs",
                    "give a mapping by name",
                )
            for name, usual in self._usual.items():
                if not (isinstance(given, Mapping) and name in given):
                    columns[name].append(usual)
        made: dict[str, Any] = {}
        for name, column in columns.items():
            if len(column) not in (0, len(rows)):
                raise InputError(f"{self.model.name}: some rows have input '{name}', others do not")
            if name in self._ports:
                if column or name in self._needed:
                    made[name] = column
            else:
                made[name] = self._stack_column(name, column)
        return made

    def _check_names(self, row: int, given: Mapping[str, Any]) -> None:
        where = f"{self.model.name}: row {row}"
        for name in given:
            if name in self._own:
                raise InputError(f"{where}: the model owns the cache '{name}'", "use `hold`")
            if name not in self._of_rows:
                raise InputError(
                    f"{where}: '{name}' is no input of rows", f"inputs: {quote_list(self._of_rows)}"
                )
        for name in self._needed:
            if name not in given:
                raise InputError(f"{where}: input '{name}' is missing")

    def _array(self, row: int, name: str, given: Any) -> numpy.ndarray:
        """The array of a row; raises InputError for one of another rank."""
        array = given
        if type(given) is not numpy.ndarray:
            array = as_array(given, f"{self.model.name}: row {row}: input '{name}'")
        port = self._ports.get(name)
        rank = len(port.shape) if port is not None else self._packing.specs[name].rank - 1
        if array.ndim != rank:
            raise InputError(
                f"{self.model.name}: row {row}: input '{name}' has {array.ndim} axes, "
                f"expected {rank}, without the axis of '{self._batch}'"
            )
        if not array.size and port is not None and not port.ones:  # [] has the type of no token
            array = array.astype(self._packing.specs[port.values].dtype.numpy)
        return array

    def _stack_column(self, name: str, column: Sequence[numpy.ndarray]) -> numpy.ndarray:
        """An input that is not ragged, with the axis of the batch."""
        spec = self._packing.specs[name]
        axis = next(n for n, size in enumerate(spec.shape) if self._batch in size.symbols)
        if not column:
            sizes = [size.constant or 0 for size in spec.shape]
            return numpy.empty((*sizes[:axis], 0, *sizes[axis + 1 :]), spec.dtype.numpy)
        if len({array.shape for array in column}) > 1:
            raise InputError(f"{self.model.name}: rows differ in the shape of input '{name}'")
        return numpy.stack(column, axis)

    def _others(self, shared: Mapping[str, Any]) -> Mapping[str, Any]:
        for name in shared:
            if name not in self._shared:
                raise InputError(
                    f"{self.model.name}: '{name}' is no input that rows share",
                    f"inputs of rows: {quote_list(self._of_rows)}",
                )
        return shared

    def _read(
        self, rows: Iterable[int], feeds: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Mapping[str, Sequence[int]]]:
        """The inputs of the program and the new sizes of rows; errors name the row."""
        known = {self._past: [self._slabs.rows[row].length for row in rows]}
        try:
            read, lengths = self._packing.read(feeds, self._own, known)
        except UserError:
            for number, row in enumerate(rows):
                alone = {n: [feeds[n][number]] for n in feeds if n in self._ports}
                own = {name: [sizes[number]] for name, sizes in known.items()}
                try:
                    self._packing.read({**feeds, **alone}, self._own, own)
                except UserError as error:
                    raise type(error)(f"row {row}: {error.problem}", error.hint) from None
            raise
        return read, lengths

    def _counts(self, lengths: Mapping[str, Sequence[int]]) -> Sequence[int]:
        """The elements that a step appends to each row."""
        return RowSizes(lengths, {}).of(self._counted)

    def _check_lengths(self, rows: Iterable[int], slabs: Sequence[Slab]) -> None:
        """Raise DimError for a row whose cache is longer than its dim allows."""
        most = self._max_length
        for row, slab in zip(rows, slabs):
            if most is not None and slab.length > most:
                raise DimError(
                    f"{self.model.name}: the cache of row {row} holds {slab.length} elements, "
                    f"dim '{self._past}' is at most {most}",
                    "let it leave, forget() elements, or declare a higher bound",
                )


def _sizes(name: str, given: Any) -> list[int]:
    """Validate the sizes of rows."""
    hint = "give an integer of at least 0 for each row"
    return [whole_within(name, each, 0, LARGEST, hint) for each in items_of(name, given, hint)]

"""Runs items in groups under a memory limit; returns results in the order of items.

A group is one call. Its arena, batched inputs and outputs count against the limit; returned results
belong to the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any

import numpy

from anydim.base.amounts import bytes_of, exact_bytes_text
from anydim.base.errors import (
    DimError,
    InputError,
    MemoryLimitError,
    OptionError,
    OutOfMemoryError,
)
from anydim.base.records import dataclass
from anydim.base.user_values import flag_of, short_repr, whole_within
from anydim.runtime.executable import Executable
from anydim.runtime.program.batches import bar
from anydim.runtime.program.batches.costs import Costs
from anydim.runtime.program.batches.cuts import Seconds, cut, cut_few
from anydim.runtime.program.batches.layout import (
    ItemArrays,
    Layout,
    differing_result,
    error_of_item,
)
from anydim.runtime.program.batches.map_arguments import batch_layout
from anydim.runtime.program.batches.sampled_rows import EVERY, ChangedRows
from anydim.runtime.program.batches.work import Columns, Rates, work_of
from anydim.runtime.program.program import Program
from anydim.sizes import LARGEST, Dim, holds

_FEW = 16  # items that are grouped without arrays
_ROWS = range(1, _FEW + 1)
_KNOWN = 4096  # sizes that are known to be within bounds
_REMEMBERED = 64  # sizes of other dims for which seconds are remembered
_LAYOUTS = 8  # arguments of `map` whose layouts are kept
_WORTH = 20  # regroup if the remaining time is this multiple of the grouping time


@dataclass
class Group:
    """Items of one call, its sizes, and its estimated seconds, if they are needed."""

    items: Sequence[ItemArrays]
    sizes: Mapping[str, int]
    seconds: float | None = None


@dataclass(frozen=True)
class Job:
    """The arguments of a `map`; `check` compares a first group with a single item.

    `layout` says how items are joined and results split.
    """

    layout: Any
    limit: int
    window: int
    check: bool
    tell: Callable[[str], AbstractContextManager[bar.Advance]]


def make_reporter(progress: Any) -> Callable[[str], AbstractContextManager[bar.Advance]]:
    """Return a progress reporter: none, a bar (True), or a function (done, total or None,
    detail)."""
    if callable(progress):
        return lambda title: nullcontext(progress)
    if progress is not None and not isinstance(progress, bool):
        raise OptionError(f"progress is {short_repr(progress)}", "give True, or a function")
    return bar.show_bar if progress else lambda title: nullcontext(bar.ignore_progress)


@dataclass(frozen=True)
class GroupResults:
    """The results of a group, the numbers of its items, and the sizes of its call."""

    numbers: Sequence[int]
    results: Sequence[Any]
    sizes: Mapping[str, int]


def _iterator(inputs: Any) -> Iterator[Any]:
    """Return an iterator over items; raises InputError for what has none, or is an item."""
    if isinstance(inputs, Iterable) and not isinstance(inputs, (Mapping, str, bytes)):
        with suppress(Exception):  # any error of the object
            return iter(inputs)
    raise InputError(
        f"map expects a list or an iterator of items, got {type(inputs).__name__}",
        "for a single item, call the model",
    )


def _text_of(arguments: Any) -> str:
    """Return the repr of arguments; "" if one has none."""
    try:
        return repr(arguments)
    except Exception:  # an integer with too many digits, or a failing `__repr__`
        return ""


class Windows:
    """Runs the items of `map` through one model, a window at a time."""

    def __init__(self, executable: Executable[Any], program: Program, costs: Costs) -> None:
        self.executable = executable
        self.signature = program.signature
        self.costs = costs
        self._is_straight = program.straight is not None
        self._layouts: dict[str, Any] = {}
        self._within_bounds: set[tuple[int, ...]] = set()

    def map_items(
        self, inputs: Iterable[Any], memory: int | str, batch: str | None,
        pad: Mapping[str, Any] | None, outputs: Sequence[str] | None, window: int, check: bool,
        progress: Any,
    ) -> list[dict[str, Any]] | Iterator[dict[str, Any]]:  # fmt: skip
        """Return the results of items in order: a list for a list or array, else an iterator."""
        items = _iterator(inputs)
        check = flag_of("check", check)
        window = whole_within("window", window, 1, LARGEST, "give a number of items, 1 or more")
        key = _text_of((batch, pad, outputs, check))
        layout = self._layouts.get(key) if key else None
        if layout is None:
            layout = self._layout(batch, pad, outputs, check)
            self._layouts = {**dict(list(self._layouts.items())[-_LAYOUTS:]), key: layout}
        job = Job(layout, min(bytes_of(memory), LARGEST), window, check, make_reporter(progress))
        if hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__"):
            return list(self.results(list(items), job))
        return self.results(items, job)

    def results(self, inputs: Iterable[Any], job: Job) -> Iterator[Any]:
        """Yield the result of each item in order; items are grouped within a window."""
        total = len(inputs) if isinstance(inputs, Sequence) else None
        window = job.window
        if total:  # windows of a list have equal length
            window = -(-total // -(-total // window))
        source, first = iter(inputs), 0
        with job.tell(f"mapping {self.signature.name}") as tell:
            while given := list(islice(source, window)):
                ready: dict[int, Any] = {}
                following, stop = first, first + len(given)
                for ran in self._run(given, first, job):
                    ready.update(zip(ran.numbers, ran.results))
                    done = following + len(ready)
                    if tell is not bar.ignore_progress:
                        tell(done, total, f"{len(ran.numbers)} at {_text(ran.sizes)}")
                    while following in ready:
                        yield ready.pop(following)
                        following += 1
                assert following == stop
                first = stop

    def _layout(
        self, batch: str | None, pad: Any, outputs: Sequence[str] | None, check: bool
    ) -> Any:
        """Check the arguments of a `map`; return how items are joined and results split."""
        raise NotImplementedError

    def _run(self, given: list[Any], first: int, job: Job) -> Iterator[GroupResults]:
        """Yield the results of a window in groups, in any order; `given` may be emptied."""
        raise NotImplementedError

    def _problem(self, sizes: Mapping[str, int], limit: int) -> DimError | MemoryLimitError | None:
        """Return the reason why a call cannot have these sizes, or None."""
        key = tuple(sizes.values())
        if key not in self._within_bounds:
            problem = self._misfit(sizes)
            if problem is not None:
                return problem
            if len(self._within_bounds) >= _KNOWN:
                self._within_bounds.clear()
            self._within_bounds.add(key)
        parts = dict(zip(("arena", "inputs", "outputs"), self.costs.bytes_of_call(sizes)))
        arena, needed = parts["arena"], sum(parts.values())
        if arena > self.executable.most_bytes:
            return MemoryLimitError(
                f"{self.signature.name} at {_text(sizes)} takes {exact_bytes_text(arena)} of its "
                "own, above the memory limit of the model, "
                f"{exact_bytes_text(self.executable.most_bytes)}",
                "leave the item out, or give the model a higher limit",
            )
        if needed <= limit:
            return None
        each = (f"{part} {exact_bytes_text(bytes)}" for part, bytes in parts.items())
        return MemoryLimitError(
            f"{self.signature.name} at {_text(sizes)} takes {exact_bytes_text(needed)}, above the "
            f"memory limit of {exact_bytes_text(limit)}",
            f"{', '.join(each)}; raise the limit, or leave the item out",
        )

    def _misfit(self, sizes: Mapping[str, int]) -> DimError | None:
        """Return the error for a bound, constraint or guard that these sizes violate, or None."""
        name, box = self.signature.name, self.signature.box
        for violation in box.violations(sizes):
            if not violation.endswith("has no size"):
                return DimError(f"{name}: {violation}", f"declared {box}")
        for guard in self.signature.guards:
            if (guard.left.symbols | guard.right.symbols) <= sizes.keys():
                if not holds(guard, sizes):
                    return DimError(f"{name}: {guard.left} {guard.relation} {guard.right} does "
                                    "not hold", guard.message)  # fmt: skip
        return None

    def _make_room(self, sizes: Mapping[str, int], limit: int) -> None:
        """Free cached memory if a call at these sizes would exceed the limit beside it."""
        held, (arena, *others) = self.executable.arena_bytes, self.costs.bytes_of_call(sizes)
        after = max(held, arena) if self._is_straight else held + arena  # parts grow separately
        if after > arena and after + sum(others) > limit:
            self.executable.trim()


class Mapper(Windows):
    """Runs padded items in groups and learns the times of its calls.

    `mixing` is that of `ProgramReports`.
    """

    def __init__(
        self, executable: Executable[Any], program: Program, mixing: Mapping[str, str]
    ) -> None:
        super().__init__(executable, program, Costs(work_of(program), executable.threads))
        self.work = self.costs.work
        self.rates = Rates()
        self._independent = {dim for dim, reason in mixing.items() if not reason}
        self._changed = ChangedRows(self.work.is_bounded, bool(program.engines))
        self._groups: Counter[Hashable] = Counter()  # that were checked, or could be, by layout
        self._state: Hashable = None
        self._known: dict[Hashable, dict[tuple[int, int], float]] = {}  # seconds, at `_state`

    def _layout(
        self, batch: str | None, pad: Any, outputs: Sequence[str] | None, check: bool
    ) -> Layout:
        return batch_layout(self.signature, batch, pad, outputs)

    def _run(self, given: list[Any], first: int, job: Job) -> Iterator[GroupResults]:
        """Yield results of groups; remaining groups are rechosen as times become known.

        The most expensive group runs first, the cheapest second, which calibrates both ends.
        """
        items = [job.layout.read_item(first + n, each) for n, each in enumerate(given)]
        given.clear()
        start = perf_counter()
        left, ran, again = self.groups(items, job), 0, 2
        spent = perf_counter() - start
        while left:
            group = left.pop(0 if ran == 1 else -1)
            results = self._timed(group, job)
            yield GroupResults([item.number for item in group.items], results, group.sizes)
            ran += 1
            if ran >= again and self.rates.is_due:
                again = 2 * ran + 2
                self.rates.fit(self.work.at)
                if sum(each.seconds or 0.0 for each in left) > _WORTH * spent:
                    left = self.groups([item for each in left for item in each.items], job)

    # ---- groups --------------------------------------------------------------------------------

    def groups(self, items: Sequence[ItemArrays], job: Job) -> list[Group]:
        """Return the groups with minimum time, the cheapest first.

        Raises MemoryLimitError for an item that does not fit alone.
        """
        families: dict[Any, list[ItemArrays]] = {}
        for item in items:
            families.setdefault(_family(item, job.layout), []).append(item)
        found: list[Group] = []
        for family in families.values():
            found += self._cut(family, job)
        unknown = [each for each in found if each.seconds is None] if len(found) > 1 else []
        if unknown:
            at = {name: numpy.array([each.sizes[name] for each in unknown])
                  for name in unknown[0].sizes}  # fmt: skip
            for each, seconds in zip(unknown, self._seconds(at, job.limit).tolist()):
                each.seconds = seconds
        return sorted(found, key=lambda group: group.seconds or 0.0)

    def _cut(self, items: list[ItemArrays], job: Job) -> Iterator[Group]:
        """Yield the groups of items that differ only along padded dims."""
        batch, padded = job.layout.batch, job.layout.padded
        if batch is None or len(items) == 1:
            for item in items:
                yield from self._fitting([item], job)
            return
        rows = [item.sizes[batch] for item in items]
        price = partial(self._group_seconds, items[0].sizes, job)
        pairs: Sequence[tuple[Sequence[int], float | None]]
        if len(items) <= _FEW and len(padded) < 2:
            along = [item.sizes[padded[0]] if padded else 0 for item in items]
            pairs = cut_few(along, rows, partial(self._remembered, items[0], price, job))
        else:
            sizes = numpy.array([[item.sizes[name] for name in padded] for item in items], int)
            sizes = sizes.reshape(len(items), len(padded))
            least = self.signature.box.dim(batch).lo
            _, groups = cut(sizes, numpy.array(rows), price, least)
            pairs = [(group.tolist(), None) for group in groups]
        fits = bool(pairs) and not (self.signature.guards or self.signature.box.constraints)
        for numbers, seconds in pairs or [(range(len(items)), None)]:
            held = [items[number] for number in numbers]
            if fits:
                yield Group(held, job.layout.call_sizes(held), seconds)
            else:
                yield from self._fitting(held, job)

    def _group_seconds(
        self, others: Mapping[str, int], job: Job, sizes: numpy.ndarray, rows: numpy.ndarray
    ) -> numpy.ndarray:
        """Return the seconds of groups by padded sizes [groups, dims] and rows [groups], infinite
        for those out of bounds."""
        same = {name: numpy.full(len(rows), size) for name, size in others.items()}
        batch = self.signature.box.dim(job.layout.batch)
        columns = {**same, **dict(zip(job.layout.padded, sizes.T)), batch.name: rows}
        found = self._seconds(columns, job.limit)
        found[rows < batch.lo] = numpy.inf
        if batch.hi is not None:
            found[rows > batch.hi] = numpy.inf
        return found

    def _remembered(
        self, item: ItemArrays, seconds: Seconds, job: Job, keys: list[tuple[int, int]]
    ) -> list[float]:
        """Return the seconds of groups by (padded size, rows), as `seconds`, computed once."""
        layout = job.layout
        state = (job.limit, self.executable.most_bytes, self.rates.fits, layout.batch)
        differ = (layout.batch, *layout.padded)
        fixed = tuple(size for name, size in item.sizes.items() if name not in differ)
        if self._state != state or len(self._known) > _REMEMBERED:
            self._state, self._known = state, {}
        known = self._known.setdefault((layout.padded, fixed), {})
        missing = [key for key in dict.fromkeys(keys) if key not in known]
        if missing:  # with those near them: many cost no more than one
            along = self.signature.box.dim(layout.padded[0]) if layout.padded else None
            more = {(n, rows) for size, _ in missing for n in _near(size, along) for rows in _ROWS}
            missing = [*more.union(missing) - known.keys()]
            at = numpy.array(missing)
            found = seconds(at[:, : len(layout.padded)], at[:, 1])
            known.update(zip(missing, found.tolist()))
        return [known[key] for key in keys]

    def _fitting(self, items: list[ItemArrays], job: Job) -> Iterator[Group]:
        """Yield a group, or its halves if it exceeds the limit; raises if a single item does."""
        sizes = job.layout.call_sizes(items)
        problem = self._problem(sizes, job.limit)
        if problem is None:
            yield Group(items, sizes)
        elif len(items) == 1:
            raise error_of_item(items[0].number, problem)
        else:
            half = len(items) // 2
            yield from self._fitting(items[:half], job)
            yield from self._fitting(items[half:], job)

    def _seconds(self, columns: Columns, limit: int) -> numpy.ndarray:
        """Return the seconds of calls, infinite for those above the limits."""
        done = self.work.at(columns)
        fits = (done.bytes <= limit) & (done.arena <= self.executable.most_bytes)
        return numpy.where(fits, self.rates.seconds(done), numpy.inf)

    # ---- calls ---------------------------------------------------------------------------------

    def _timed(self, group: Group, job: Job) -> list[Any]:
        sizes = group.sizes
        given = job.layout.join_inputs(group.items, sizes)
        self._make_room(sizes, job.limit)
        start = perf_counter()
        try:
            outputs = self.executable(given)
        except OutOfMemoryError:
            raise
        except InputError as error:
            if len(group.items) > 1:
                self._find(group.items, job)
            raise error_of_item(group.items[0].number, error) from None
        seconds = perf_counter() - start
        self.rates.learn(sizes, seconds)
        results: list[Any] = job.layout.split_results(outputs, group.items, sizes)
        del given, outputs
        if job.check and len(group.items) > 1:
            self._check(group, results, job, seconds)
        return results

    def _find(self, items: Sequence[ItemArrays], job: Job) -> None:
        """Raise the error of the item that fails alone, if there is one."""
        for item in items:
            try:
                self.executable(job.layout.join_inputs([item], item.sizes))
            except InputError as error:
                raise error_of_item(item.number, error) from None

    def _check(self, group: Group, results: Sequence[Any], job: Job, seconds: float) -> None:
        """Compare the most padded item with its result alone, once per layout.

        Where rows may depend on each other, it is compared now and then, and beside changed rows.

        Raises InputError if they differ: rows depend on each other, or on the padding.
        """
        way: Layout = job.layout
        key = (way.batch, tuple(way.fills.items()), tuple(s.key for s, _ in way.results))
        self._groups[key] += 1
        proven, calls = way.batch in self._independent, self._groups[key]
        if calls > 1 and (proven or calls % EVERY):
            return
        lengths = [sum(item.sizes[name] for name in way.padded) for item in group.items]
        place = lengths.index(min(lengths))
        item = group.items[place]
        if self._problem(item.sizes, job.limit) is None:
            self._make_room(item.sizes, job.limit)
            name = self._changed.differing_result(
                self.executable, way, group.items, place, results[place], differing_result,
                () if proven else range(2), seconds,
            )  # fmt: skip
            if name is not None:
                cause = f"rows of '{way.batch}' depend on each other"
                if way.padded:
                    cause += f", or on what {', '.join(way.padded)} is padded with"
                raise error_of_item(item.number, InputError(
                    f"result '{name}' differs between a group and a single item",
                    f"{cause}: choose another batch=, mask the padding, or accept it (check=False)",
                ))  # fmt: skip


def _family(item: ItemArrays, layout: Layout) -> tuple[Any, ...]:
    """Return the key of items that may share a group."""
    differ = {layout.batch, *layout.padded}
    return (item.shared, *(size for name, size in item.sizes.items() if name not in differ))


def _near(size: int, dim: Dim | None) -> range:
    """Return the sizes of a dim for which seconds are computed together with a size."""
    if dim is None:
        return range(size, size + 1)
    begin = size // _FEW * _FEW
    last = begin + _FEW - 1 if dim.hi is None else min(begin + _FEW - 1, dim.hi)
    return range(max(begin, dim.lo), last + 1)


def _text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "its only size"

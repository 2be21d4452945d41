"""`map` of models with ragged batches: groups are consecutive items, without padding or sorting.

An item is one row. Items are read and run as the requests of a batcher are. A group grows until the
cost of a call by itself (launches, and weights that are read once) is a small share of its time, or
until it exceeds the memory limit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy

from anydim.base.collector import collector_paused
from anydim.base.errors import InputError, OptionError, OutOfMemoryError, UserError
from anydim.runtime.arrays import wrapper
from anydim.runtime.executable import Executable
from anydim.runtime.program.batches.item import Item
from anydim.runtime.program.batches.layout import error_of_item
from anydim.runtime.program.batches.map_arguments import wanted_results
from anydim.runtime.program.batches.mapping import GroupResults, Job, Windows
from anydim.runtime.program.batches.ragged_form import RaggedForm
from anydim.runtime.program.batches.row_inputs import RowInput
from anydim.runtime.program.program import Program
from anydim.runtime.ragged import check_ones

_SHARE = 0.02  # of the time of a group, what a call costs by itself


class _ItemForm(RaggedForm):
    """Items of one row, whose masks are all ones; results share the memory of their call's."""

    copies = False

    def _read(self, each: RowInput, value: Any) -> tuple[list[numpy.ndarray], bool]:
        row, is_single = each.read_row(value, self.name)
        return [row], is_single

    def _unpad(self, content: Any) -> None:
        for name in self.mask_names:
            if name in content.rows:
                check_ones(f"{self.name}: input '{name}'", content.rows[name][0])

    def _wanted(self, outputs: Any) -> tuple[str, ...]:
        names: tuple[str, ...] = outputs  # checked once for all items
        return names


class RaggedMapper(Windows):
    """Runs rows in groups through one model with ragged batches; `names` are its inputs."""

    def __init__(
        self, executable: Executable[Any], program: Program, lists: Mapping[str, Any],
        names: Sequence[str],
    ) -> None:  # fmt: skip
        self.form = _ItemForm(program.signature.name, executable, program, lists, names)
        super().__init__(executable, program, self.form.costs)
        self._least = max(1, self.signature.box.dim(self.form.batch).lo)

    def _layout(
        self, batch: str | None, pad: Any, outputs: Sequence[str] | None, check: bool
    ) -> tuple[str, ...]:
        """Returns the names of the requested results; raises OptionError for other arguments."""
        model = self.signature.name
        for name, given, hint in (
            ("pad", pad is not None, "leave it out: rows are not padded"),
            ("batch", batch is not None, f"leave it out: items are rows of '{self.form.batch}'"),
            ("check", check is not True, "leave it out: there is no padding to check"),
        ):
            if given:
                raise OptionError(f"{model} has ragged batches, and map got `{name}`", hint)
        names = tuple(spec.key for spec in wanted_results(self.signature, outputs))
        self.form.check_results(names)
        return names

    def _run(self, given: list[Any], first: int, job: Job) -> Iterator[GroupResults]:
        with collector_paused():  # many objects, no cycles
            wraps = {n: wrap for n, each in enumerate(given) if (wrap := _wrap_of(each))}
            items = self._read(given, first, job.layout)
            given.clear()
            groups = list(self._groups(items, first, job.limit))
        for start, stop, sizes in groups:
            self._make_room(sizes, job.limit)
            results = self._call(items[start:stop], first + start)
            for number in wraps.keys() & range(start, stop):
                found = results[number - start]
                results[number - start] = {k: wraps[number](value) for k, value in found.items()}
            yield GroupResults(range(first + start, first + stop), results, sizes)

    def _read(self, given: Sequence[Any], first: int, outputs: tuple[str, ...]) -> list[Item]:
        """Reads the items of a window; raises InputError or DimError that name the item."""
        items = list[Item]()
        for number, each in enumerate(given, first):
            try:
                items.append(self.form.read(each, outputs))
            except UserError as error:
                raise error_of_item(number, error) from None
            if self.form.mask_names:
                self._check_masks(items[0], items[-1], number)
        return items

    def _check_masks(self, first: Item, item: Item, number: int) -> None:
        """Raises InputError if an item has a mask that the first one lacks, or lacks one."""
        differs = first.content.rows.keys() ^ item.content.rows.keys()
        if differs:
            raise error_of_item(number, InputError(
                f"{self.signature.name}: some items have input '{min(differs)}', others do not",
                "leave it out: rows have no padding",
            ))  # fmt: skip

    def _groups(
        self, items: Sequence[Item], first: int, limit: int
    ) -> Iterator[tuple[int, int, Mapping[str, int]]]:
        """Yields start, stop and sizes of groups: runs of items that may share a call."""
        starts = [n for n, item in enumerate(items) if n == 0 or item.key != items[n - 1].key]
        for start, stop in zip(starts, [*starts[1:], len(items)]):
            overhead = self.form.overhead(items[start])
            begins = _split_by_work([item.own for item in items[start:stop]], overhead)
            begins = [start + begin for begin in self._with_least_rows(begins, stop - start)]
            for begin, end in zip(begins, [*begins[1:], stop]):
                yield from self._fitting(items, begin, end, first, limit)

    def _with_least_rows(self, starts: Sequence[int], count: int) -> Sequence[int]:
        """Returns the starts of groups that have at least the least rows of a call."""
        if self._least == 1:
            return starts
        found = [0]
        for start in starts[1:]:
            if start - found[-1] >= self._least and count - start >= self._least:
                found.append(start)
        return found

    def _fitting(
        self, items: Sequence[Item], start: int, stop: int, first: int, limit: int
    ) -> Iterator[tuple[int, int, Mapping[str, int]]]:
        """Yields a group, or its halves if it exceeds the limit; raises if a least one does."""
        sizes = self.form.sizes(items[start:stop])
        problem = self._problem(sizes, limit)
        if problem is None:
            yield start, stop, sizes
        elif stop - start < 2 * self._least:
            raise error_of_item(first + start, problem)
        else:
            middle = (start + stop) // 2
            yield from self._fitting(items, start, middle, first, limit)
            yield from self._fitting(items, middle, stop, first, limit)

    def _call(self, items: Sequence[Item], first: int) -> list[dict[str, Any]]:
        """Runs a group; an InputError names the item that also fails alone, if there is one."""
        try:
            return self.form.run(items)
        except OutOfMemoryError:
            raise
        except InputError as error:
            for number, item in enumerate(items, first):
                try:
                    self.form.run([item])
                except InputError as alone:
                    raise error_of_item(number, alone) from None
            raise error_of_item(first, error) from None


def _wrap_of(given: Any) -> Any:
    """Returns what converts the results of an item to the library of its inputs, or None."""
    kind = type(given)
    if kind is dict or isinstance(given, Mapping):
        values = given.values()
    else:
        values = given if kind is tuple else (given,)
    foreign = [value for value in values if type(value) is not numpy.ndarray]
    return wrapper(foreign) if foreign else None


def _split_by_work(work: Sequence[float], overhead: float) -> Sequence[int]:
    """Returns the starts of groups of equal work, in which `overhead` is a small share."""
    ends = list(accumulate(work))
    groups = max(1, min(len(work), int(ends[-1] * _SHARE / overhead)))
    marks = (ends[-1] * number / groups for number in range(1, groups))
    return sorted({0, *(bisect_right(ends, mark) for mark in marks)})

"""Requests of models without ragged dims: equal shapes share a call, or each has its own."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy

from anydim.base.errors import InputError
from anydim.program.batches.layout import Item as Arrays
from anydim.program.batches.layout import Layout
from anydim.program.batches.map_arguments import layout, wanted_results
from anydim.program.batches.work import work
from anydim.program.binding import solve
from anydim.program.callable_program import CallableProgram
from anydim.runtime.signature import Signature
from anydim.serving.costs import Costs
from anydim.serving.item import Item


class EqualForm:
    """Joins requests along `batch` where all other sizes are equal; None: one request a call.

    The first joined call is compared with a call of its first request alone: results that differ
    in a bit mean that rows depend on each other, and from then on each request has its own call.
    """

    def __init__(self, model: CallableProgram, batch: str | None, name: str = "") -> None:
        self.name, self.executable = name or model.name, model.executable
        program = model.program
        signature = replace(program.signature, name=self.name)
        self.constant_bytes = self.executable.constant_bytes
        self.costs = Costs(work(program), self.executable.threads)
        alone = batch is None
        self._layout = _alone(signature) if alone else layout(signature, batch, None, None)
        self.most_rows = 1 if batch is None else program.signature.box.dim(batch).hi
        self._outputs = {spec.key for spec in program.signature.outputs}
        self._batch, self._is_checked, self.depends = batch, batch is None, False

    def read(self, given: Any, outputs: Sequence[str] | None) -> Item:
        """As `Form.read`. Raises InputError or DimError."""
        found = self._layout._item(0, given)
        unknown = [name for name in outputs or () if name not in self._outputs]
        if unknown:
            raise InputError(f"{self.name} has no result '{unknown[0]}'",
                             f"its results: {', '.join(sorted(self._outputs))}")  # fmt: skip
        sizes = dict(found.sizes)
        rows = 1 if self._batch is None else sizes[self._batch]
        others = [(name, size) for name, size in sizes.items() if name != self._batch]
        key: Hashable = object() if self.depends else (tuple(others), found.shared)
        if self._batch is None:
            key = ()  # each has a call of its own
        taken = self.costs.taken(sizes)
        own = max(self.costs.predicted(sizes) - self._nothing(sizes), 0.0)
        extent = sum(array.size for array in found.arrays)
        input_bytes = sum(array.nbytes for array in found.arrays)
        content = (found, None if outputs is None else tuple(outputs))
        return Item(key, sizes, rows, extent, own, input_bytes, taken[2], content)

    def _nothing(self, sizes: Mapping[str, int]) -> float:
        if self._batch is None:
            return 0.0
        return self.costs.predicted({**sizes, self._batch: 0})

    def overhead(self, item: Item) -> float:
        """As `Form.overhead`."""
        return self._nothing(item.sizes)

    def sizes(self, items: Sequence[Item]) -> dict[str, int]:
        """As `Form.sizes`."""
        return self._layout.together([item.content[0] for item in items])

    def run(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        """As `Form.run`. Raises the errors of a call."""
        if len(items) > 1 and self.depends:
            return [each for item in items for each in self.run([item])]
        arrays: list[Arrays] = [item.content[0] for item in items]
        sizes = self.sizes(items)
        outputs = self.executable(self._layout.stacked(arrays, sizes))
        results = self._layout.apart(outputs, arrays, sizes)
        if len(items) > 1 and not self._is_checked:
            (alone,) = self.run(items[:1])
            if not _is_same(results[0], alone):
                self.depends = True
            self._is_checked = True
        if len(items) > 1 and self.depends:  # another thread may have found it meanwhile
            return [each for item in items for each in self.run([item])]
        return [
            found if item.content[1] is None else {name: found[name] for name in item.content[1]}
            for item, found in zip(items, results)
        ]

    def idle_bytes(self) -> int:
        """As `Form.idle_bytes`."""
        return self.executable.arena_bytes + self.executable.result_bytes

    def trim(self) -> None:
        """As `Form.trim`."""
        self.executable.trim()


def _alone(signature: Signature) -> Layout:
    """The layout of calls of one request each."""
    results = tuple((spec, None) for spec in wanted_results(signature, None))
    axes = (None,) * len(signature.inputs)
    return Layout(signature, None, axes, results, {}, (), solve(signature, frozenset()))


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(numpy.asarray(one[n]).tobytes() == numpy.asarray(other[n]).tobytes() for n in other)

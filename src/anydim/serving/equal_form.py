"""Requests of models without ragged dims: equal shapes share a call, or each has its own."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy

from anydim.base.errors import InputError
from anydim.base.user_values import texts_of
from anydim.runtime.program.batches.costs import Costs
from anydim.runtime.program.batches.item import Item
from anydim.runtime.program.batches.layout import ItemArrays, Layout
from anydim.runtime.program.batches.map_arguments import batch_layout, wanted_results
from anydim.runtime.program.batches.sampled_rows import ChangedRows, differing_bits, is_due
from anydim.runtime.program.batches.work import work_of
from anydim.runtime.program.binding import solve
from anydim.runtime.program.callable_program import CallableProgram
from anydim.runtime.signature import Signature


class EqualForm:
    """Joins requests along `batch` where all other sizes are equal; None: one request a call.

    Where the graph does not show that rows are independent, joined calls are compared with calls
    of requests alone, and with calls beside other rows: the first ones, and now and then. Results
    that differ in a bit mean that rows depend on each other, and from then on each request has its
    own call. Otherwise the first joined call is compared with its first request alone.
    """

    def __init__(self, model: CallableProgram, batch: str | None, name: str = "") -> None:
        self.name, self.executable = name or model.name, model.executable
        self._adapter = None if model.adapter is None else model.adapter.named(self.name)
        program = model.program
        signature = replace(program.signature, name=self.name)
        self.constant_bytes = self.executable.constant_bytes
        done = work_of(program)
        self.costs = Costs(done, self.executable.threads)
        self._changed = ChangedRows(done.is_bounded, bool(program.engines))
        alone = batch is None
        self._layout = _alone(signature) if alone else batch_layout(signature, batch, None, None)
        self.most_rows = 1 if batch is None else program.signature.box.dim(batch).hi
        self._outputs = {spec.key for spec in model.outputs}
        self._batch, self._shared, self.depends = batch, 0, False
        elsewhere = program.devices or program.engines
        self.is_proven = model.story.mixing.get(batch or "") == "" and not elsewhere

    def read(self, given: Any, outputs: Sequence[str] | None) -> Item:
        """As `Form.read`: checks arrays and computes costs. Raises InputError or DimError."""
        known: Any = None
        if self._adapter is not None:
            given, known = self._adapter.encode_item(given)
        found = self._layout._read_item(0, given)
        outputs = None if outputs is None else texts_of("outputs", outputs)
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
        taken = self.costs.bytes_of_call(sizes)
        own = max(self.costs.predict_seconds(sizes) - self._nothing(sizes), 0.0)
        extent = sum(array.size for array in found.arrays)
        input_bytes = sum(array.nbytes for array in found.arrays)
        if self._adapter is not None:
            input_bytes += self._adapter.bytes_of(known)
        content = (found, None if outputs is None else tuple(outputs), known)
        return Item(key, sizes, rows, extent, own, input_bytes, taken[2], content)

    def _nothing(self, sizes: Mapping[str, int]) -> float:
        if self._batch is None:
            return 0.0
        return self.costs.predict_seconds({**sizes, self._batch: 0})

    def overhead(self, item: Item) -> float:
        """As `Form.overhead`."""
        return self._nothing(item.sizes)

    def sizes(self, items: Sequence[Item]) -> dict[str, int]:
        """As `Form.sizes`."""
        return self._layout.call_sizes([item.content[0] for item in items])

    def run(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        """As `Form.run`. Raises the errors of a call."""
        if len(items) > 1 and self.depends:
            return [each for item in items for each in self.run([item])]
        arrays: list[ItemArrays] = [item.content[0] for item in items]
        sizes = self.sizes(items)
        start = perf_counter()
        results = self._call(arrays, sizes)
        if len(items) > 1:
            self._sample(arrays, results, perf_counter() - start)
        if len(items) > 1 and self.depends:  # another thread may have found it meanwhile
            return [each for item in items for each in self.run([item])]
        return [self._results_of(item, found) for item, found in zip(items, results)]

    def _results_of(self, item: Item, found: dict[str, Any]) -> dict[str, Any]:
        """Return the requested results of an item, as its caller sees them."""
        _, wanted, known = item.content
        if self._adapter is not None:
            found = self._adapter.decode(found, known)
        return found if wanted is None else {name: found[name] for name in wanted}

    def _call(self, items: list[ItemArrays], sizes: Mapping[str, int]) -> list[dict[str, Any]]:
        """Call the model at these sizes; return the results of each item."""
        outputs = self.executable(self._layout.join_inputs(items, sizes))
        return self._layout.split_results(outputs, items, sizes)

    def _sample(
        self, items: list[ItemArrays], results: list[dict[str, Any]], seconds: float
    ) -> None:
        """Check every so often whether rows of a joined call depend on each other."""
        self._shared += 1
        calls = self._shared
        if calls > 1 and (self.is_proven or not is_due(calls)):
            return
        random = numpy.random.default_rng(calls)
        picks = [int(random.integers(len(items)))]
        variants = [] if self.is_proven else [int(random.integers(2))]
        if calls == 1:
            picks, variants = ([0], []) if self.is_proven else ([0, len(items) - 1], [0, 1])
        for pick in picks:
            name = self._changed.differing_result(
                self.executable, self._layout, items, pick, results[pick], differing_bits,
                variants, seconds,
            )  # fmt: skip
            if name is not None:
                self.depends = True
                return

    def idle_bytes(self) -> int:
        """As `Form.idle_bytes`."""
        return self.executable.arena_bytes + self.executable.result_bytes

    def trim(self) -> None:
        """As `Form.trim`."""
        self.executable.trim()


def _alone(signature: Signature) -> Layout:
    """Return the layout for calls with one request each."""
    results = tuple((spec, None) for spec in wanted_results(signature, None))
    axes = (None,) * len(signature.inputs)
    return Layout(signature, None, axes, results, {}, (), solve(signature, frozenset()))

"""Requests of models whose operators all work on strings: they run when a request is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from anydim.base.errors import InputError
from anydim.base.text import quote_list
from anydim.runtime.program.adapter import Adapter
from anydim.runtime.program.batches.costs import Costs
from anydim.runtime.program.batches.item import Item
from anydim.runtime.program.batches.work import NO_WORK
from anydim.runtime.program.string_adapter import string_bytes


class StringForm:
    """The sizes of results are known, as there is no native code to run later."""

    constant_bytes = 0
    most_rows: int | None = 1

    def __init__(self, adapter: Adapter) -> None:
        self.name, self._adapter = adapter.signature.name, adapter
        self.costs = Costs(NO_WORK, 1)

    def read(self, given: Any, outputs: Sequence[str] | None) -> Item:
        """As `Form.read`. Raises InputError."""
        names = [spec.key for spec in self._adapter.signature.outputs]
        unknown = [name for name in outputs or () if name not in names]
        if unknown:
            raise InputError(f"{self.name} has no result '{unknown[0]}'",
                             f"its results: {quote_list(names)}")  # fmt: skip
        _, known = self._adapter.encode_item(given)
        results = self._adapter.decode({}, known)
        found = {name: results[name] for name in (names if outputs is None else outputs)}
        extent = sum(numpy.size(known[spec.name]) for spec in self._adapter.signature.inputs)
        return Item(
            (), {}, 1, extent, self.costs.predict_seconds({}), self._adapter.bytes_of(known),
            sum(array.nbytes + string_bytes(array) for array in found.values()), found,
        )  # fmt: skip

    def overhead(self, item: Item) -> float:
        """As `Form.overhead`."""
        return 0.0  # no two requests share a call

    def sizes(self, items: Sequence[Item]) -> dict[str, int]:
        """As `Form.sizes`."""
        return items[0].sizes

    def run(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        """As `Form.run`."""
        return [item.content for item in items]

    def idle_bytes(self) -> int:
        """As `Form.idle_bytes`."""
        return 0

    def trim(self) -> None:
        """As `Form.trim`."""

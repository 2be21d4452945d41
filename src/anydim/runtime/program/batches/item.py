"""A request as the engine sees it: arrays that were read, and what running them costs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

from anydim.runtime.program.batches.costs import Costs


class Item:
    """The inputs of a request, checked against its model.

    Attributes:
        key: Items with equal keys may share a call.
        sizes: The dims of a call of this item alone.
        rows: How many rows it has.
        extent: The size that reports show: indices of the first ragged dim, or elements of inputs.
        own: Predicted seconds that it adds to a call.
        input_bytes: Bytes of its arrays.
        output_bytes: Bytes of its results.
        content: What the form that read it needs to run it.
    """

    __slots__ = (
        "content", "extent", "input_bytes", "key", "output_bytes", "own", "rows", "sizes",
    )  # fmt: skip

    def __init__(
        self, key: Hashable, sizes: dict[str, int], rows: int, extent: int, own: float,
        input_bytes: int, output_bytes: int, content: Any,
    ) -> None:  # fmt: skip
        self.key, self.sizes, self.rows, self.extent = key, sizes, rows, extent
        self.own, self.input_bytes, self.output_bytes = own, input_bytes, output_bytes
        self.content = content


class Form(Protocol):
    """How requests of a model are read, grouped into calls, and given their results."""

    name: str
    costs: Costs
    most_rows: int | None  # of a call
    constant_bytes: int  # of weights

    def read(self, given: Any, outputs: Sequence[str] | None) -> Item:
        """Check the inputs of a request; raises InputError or DimError."""

    def sizes(self, items: Sequence[Item]) -> dict[str, int]:
        """The dims of a call of these items."""

    def run(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        """Run one call; the results of each item, in memory of its own."""

    def overhead(self, item: Item) -> float:
        """Predicted seconds of a call without rows, beside this item."""

    def idle_bytes(self) -> int:
        """Bytes that the model keeps between calls."""

    def trim(self) -> None:
        """Return these bytes to the system."""

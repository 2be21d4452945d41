"""One item of a batch (a request, or an item of `map`): its arrays and the cost of running it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

from anydim.runtime.program.batches.costs import Costs


class Item:
    """The checked inputs of a request or an item of `map`, with their costs.

    Attributes:
        key: Items with equal keys may share a call.
        sizes: The dims of a call of this item alone.
        rows: How many rows it has.
        extent: The size that reports show: indices of the first ragged dim, or elements of inputs.
        own: Predicted seconds that it adds to a call, on the reference machine.
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
    """Reads items of a model, runs groups of them in one call, and splits the results."""

    name: str
    costs: Costs
    most_rows: int | None  # of a call
    constant_bytes: int  # of weights

    def read(self, given: Any, outputs: Sequence[str] | None) -> Item:
        """Check the inputs of a request; raises InputError or DimError."""

    def sizes(self, items: Sequence[Item]) -> dict[str, int]:
        """Return the sizes of the dims of a call with these items."""

    def run(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        """Run one call; return the results of each item."""

    def overhead(self, item: Item) -> float:
        """Return the predicted fixed cost, in seconds, of a call that this item is in."""

    def idle_bytes(self) -> int:
        """Return the bytes of memory that the model keeps between calls."""

    def trim(self) -> None:
        """Free the memory that the model keeps between calls."""

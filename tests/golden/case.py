"""One program of the corpus: what is compiled, and the calls whose results are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anydim.compiler.passes.options import BFLOAT16_PARTS
from anydim.sizes import Dim

Sizes = Mapping[str, int | tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    """`source` makes what is compiled; `sizes` are the calls.

    `spans` gives for inputs from where their numbers are drawn. `precision` and `ragged` are those
    of the compilation; `ragged` calls have a length for each row. `tiles`: kernels for a machine
    with tiles for bfloat16, which the evaluator of loop IR runs; parts of bfloat16 need them.
    """

    name: str
    source: Callable[[], Any]
    sizes: tuple[Sizes, ...]
    dims: Mapping[str, Dim] | None = None
    spans: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    precision: str = "exact"
    ragged: str | None = None
    tiles: bool = False

    @property
    def on_tiles(self) -> bool:
        """Whether products use tiles for bfloat16."""
        return self.tiles or BFLOAT16_PARTS.get(self.precision, 1) > 1


def along(**sizes: tuple[int, ...]) -> tuple[Sizes, ...]:
    """The calls whose sizes stand one below the other: along(n=(0, 1), m=(3, 4)) are two."""
    counts = {len(values) for values in sizes.values()}
    assert len(counts) == 1, f"rows of different lengths: {sizes}"
    return tuple(dict(zip(sizes, row)) for row in zip(*sizes.values()))


LANES = (0, 1, 2, 7, 8, 9, 31)  # around a vector of eight, and a prime
"""Sizes at which most programs are called."""

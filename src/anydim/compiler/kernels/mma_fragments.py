"""Fragments of matrices: which elements each thread of a warp holds.

Threads 4 * g + t of a warp, with g in 0..7 and t in 0..3, hold the elements as the PTX ISA
specifies: "Matrix fragments for mma.m16n8k8" for .tf32, "mma.m16n8k16" for .f16 and .bf16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anydim.base.dtypes import DType, bfloat16, float16, float32
from anydim.base.records import dataclass

WARP = 32  # threads that multiply together: consecutive threads of a work-group
ROWS, COLUMNS = 16, 8  # of the sums
FragmentIndex = Callable[[int, int], tuple[int, int]]  # g, t -> row, column


@dataclass(frozen=True)
class Shares:
    """The coordinates of each value that a thread supplies; a value has `each` elements along d."""

    depth: int  # d
    each: int
    left: tuple[FragmentIndex, ...]
    right: tuple[FragmentIndex, ...]


def _shares(each: int) -> Shares:
    half = 4 * each  # elements of d that threads t hold together
    return Shares(
        2 * half, each,
        (
            lambda g, t: (g, each * t), lambda g, t: (g + 8, each * t),
            lambda g, t: (g, each * t + half), lambda g, t: (g + 8, each * t + half),
        ),
        (lambda g, t: (each * t, g), lambda g, t: (each * t + half, g)),
    )  # fmt: skip


FRAGMENT_LAYOUTS: Mapping[DType, Shares] = {
    float32: _shares(1),
    float16: _shares(2),
    bfloat16: _shares(2),
}
SUMS: tuple[FragmentIndex, ...] = (
    lambda g, t: (g, 2 * t), lambda g, t: (g, 2 * t + 1),
    lambda g, t: (g + 8, 2 * t), lambda g, t: (g + 8, 2 * t + 1),
)  # fmt: skip

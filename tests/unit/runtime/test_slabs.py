"""Slabs of rows lie apart, move with their contents, and their arrays stay within bounds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import anydim as ad
from anydim.runtime.slabs import Slab, SlabKind, Slabs

KINDS = (
    SlabKind("a", np.dtype("float32"), (2,), (3,)),
    SlabKind("b", np.dtype("int64"), (), ()),
)
BYTES = 2 * 3 * 4 + 8


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("seed", range(8))
def test_rows_keep_what_they_hold(seed: int) -> None:
    random = np.random.default_rng(seed)
    slabs = Slabs("model", KINDS, int(random.integers(1, 9)))
    held: dict[int, np.ndarray] = {}
    most = 0
    for number in range(300):
        if random.random() < 0.3:
            slabs.rows[number], held[number] = Slab(), np.zeros(0, np.int64)
        if held and random.random() < 0.2:
            gone = int(random.choice(list(held)))
            slabs.remove(gone)
            del held[gone]
        new = {row: random.integers(0, 1 << 20, int(random.integers(0, 20)))
               for row in held if random.random() < 0.7}  # fmt: skip
        slabs.reserve({row: len(held[row]) + len(part) for row, part in new.items()})
        for row, part in new.items():
            first, held[row] = len(held[row]), np.concatenate([held[row], part])
            slabs.rows[row].length = len(held[row])
            views = slabs.view(row)
            views["a"][:, first:], views["b"][first:] = part[:, None], part
        most = max(most, slabs.used)
        check(slabs, held, most)


def check(slabs: Slabs, held: dict[int, np.ndarray], most: int) -> None:
    """The intervals of rows and free ones are all there is, and rows have their contents."""
    taken = [(s.start, s.start + s.capacity) for s in slabs.rows.values() if s.capacity]
    every = sorted(taken + slabs._free)
    assert all(one[1] <= other[0] for one, other in pairwise(every))
    assert sum(stop - start for start, stop in every) == slabs.total <= 2 * most
    assert all(one[1] < other[0] for one, other in pairwise(slabs._free))
    for row, values in held.items():
        views = slabs.view(row)
        assert (views["a"] == values[:, None]).all() and (views["b"] == values).all()
        assert slabs.rows[row].capacity <= max(slabs.room, 2 * len(values))


def test_capacities_are_powers_of_two() -> None:
    slabs = Slabs("model", KINDS, 4)
    lengths = (0, 1, 4, 5, 8, 9, 1000, 1024, 1025)
    assert [slabs.capacity(n) for n in lengths] == [4, 4, 4, 8, 8, 16, 1024, 1024, 2048]


def test_rows_share_what_others_left_before_arrays_grow() -> None:
    slabs = Slabs("model", KINDS, 4, limit=32 * BYTES)
    for row in range(8):
        slabs.rows[row] = Slab()
    slabs.reserve(dict.fromkeys(range(8), 4))
    assert slabs.total == 32
    for row in (1, 3, 5, 7):  # no two adjacent: 8 elements fit nowhere
        slabs.remove(row)
    slabs.rows[9] = Slab()
    slabs.reserve({9: 8})
    assert slabs.total == 32 and slabs.used == 24


def test_a_limit_refuses_and_moves_nothing() -> None:
    slabs = Slabs("model", KINDS, 4, limit=12 * BYTES + 5)
    slabs.rows |= {0: Slab(), 1: Slab()}
    slabs.reserve({0: 8, 1: 3})
    before = dict(slabs.arrays)
    with pytest.raises(ad.MemoryLimitError, match=r"caches of 2 rows would take .* above"):
        slabs.reserve({0: 8, 1: 5})
    assert slabs.arrays == before and slabs.total == 12

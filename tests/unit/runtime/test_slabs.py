"""Slabs of rows lie apart, move with their contents, and take the memory that the formula says."""

from __future__ import annotations

import gc
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import anydim as ad
from anydim.runtime.pages import PAGE, Space
from anydim.runtime.slabs import Slab, SlabKind, Slabs

KINDS = (
    SlabKind("a", np.dtype("float32"), (2,), (3,)),
    SlabKind("b", np.dtype("int64"), (), ()),
)
WIDE = (  # parts of whole pages, parts that share pages, and one that is as long as its slab
    SlabKind("keys", np.dtype("float32"), (3,), (64,)),
    SlabKind("scales", np.dtype("float32"), (3,), ()),
    SlabKind("codes", np.dtype("int8"), (2, 2), (40,)),
    SlabKind("flat", np.dtype("int64"), (), (5,)),
)
BYTES = 2 * 3 * 4 + 8


def mapped_bytes() -> int:
    """Resident bytes of the memory of all caches, by the system's table of pages."""
    found = 0
    with Path("/proc/self/pagemap").open("rb") as table:
        for space in [each for each in gc.get_objects() if type(each) is Space]:
            table.seek(space.bytes.ctypes.data // PAGE * 8)
            pages = np.frombuffer(table.read(-(-len(space.bytes) // PAGE) * 8), np.uint64)
            found += int((pages >> np.uint64(63)).sum()) * PAGE
    return found


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kinds, longest", ((KINDS, 20), (WIDE, 150)))
def test_rows_keep_what_they_hold(kinds: tuple[SlabKind, ...], longest: int, seed: int) -> None:
    """Rows join, grow, are copied, truncated and leave; memory is that of the formula."""
    random = np.random.default_rng(seed)
    slabs = Slabs("model", kinds, int(random.integers(1, 9)))
    held: dict[int, np.ndarray] = {}
    gc.collect()
    before, most = mapped_bytes() if sys.platform == "linux" else 0, 0
    for number in range(50):
        if random.random() < 0.3:
            slabs.rows[number], held[number] = Slab(), np.zeros(0, np.int64)
        if held and random.random() < 0.2:
            gone = int(random.choice(list(held)))
            slabs.remove(gone)
            del held[gone]
        if held and random.random() < 0.2:
            row = int(random.choice(list(held)))
            length = int(random.integers(0, len(held[row]) + 1))
            spare = int(random.choice([0, 0, 3, longest]))
            slabs.shorten(row, length, length + spare)
            held[row] = held[row][:length]
        if held and random.random() < 0.1:
            row = int(random.choice(list(held)))
            length = int(random.integers(0, len(held[row]) + 1))
            slabs.rows[-number] = Slab()
            slabs.copy(row, -number, length)
            held[-number] = held[row][:length]
        new = {row: random.integers(0, 100, int(random.integers(0, longest)))
               for row in held if random.random() < 0.7}  # fmt: skip
        slabs.reserve({row: len(held[row]) + len(part) for row, part in new.items()})
        for row, part in new.items():
            first, held[row] = len(held[row]), np.concatenate([held[row], part])
            slabs.rows[row].length = len(held[row])
            for kind in kinds:
                axis = len(kind.before)
                view = np.moveaxis(slabs.view(row)[kind.name], axis, -1)
                view[..., first:] = part
        most = max(most, slabs.used)
        check(slabs, held)
        if sys.platform == "linux" and number % 10 == 0:
            assert 0.97 * slabs.used <= mapped_bytes() - before <= slabs.used
    for row in [*held]:
        slabs.remove(row)
    assert slabs.used == 0 < most
    if sys.platform == "linux":
        assert mapped_bytes() == before


def check(slabs: Slabs, held: dict[int, np.ndarray]) -> None:
    """The intervals of rows and free ones are all there is, and rows have their contents."""
    taken = [(s.start, s.start + slabs._span(s.capacity))
             for s in slabs.rows.values() if s.capacity]  # fmt: skip
    every = sorted(taken + slabs._free)
    assert all(one[1] <= other[0] for one, other in pairwise(every))
    assert sum(stop - start for start, stop in every) == slabs.total
    assert all(one[1] < other[0] for one, other in pairwise(slabs._free))
    assert slabs.used == sum(slabs.bytes(slab.most) for slab in slabs.rows.values())
    for row, values in held.items():
        slab, views = slabs.rows[row], slabs.view(row)
        for kind in slabs.kinds:
            assert slab.start * kind.bytes % PAGE == 0
            assert (np.moveaxis(views[kind.name], len(kind.before), -1) == values).all()
        assert len(values) == slab.length <= slab.most
        assert slab.capacity in (0, slabs.capacity(slab.most))


def test_capacities_are_powers_of_two() -> None:
    slabs = Slabs("model", KINDS, 4)
    lengths = (0, 1, 4, 5, 8, 9, 64, 1000, 1024, 1025)
    assert [slabs.capacity(n) for n in lengths] == [4, 4, 4, 8, 8, 16, 64, 1024, 1024, 2048]
    if PAGE > 1:  # addresses without memory
        assert [slabs.capacity(n) for n in (65, 128, 512, 513)] == [512, 512, 512, 1024]


def test_the_bytes_of_a_row_are_its_pages() -> None:
    slabs = Slabs("model", WIDE[:1], 64)
    lengths = np.arange(3000)
    found = np.array([slabs.bytes(int(n)) for n in lengths])
    assert (found == 3 * -(-lengths * 256 // PAGE) * PAGE).all()
    for kinds in (KINDS, WIDE):
        slabs = Slabs("model", kinds, 8)
        found = np.array([slabs.bytes(int(n)) for n in lengths])
        assert (np.diff(found) >= 0).all() and found[0] == 0
        assert (found >= lengths * slabs.bytes_per_element).all()
        parts = sum(int(np.prod(kind.before)) + 1 for kind in kinds)
        assert (found <= lengths * slabs.bytes_per_element + 2 * parts * PAGE).all()


def test_rows_take_places_that_others_left() -> None:
    slabs = Slabs("model", KINDS, 4)
    for row in range(8):
        slabs.rows[row] = Slab()
    slabs.reserve(dict.fromkeys(range(8), 4))
    total = slabs.total
    for row in (1, 3, 5, 7):
        slabs.remove(row)
    for row in range(9, 13):
        slabs.rows[row] = Slab()
        slabs.reserve({row: 4})
    assert slabs.total == total and slabs.used == 8 * slabs.bytes(4)


def test_a_limit_refuses_and_moves_nothing() -> None:
    slabs = Slabs("model", WIDE, 4)
    slabs.rows |= {0: Slab(), 1: Slab()}
    slabs.reserve({0: 8, 1: 30})
    slabs.set_limit(slabs.bytes(8) + slabs.bytes(64))
    before, used = dict(slabs.arrays), slabs.used
    with pytest.raises(ad.MemoryLimitError, match=r"caches of 2 rows would take .* above"):
        slabs.reserve({0: 100, 1: 65})
    with pytest.raises(ad.MemoryLimitError, match=r"caches of 2 rows would take .* above"):
        slabs.set_limit(used - 1)
    assert slabs.arrays == before and slabs.used == used
    slabs.reserve({1: 64})
    assert slabs.used == slabs.limit


def test_arrays_of_others_replace_the_own_ones() -> None:
    """Those of a step that copies caches; their memory is not the slabs' to give back."""
    slabs = Slabs("model", KINDS, 4)
    slabs.rows |= {0: Slab(), 1: Slab()}
    slabs.reserve({0: 8, 1: 4})
    slabs.replace({name: np.ones_like(array) for name, array in slabs.arrays.items()})
    slabs.rows[0].length = slabs.rows[1].length = 4
    slabs.shorten(0, 2, 2)
    slabs.remove(1)
    slabs.reserve({0: 100})
    assert all((view == 1).all() for view in slabs.view(0).values())

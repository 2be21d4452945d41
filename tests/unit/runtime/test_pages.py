"""Memory in large pages: aligned, apart, zero at first, and given back."""

from __future__ import annotations

import gc
import random

import pytest

from anydim.runtime.pages import ALIGNMENT, Pages

SIZES = (0, 1, 63, 64, 65, 4095, 1 << 20, (1 << 21) + 1, 5 << 20, 33 << 20)


def test_pieces_are_aligned_and_apart() -> None:
    pages = Pages()
    order = [*SIZES, *random.Random(3).choices(SIZES[:-2], k=40)]
    pieces = [pages.take(size) for size in order]
    for number, (piece, size) in enumerate(zip(pieces, order)):
        assert piece.nbytes == size
        assert not size or piece.ctypes.data % ALIGNMENT == 0
        assert not piece.any()
        piece[:] = number % 251 + 1
    assert all((p == n % 251 + 1).all() for n, p in enumerate(pieces))


def test_a_piece_outlives_what_handed_it_out() -> None:
    pages = Pages()
    pieces = [pages.take(1000) for _ in range(3)]
    pieces[1][:] = 7
    kept = pieces[1].view("int8")
    del pages, pieces
    gc.collect()
    assert (kept == 7).all()


def test_more_than_there_is() -> None:
    with pytest.raises(MemoryError):
        Pages().take(1 << 62)

"""Memory in large pages: aligned, apart, zero at first, and given back."""

from __future__ import annotations

import gc
import random
import re
import sys
from pathlib import Path

import numpy
import pytest

import anydim as ad
from anydim.deploy.container import Container
from anydim.runtime.pages import ALIGNMENT, Pages, block

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


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of mappings")
@pytest.mark.parametrize("size", SIZES)
def test_a_block_has_huge_pages_if_it_fills_one(size: int) -> None:
    found = block(size)
    assert found.nbytes == size
    assert not found.any()
    assert not size or found.ctypes.data % ALIGNMENT == 0
    if size:
        assert has_huge_pages(found) == (size >= 1 << 21)


def test_a_private_copy_of_a_saved_model_has_huge_pages(tmp_path: Path) -> None:
    g = ad.Builder("wide")
    g.output("y", g.matmul(g.input("x", ad.float32, (g.dim("n", 1, 4), 1024)),
                           g.constant(numpy.ones((1024, 1024), numpy.float32))))  # fmt: skip
    ad.compile(g, threads=1).save(tmp_path / "wide.anydim")
    container = Container(str(tmp_path / "wide.anydim"), copied=True)
    copied = numpy.frombuffer(container.memory, numpy.uint8)
    assert copied.tobytes() == (tmp_path / "wide.anydim").read_bytes()
    if sys.platform == "linux":
        assert has_huge_pages(copied)


def has_huge_pages(array: numpy.ndarray) -> bool:
    """Whether Linux is advised to use huge pages for the first byte of an array."""
    address, is_inside = array.ctypes.data, False
    for line in Path("/proc/self/smaps").read_text("ascii").splitlines():
        found = re.match("([0-9a-f]+)-([0-9a-f]+) ", line)
        if found:
            begin, end = (int(text, 16) for text in found.groups())
            is_inside = begin <= address < end
        elif is_inside and line.startswith("VmFlags:"):
            return "hg" in line.split()
    raise AssertionError(f"no mapping has {address:x}")

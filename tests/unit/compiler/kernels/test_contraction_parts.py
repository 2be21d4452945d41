"""The pieces of the contraction: packing of constants, and the register tiles as machine code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product as combinations

import numpy
import pytest

from anydim.base.dtypes import float32
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.contraction.contraction_template import TEMPLATE
from anydim.compiler.kernels.matmul.contraction_micro_kernels import contraction_libraries
from anydim.compiler.kernels.matmul.register_tile import Tile, tile_of
from anydim.compiler.targets.llvm.compiler import assembly
from anydim.compiler.targets.llvm.host import machine, this_machine
from anydim.compiler.targets.llvm.render import render
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import TensorType
from anydim.runtime.packing import pack, packed_shape
from anydim.runtime.panels import Panels
from anydim.sizes import Box, Dim, as_size

PANEL_SIZES = list(combinations((1, 3), (0, 1, 5), (0, 1, 4, 7, 16)))


@pytest.mark.parametrize("groups, k, n", PANEL_SIZES)
@pytest.mark.parametrize("turned", [False, True])
def test_panels_hold_every_element_once(groups: int, k: int, n: int, turned: bool) -> None:
    matrix = numpy.arange(2 + groups * k * n, dtype=numpy.float32)
    strides = (1, k) if turned else (n, 1)
    panels = Panels(4, ((groups, k * n),), ((k, strides[0]),), ((n, strides[1]),), offset=2)
    packed = pack(matrix, panels)
    assert packed.shape == packed_shape(panels) == (groups, -(-n // 4), k, 4)
    assert not packed.size or packed.ctypes.data % 64 == 0
    for g, row, column in combinations(range(groups), range(k), range(4 * packed.shape[1])):
        place = 2 + g * k * n + row * strides[0] + column * strides[1]
        expected = matrix[place] if column < n else 0
        assert packed[g, column // 4, row, column % 4] == expected


def test_axes_in_pieces_are_packed_in_their_order() -> None:
    source = numpy.arange(2 * 3 * 5, dtype=numpy.float32)
    packed = pack(source, Panels(8, (), ((3, 5),), ((2, 15), (5, 1))))
    expected = source.reshape(2, 3, 5).transpose(1, 0, 2).reshape(3, 10)
    assert numpy.array_equal(packed[0, 0], expected[:, :8])
    assert numpy.array_equal(packed[0, 1, :, :2], expected[:, 8:])


def test_a_block_has_the_panels_that_few_rows_take_at_once() -> None:
    """Blocks of one panel would leave them no second one."""
    shapes = [TensorType(float32, tuple(map(as_size, each))) for each in (("M", 64), (64, 4096))]
    text = "def f(float(M,K) x, float(K,N) w) -> (y) { y(m,n) +=! x(m,k) * w(k,n) }"
    box, constants = Box.of(Dim("M", 0, 64)), frozenset({"w"})
    group = instantiate(parse_definition(text), shapes, box=box)
    schedule = TEMPLATE.match(group, box, machine(), constants)
    launch = TEMPLATE.lower(group, schedule, box, machine(), constants)
    sizes = dict(zip(launch.kernel.sizes, launch.sizes))
    columns = sizes["block_panels"] * sizes["unit"]
    tile = tile_of(machine(), float32)
    for rows in range(1, 64):
        fits = tile.widest(min(rows, tile.rows)) if rows not in _tall(tile) else 2
        assert columns.evaluate({"M": rows}) >= fits * tile.lanes
    assert tile.widest(2) > tile.vectors


def test_rows_that_share_lines_of_the_first_cache_are_no_high_tile() -> None:
    """13 rows of 1024 floats come to one set of it, which holds 8 lines in 32 KB."""
    box, constants, kind = Box.of(Dim("M", 0, 64)), frozenset({"w"}), Machine(64, 32, 32 * 1024)
    text = "def f(float(M,K) x, float(K,N) w) -> (y) { y(m,n) +=! x(m,k) * w(k,n) }"
    for depth, high in ((1024, 2), (1000, 1), (2048, 2)):
        types = [TensorType(float32, tuple(map(as_size, s))) for s in (("M", depth), (depth, 64))]
        group = instantiate(parse_definition(text), types, box=box)
        schedule = TEMPLATE.match(group, box, kind, constants)
        launch = TEMPLATE.lower(group, schedule, box, kind, constants)
        tiles = dict(zip(launch.kernel.sizes, launch.sizes))["all_tiles"]
        found = [tiles.evaluate({"M": rows}) for rows in (8, 9, 13, 14)]
        assert found == [1, high, high, 2]


def _tall(tile: Tile) -> range:
    return range(tile.rows + 1, tile.tall + 1)


@pytest.mark.skipif(machine().registers < 16, reason="x86 registers")
@pytest.mark.parametrize("kind", [machine(), Machine(32, 16)], ids=["host", "avx2"])
def test_hot_loops_keep_the_tile_in_registers(kind: Machine) -> None:
    if kind.vector_bytes > machine().vector_bytes:
        pytest.skip("vectors wider than this machine's")
    libraries = contraction_libraries(tile_of(kind, float32), float32)
    processor = replace(this_machine(), vector_bytes=kind.vector_bytes)
    texts = [assembly(render(library, processor), processor) for library in libraries]
    loops = [body for text in texts for body in _summing_loops(text)]
    assert loops
    for body in loops:
        spilled = [line for line in body if "(%rsp)" in line and re.search(r"%[xyz]mm", line)]
        assert not spilled, "\n".join(spilled)


def _summing_loops(text: str) -> Iterator[list[str]]:
    """Code between a label and a jump back to it, where it multiply-adds."""
    lines = text.splitlines()
    labels: dict[str, int] = {}
    for number, line in enumerate(lines):
        if found := re.match(r"^(\.L\w+):", line):
            labels[found[1]] = number
        jump = re.match(r"\s+j\w+\s+(\.L\w+)", line)
        if jump and jump[1] in labels:
            body = lines[labels[jump[1]] : number]
            if any("vfmadd" in part for part in body):
                yield body

"""Tile register steps of the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from anydim.base.dtypes import int32
from anydim.compiler.kernels import ir
from anydim.compiler.targets.evaluated.functions import flushing_sum, fused_flushing

_READY = -1  # key among the tiles of a frame while they are configured


def _tiles(frame: Any, step: ir.Tiles) -> None:
    if step.wanted == (_READY in frame.tiles):
        frame.fail("tiles are configured twice, or released without configuration")
    frame.tiles.clear()
    if step.wanted:
        frame.tiles[_READY] = numpy.zeros(0)


def _set(frame: Any, tile: int, held: numpy.ndarray) -> None:
    if _READY not in frame.tiles or not 0 <= tile < ir.TILES:
        frame.fail(f"no tile {tile}: tiles are not configured")
    frame.tiles[tile] = held


def _tile(frame: Any, tile: int) -> numpy.ndarray:
    if tile not in frame.tiles:
        frame.fail(f"tile {tile} is read before its assignment")
    held: numpy.ndarray = frame.tiles[tile]
    return held


def _zero(frame: Any, step: ir.TileZero) -> None:
    _set(frame, step.tile, numpy.zeros((ir.TILE, ir.TILE), numpy.int32))


def _memory(frame: Any, step: ir.TileMemory) -> None:
    rows = frame.integer(step.offset) + numpy.arange(ir.TILE) * frame.integer(step.row)
    positions = (rows[:, None] + numpy.arange(ir.TILE)).reshape(-1)
    use = "store" if step.store else "load"
    data, touched = frame.elements(step.buffer, ir.Type(int32), positions, use)
    if step.store:
        if not frame.buffers[step.buffer].memory.writable:
            frame.fail(f"tile store to '{step.buffer}', which is read-only")
        data[touched] = _tile(frame, step.tile).reshape(-1, 1).view(numpy.uint8)
    else:
        _set(frame, step.tile, data[touched].view(numpy.int32).reshape(ir.TILE, ir.TILE))


def _dots(frame: Any, step: ir.TileDots) -> None:
    if len({step.sums, step.left, step.right}) != 3:
        frame.fail("the tiles of a product are not distinct")
    kinds = (numpy.uint8, numpy.int8) if step.unsigned else (numpy.int8, numpy.uint8)
    left = _tile(frame, step.left).view(kinds[0]).astype(numpy.int64)
    words = _tile(frame, step.right).view(kinds[1]).reshape(ir.TILE, ir.TILE, 4)
    right = words.transpose(0, 2, 1).reshape(4 * ir.TILE, ir.TILE).astype(numpy.int64)
    _set(frame, step.sums, (_tile(frame, step.sums) + left @ right).astype(numpy.int32))


def _pairs(frame: Any, step: ir.TilePairs) -> None:
    if len({step.sums, step.left, step.right}) != 3:
        frame.fail("the tiles of a product are not distinct")
    left, right = (_bfloat16(_tile(frame, tile)) for tile in (step.left, step.right))
    parts = []
    for half in range(2):
        total = numpy.zeros((ir.TILE, ir.TILE), numpy.float32)
        for k in range(ir.TILE):
            total = fused_flushing(left[:, k, None, half], right[None, k, :, half], total)
        parts.append(total)
    both = flushing_sum(*parts)
    sums = flushing_sum(_tile(frame, step.sums).view(numpy.float32), both)
    _set(frame, step.sums, sums.view(numpy.int32))


def _bfloat16(tile: numpy.ndarray) -> numpy.ndarray:
    """The numbers of a tile as float32: [row][word][half]."""
    halves = tile.view(numpy.uint16).reshape(ir.TILE, ir.TILE, 2)
    return (halves.astype(numpy.uint32) << 16).view(numpy.float32)


TILE_STEPS: dict[type, Callable[[Any, Any], None]] = {
    ir.Tiles: _tiles,
    ir.TileZero: _zero,
    ir.TileMemory: _memory,
    ir.TileDots: _dots,
    ir.TilePairs: _pairs,
}

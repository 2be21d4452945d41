"""Emits steps on tile registers, for x86-64 processors with AMX.

Tiles have fixed numbers: LLVM neither moves nor spills them, and calls preserve them. The system
must permit a process to use them (`runtime/cpu.py`).
"""

from __future__ import annotations

from anydim.base.dtypes import int32
from anydim.compiler.kernels import ir
from anydim.compiler.targets.llvm.emitter import Emitter
from anydim.compiler.targets.llvm.values import Values

# palette 1; eight tiles with 64 bytes per row (16 bits each), 16 rows (8 bits each)
_SHAPES = (1, 0, 0x0040004000400040, 0x0040004000400040, 0, 0, 0x1010101010101010, 0)


def _write(emitter: Emitter, name: str, *arguments: tuple[str, str]) -> None:
    emitter.write(emitter.call_text("void", f"llvm.x86.{name}", arguments))


def tiles(emitter: Emitter, step: ir.Tiles) -> None:
    """Configure all tiles, or release them."""
    if not step.wanted:
        _write(emitter, "tilerelease")
        return
    shapes = emitter.alloca(f"[{len(_SHAPES)} x i64]", 64)
    for index, word in enumerate(_SHAPES):
        at = emitter.pure(f"getelementptr i64, ptr {shapes}, i64 {index}", (shapes,))
        emitter.write(f"store i64 {word}, ptr {at}, align 8")
    _write(emitter, "ldtilecfg", ("ptr", shapes))


def tile_zero(emitter: Emitter, step: ir.TileZero) -> None:
    """Zero a tile."""
    _write(emitter, "tilezero", ("i8", str(step.tile)))


def tile_memory(values: Values, step: ir.TileMemory) -> None:
    """Load or store a tile; its rows are `row` bytes apart."""
    pointer = values.pointer(step.buffer, step.offset, int32)
    four = ir.Const(ir.INDEX, int32.bytes)
    row = values.value(step.row * four)
    name = "tilestored64" if step.store else "tileloadd64"
    _write(values.emitter, name, ("i8", str(step.tile)), ("ptr", pointer), ("i64", row))


def tile_dots(emitter: Emitter, step: ir.TileDots) -> None:
    """Accumulate products of unsigned and signed bytes, or of signed and unsigned ones."""
    name = "tdpbusd" if step.unsigned else "tdpbsud"
    _write(emitter, name, *(("i8", str(tile)) for tile in (step.sums, step.left, step.right)))

"""Emits steps on tile registers, for x86-64 processors with AMX.

Tiles have fixed numbers: LLVM neither moves nor spills them, and calls preserve them. The system
must permit a process to use them (`runtime/cpu.py`).
"""

from __future__ import annotations

from anydim.base.dtypes import int32
from anydim.compiler.kernels import ir
from anydim.compiler.targets.llvm.values import Values
from anydim.compiler.targets.processor import TILE_SHAPES


class TileSteps:
    """Methods of `steps.Steps` for steps on tiles."""

    values: Values

    def _tiles(self, step: ir.Tiles) -> None:
        """Configure all tiles, or release them."""
        if not step.wanted:
            self._call_tile("tilerelease")
            return
        emitter = self.values.emitter
        shapes = emitter.alloca(f"[{len(TILE_SHAPES)} x i64]", 64)
        for index, word in enumerate(TILE_SHAPES):
            at = emitter.pure(f"getelementptr i64, ptr {shapes}, i64 {index}", (shapes,))
            emitter.write(f"store i64 {word}, ptr {at}, align 8")
        self._call_tile("ldtilecfg", ("ptr", shapes))

    def _tile_zero(self, step: ir.TileZero) -> None:
        self._call_tile("tilezero", ("i8", str(step.tile)))

    def _tile_memory(self, step: ir.TileMemory) -> None:
        """Load or store a tile; its rows are `row` bytes apart."""
        pointer = self.values.pointer(step.buffer, step.offset, int32)
        row = self.values.value(step.row * ir.Const(ir.INDEX, int32.bytes))
        name = "tilestored64" if step.store else "tileloadd64"
        self._call_tile(name, ("i8", str(step.tile)), ("ptr", pointer), ("i64", row))

    def _tile_dots(self, step: ir.TileDots) -> None:
        """Accumulate products of unsigned and signed bytes, or of signed and unsigned ones."""
        name = "tdpbusd" if step.unsigned else "tdpbsud"
        self._call_tile(name, *(("i8", str(tile)) for tile in (step.sums, step.left, step.right)))

    def _tile_pairs(self, step: ir.TilePairs) -> None:
        """Accumulate products of bfloat16."""
        tiles = (step.sums, step.left, step.right)
        self._call_tile("tdpbf16ps", *(("i8", str(tile)) for tile in tiles))

    def _call_tile(self, name: str, *arguments: tuple[str, str]) -> None:
        emitter = self.values.emitter
        emitter.write(emitter.call_text("void", f"llvm.x86.{name}", arguments))

"""The template for sums of products of integers of at most eight bits, with pointwise epilogues.

`int8_form.py` reads the group, `packed_layout.py` defines layout and signs of the bytes,
`int8_loops.py` writes the loops, and `int8_micro_kernels.py` holds the shape-independent
functions. Matrix products and convolutions are handled alike: a factor that is not constant is
evaluated and packed at run time. All sums are exact in int32.
"""

from __future__ import annotations

from dataclasses import replace

from anydim.base.dtypes import int32
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.knobs import VERSIONS
from anydim.compiler.kernels.launch import Launch, known_number, known_parts
from anydim.compiler.kernels.matmul.int8.int8_form import Int8Factor, Int8Form, int8_form_of
from anydim.compiler.kernels.matmul.int8.int8_loops import Int8Writer
from anydim.compiler.kernels.matmul.int8.int8_micro_kernels import (
    FEW_ROWS,
    MAX_TILES,
    tiles_of_words,
)
from anydim.compiler.kernels.matmul.int8.packed_layout import Layout, OperandSign, layout_of
from anydim.compiler.kernels.matmul.register_tile import TILE_KNOBS, TileSchedule, tile_of
from anydim.compiler.kernels.schedule import any_version
from anydim.compiler.kernels.template import Task, form_template
from anydim.runtime.panels import BytesPanels


@dataclass(frozen=True)
class Int8Product(TileSchedule):
    """Schedule of an int8 product: a register tile, and the `depth` words per product.

    Tile registers require a shape of their own: a tile of any other shape takes one word at a time.
    """

    depth: int = 1
    version: str = any_version()

    @property
    def words(self) -> int:
        """The words that a product takes at once."""
        whole = self.depth > 1 and self.rows % self.depth == 0 and self.lanes == self.depth
        fits = self.rows <= MAX_TILES * self.depth and self.vectors <= MAX_TILES
        return self.depth if whole and fits else 1


def _propose(form: Int8Form, task: Task) -> Int8Product:
    rows = form.m.extent.constant
    wide = None if rows is not None and rows <= FEW_ROWS else tiles_of_words(task.machine)
    tile = wide or tile_of(task.machine, int32)
    vectors = tile.vectors
    if form.n.extent.constant is not None:  # panels of even width
        needed = -(-max(form.n.extent.constant, 1) // tile.lanes)
        vectors = -(-needed // -(-needed // tile.vectors))
    return Int8Product(tile.rows, vectors, tile.lanes, 2, ir.TILE if wide else 1)


def _lower(form: Int8Form, schedule: Int8Product, task: Task) -> Launch:
    layout = layout_of(form, schedule.tile.width, schedule.words, task.constants)
    writer = Int8Writer(task.group, form, layout, schedule, task.machine)
    packings = {
        "a": _panels(form.a, layout.a, layout, 1),
        "b": _panels(form.b, layout.b, layout, schedule.tile.width),
    }
    used = replace(schedule, depth=schedule.words)
    return writer.launch(used, packings, form.work, _reason(form, layout))


TEMPLATE = form_template(
    "int8", Int8Product, lambda task: int8_form_of(task.group, task.constants), _propose, _lower,
    least_lanes=64, same_bits=True,
    knobs={
        **TILE_KNOBS,
        "rows": TILE_KNOBS["rows"].with_tries(2, 4, 6, 8, everywhere=(2, 4, 6, 8)),
        "vectors": TILE_KNOBS["vectors"].with_tries(everywhere=(1, 2, 3, 4)),
        "version": VERSIONS,
    },
)  # fmt: skip


def _panels(
    factor: Int8Factor, sign: OperandSign, layout: Layout, width: int
) -> BytesPanels | None:
    """Return the packing of a constant factor, whose sizes are all known."""
    packed = layout.a_packed if width == 1 else layout.b_packed
    if not packed or factor.parts is None:
        return None

    batch, own, taps, k = (known_parts(part) for part in factor.parts.all)
    unsigned = layout.a_unsigned == (width == 1)
    start, by = known_number(factor.start), (layout.b if width == 1 else layout.a).factor
    depth = layout.depth
    spare = depth - 1 if width == 1 else 0  # padding rows, so that tiles read full rows
    return BytesPanels(width, batch, own, taps, k, start, sign.flipped, unsigned, by, depth, spare)


def _reason(form: Int8Form, layout: Layout) -> str:
    epilogue = "no epilogue" if all(o.is_product for o in form.outputs) else "its epilogue fused"
    packed = [name for name, is_packed in
              (("rows", layout.a_packed), ("columns", layout.b_packed)) if is_packed]  # fmt: skip
    where = f"constant {packed[0]} packed at load time" if packed else "both factors packed on use"
    return f"an int8 product with int32 sums, {epilogue}; {where}"

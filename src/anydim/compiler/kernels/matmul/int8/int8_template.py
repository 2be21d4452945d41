"""The template for sums of products of integers of at most eight bits, with pointwise epilogues.

`int8_form.py` reads the group, `packed_layout.py` defines layout and signs of the bytes,
`int8_loops.py` writes the loops, and `int8_micro_kernels.py` holds the shape-independent
functions. Matrix products and convolutions are handled alike: a factor that is not constant is
evaluated and packed at run time. All sums are exact in int32.
"""

from __future__ import annotations

from dataclasses import replace

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.knobs import VERSIONS
from anydim.compiler.kernels.launch import Launch, are_known, known_number, known_parts
from anydim.compiler.kernels.matmul.int8.int8_form import Int8Factor, Int8Form, int8_form_of
from anydim.compiler.kernels.matmul.int8.int8_loops import Int8Writer
from anydim.compiler.kernels.matmul.int8.int8_micro_kernels import (
    FEW_ROWS,
    MAX_TILES,
    tiles_of_words,
)
from anydim.compiler.kernels.matmul.int8.packed_layout import Layout, OperandSign, layout_of
from anydim.compiler.kernels.matmul.int8.word_types import BYTES, PAIRS, PARTS
from anydim.compiler.kernels.matmul.register_tile import TILE_KNOBS, TileSchedule, tile_of
from anydim.compiler.kernels.schedule import any_version
from anydim.compiler.kernels.template import Task, form_template
from anydim.runtime.panels import BytesPanels

MIN_TAP = 16  # bfloat16 of a tap: 8 take 1.3 to 1.9 times float32's time, 12 up to 1.36, 16 0.74


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


@dataclass(frozen=True)
class Bfloat16Product(Int8Product):
    """Schedule of a product of bfloat16: tile registers have one shape, as vectors sum in another
    order."""


def _propose(form: Int8Form, task: Task) -> Int8Product:
    rows = form.m.extent.constant
    few = form.word == BYTES and rows is not None and rows <= FEW_ROWS
    wide = None if few else tiles_of_words(task.machine, form.word)
    tile = wide or tile_of(task.machine, form.word.total)
    vectors = tile.vectors
    if form.n.extent.constant is not None:  # panels of even width
        needed = -(-max(form.n.extent.constant, 1) // tile.lanes)
        vectors = -(-needed // -(-needed // tile.vectors))
    return Int8Product(tile.rows, vectors, tile.lanes, 2, ir.TILE if wide else 1)


def _propose_pairs(form: Int8Form, task: Task) -> Bfloat16Product:
    found = _propose(form, task)
    return Bfloat16Product(*found.tile.options, found.depth)


def _lower(form: Int8Form, schedule: Int8Product, task: Task) -> Launch:
    layout = layout_of(form, schedule.tile, schedule.words, task.constants, task.group)
    writer = Int8Writer(task.group, form, layout, schedule, task.machine)
    packings = {
        "a": _panels(form.a, layout.a, layout, layout.height, True),
        "b": _panels(form.b, layout.b, layout, schedule.tile.width, False),
    }
    used = replace(schedule, depth=schedule.words)
    return writer.launch(used, packings, form.work, _reason(form, layout))


def _lower_pairs(form: Int8Form, schedule: Bfloat16Product, task: Task) -> Launch:
    """Lower with the only shape of tile registers: vectors would sum in another order."""
    tiles = task.machine.pair_tiles
    return _lower(form, _propose_pairs(form, task) if tiles else schedule, task)


def _pairs_of(task: Task) -> Int8Form | None:
    """Return a product or convolution of bfloat16, on a machine with instructions for them."""
    if not (task.machine.pairs or task.machine.pair_tiles):
        return None
    form = int8_form_of(task.group, task.constants, PAIRS)
    if form is None:
        return _parts_of(task) if task.machine.pair_tiles else None
    if form.a.read.tensor in task.constants:
        return form if form.a.parts is not None else None
    fits = form.a.parts is not None or form.a.read.default is not None
    if form.taps:
        fits = (form.k.constant or 0) >= MIN_TAP
    return form if fits and form.b.parts is not None else None


def _parts_of(task: Task) -> Int8Form | None:
    """Return a product of float32 by constant columns in parts, see `float_parts.py`."""
    form = int8_form_of(task.group, task.constants, PARTS)
    if form is None or form.a.read.tensor in task.constants or form.b.parts is None:
        return None
    if form.b.start.constant is None or not are_known(*form.b.parts.all):
        return None
    fits = form.a.parts is not None or form.a.read.default is not None
    if len(form.taps) > 1:
        fits = (form.k.constant or 0) >= MIN_TAP
    return form if fits and form.b.read.tensor in task.constants else None


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
BFLOAT16 = form_template(
    "bfloat16", Bfloat16Product, _pairs_of, _propose_pairs, _lower_pairs, least_lanes=64,
    rounds=True, knobs={**TILE_KNOBS, "version": VERSIONS},
)  # fmt: skip


def _panels(
    factor: Int8Factor, sign: OperandSign, layout: Layout, width: int, rows: bool
) -> BytesPanels | None:
    """Return the packing of a constant factor, whose sizes are all known."""
    packed = layout.a_packed if rows else layout.b_packed
    if not packed or factor.parts is None:
        return None

    batch, own, taps, k = (known_parts(part) for part in factor.parts.all)
    unsigned = layout.a_unsigned == rows
    start, by = known_number(factor.start), (layout.b if rows else layout.a).factor
    depth = layout.depth
    spare = depth - 1 if rows else 0  # padding rows, so that tiles read full rows
    return BytesPanels(
        width, batch, own, taps, k, start, sign.flipped, unsigned, by, depth, spare,
        layout.word.element.bytes, layout.parts,
    )  # fmt: skip


def _reason(form: Int8Form, layout: Layout) -> str:
    epilogue = "no epilogue" if all(o.is_product for o in form.outputs) else "its epilogue fused"
    packed = [name for name, is_packed in
              (("rows", layout.a_packed), ("columns", layout.b_packed)) if is_packed]  # fmt: skip
    where = f"constant {packed[0]} packed at load time" if packed else "both factors packed on use"
    product = "an int8 product with int32 sums"
    if form.word.split:
        product = f"a product of factors in {layout.parts} parts of bfloat16 with float32 sums"
    elif form.word.is_pair:
        product = "a product of factors rounded to bfloat16 with float32 sums"
    return f"{product}, {epilogue}; {where}"

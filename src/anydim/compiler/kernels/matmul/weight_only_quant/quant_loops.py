"""The loops around the library of weight-only quantised products.

for each position of the outer loops, each panel of columns
    for each tile of a few rows
        rows of A, prepared for the library       unless the previous panel had the same
        the sums of the tile, over the whole of k
        the epilogue

For many rows, weights are decoded to floats once for several tiles:

for each block of tiles
    for each position of the outer loops, each panel of columns
        rows of A                                 unless the previous panel had the same
        for each part of k
            a part of the panel as floats
            for each tile of the block
                the sums of the tile over the part
        for each tile of the block
            the epilogue

Rows of bytes are prepared in such blocks as well, and multiplied by the weights as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anydim.base.dtypes import float32, int8
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import index_sum, quotient, quotient_up, split_index
from anydim.compiler.kernels.codegen.scalar_lowering import SizeParameters
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import (
    START,
    STOP,
    constant,
    greatest,
    least,
    register,
    select,
    variable,
)
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.epilogue import read_by
from anydim.compiler.kernels.matmul.matmul_kernel import ProductKernel, call, roles_of
from anydim.compiler.kernels.matmul.register_tile import LINE
from anydim.compiler.kernels.matmul.weight_only_quant.byte_rows import (
    WORD,
    byte_libraries,
    prepare_bytes,
)
from anydim.compiler.kernels.matmul.weight_only_quant.quant_form import FIELDS, QuantForm
from anydim.compiler.kernels.matmul.weight_only_quant.quant_micro_kernels import (
    QuantTile,
    decode_name,
    name_of,
    narrow_libraries,
)
from anydim.compiler.kernels.matmul.weight_only_quant.quant_rows import prepare_function
from anydim.lang.tree import Group
from anydim.sizes import Size, as_size, maximum, minimum, product

# Weights then become floats once for up to 96 rows: 1.6 -> 1.1 of the time of float32.
_MANY = 3  # minimum tiles of rows for which weights are decoded first
_WORTH = 60_000  # bytes of weights that pay for another thread: about 2 us
_TILES = 16  # maximum tiles that share them: their sums are in the first-level cache


@dataclass(frozen=True)
class Offsets:
    """Byte offsets in scratch: sums of rows by block, sums of tiles, decoded weights, rows of A."""

    sums: int
    tiles: int
    weights: int
    a: int


class QuantWriter(ProductKernel):
    """The kernel of a weight-only quantised product: w, and its scales s, are packed."""

    name = "weight_only_quant"
    packed = {"w": int8, "s": float32}

    def __init__(self, group: Group, form: QuantForm, tile: QuantTile, machine: Machine) -> None:
        plain = form.product
        super().__init__(group, plain.outputs, float32, tile.lanes, SizeParameters())
        self.form, self.tile, self.machine, self.code = form, tile, machine, Writer()
        self.libraries = byte_libraries(tile) if form.has_bytes else narrow_libraries(tile)
        self.block = form.block if form.groups > 1 else -(-form.depth // FIELDS) * FIELDS
        self.padded = form.groups * self.block  # elements of a row of A
        self.element = int8.bytes if form.has_bytes else float32.bytes
        self.panels = -(-form.columns // tile.width)
        self.panel_bytes = self.padded * tile.width * tile.bits // 8
        self.grain = max(1, _WORTH // self.panel_bytes)
        factors = ((plain.a, "a"), (plain.b, "w"), (form.scales, "s"))
        results = [output.tensor for output in plain.outputs]
        self.roles, self.buffers = roles_of(factors, self.packed, read_by(plain.outputs), results)

    @property
    def parallel(self) -> Size:
        """Panels, at each position of the loops."""
        return self.form.product.around * self.panels

    @property
    def moved(self) -> Size:
        """Bytes of weights and scales as packed, of other tensors as stored."""
        weights = self.panel_bytes * self.panels
        scales = self.form.groups * self.form.columns * float32.bytes
        kept = {self.form.scales, self.form.product.b}
        rest = (t for t in (*self.group.inputs, *self.group.outputs) if t.name not in kept)
        sizes = (product(t.type.shape) * t.type.dtype.bytes for t in rest)
        return sum(sizes, as_size(weights + scales))

    @property
    def part(self) -> int:
        """Blocks of k that `decode` converts to floats at once; 0 if they exceed the caches.

        They fill the first-level cache: from the second one, three tiles take a fifth longer.
        """
        block = self.block * self.tile.width * float32.bytes
        blocks = min(self.form.groups, max(1, self.machine.l1_bytes * 3 // 4 // block))
        fits = blocks * block <= self.machine.l2_bytes // 2
        return blocks if fits and not self.form.has_bytes else 0

    @property
    def has_blocks(self) -> bool:
        """Whether tiles of rows share what is prepared for them."""
        return bool(self.part) or self.form.has_bytes

    @property
    def offsets(self) -> Offsets:
        """Byte offsets of the parts of scratch."""
        rows = self.tile.heights[-1] * (_TILES if self.has_blocks else 1)
        made = -(-rows * self.form.groups * float32.bytes // LINE) * LINE
        weights = made + rows * self.tile.width * float32.bytes
        a = weights + self.part * self.block * self.tile.width * float32.bytes
        return Offsets(0, made, weights, a)

    @property
    def scratch(self) -> Size:
        """Bytes of scratch memory."""
        height = self.tile.heights[-1]
        rows = as_size(height)
        if self.has_blocks:
            rows = minimum(maximum(self.form.product.m.extent, height), height * _TILES)
        return rows * (self.padded * self.element) + self.offsets.a

    # ---- functions -----------------------------------------------------------------------------

    def functions(self) -> tuple[ir.Function, ...]:
        """Return the epilogue, the function that prepares rows, and main."""
        self.epilogue = self.make_epilogue(self.form.product, self.machine)
        if self.form.has_bytes:
            self.prepare = prepare_bytes(self.form, self.block, self.tile.lanes)
        else:
            self.prepare = prepare_function(
                self.tile, self.form.groups, self.form.depth, self.block
            )
        self._body()
        return (self.epilogue, self.prepare, self.main(self.code.written))

    def _body(self) -> None:
        code, rows = self.code, self.sizes.value(self.form.product.m.extent)
        code.emit(ir.Declare("ready", constant(-1)))
        self.tiles = code.let(quotient_up(rows, self.tile.heights[-1]))
        self.even = code.let(quotient(rows, greatest(self.tiles, 1)))
        self.taller = code.let(rows - self.even * self.tiles)
        if self.form.has_bytes:
            self._of_bytes()
            return
        if not self.part:
            self._few()
            return
        # From 13 rows on, decoding once per panel takes 1.1 of float32's time, per tile 1.6.
        with code.when(constant(_MANY) <= self.tiles):
            self._many()
        with code.otherwise():
            self._few()

    @contextmanager
    def _units(self) -> Iterator[ir.Value]:
        """Loop over panels, at each position of the outer loops.

        Yields the number of the position, which shares rows of A.
        """
        code, value, form = self.code, self.sizes.value, self.form.product
        with code.range(START, STOP) as unit:
            loops = ((walk.name, value(walk.extent)) for walk in reversed(form.loops))
            assert isinstance(unit, ir.Var)
            code.take(split_index(unit.name, ("panel", constant(self.panels)), *loops))
            a_at = [variable(walk.name) * value(walk.a) for walk in form.loops]
            c_at = [variable(walk.name) * value(walk.c) for walk in form.loops]
            column0 = code.let(variable("panel") * self.tile.width, "column0")
            code.let(least(self.form.columns - column0, self.tile.width), "columns")
            self.a_at = code.let(index_sum(value(form.a_start), *a_at))
            self.c_at = code.let(index_sum(column0, *c_at))
            yield variable("rest0")

    def _rows_of(self, tile: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return the first row of a tile, and its row count."""
        more = select(tile < self.taller, 1, constant(0))
        row0 = self.code.let(self._first_row(tile), "row0")
        return row0, self.code.let(self.even + more, "rows")

    def _first_row(self, tile: ir.Value) -> ir.Value:
        return tile * self.even + least(tile, self.taller)

    def _prepare_rows(self, requested: ir.Value, row: ir.Value, **counts: ir.Value) -> None:
        """Prepare the rows from `row` on (counts in `counts`), unless they are ready."""
        code, value, form = self.code, self.sizes.value, self.form.product
        requested = code.let(requested)
        with code.when(register("ready").differs(requested)):
            a = ir.Address("a", self.a_at + row * value(form.m.a))
            to, sums = (
                ir.Address("scratch", constant(at)) for at in (self.offsets.a, self.offsets.sums)
            )
            steps = {"row": value(form.m.a)}
            if not self.form.has_bytes:
                steps["k_step"] = value(form.k.a)
            code.emit(call(self.prepare, a=a, to=to, sums=sums, **steps, **counts))
            code.emit(ir.Assign("ready", requested))

    def _sums(
        self, rows: ir.Value, wide: bool, weights: ir.Address, first: ir.Value, groups: ir.Value,
        row: ir.Value, to: ir.Value,
    ) -> None:  # fmt: skip
        """Emit sums over blocks of k, of `rows` of the prepared rows from `row` on."""
        a = (row * self.padded + first * self.block) * self.element
        sums = (row * self.form.groups + first) * float32.bytes
        scales = variable("panel") * self.form.groups + first
        counts = self.block, self.padded, self.form.groups
        if self.form.has_bytes:
            counts = self.block // FIELDS, self.padded // WORD, self.form.groups
        arguments = (
            ir.Address("scratch", a + self.offsets.a), ir.Address("scratch", sums), weights,
            ir.Address("s", scales * self.tile.width), ir.Address("scratch", to), groups,
            *map(constant, counts), first,
        )  # fmt: skip
        heights = self.tile.wide if wide else self.tile.heights
        cases = tuple((h, (ir.Call(name_of(self.tile, h, wide), arguments),)) for h in heights)
        self.code.emit(ir.Switch(rows, cases))

    def _weights_at(self, first: ir.Value) -> ir.Address:
        """Return the address of the panel's weights from a block of k on."""
        blocks = variable("panel") * self.form.groups + first
        return ir.Address("w", blocks * (self.block * self.tile.width * self.tile.bits // 8))

    @contextmanager
    def _blocks(self) -> Iterator[tuple[ir.Value, ir.Value, ir.Value]]:
        """Loop over blocks of tiles: the first tile, the first of the next block, the first row."""
        code, tiles = self.code, self.tiles
        with code.range(0, tiles, _TILES) as first_tile:
            last_tile = code.let(least(tiles, first_tile + _TILES))
            first_row = code.let(self._first_row(first_tile))
            yield first_tile, last_tile, first_row

    @contextmanager
    def _block_units(self, last_tile: ir.Value, first_row: ir.Value) -> Iterator[None]:
        """Loop over panels as `_units` does, with the rows of a block prepared."""
        count = self._first_row(last_tile) - first_row
        self.code.emit(ir.Assign("ready", constant(-1)))
        with self._units() as block:
            self._prepare_rows(block, first_row, rows=count, height=count)
            yield

    def _of_bytes(self) -> None:
        """Compute blocks of tiles that share prepared rows."""
        zero, to = constant(0), constant(self.offsets.tiles)
        every = constant(self.form.groups)
        with (
            self._blocks() as (first_tile, last_tile, first_row),
            self._block_units(last_tile, first_row),
            self.code.range(first_tile, last_tile) as tile,
        ):
            row0, rows = self._rows_of(tile)
            self._sums(rows, False, self._weights_at(zero), zero, every, row0 - first_row, to)
            self._epilogue(to)

    def _many(self) -> None:
        """Compute blocks of tiles that share decoded weights."""
        code, made_at = self.code, self.offsets.tiles
        weights = ir.Address("scratch", constant(self.offsets.weights))

        def row_offset(row: ir.Value) -> ir.Value:
            return row * (self.tile.width * float32.bytes) + made_at

        with (
            self._blocks() as (first_tile, last_tile, first_row),
            self._block_units(last_tile, first_row),
        ):
            with code.range(0, self.form.groups, self.part) as first:
                groups = code.let(least(self.form.groups - first, self.part))
                decoded = (self._weights_at(first), weights, groups * self.block)
                code.emit(ir.Call(decode_name(self.tile), decoded))
                with code.range(first_tile, last_tile) as tile:
                    row0, rows = self._rows_of(tile)
                    row = row0 - first_row
                    self._sums(rows, True, weights, first, groups, row, row_offset(row))
            with code.range(first_tile, last_tile) as tile:
                row0, _ = self._rows_of(tile)
                self._epilogue(row_offset(row0 - first_row))

    def _few(self) -> None:
        """Compute all tiles of a few rows, panel by panel."""
        code, heights = self.code, self.tile.heights
        zero, to = constant(0), constant(self.offsets.tiles)
        with self._units() as block, code.range(0, self.tiles) as tile:
            row0, rows = self._rows_of(tile)
            height: ir.Value = constant(heights[-1])
            for each in reversed(heights[:-1]):
                height = select(rows <= each, each, height)
            height = code.let(height, "height")
            self._prepare_rows(block * self.tiles + tile, row0)
            every = constant(self.form.groups)
            self._sums(height, False, self._weights_at(zero), zero, every, zero, to)
            self._epilogue(to)

    def _epilogue(self, made_at: ir.Value) -> None:
        row = self.sizes.value(self.form.product.m.c)
        out_at = self.c_at + variable("row0") * row
        sums, sums_row = ir.Address("scratch", made_at), constant(self.tile.width)
        self.code.emit(
            call(self.epilogue, sums=sums, out_at=out_at, out_row=row, sums_row=sums_row)
        )

"""The loops around the library of products with narrow weights.

for each position of the outer loops, each panel of columns
    for each tile of a few rows
        rows of A, as the library takes them      unless the panel before had the same
        the sums of the tile, over the whole of k
        what follows them

Many rows have weights made floats once for some tiles:

for each block of tiles
    for each position of the outer loops, each panel of columns
        rows of A                                 unless the panel before had the same
        for each part of k
            a part of the panel as floats
            for each tile of the block
                the sums of the tile over the part
        for each tile of the block
            what follows them
"""

from __future__ import annotations

from anydim.base.dtypes import float32, int8
from anydim.kernels import ir
from anydim.kernels.launch import Machine
from anydim.kernels.product.blocked import roles_of
from anydim.kernels.product.epilogue import read_by
from anydim.kernels.product.kernel import call, finish_of, main_function, pointers_of
from anydim.kernels.product.micro import LINE
from anydim.kernels.product.narrow.form import FIELDS, NarrowForm
from anydim.kernels.product.narrow.library import NarrowTile, decode_name, name_of
from anydim.kernels.product.narrow.rows import prepare_function
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    either,
    greatest,
    least,
    loop,
    minus,
    plus,
    quotient,
    quotient_up,
    register,
    split_index,
    times,
    variable,
)
from anydim.kernels.write.elements import SizeParameters
from anydim.lang.tree import Group
from anydim.sizes import Size, as_size, maximum, minimum, product

_MANY = 3  # tiles of rows that have weights made floats first
_PACKED = {"w": int8, "s": float32}  # the operands of weights and scales
_TILES = 16  # that share them: their sums are in the first cache


class NarrowWriter:
    """Writes the functions of one kernel, and collects the sizes that it needs."""

    def __init__(self, group: Group, form: NarrowForm, tile: NarrowTile, machine: Machine) -> None:
        self.group, self.form, self.tile, self.machine = group, form, tile, machine
        self.sizes = SizeParameters()
        self.block = form.block if form.groups > 1 else -(-form.depth // FIELDS) * FIELDS
        self.padded = form.groups * self.block  # elements of a row of A
        self.panels = -(-form.columns // tile.width)
        plain = form.product
        factors = ((plain.a, "a"), (plain.b, "w"), (form.scales, "s"))
        results = [output.tensor for output in plain.outputs]
        self.roles, self.buffers = roles_of(factors, _PACKED, read_by(plain.outputs), results)

    @property
    def operands(self) -> tuple[ir.Operand, ...]:
        written = {output.tensor for output in self.form.product.outputs}
        return tuple(
            ir.Operand(role, _PACKED.get(role, self.group.type_of(tensor).dtype), tensor in written)
            for tensor, role in self.roles
        )

    @property
    def units(self) -> Size:
        """Pieces of work: panels, at each position of the loops."""
        return product(walk.extent for walk in self.form.product.loops) * self.panels

    @property
    def part(self) -> int:
        """Blocks of k whose weights `decode` makes floats at once; 0: they fill the caches.

        As many as the first cache holds: from the second one, three tiles take a fifth longer.
        """
        block = self.block * self.tile.width * float32.bytes
        blocks = min(self.form.groups, max(1, self.machine.l1_bytes * 3 // 4 // block))
        return blocks if blocks * block <= self.machine.l2_bytes // 2 else 0

    @property
    def offsets(self) -> tuple[int, int, int, int]:
        """Where in scratch the sums of rows over blocks are, those of tiles, decoded weights, and
        rows of A; all bytes."""
        rows = self.tile.heights[-1] * (_TILES if self.part else 1)
        made = -(-rows * self.form.groups * float32.bytes // LINE) * LINE
        weights = made + rows * self.tile.width * float32.bytes
        a = weights + self.part * self.block * self.tile.width * float32.bytes
        return 0, made, weights, a

    @property
    def scratch(self) -> Size:
        """Bytes of scratch."""
        height = self.tile.heights[-1]
        rows = as_size(height)
        if self.part:
            rows = minimum(maximum(self.form.product.m.extent, height), height * _TILES)
        return rows * (self.padded * float32.bytes) + self.offsets[-1]

    # ---- functions -----------------------------------------------------------------------------

    def functions(self) -> tuple[ir.Function, ...]:
        """What follows the sums, what brings rows into place, and main."""
        pointers, form = pointers_of(self.operands), self.form.product
        self.finish = finish_of(
            self.group, form.outputs, float32, self.tile.lanes, (walk.name for walk in form.loops),
            self.sizes, self.machine, self.buffers, pointers,
        )  # fmt: skip
        self.prepare = prepare_function(self.tile, self.form, self.block)
        body = self._body()
        main = main_function("product", pointers, self.sizes.names, body)
        return (self.finish, self.prepare, main)

    def _body(self) -> tuple[ir.Step, ...]:
        value, form = self.sizes.value, self.form.product
        rows = value(form.m.extent)
        unit = split_index(
            "unit", ("panel", constant(self.panels)),
            *((walk.name, value(walk.extent)) for walk in reversed(form.loops)),
        )  # fmt: skip
        a_at = [times(variable(w.name), value(w.a)) for w in form.loops]
        c_at = [times(variable(w.name), value(w.c)) for w in form.loops]
        left = minus(constant(self.form.columns), variable("column0"))
        unit += [
            ir.Let("block", variable("rest0")),  # what shares rows of A
            ir.Let("column0", times(variable("panel"), self.tile.width)),
            ir.Let("columns", least(left, self.tile.width)),
            ir.Let("a_at", plus(value(form.a_start), *a_at)),
            ir.Let("c_at", plus(variable("column0"), *c_at)),
        ]
        few = loop(
            "unit", variable("start"), variable("stop"), 1,
            *unit,
            loop("tile", 0, variable("tiles"), 1, *self._tile()),
        )  # fmt: skip
        many = compare("less_equal", constant(_MANY), variable("tiles"))
        return (
            ir.Declare("ready", constant(-1)),
            ir.Let("tiles", quotient_up(rows, self.tile.heights[-1])),
            ir.Let("even", quotient(rows, greatest(variable("tiles"), 1))),
            ir.Let("taller", minus(rows, times(variable("even"), variable("tiles")))),
            ir.If(many, (self._many(unit),), (few,)) if self.part else few,
        )

    def _rows_of(self, tile: ir.Value) -> list[ir.Step]:
        """The first row of a tile, and how many it has."""
        taller = compare("less", tile, variable("taller"))
        return [
            ir.Let("row0", self._first_row(tile)),
            ir.Let("rows", plus(variable("even"), either(taller, constant(1), constant(0)))),
        ]

    def _first_row(self, tile: ir.Value) -> ir.Value:
        return plus(times(tile, variable("even")), least(tile, variable("taller")))

    def _prepared(self, wanted: ir.Value, row: ir.Value, **counts: ir.Value) -> list[ir.Step]:
        """Rows from one on brought into place, as many as `counts` say, unless they are there."""
        value, form = self.sizes.value, self.form.product
        a = ir.Address("a", plus(variable("a_at"), times(row, value(form.m.a))))
        to = ir.Address("scratch", constant(self.offsets[-1]))
        sums = ir.Address("scratch", constant(0))
        steps = {"row": value(form.m.a), "k_step": value(form.k.a)}
        prepared = call(self.prepare, a=a, to=to, sums=sums, **steps, **counts)
        return [
            ir.Let("wanted", wanted),
            ir.If(
                compare("not_equal", register("ready"), variable("wanted")),
                (prepared, ir.Assign("ready", variable("wanted"))),
            ),
        ]

    def _arguments(
        self, weights: ir.Address, first: ir.Value, groups: ir.Value, row: ir.Value, to: ir.Value
    ) -> tuple[ir.Value | ir.Address, ...]:
        """What sums over blocks of k take, of the rows in place from `row` on."""
        a = times(plus(times(row, self.padded), times(first, self.block)), float32.bytes)
        sums = times(plus(times(row, self.form.groups), first), float32.bytes)
        scales = plus(times(variable("panel"), self.form.groups), first)
        return (
            ir.Address("scratch", plus(a, self.offsets[-1])),
            ir.Address("scratch", sums),
            weights,
            ir.Address("s", times(scales, self.tile.width)),
            ir.Address("scratch", to),
            groups,
            constant(self.block),
            constant(self.padded),
            constant(self.form.groups),
            first,
        )

    def _weights_at(self, first: ir.Value) -> ir.Address:
        """Where the weights of the panel are from a block of k on."""
        blocks = plus(times(variable("panel"), self.form.groups), first)
        return ir.Address("w", times(blocks, self.block * self.tile.width * self.tile.bits // 8))

    def _many(self, unit: list[ir.Step]) -> ir.Step:
        """Blocks of tiles that share weights made floats."""
        _, made_at, weights_at, _ = self.offsets
        first, groups, width = variable("part"), variable("groups"), self.tile.width
        row = minus(variable("row0"), variable("first_row"))
        to = plus(times(row, width * float32.bytes), made_at)
        weights = ir.Address("scratch", constant(weights_at))
        arguments = self._arguments(weights, first, groups, row, to)
        cases = tuple(
            (h, (ir.Call(name_of(self.tile, h, True), arguments),)) for h in self.tile.wide
        )
        depth = times(groups, self.block)
        tiles = "tile", variable("first_tile"), variable("last_tile"), 1
        count = minus(self._first_row(variable("last_tile")), variable("first_row"))
        return loop(
            "first_tile", 0, variable("tiles"), _TILES,
            ir.Let("last_tile", least(variable("tiles"), plus(variable("first_tile"), _TILES))),
            ir.Let("first_row", self._first_row(variable("first_tile"))),
            ir.Assign("ready", constant(-1)),
            loop(
                "unit", variable("start"), variable("stop"), 1,
                *unit,
                *self._prepared(variable("block"), variable("first_row"), rows=count, height=count),
                loop(
                    "part", 0, self.form.groups, self.part,
                    ir.Let("groups", least(minus(constant(self.form.groups), first), self.part)),
                    ir.Call(decode_name(self.tile), (self._weights_at(first), weights, depth)),
                    loop(
                        *tiles,
                        *self._rows_of(variable("tile")),
                        ir.Switch(variable("rows"), cases),
                    ),
                ),
                loop(
                    *tiles,
                    *self._rows_of(variable("tile")),
                    self._finish_call(to),
                ),
            ),
        )  # fmt: skip

    def _tile(self) -> list[ir.Step]:
        """A few rows of one panel."""
        zero, to = constant(0), constant(self.offsets[1])
        number = plus(times(variable("block"), variable("tiles")), variable("tile"))
        heights = self.tile.heights
        height: ir.Value = constant(heights[-1])
        for each in reversed(heights[:-1]):
            height = either(compare("less_equal", variable("rows"), each), constant(each), height)
        every = constant(self.form.groups)
        arguments = self._arguments(self._weights_at(zero), zero, every, zero, to)
        cases = tuple((h, (ir.Call(name_of(self.tile, h), arguments),)) for h in heights)
        return [
            *self._rows_of(variable("tile")),
            ir.Let("height", height),
            *self._prepared(number, variable("row0")),
            ir.Switch(variable("height"), cases),
            self._finish_call(to),
        ]

    def _finish_call(self, made_at: ir.Value) -> ir.Call:
        row = self.sizes.value(self.form.product.m.c)
        out_at = plus(variable("c_at"), times(variable("row0"), row))
        return call(
            self.finish, sums=ir.Address("scratch", made_at), out_at=out_at, out_row=row,
            sums_row=constant(self.tile.width),
        )  # fmt: skip

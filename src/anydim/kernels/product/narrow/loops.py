"""The loops around the library of products with narrow weights.

for each position of the outer loops, each panel of columns
    for each tile of a few rows
        rows of A, as the library takes them      unless the panel before had the same
        the sums of the tile, over the whole of k
        what follows them

Many rows have weights made floats once for some tiles:

    for each block of tiles
        for each part of k
            a part of the panel as floats
            for each tile of the block
                rows of A, the sums of the tile over the part
        for each tile of the block
            what follows them
"""

from __future__ import annotations

from anydim.base.dtypes import float32, int8, uint8
from anydim.kernels import ir
from anydim.kernels.launch import Machine
from anydim.kernels.product.epilogue import PRODUCT
from anydim.kernels.product.finish import FINISH_SCALARS, finish_function
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
from anydim.kernels.write.elements import Context, SizeParameters
from anydim.lang.tree import Group, TensorType
from anydim.lang.tree.affine import reads
from anydim.sizes import Size, product

_MANY = 3  # tiles of rows that have weights made floats first
_TILES = 16  # that share them: their sums are in the first cache
_PART = 1024  # of k that is made floats at once: of a panel 256 KB, which the second cache holds


class NarrowWriter:
    """Writes the functions of one kernel, and collects the sizes that it needs."""

    def __init__(self, group: Group, form: NarrowForm, tile: NarrowTile, machine: Machine) -> None:
        self.group, self.form, self.tile, self.machine = group, form, tile, machine
        self.sizes = SizeParameters()
        self.block = form.block if form.groups > 1 else -(-form.depth // FIELDS) * FIELDS
        self.padded = form.groups * self.block  # elements of a row of A
        self.panels = -(-form.columns // tile.width)
        self.roles = self._roles()
        self.buffers = {tensor: role for tensor, role in self.roles if role not in ("w", "s")}

    def _roles(self) -> tuple[tuple[str, str], ...]:
        """(tensor, operand) of all operands."""
        form = self.form.product
        roles = {form.a: "a", form.b: "w", self.form.scales: "s"}
        for output in form.outputs:
            for read in reads(output.value):
                if read.tensor != PRODUCT:
                    roles.setdefault(read.tensor, f"r{len(roles)}")
        for output in form.outputs:
            roles[output.tensor] = f"y{len(roles)}"
        return tuple(roles.items())

    @property
    def operands(self) -> tuple[ir.Operand, ...]:
        written = {output.tensor for output in self.form.product.outputs}
        types = {"w": int8, "s": float32}
        return tuple(
            ir.Operand(role, types.get(role, self.group.type_of(tensor).dtype), tensor in written)
            for tensor, role in self.roles
        )

    @property
    def units(self) -> Size:
        """Pieces of work: panels, at each position of the loops."""
        return product(walk.extent for walk in self.form.product.loops) * self.panels

    @property
    def part(self) -> int:
        """Blocks of k whose weights `decode` makes floats at once; 0: too many for the cache."""
        blocks = min(self.form.groups, max(1, _PART // self.block))
        small = blocks * self.block * self.tile.width * float32.bytes <= self.machine.l2_bytes // 2
        return blocks if small else 0

    @property
    def offsets(self) -> tuple[int, int, int, int]:
        """Where in scratch the sums of rows over blocks are, those of tiles, and decoded weights;
        all bytes."""
        rows = self.tile.heights[-1]
        sums = -(-rows * self.padded * float32.bytes // LINE) * LINE
        made = sums + -(-rows * self.form.groups * float32.bytes // LINE) * LINE
        tiles = _TILES if self.part else 1
        weights = made + tiles * rows * self.tile.width * float32.bytes
        whole = weights + self.part * self.block * self.tile.width * float32.bytes
        return sums, made, weights, whole

    # ---- functions -----------------------------------------------------------------------------

    def functions(self) -> tuple[ir.Function, ...]:
        """What follows the sums, what brings rows into place, and main."""
        pointers = tuple(ir.Pointer(o.name, o.dtype, alias=o.written) for o in self.operands)
        types = {t.name: t.type for t in (*self.group.inputs, *self.group.outputs)}
        types[PRODUCT] = TensorType(float32, ())
        context = Context(types, self.sizes, self.machine, self.buffers)
        form = self.form.product
        loops = tuple(walk.name for walk in form.loops)
        finish = finish_function(form.outputs, float32, self.tile.lanes, loops, context, pointers)
        finish_sizes = self.sizes.names
        body = self._body(finish_sizes)
        scalars = (*self.sizes.names, "start", "stop")
        main = ir.Function(
            "product", (*pointers, *map(ir.Scalar, scalars), ir.Pointer("scratch", uint8)), body
        )
        return (finish, prepare_function(self.tile, self.form, self.block), main)

    def _body(self, finish_sizes: tuple[str, ...]) -> tuple[ir.Step, ...]:
        value, form = self.sizes.value, self.form.product
        rows = value(form.m.extent)
        unit = split_index(
            "unit", ("panel", constant(self.panels)),
            *((walk.name, value(walk.extent)) for walk in reversed(form.loops)),
        )  # fmt: skip
        a_at = [times(variable(w.name), value(w.a)) for w in form.loops]
        c_at = [times(variable(w.name), value(w.c)) for w in form.loops]
        left = minus(constant(self.form.columns), variable("column0"))
        return (
            ir.Declare("ready", constant(-1)),
            ir.Let("tiles", quotient_up(rows, self.tile.heights[-1])),
            ir.Let("even", quotient(rows, greatest(variable("tiles"), 1))),
            ir.Let("taller", minus(rows, times(variable("even"), variable("tiles")))),
            loop(
                "unit", variable("start"), variable("stop"), 1,
                *unit,
                ir.Let("block", variable("rest0")),  # what shares rows of A
                ir.Let("column0", times(variable("panel"), self.tile.width)),
                ir.Let("columns", least(left, self.tile.width)),
                ir.Let("a_at", plus(value(form.a_start), *a_at)),
                ir.Let("c_at", plus(variable("column0"), *c_at)),
                *self._all_tiles(finish_sizes),
            ),
        )  # fmt: skip

    def _all_tiles(self, finish_sizes: tuple[str, ...]) -> list[ir.Step]:
        """All rows of a panel."""
        few = loop("tile", 0, variable("tiles"), 1, *self._tile(finish_sizes))
        if not self.part:
            return [few]
        many = compare("less_equal", constant(_MANY), variable("tiles"))
        return [ir.If(many, (self._many(finish_sizes),), (few,))]

    def _rows_of(self, tile: ir.Value) -> list[ir.Step]:
        """The first row of a tile, and how many it has."""
        taller = compare("less", tile, variable("taller"))
        first = plus(times(tile, variable("even")), least(tile, variable("taller")))
        return [
            ir.Let("row0", first),
            ir.Let("rows", plus(variable("even"), either(taller, constant(1), constant(0)))),
        ]

    def _prepared(self, height: ir.Value, first: ir.Value, groups: ir.Value) -> ir.Call:
        """Rows of a tile brought into place, from block `first` of k on."""
        value, form = self.sizes.value, self.form.product
        row = plus(variable("a_at"), times(variable("row0"), value(form.m.a)))
        return ir.Call(
            "prepare",
            (
                ir.Address("a", row),
                ir.Address("scratch", constant(0)),
                ir.Address("scratch", constant(self.offsets[0])),
                value(form.m.a),
                value(form.k.a),
                variable("rows"),
                height,
                first,
                groups,
            ),
        )

    @property
    def _panel(self) -> ir.Value:
        """Where the panel begins among the weights, in bytes."""
        return times(variable("panel"), self.padded * self.tile.width * self.tile.bits // 8)

    def _sums(self, first: ir.Value, groups: ir.Value) -> list[ir.Value | ir.Address]:
        """What sums over some blocks of k take beside the weights: rows, their sums; scales."""
        scales = times(plus(times(variable("panel"), self.form.groups), first), self.tile.width)
        return [
            ir.Address("scratch", constant(0)),
            ir.Address("scratch", constant(self.offsets[0])),
            ir.Address("s", scales),
            groups,
        ]

    def _many(self, finish_sizes: tuple[str, ...]) -> ir.Step:
        """Blocks of tiles that share weights made floats."""
        _, made_at, weights_at, _ = self.offsets
        first, groups = variable("part"), variable("groups")
        place = minus(variable("tile"), variable("tile0"))
        to = plus(times(place, self.tile.heights[-1] * self.tile.width * float32.bytes), made_at)
        a, sums, scales, count = self._sums(first, groups)
        depth = times(groups, self.block)
        weights = ir.Address("scratch", constant(weights_at))
        arguments = (
            a, sums, weights, scales, ir.Address("scratch", to), count, constant(self.block),
            depth, first,
        )  # fmt: skip
        cases = tuple(
            (h, (ir.Call(name_of(self.tile, h, True), arguments),)) for h in self.tile.wide
        )
        packed = times(first, self.block * self.tile.width * self.tile.bits // 8)
        return loop(
            "tile0", 0, variable("tiles"), _TILES,
            ir.Let("tile1", least(variable("tiles"), plus(variable("tile0"), _TILES))),
            loop(
                "part", 0, self.form.groups, self.part,
                ir.Let("groups", least(minus(constant(self.form.groups), first), self.part)),
                ir.Call(
                    decode_name(self.tile),
                    (ir.Address("w", plus(self._panel, packed)), weights, depth),
                ),
                loop(
                    "tile", variable("tile0"), variable("tile1"), 1,
                    *self._rows_of(variable("tile")),
                    self._prepared(variable("rows"), first, groups),
                    ir.Switch(variable("rows"), cases),
                ),
            ),
            loop(
                "tile", variable("tile0"), variable("tile1"), 1,
                *self._rows_of(variable("tile")),
                self._finish_call(finish_sizes, to),
            ),
        )  # fmt: skip

    def _tile(self, finish_sizes: tuple[str, ...]) -> list[ir.Step]:
        """A few rows of one panel."""
        made_at = constant(self.offsets[1])
        number_ = plus(times(variable("block"), variable("tiles")), variable("tile"))
        heights = self.tile.heights
        height: ir.Value = constant(heights[-1])
        for each in reversed(heights[:-1]):
            height = either(compare("less_equal", variable("rows"), each), constant(each), height)
        every = constant(self.form.groups)
        prepared = self._prepared(variable("height"), constant(0), every)
        a, sums, scales, count = self._sums(constant(0), every)
        arguments = (
            a, sums, ir.Address("w", self._panel), scales, ir.Address("scratch", made_at), count,
            constant(self.block), constant(self.padded), constant(0),
        )  # fmt: skip
        cases = tuple((h, (ir.Call(name_of(self.tile, h), arguments),)) for h in heights)
        return [
            *self._rows_of(variable("tile")),
            ir.Let("height", height),
            ir.Let("wanted", number_),
            ir.If(
                compare("not_equal", register("ready"), variable("wanted")),
                (prepared, ir.Assign("ready", variable("wanted"))),
            ),
            ir.Switch(variable("height"), cases),
            self._finish_call(finish_sizes, made_at),
        ]

    def _finish_call(self, finish_sizes: tuple[str, ...], made_at: ir.Value) -> ir.Call:
        form = self.form.product
        row = self.sizes.value(form.m.c)
        scalars = {
            "sums_row": constant(self.tile.width),
            "out_at": plus(variable("c_at"), times(variable("row0"), row)),
            "out_row": row,
            "row0": variable("row0"),
            "rows": variable("rows"),
            "column0": variable("column0"),
            "columns": variable("columns"),
        }
        return ir.Call(
            "finish",
            (
                ir.Address("scratch", made_at),
                *(ir.Address(o.name, constant(0)) for o in self.operands),
                *(scalars[name] for name in FINISH_SCALARS),
                *(variable(walk.name) for walk in form.loops),
                *(variable(name) for name in finish_sizes),
            ),
        )

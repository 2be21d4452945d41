"""The loops around the library of products with narrow weights.

for each position of the outer loops, each panel of columns
    for each tile of a few rows
        rows of A, as the library takes them      unless the panel before had the same
        the sums of the tile, over the whole of k
        what follows them
"""

from __future__ import annotations

from anydim.base.dtypes import float32, int8, int32, int64, uint8
from anydim.kernels import ir
from anydim.kernels.launch import Machine
from anydim.kernels.product.epilogue import PRODUCT
from anydim.kernels.product.finish import FINISH_SCALARS, finish_function
from anydim.kernels.product.micro import LINE
from anydim.kernels.product.narrow.form import FIELDS, NarrowForm
from anydim.kernels.product.narrow.library import HIGHEST, NarrowTile, name_of
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    either,
    first_lanes,
    greatest,
    least,
    loop,
    minus,
    minus_one,
    plus,
    quotient,
    quotient_up,
    register,
    split_index,
    times,
    variable,
)
from anydim.kernels.write.elements import Context, SizeParameters
from anydim.kernels.write.values import number, operate
from anydim.lang.tree import Group, TensorType
from anydim.lang.tree.affine import reads
from anydim.sizes import Size, product


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
    def offsets(self) -> tuple[int, int, int]:
        """Where in scratch the sums of rows over blocks are, and those of a tile; all bytes."""
        rows = self.tile.heights[-1]
        sums = -(-rows * self.padded * 4 // LINE) * LINE
        made = sums + -(-rows * self.form.groups * 4 // LINE) * LINE
        return sums, made, made + rows * self.tile.width * 4

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
        return (finish, self._prepare(), main)

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
                loop("tile", 0, variable("tiles"), 1, *self._tile(finish_sizes)),
            ),
        )  # fmt: skip

    def _tile(self, finish_sizes: tuple[str, ...]) -> list[ir.Step]:
        """A few rows of one panel."""
        value, form = self.sizes.value, self.form.product
        sums_at, made_at, _ = self.offsets
        taller = compare("less", variable("tile"), variable("taller"))
        number_ = plus(times(variable("block"), variable("tiles")), variable("tile"))
        heights = self.tile.heights
        height: ir.Value = constant(heights[-1])
        for each in reversed(heights[:-1]):
            height = either(compare("less_equal", variable("rows"), each), constant(each), height)
        row = plus(variable("a_at"), times(variable("row0"), value(form.m.a)))
        prepared = ir.Call(
            "prepare",
            (
                ir.Address("a", row),
                ir.Address("scratch", constant(0)),
                ir.Address("scratch", constant(sums_at)),
                value(form.m.a),
                value(form.k.a),
                variable("rows"),
                variable("height"),
            ),
        )
        panel = self.padded * self.tile.width * self.tile.bits // 8
        scales = self.form.groups * self.tile.width
        arguments: tuple[ir.Value | ir.Address, ...] = (
            ir.Address("scratch", constant(0)),
            ir.Address("scratch", constant(sums_at)),
            ir.Address("w", times(variable("panel"), panel)),
            ir.Address("s", times(variable("panel"), scales)),
            ir.Address("scratch", constant(made_at)),
            constant(self.form.groups),
            constant(self.block),
            constant(self.padded),
        )
        cases = tuple((h, (ir.Call(name_of(self.tile, h), arguments),)) for h in heights)
        even = times(variable("tile"), variable("even"))
        first = plus(even, least(variable("tile"), variable("taller")))
        return [
            ir.Let("row0", first),
            ir.Let("rows", plus(variable("even"), either(taller, constant(1), constant(0)))),
            ir.Let("height", height),
            ir.Let("wanted", number_),
            ir.If(
                compare("not_equal", register("ready"), variable("wanted")),
                (prepared, ir.Assign("ready", variable("wanted"))),
            ),
            ir.Switch(variable("height"), cases),
            self._finish_call(finish_sizes, made_at),
        ]

    def _finish_call(self, finish_sizes: tuple[str, ...], made_at: int) -> ir.Call:
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
                ir.Address("scratch", constant(made_at)),
                *(ir.Address(o.name, constant(0)) for o in self.operands),
                *(scalars[name] for name in FINISH_SCALARS),
                *(variable(walk.name) for walk in form.loops),
                *(variable(name) for name in finish_sizes),
            ),
        )

    # ---- rows of A -----------------------------------------------------------------------------

    def _prepare(self) -> ir.Function:
        """Rows of A side by side, with zeros behind them; the last one stands for more rows.

        For fields of 4 bits divided by what their places count, and their sums over each block.
        """
        lanes, narrow = self.tile.lanes, self.tile.bits == 4
        vector = ir.Type(float32, lanes)
        here = plus(times(variable("group"), self.block), variable("k"))
        left = minus(constant(self.form.depth), variable("at"))
        inside = minus(constant(self.block), variable("k"))
        flags = ir.Type(ir.FLAG.dtype, lanes)
        known = ir.Var(flags, "known")
        neighbours = ir.Load(vector, "a", plus(variable("from"), variable("at")), known)
        wide = ir.Type(int64, lanes)
        steps = operate("mul", ir.Iota(wide), ir.Splat(wide, variable("k_step")))
        start = plus(variable("from"), times(variable("at"), variable("k_step")))
        apart = ir.Gather(vector, "a", operate("add", ir.Splat(wide, start), steps), known)
        total = ir.Get(vector, "total")
        value = ir.Get(vector, "value")
        made = operate("mul", value, ir.Var(vector, "factors")) if narrow else value
        summed: list[ir.Step] = []
        if narrow:
            place = plus(times(variable("i"), self.form.groups), variable("group"))
            summed = [ir.Store("sums", place, ir.Reduce(ir.Type(float32), "add", total))]
        source = least(variable("i"), minus_one(variable("rows")))
        body = loop(
            "i", 0, variable("height"), 1,
            ir.Let("from", times(source, variable("row"))),
            loop(
                "group", 0, self.form.groups, 1,
                ir.Declare("total", number(float32, 0, lanes)),
                loop(
                    "k", 0, self.block, lanes,
                    ir.Let("at", here),
                    ir.Let("count", least(left, inside)),
                    ir.Let("known", first_lanes(variable("count"), lanes)),
                    ir.Let("kept", first_lanes(inside, lanes)),
                    ir.Declare("value", number(float32, 0, lanes)),
                    ir.If(
                        compare("less", constant(0), variable("count")),
                        (
                            ir.If(
                                compare("equal", variable("k_step"), 1),
                                (ir.Assign("value", neighbours),),
                                (ir.Assign("value", apart),),
                            ),
                        ),
                    ),
                    *([ir.Assign("total", operate("add", total, value))] if narrow else []),
                    ir.Store(
                        "to", plus(times(variable("i"), self.padded), variable("at")), made,
                        ir.Var(flags, "kept"),
                    ),
                ),
                *summed,
            ),
        )  # fmt: skip
        return ir.Function(
            "prepare",
            (
                ir.Pointer("a", float32, alias=True),
                ir.Pointer("to", float32, alias=True),
                ir.Pointer("sums", float32, alias=True),
                *map(ir.Scalar, ("row", "k_step", "rows", "height")),
            ),
            (*(self._factors() if narrow else ()), body),
        )

    def _factors(self) -> tuple[ir.Step, ...]:
        """2^(-4 f) for the field f of each lane, by its bits; the last field is moved down."""
        whole = ir.Type(int32, self.tile.lanes)

        def same(each: int) -> ir.Const:
            return number(int32, each, self.tile.lanes)

        field = operate("bit_and", ir.Iota(whole), same(FIELDS - 1))
        field = operate("min", field, same(HIGHEST))
        exponent = operate("sub", same(127), operate("mul", field, same(4)))
        bits = operate("shift_left", exponent, same(23))
        return (ir.Let("factors", ir.Bitcast(ir.Type(float32, self.tile.lanes), bits)),)

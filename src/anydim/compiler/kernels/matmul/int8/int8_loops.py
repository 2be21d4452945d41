"""The loops of an int8 product.

    for each rectangle of a thread's part (`matmul/work_partition.py`), each block of rows
        rows of a -> scratch, unless packed at load time
        for each panel of columns
            the panel of b -> scratch, unless packed at load time
            for each tile of rows: sums of the tile; the epilogue

The rows of a block stay in the second-level cache, the panel in the first or second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anydim.base.dtypes import int32, uint8
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import index_sum, loop, quotient
from anydim.compiler.kernels.codegen.scalar_lowering import Context, SizeParameters
from anydim.compiler.kernels.ir import constant, greatest, least, select, variable
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.blocked_loops import Blocked, Level
from anydim.compiler.kernels.matmul.epilogue import PRODUCT, read_by, read_in_place
from anydim.compiler.kernels.matmul.epilogue_loop import epilogue_function
from anydim.compiler.kernels.matmul.int8.blocking import cut_of, joinable
from anydim.compiler.kernels.matmul.int8.few_rows import MAX_ROWS as FEW
from anydim.compiler.kernels.matmul.int8.few_rows import WIDE, few_rows, supports_few_rows
from anydim.compiler.kernels.matmul.int8.float_parts import PartsPack
from anydim.compiler.kernels.matmul.int8.im2col import ImagePack, image_of
from anydim.compiler.kernels.matmul.int8.int8_form import Int8Factor, Int8Form
from anydim.compiler.kernels.matmul.int8.int8_micro_kernels import (
    bytes_library,
    tile_function,
)
from anydim.compiler.kernels.matmul.int8.int8_packing import BytesPack, zero_padding
from anydim.compiler.kernels.matmul.int8.packed_layout import (
    COLUMN_SUMS,
    ROW_SUMS,
    Layout,
    correct_outputs,
)
from anydim.compiler.kernels.matmul.int8.pair_micro_kernels import (
    MAX_NARROW,
    narrow_function,
    pair_library,
    prefetch_part,
)
from anydim.compiler.kernels.matmul.int8.stride_phases import (
    UNSORTED,
    Phases,
    PhasesPack,
    phases_of,
)
from anydim.compiler.kernels.matmul.int8.word_types import WORD
from anydim.compiler.kernels.matmul.matmul_kernel import call, packed_at, roles_of
from anydim.compiler.kernels.matmul.work_partition import RECTANGLE
from anydim.compiler.kernels.versions import checked_version, taken_where
from anydim.lang.tree import Group, Index, TensorType
from anydim.lang.tree.affine import Affine, reads
from anydim.sizes import ALWAYS, NEVER, Size, as_size, at_least, at_most, ceil_div

_NONE = constant(0)
_NOTHING_AHEAD: dict[str, ir.Value] = {"ahead": _NONE, "step": _NONE}


class Int8Writer(Blocked):
    """The kernel of an int8 product: operands are packed at load time, or evaluated on use."""

    name = "int8"

    def __init__(
        self, group: Group, form: Int8Form, layout: Layout, schedule: Any, machine: Machine
    ) -> None:
        tile, version = schedule.tile, schedule.version
        super().__init__(
            group, correct_outputs(form, layout), form.word.total, tile, SizeParameters()
        )
        self.form, self.layout, self.machine = form, layout, machine
        loop = joinable(form, layout)
        windows = form, layout.b_packed, loop.name if loop else ""
        kind = next(t.type for t in group.inputs if t.name == form.b.read.tensor)
        self.image = phases_of(*windows, kind) or image_of(*windows)
        self.cut = cut_of(form, layout, tile, machine, self.image, version)
        self.partition = self.cut.partition
        depth = layout.depth
        if form.word.is_pair:
            library = pair_library(tile, depth, layout.height, layout.parts)
        else:
            library = bytes_library(tile, layout.a_unsigned, depth)
        self.prefix, self.libraries = library.name, (library,)
        packed = (("a", layout.a_packed), ("b", layout.b_packed))
        self.packed = {role: uint8 for role, is_packed in packed if is_packed}
        self.roles, self.buffers = roles_of(
            ((form.a.read.tensor, "a"), (form.b.read.tensor, "b")), self.packed, self._read(),
            (output.tensor for output in form.outputs),
        )  # fmt: skip
        self.in_place = self._in_place()
        self.joins = loop if self.cut.columns.joined != NEVER else None
        self.few_rows_supported = supports_few_rows(form, layout) and not (
            self.joins or machine.max_lanes
        )
        few = NEVER
        # A run-time matrix is read in order by up to four rows: packing it takes longer than their
        # products (one row 1.85 to 5.4 -> 0.94 to 1.14).
        if self.few_rows_supported:
            limits, most = machine.limits, min(FEW, tile.rows)
            right = at_most(form.m.extent, most)
            pays = at_most(form.m.extent, min(most, limits.few_byte_rows))
            pays &= at_least(form.n.extent, tile.lanes * limits.few_byte_vectors)
            few = taken_where(version, "few_rows", pays, right)
        self.few = few
        panels = at_most(form.n.extent, MAX_NARROW)
        self.narrow = panels if layout.height > 1 else NEVER
        self.versions = checked_version(
            version, (("few_rows", few), ("joined", self.cut.columns.joined), ("panels", ALWAYS))
        )

    @property
    def scratch(self) -> Size:
        return self.cut.scratch

    def _read(self) -> list[str]:
        """Return the tensors that are read in addition to the factors."""
        outside = [f.read.default for f in (self.form.a, self.form.b)]
        found = [read.tensor for expr in outside if expr is not None for read in reads(expr)]
        return [t for t in (*read_by(self.outputs), *found) if t not in (ROW_SUMS, COLUMN_SUMS)]

    def _in_place(self) -> tuple[tuple[str, str], ...]:
        """Return pairs of results and operands that may share memory; see `Launch.in_place`.

        Only the epilogue of the same element may read such an operand.
        """
        form = self.form
        own = Affine.of(as_size(0), {walk.name: walk.c for walk in (*form.loops, form.m, form.n)})
        inside = [e for f in (form.a, form.b) for e in (f.read, f.zero) if e is not None]
        others = {read.tensor for expr in inside for read in reads(expr)}
        return read_in_place(self.outputs, own, self.group, others)

    def _context(self, running: bool = False) -> Context:
        types = {t.name: t.type for t in (*self.group.inputs, *self.group.outputs)}
        types |= {name: TensorType(int32, ()) for name in (ROW_SUMS, COLUMN_SUMS)}
        types[PRODUCT] = TensorType(self.form.word.total, ())
        buffers = {
            **self.buffers,
            ROW_SUMS: "a" if self.layout.a_packed else "scratch",
            COLUMN_SUMS: "b" if self.layout.b_packed else "scratch",
        }
        walks = ((w.name, w.extent) for w in (*self.form.loops, self.form.m, self.form.n))
        axes = (*walks, *self.form.rows, *self.form.columns, *self.form.taps, ("k", self.form.k))
        inside = frozenset((Index(name), extent) for name, extent in axes)
        return Context(types, self.sizes, self.machine, buffers, running, inside=inside)

    # ---- functions -----------------------------------------------------------------------------

    def callees(self) -> tuple[ir.Function, ...]:
        """Return the functions that pack the factors, and the epilogue."""
        lanes, context = self.tile.lanes, self._context()
        made = PartsPack if self.form.word.split else BytesPack
        pack = made(self.form, self.layout, context, self.pointers, lanes)
        self.packing: dict[str, ir.Function] = {}
        if self.layout.a_copied:
            self.packing["rows"] = pack.rows()
        if self.image is not None:
            images = (
                PhasesPack(pack, self.image, self.cut.images)
                if isinstance(self.image, Phases)
                else ImagePack(pack, self.image)
            )
            self.packing |= {"image": images.fill(), "panel": images.panel()}
        elif not self.layout.b_packed:
            self.packing["panel"] = pack.panel()
        if self.few_rows_supported:
            self.packing["few"] = few_rows(pack)
        if isinstance(pack, PartsPack):
            self.packing["unfit"] = pack.unfit_row()
        loops = (*(walk.name for walk in self.form.loops), "row_sums_at", "column_sums_at")
        self.epilogue = epilogue_function(
            self.outputs, self.form.word.total, lanes, loops, self._context(running=True),
            (*self.pointers, ir.Pointer("scratch", uint8)),
        )  # fmt: skip
        return (*self.packing.values(), self.epilogue)

    def start(self) -> list[ir.Step]:
        few = FEW * WIDE if self.few_rows_supported else 0
        rows = max(self.tile.rows, self.layout.height)
        stack = ir.Stack("sums", self.form.word.total, max(few, rows * self.tile.width))
        # Loading tile shapes takes 70 ns: once per launch.
        return [stack] if self.layout.depth == 1 else [stack, *self._zeros(), ir.Tiles(True)]

    def end(self) -> list[ir.Step]:
        return [] if self.layout.depth == 1 else [ir.Tiles(False)]

    def _zeros(self) -> list[ir.Step]:
        """Zero the padding after the words of the panel in scratch, which stays unwritten."""
        if self.layout.b_packed:
            return []
        return zero_padding(self.layout, self.sizes.value, self.tile.lanes, self._b_at())

    def rectangle(self) -> Sequence[ir.Step]:
        every = super().rectangle()
        if self.few == NEVER:
            return every
        return (ir.If(self.sizes.condition_flag(self.few), tuple(self._few()), tuple(every)),)

    def enter(self) -> list[ir.Step]:
        stop = RECTANGLE.stop_tile * self.tile.rows
        rows = self.sizes.value(self.form.m.extent)
        image: list[ir.Step] = self._image(constant(0)) if self.image else []
        if self.joins and image:
            image = [ir.If(~self._joined, tuple(image))]
        return [*image, ir.Let("row_stop", least(stop, rows))]

    def levels(self) -> list[Level]:
        """Return the levels: blocks of rows, panels of columns, tiles."""
        value, cut = self.sizes.value, self.cut.columns
        rows, columns = value(self.cut.rows), value(cut.width)
        first = RECTANGLE.first_tile * self.tile.rows
        remaining = value(cut.all) - variable("column0")
        return [
            Level(
                "block_row", first, variable("row_stop"), rows,
                [
                    ir.Let("last", least(variable("row_stop"), variable("block_row") + rows)),
                    ir.Let("a_at", self._a_at()),
                    ir.Let("row_sums_at", self._row_sums_at()),
                    *self._pack_rows(),
                ],
            ),
            Level(
                "panel", RECTANGLE.first_panel, RECTANGLE.stop_panel, 1,
                [
                    ir.Let("column0", variable("panel") * columns),
                    ir.Let("columns", least(remaining, columns)),
                    *self._images(),
                    ir.Let("b_at", self._b_at()),
                    *self._pack_panel(),
                    ir.Let("column_sums_at", self._column_sums_at()),
                ],
            ),
            self._tiles(),
        ]  # fmt: skip

    # ---- images of a panel ---------------------------------------------------------------------

    @property
    def _joined(self) -> ir.Value:
        return self.sizes.holds(self.cut.columns.joined)

    def _images(self) -> list[ir.Step]:
        """Return the images of a panel: count, first column in the first image, columns of each.

        See `joined_columns`.
        """
        column, columns = variable("column0"), variable("columns")
        if not self.joins:
            return [
                ir.Let("images", constant(1)), ir.Let("place", column), ir.Let("run", columns)
            ]  # fmt: skip
        positions = greatest(self.sizes.value(self.cut.columns.positions), 1)
        return [
            ir.Let("image", column / positions),
            ir.Let("place", column - variable("image") * positions),
            ir.Let("images", greatest(columns / positions, 1)),
            ir.Let("run", least(columns, positions)),
        ]

    def _each_image(self, make: Callable[[ir.Value, dict[str, ir.Value]], ir.Step]) -> ir.Step:
        """Run `make` for each image of a panel, with the image's number and loop indices."""
        if not self.joins:
            return make(constant(0), {})
        number, name = variable("number"), self.joins.name
        own = {name: variable(name) + variable("image") + number}
        return loop("number", 0, variable("images"), 1, make(number, own))

    # ---- offsets, in words of four bytes -------------------------------------------------------

    def _packed_group(self, factor: Int8Factor) -> ir.Value:
        """Return the group of a packed factor for the current loop indices."""
        loops = [(walk.name, walk.extent) for walk in self.form.loops_of(factor)]
        return index_sum(*packed_at(loops, 1, lambda _, size: self.sizes.value(size)))

    def _a_at(self) -> ir.Value:
        """Return the first row of the block, in a or in scratch; of panels, the first one."""
        if self.layout.a_copied:
            return constant(0)
        if not self.layout.a_packed:
            row = variable("block_row") * self.sizes.value(self.layout.row)
            return self.at(*self.layout.first_word(self.form)) + row
        group = self._packed_group(self.form.a)
        if self.layout.height > 1:
            panels = ceil_div(self.form.m.extent, self.layout.height)
            return group * self.sizes.value(panels * self.layout.rows_panel)
        rows = group * self.sizes.value(self.form.m.extent)
        row = self.sizes.value(self.layout.row)
        return (rows + variable("block_row")) * row

    def _b_at(self) -> ir.Value:
        """Return the offset of the panel, in b or in scratch."""
        if not self.layout.b_packed:
            return quotient(self.sizes.value(self.cut.b_offset), WORD)
        groups = self._packed_group(self.form.b) * self.sizes.value(self.cut.panels)
        return (groups + variable("panel")) * self.sizes.value(self.layout.panel)

    def _row_sums_at(self) -> ir.Value:
        """The offset of the row sums: the sum of row m is m * row elements further."""
        skipped = variable("block_row") * self.sizes.value(self.layout.row)
        return variable("a_at") + self.sizes.value(self.layout.words) - skipped

    def _column_sums_at(self) -> ir.Value:
        words = self.sizes.value(self.layout.whole) * self.layout.width
        return variable("b_at") + words - variable("place")

    # ---- work ----------------------------------------------------------------------------------

    def _pack_rows(self) -> list[ir.Step]:
        if "rows" not in self.packing:
            return []
        first, dst = variable("block_row"), ir.Address("scratch", constant(0))
        count = variable("last") - first
        return [call(self.packing["rows"], dst=dst, first=first, count=count)]

    def _pack_panel(self) -> list[ir.Step]:
        if "panel" not in self.packing:
            return []
        start, panel = self.sizes.value(self.cut.b_offset), self.packing["panel"]
        own = {"first": variable("place")}
        if self.image is None:

            def pack_panel(number: ir.Value, at: dict[str, ir.Value]) -> ir.Step:
                dst = ir.Address("scratch", start + number * variable("run") * WORD)
                return call(panel, dst=dst, count=variable("run"), **own, **at)

            return [self._each_image(pack_panel)]
        image = ir.Address("scratch", self.sizes.value(self.cut.image_offset))
        dst = ir.Address("scratch", start)
        step = call(panel, dst=dst, count=variable("columns"), image=image, **own)
        if not self.joins:
            return [step]

        def fill_image(number: ir.Value, at: dict[str, ir.Value]) -> ir.Step:
            return self._image(number, **at)[0]

        return [ir.If(self._joined, (self._each_image(fill_image),)), step]

    def _image(self, number: ir.Value, **own: ir.Value) -> list[ir.Step]:
        """Fill the image of overlapping windows of b, for one of the images."""
        if self.image is None:
            return []
        at = number * self.sizes.value(self.image.image_bytes) + self.sizes.value(
            self.cut.image_offset
        )
        none, dst = constant(0), ir.Address("scratch", at)
        if isinstance(self.image, Phases):
            sorted_ = self.image.bytes(self.cut.images) - self.image.unsorted
            offset = self.sizes.value(self.cut.image_offset + sorted_)
            own = {**own, UNSORTED: ir.Address("scratch", offset)}
        return [call(self.packing["image"], dst=dst, first=none, count=none, **own)]

    def _few(self) -> list[ir.Step]:
        """Compute a whole rectangle of a few rows, with the epilogue."""
        value, first = self.sizes.value, RECTANGLE.first_panel
        rows, columns = value(self.form.m.extent), value(self.cut.columns.width)
        stop = least(RECTANGLE.stop_panel * columns, value(self.form.n.extent))
        a = "a" if self.layout.a_packed else "scratch"
        a_at = variable("a_at") * WORD
        sums = call(
            self.packing["few"], dst=ir.Address("sums", constant(0)), words=ir.Address(a, a_at),
            first=variable("column0"), count=variable("columns"), a_row=value(self.layout.row),
        )  # fmt: skip
        return [
            ir.Let("block_row", constant(0)),
            ir.Let("row0", constant(0)),
            ir.Let("last", rows),
            ir.Let("rows", rows),
            ir.Let("a_at", self._a_at()),
            ir.Let("row_sums_at", self._row_sums_at()),
            ir.Let("column_sums_at", constant(0)),  # not used
            *self._pack_rows(),
            ir.Let("column_stop", stop),
            loop(
                "column0", first * columns, stop, WIDE,
                ir.Let("columns", least(variable("column_stop") - variable("column0"), WIDE)),
                *self._images(), sums, self._epilogue(constant(WIDE)),
            ),
        ]  # fmt: skip

    def _tiles(self) -> Level:
        """Return the level of register tiles, with the epilogue.

        By few columns, a panel of rows is finished at once: vectors run along rows, or, for the
        columns of several images, the epilogue of an image is called once for the panel.
        """
        block, last, rows = variable("block_row"), variable("last"), self.tile.rows
        row0, width = variable("row0"), self.layout.width
        if self.narrow == NEVER:
            own = [ir.Let("rows", least(last - row0, rows)), self._tile(row0), *self._unfit_rows()]
            return Level("row0", block, last, rows, [*own, self._epilogue(constant(width))])
        height, strip, at = self.layout.height, variable("strip"), variable("tile_row")
        narrow = self.sizes.condition_flag(self.narrow)
        step, stop = select(narrow, constant(height), constant(rows)), row0 + variable("rows")
        sums = (at - strip) * width
        tiles = loop("tile_row", row0, stop, rows, self._tile(at, sums, least(stop - at, rows)))
        few = narrow & (variable("columns") <= MAX_NARROW)
        steps: list[ir.Step] = [
            ir.Let("row0", greatest(strip, block)),
            ir.Let("rows", least(last, strip + step) - row0),
            ir.If(few, (self._panel_of_rows(strip),), (tiles,)),
            self._epilogue(constant(width), (row0 - strip) * width),
        ]
        start = select(narrow, quotient(block, height) * height, block)
        return Level("strip", start, last, step, steps)

    def _tile(
        self, row: ir.Value, sums: ir.Value = _NONE, rows: ir.Value | None = None
    ) -> ir.Step:  # fmt: skip
        """Compute the sums of one register tile of rows from `row` on."""
        name, height = tile_function(self.prefix, self.form.word), self.layout.height
        if height > 1:
            whole = quotient(row, height)
            at = self._rows_at(whole) + row - whole * height
        else:
            at = variable("a_at") + (row - variable("block_row")) * self.sizes.value(
                self.layout.row
            )
        given = {} if rows is None else {"rows": rows}
        if self.form.word.is_pair:
            given |= self._ahead(quotient(row - variable("block_row"), self.tile.rows))
        return call(name, **self._factors(at), **given, c=ir.Address("sums", sums))

    def _ahead(self, number: ir.Value) -> dict[str, ir.Value]:
        """Return where tile `number` of a block prefetches the next panel."""
        layout, value = self.layout, self.sizes.value
        if layout.depth > 1 or not layout.b_packed:
            return _NOTHING_AHEAD
        return prefetch_part(self.tile, number, value(layout.words), value(layout.panel))

    def _unfit_rows(self) -> list[ir.Step]:
        """Compute the sums of a tile's rows that have no parts, in float32."""
        if "unfit" not in self.packing:
            return []
        layout, row = self.layout, variable("unfit")
        first = variable("row0") + row
        at = (first - variable("block_row")) * self.sizes.value(layout.row)
        flag = ir.Load(ir.Type(int32), "scratch", at + self.sizes.value(layout.words))
        sums = ir.Address("sums", row * layout.width)
        step = call(self.packing["unfit"], dst=sums, first=first, count=constant(1),
                    b_at=variable("b_at"))  # fmt: skip
        return [loop("unfit", 0, variable("rows"), 1, ir.If(flag.differs(0), (step,)))]

    def _panel_of_rows(self, row: ir.Value) -> ir.Step:
        """Compute the sums of a panel of rows by a few columns."""
        at = self._rows_at(quotient(row, self.layout.height))
        name = narrow_function(self.prefix)
        return call(name, **self._factors(at), **_NOTHING_AHEAD, c=ir.Address("sums", _NONE))

    def _rows_at(self, panel: ir.Value) -> ir.Value:
        """Return the offset of a panel of rows."""
        return variable("a_at") + panel * self.sizes.value(self.layout.rows_panel)

    def _factors(self, a_at: ir.Value) -> dict[str, Any]:
        """Return the factors and scalars of a micro-kernel, by rows at `a_at`."""
        layout, value = self.layout, self.sizes.value
        b_at: ir.Value = variable("b_at")
        own = {"words": value(layout.words), "a_row": value(layout.row)}
        if self.form.word.is_pair and layout.depth > 1:  # tiles take the words of all taps
            none = constant(0)
            own |= {"words": value(layout.part), "runs": none, "a_run": none, "b_run": none}
        elif self.form.word.is_pair:
            words, start = value(layout.kept.run), value(layout.kept.start)
            run = value(layout.kept.weights_run)
            own |= {"words": words, "runs": value(layout.kept.runs), "a_run": words, "b_run": words}
            if layout.b_packed:
                b_at, own["b_run"] = b_at + start * layout.width, run
            elif layout.a_packed:
                a_at, own["a_run"] = a_at + start * layout.height, run
        a, b = ("a" if layout.a_packed else "scratch"), ("b" if layout.b_packed else "scratch")
        a_address = ir.Address(a, a_at * WORD)
        if layout.stride is not None:
            at = a_at * self.form.word.count
            a_address = ir.Address(self.buffers[self.form.a.read.tensor], at)
        return {**own, "a": a_address, "b": ir.Address(b, b_at * WORD)}

    def _epilogue(self, sums_row: ir.Value, first: ir.Value = _NONE) -> ir.Step:
        """Run the epilogue of a tile, image by image; its sums start at `first`."""

        def finish(number: ir.Value, at: dict[str, ir.Value]) -> ir.Step:
            starts = (
                at.get(walk.name, variable(walk.name)) * self.sizes.value(walk.c)
                for walk in self.form.loops
            )
            out_row, before = self.sizes.value(self.form.m.c), number * variable("run")
            return call(
                self.epilogue, sums=ir.Address("sums", first + before), sums_row=sums_row,
                out_at=index_sum(variable("row0") * out_row, variable("place"), *starts),
                out_row=out_row, column0=variable("place"), columns=variable("run"),
                column_sums_at=variable("column_sums_at") + before, **at,
            )  # fmt: skip

        return self._each_image(finish)

"""The loops of a contraction kernel around the library's `row`.

    for each rectangle of a thread's part (`matmul/work_partition.py`)
        for each block of row tiles, each block of columns
            pack its parts of A and B where needed
            for each chunk of k
                for each row tile: all columns of the block; after the last chunk, the epilogue

A block of rows of A stays in the second-level cache while B streams through it once: the tiles
prefetch the next chunk or block of columns while they use the present one, the first row tiles
sharing that work. A single row tile prefetches a short distance ahead. Row tiles are of even
height: 15 rows with tiles of up to 8 are 8 + 7, but up to 13 rows are one tile of fewer columns.
"""

from __future__ import annotations

from anydim.base.dtypes import int64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import quotient, quotient_up, round_down
from anydim.compiler.kernels.ir import constant, greatest, least, let, number, select, variable
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.blocked_loops import Level
from anydim.compiler.kernels.matmul.contraction.contraction_buffers import (
    Blocks,
    startable_in_place,
)
from anydim.compiler.kernels.matmul.contraction.contraction_variables import LOOP
from anydim.compiler.kernels.matmul.contraction.interleaved_accumulators import (
    accumulator_stride,
    steps_per_accumulator,
)
from anydim.compiler.kernels.matmul.contraction.operand_layout import B_READY, OperandLayout
from anydim.compiler.kernels.matmul.contraction.valid_taps import STEPS, valid_taps_of
from anydim.compiler.kernels.matmul.contraction_form import ContractionForm, dependent_axes
from anydim.compiler.kernels.matmul.contraction_micro_kernels import (
    contraction_libraries,
    is_thin,
    prefix_of,
)
from anydim.compiler.kernels.matmul.matmul_kernel import BACKWARDS, call
from anydim.compiler.kernels.matmul.register_tile import (
    GIVEN,
    LINE,
    PrefetchB,
    store_scalar,
    zeros_to_start,
)
from anydim.compiler.kernels.matmul.schedules import Contraction
from anydim.compiler.kernels.matmul.window_geometry import ALL_TAPS
from anydim.compiler.kernels.matmul.window_rows import window_function
from anydim.compiler.kernels.matmul.work_partition import RECTANGLE
from anydim.lang.tree import Group
from anydim.lang.tree.affine import address
from anydim.sizes import as_size

_PREFETCHING = 16  # row tiles that share the prefetches


@dataclass(frozen=True)
class Start:
    """The start of sums: address, stride of its rows, 1 if its columns differ, else 0."""

    address: ir.Address
    row: ir.Value
    step: ir.Value


class MainWriter(OperandLayout):
    """The kernel of a matrix product; rows of A are read in place, copied, or windows.

    B is packed at load time, stored in panels, or packed on use.
    """

    name = "contraction"
    ordered = True

    def __init__(
        self, group: Group, form: ContractionForm, blocks: Blocks, schedule: Contraction,
        machine: Machine,
    ) -> None:  # fmt: skip
        super().__init__(group, form, blocks, schedule, machine)
        self.partition = blocks.partition
        self.prefix = prefix_of(self.tile, form.dtype)
        self.libraries = contraction_libraries(self.tile, form.dtype)
        self.in_place = startable_in_place(group, form, self.target)
        self.same_everywhere = not set().union(*(dependent_axes(o.value) for o in form.outputs))
        every = schedule.version == ALL_TAPS
        self.valid_taps = None if every else valid_taps_of(form.windows, form.k.extent)
        self.finished = self.target is not None and [o.is_product for o in form.outputs] == [True]

    def callees(self) -> list[ir.Function]:
        """Return the functions that copy windows and compute the epilogue, where needed."""
        made = []
        if not self.finished:
            self.epilogue = self.make_epilogue(self.form, self.machine)
            made.append(self.epilogue)
        if self.form.windows is not None:
            given = self.form.windows, self.form.dtype, self.tile.lanes, self.sizes
            self.windows = self.with_all_sizes(lambda: window_function(*given))
            made.insert(0, self.windows)
        return made

    def start(self) -> list[ir.Step]:
        """Return zeros to start from, the block of scalars, the even height of row tiles."""
        steps: list[ir.Step] = []
        if self.form.start is None:
            steps += zeros_to_start(self.tile, self.form.dtype)
        if self.interleaves:
            turn = steps_per_accumulator(self.all_k, self.all_columns, self.schedule.block_k)
            steps += [let(LOOP.turn, turn)]
        steps += self._given_once()
        steps += [ir.Declare(B_READY.name, constant(-1))] if self.scratch_layout.holds_b else []
        tiles, rows = self.sizes.role("all_tiles", self.blocks.tiles), self.all_rows
        steps += [
            let(LOOP.even, quotient(rows, greatest(tiles, 1))),
            let(LOOP.taller, rows - LOOP.even * tiles),
        ]
        return steps

    @property
    def c_row(self) -> ir.Value:
        """Elements between the rows of results."""
        return self.sizes.role("c_row", self.form.m.c)

    def enter(self) -> list[ir.Step]:
        panels = RECTANGLE.stop_panel - RECTANGLE.first_panel
        blocks = quotient_up(panels, self.block_panels)
        return [ir.Let("blocks", blocks), self.a_at()]

    def levels(self) -> list[Level]:
        """Return the levels: blocks of rows, blocks of columns, pieces of k, tiles."""
        tiles = self.sizes.role("block_tiles", self.blocks.block_tiles)
        stop = least(LOOP.tile0 + tiles, RECTANGLE.stop_tile)
        return [
            Level(
                LOOP.tile0, RECTANGLE.first_tile, RECTANGLE.stop_tile, tiles,
                [
                    let(LOOP.tile1, stop),
                    ir.Let("tiles", LOOP.tile1 - LOOP.tile0),
                    *self.pack_a(),
                ],
            ),
            Level("block", 0, variable("blocks"), 1, self._block()),
            *self.tiles(),
        ]  # fmt: skip

    def _block(self) -> list[ir.Step]:
        """Set up one block of columns; a backwards launch runs blocks in reverse order."""
        panel = RECTANGLE.first_panel + variable("place") * self.block_panels
        stop = least(RECTANGLE.stop_panel * self.unit, self.all_columns)
        # Recurrent loops find the last blocks of weights in the cache: every other iteration starts
        # with them (5 % at one and two rows).
        forwards = variable(BACKWARDS).equals(0)
        from_end = variable("blocks") - 1 - variable("block")
        results = self.start_of("c", as_size(0), lambda w: w.c)
        return [
            ir.Let("place", select(forwards, variable("block"), from_end)),
            let(LOOP.column0, panel * self.unit),
            let(LOOP.width, least(stop - LOOP.column0, self.block_columns)),
            let(LOOP.c_at, results + LOOP.column0),
            let(LOOP.b_at, self._start_of_b()),
            let(LOOP.chunk, self._chunk()),
            *self.group_sizes(),
            *self._ahead(),
            *self._pack_b(),
            *self._touch(),
        ]

    def _touch(self) -> list[ir.Step]:
        """Without prefetches, read each line of a block of B before row tiles wait for them.

        Lines arrive in parallel here, one after the other in a tile: 45 GB/s, where a tile of one
        row reads 21 on Zen 5.
        """
        if not self.machine.touches or self.scratch_layout.holds_b:
            return []
        dtype, lanes = self.form.dtype, self.tile.lanes
        panels = quotient_up(LOOP.width, lanes)
        line = ir.Load(ir.Type(dtype), "b", LOOP.b_at + variable("line"))
        total = ir.Get(line.type, "touched")
        add = ir.Assign(total.name, total + line)
        lines = ir.For(
            "line", constant(0), panels * self.b_panel, constant(LINE // dtype.bytes), (add,)
        )
        zero = ir.Declare(total.name, number(dtype, 0))
        keep = ir.Store("seen", constant(0), total)
        return [ir.Stack("seen", dtype, 1), zero, lines, keep]

    def _chunk(self) -> ir.Value:
        """Return the k-steps of all row tiles before the next chunk: the same for any row count."""
        k = self.all_k
        blocks = quotient_up(k, self.schedule.block_k)
        even = round_down(quotient_up(k, greatest(blocks, 1)) + 7, 8)
        usual = select(blocks <= 1, k, even)
        return (
            select(self.interleaved, accumulator_stride(LOOP.turn), usual)
            if self.interleaves
            else usual
        )

    def tiles(self, vectors: str = "") -> list[Level]:
        """Return the levels of row tiles and pieces of k; `vectors` is a function to call instead.

        Scratch holds the sums of one row tile only: without an output for the sums, a row tile runs
        all of k before the next one.
        """
        all_k = self.all_k if vectors else self.steps_of_k
        length = least(all_k - LOOP.k0, LOOP.chunk)
        if self.interleaves and not vectors:
            length = select(self.interleaved, LOOP.turn, length)
        pieces = Level(
            LOOP.k0, 0, greatest(all_k, 1), greatest(LOOP.chunk, 1),
            [let(LOOP.length, length)],
        )  # fmt: skip
        max_tiles = variable("many") if vectors else variable("at_once")
        before = [
            *self._rows_of_tiles(variable("tile"), max_tiles, variable("tile3")),
            *self._chunk_of_tile(vectors),
        ]
        tiles = Level("tile", variable("tile2"), variable("tile3"), max_tiles, before)
        groups = self._groups(all_k)
        return [groups, pieces, tiles] if self.target is None else [pieces, groups, tiles]

    def _groups(self, all_k: ir.Value) -> Level:
        """Return groups of row tiles whose results fit the first-level cache, with epilogue."""
        stop = least(variable("tile2") + variable("many"), LOOP.tile1)
        epilogue: list[ir.Step] = []
        if not self.finished:
            epilogue = [
                *self._rows_of_tiles(variable("tile2"), variable("many"), LOOP.tile1),
                self.epilogue_call(),
            ]
        if epilogue and self.target is not None:
            is_last = LOOP.k0 + LOOP.chunk >= all_k
            epilogue = [ir.If(is_last, tuple(epilogue))]
        start, end = LOOP.tile0, LOOP.tile1
        return Level("tile2", start, end, variable("many"), [ir.Let("tile3", stop)], epilogue)

    def group_sizes(self) -> list[ir.Let]:
        """Group sizes: row tiles whose results fit the first-level cache; 1 with sums in scratch.

        Tiles of a few k-steps run at once.
        """
        # The epilogue reads sums back while they are in the first-level cache.
        many: ir.Value = constant(1)
        if self.target is not None:
            each = LOOP.width * (self.tile.rows * self.form.dtype.bytes)
            half = constant(self.machine.l1_bytes // 2)
            many = greatest(quotient(half, greatest(each, 1)), 1)
        at_once = select(is_thin(self.all_k), variable("many"), 1)
        return [ir.Let("many", many), ir.Let("at_once", at_once)]

    def _ahead(self) -> list[ir.Step]:
        """Return prefetch bounds: the first row tiles share the next piece of k or next block."""
        if self.scratch_layout.holds_b:
            return []
        # Tiles share the prefetches of the next block: a burst loses 5 to 10 %, and a line that
        # two tiles prefetch costs as much as one that is needed.
        window = constant(self.tile.lanes * self.tile.unroll)
        return [
            ir.Let("part", LOOP.chunk * self.tile.lanes),
            ir.Let("next", self.all_k * self.block_columns),
            ir.Let("asking", least(variable("tiles"), _PREFETCHING)),
            ir.Let("share", quotient(variable("part"), variable("asking"))),
            store_scalar("step", quotient_up(window, variable("asking"))),
        ]

    # ---- one row tile --------------------------------------------------------------------------

    def _rows_of_tiles(self, tile: ir.Var, max_tiles: ir.Value, end: ir.Var) -> list[ir.Step]:
        """Return first row, row count and the sums' address of up to `max_tiles` row tiles."""
        stop = least(tile + max_tiles, end)
        return [
            let(LOOP.row0, self.first_row(tile)),
            let(LOOP.rows, self.first_row(stop) - LOOP.row0),
            let(LOOP.sums_at, self.sums_at()),
        ]

    def _chunk_of_tile(self, vectors: str) -> list[ir.Step]:
        """Run a chunk of k of a row tile; the first starts from `init`, others from the sums."""
        sums, sums_row = self.sums()
        more = self._row(Start(sums, sums_row, constant(1)), vectors)
        is_first = LOOP.k0.equals(0)
        return [
            *(self.valid_taps.range(self.sizes) if self.valid_taps else ()),
            *(STEPS if self.valid_taps else ()),
            *self._store_scalars(),
            ir.If(is_first, self._row(self._start(), vectors), more),
        ]

    def sums_at(self) -> ir.Value:
        if self.target is None:
            return constant(0)
        return LOOP.c_at + LOOP.row0 * self.c_row

    def sums(self) -> tuple[ir.Address, ir.Value]:
        """Return the address of a row tile's sums, and the stride of their rows."""
        target = self.target
        if target is not None:
            buffer = self.buffers[target.tensor]
            return ir.Address(buffer, LOOP.sums_at), self.c_row
        at = self.sizes.role_or_literal("sums_offset", self.scratch_layout.sums_offset)
        return ir.Address("scratch", at), self.block_columns

    def _given_once(self) -> list[ir.Step]:
        """Declares the scalars of `row`, and stores those that all row tiles share."""
        _, row = self._a()
        row = select(self.interleaved, self._copied_row, row) if self.interleaves else row
        return [
            ir.Stack("given", int64, len(GIVEN)),
            store_scalar("k_block", constant(self.schedule.block_k)),
            store_scalar("a_row", row),
            store_scalar("b_panel", self.b_panel),
            store_scalar("step", LOOP.turn if self.interleaves else constant(0)),
            store_scalar("c_row", self.sums()[1]),
        ]

    def _store_scalars(self) -> list[ir.Step]:
        """Stores the scalars that the micro-kernel of a row tile reads."""
        ahead: ir.Value = constant(0)
        prefetch: ir.Value = constant(PrefetchB.NONE)
        if not self.scratch_layout.holds_b:
            number = variable("tile") - LOOP.tile0
            done = LOOP.k0 + LOOP.length
            rest = variable("next") - LOOP.k0 * self.tile.lanes
            part = select(done < self.all_k, variable("part"), rest)
            part = part - (self._k_at - LOOP.k0) * self.tile.lanes if self.valid_taps else part
            ahead = part + number * variable("share")
            prefetches = number < variable("asking")
            # A single row tile prefetches its own lines, 48 k-steps ahead; without prefetches it
            # reaches 0.7 to 0.9 of that speed.
            prefetch = select(prefetches, constant(PrefetchB.NEXT), constant(PrefetchB.NONE))
            prefetch = select(variable("tiles").equals(1), constant(PrefetchB.SOON), prefetch)
        return [
            store_scalar("k", LOOP.steps if self.valid_taps else LOOP.length),
            store_scalar("rows", LOOP.rows),
            store_scalar("columns", LOOP.width),
            store_scalar("ahead", ahead),
            store_scalar("asks", prefetch),
        ]

    def _row(self, start: Start, vectors: str) -> tuple[ir.Step, ...]:
        sums, _ = self.sums()
        k_panel = self._k_at * self.tile.lanes
        a, _ = self._a()
        b = ir.Address("b", LOOP.b_at + k_panel)
        if self.scratch_layout.holds_b:
            k_bytes = k_panel * self.form.dtype.bytes
            b = ir.Address("scratch", self._b_offset + k_bytes)
        if vectors:
            along = LOOP.k0 * self.b_step
            b = ir.Address(self.b, LOOP.b_at + along)
        function = vectors or f"{self.prefix}_row"

        def call_with(a: ir.Address) -> ir.Step:
            return ir.Call(function, (a, b, start.address, sums, ir.Address("given", constant(0))))

        of_row = call_with(a)
        if self.interleaves and not vectors:
            of_row = ir.If(self.interleaved, (call_with(self._copied_a()),), (of_row,))
        return (store_scalar("init_row", start.row), store_scalar("init_step", start.step), of_row)

    @property
    def _k_at(self) -> ir.Value:
        """The first k-step of a row tile in a chunk."""
        return LOOP.k_at if self.valid_taps else LOOP.k0

    def _a(self) -> tuple[ir.Address, ir.Value]:
        if not self.scratch_layout.holds_a:
            at = LOOP.a_at + LOOP.row0 * self.a_row + LOOP.k0
            return ir.Address(self.a, at), self.a_row
        return self._copied_a(), self._copied_row

    def _copied_a(self) -> ir.Address:
        inside = LOOP.row0 - LOOP.first_row
        at = inside * self._copied_row + self._k_at
        return ir.Address("scratch", at * self.form.dtype.bytes)

    def _start(self) -> Start:
        """Return the start of the sums of a row tile."""
        read = self.form.start
        if read is None:
            return Start(ir.Address("zeros", constant(0)), constant(0), constant(0))
        form = address(read, self.group.type_of(read.tensor).shape)
        assert form is not None
        row = self.sizes.role_or_literal("start_row", form.stride("m"))
        before = self.start_of("start", form.constant, lambda w: form.stride(w.name))
        at = before + LOOP.row0 * row + LOOP.column0
        return Start(ir.Address(self.buffers[read.tensor], at), row, constant(1))

    def epilogue_call(self, sums_stride: ir.Value | None = None) -> ir.Call:
        """Return the epilogue call of a row tile; `sums_stride` is that of rows in scratch."""
        sums, sums_row = self.sums()
        if self.target is None and sums_stride is not None:
            sums_row = sums_stride
        row = self.c_row
        rows: ir.Value = LOOP.rows
        columns: ir.Value = LOOP.width
        if self.target is not None and self.same_everywhere:
            # contiguous rows are one row
            one = row.equals(columns)
            rows, columns = select(one, 1, rows), select(one, rows * columns, columns)
        out = LOOP.c_at + LOOP.row0 * row
        return call(
            self.epilogue, sums=sums, sums_row=sums_row, out_at=out, out_row=row,
            rows=rows, columns=columns,
        )  # fmt: skip

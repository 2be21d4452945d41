"""Layouts of A and B of a contraction, and copies of operands with unsuitable layouts.

Rows of A are read in place, copied, or windows. B is packed at load time, stored in panels, or
packed on use, a block of columns at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import index_sum, loop, quotient_up, round_down
from anydim.compiler.kernels.ir import constant, greatest, least, let, register, select, variable
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.blocked_loops import Blocked
from anydim.compiler.kernels.matmul.contraction.contraction_buffers import Blocks, scratch_of
from anydim.compiler.kernels.matmul.contraction.contraction_variables import LOOP
from anydim.compiler.kernels.matmul.contraction.interleaved_accumulators import (
    ACCUMULATORS,
    accumulator_stride,
    interleaved_libraries,
    may_interleave,
)
from anydim.compiler.kernels.matmul.contraction.operand_copies import CopyShape, copy_library
from anydim.compiler.kernels.matmul.contraction_form import ContractionForm, MatrixWalk
from anydim.compiler.kernels.matmul.epilogue import target_of
from anydim.compiler.kernels.matmul.matmul_kernel import call, packed_at, roles_of_form
from anydim.compiler.kernels.matmul.schedules import Contraction
from anydim.compiler.kernels.matmul.window_geometry import LayerSizes
from anydim.compiler.kernels.matmul.window_rows import ONE, SPOT
from anydim.compiler.kernels.matmul.work_partition import RECTANGLE
from anydim.lang.tree import Group
from anydim.sizes import Size, align_up, as_size

B_READY = register("b_ready")  # the block of columns in scratch


class OperandLayout(Blocked):
    """The part of a kernel that copies and packs operands, with their sizes."""

    sizes: LayerSizes
    windows: ir.Function

    def __init__(
        self, group: Group, form: ContractionForm, blocks: Blocks, schedule: Contraction,
        machine: Machine,
    ) -> None:  # fmt: skip
        super().__init__(group, form.outputs, form.dtype, schedule.tile, LayerSizes())
        self.form, self.blocks, self.schedule, self.machine = form, blocks, schedule, machine
        self.packed = {"b": form.dtype} if schedule.packed else {}
        self.roles, self.buffers = roles_of_form(form, self.packed)
        self.a = self.buffers[form.a]
        self.b = "b" if schedule.packed else self.buffers[form.b]
        self.target = target_of(form.outputs, group, form.dtype)
        self.interleaves = may_interleave(form, schedule, machine, self.tile.lanes)
        sums = self.target is None
        self.scratch_layout = scratch_of(
            form, self.tile, blocks, schedule.packed, sums, self.interleaves
        )

    @property
    def scratch(self) -> Size:
        return self.scratch_layout.bytes

    def role(self, name: str, size: Size) -> ir.Value:
        return self.sizes.role(f"all_{name}", size)

    @property
    def all_rows(self) -> ir.Value:
        return self.sizes.role_or_literal("all_rows", self.form.m.extent)

    @property
    def all_columns(self) -> ir.Value:
        return self.sizes.role_or_literal("all_columns", self.form.n.extent)

    @property
    def all_k(self) -> ir.Value:
        return self.sizes.role("all_k", self.form.k.extent)

    @property
    def b_panel(self) -> ir.Value:
        """Elements between the panels of B."""
        return self.steps_of_k * self.tile.lanes

    @property
    def steps_of_k(self) -> ir.Value:
        """K-steps as packed, with the padding of interleaved accumulators."""
        if not self.interleaves:
            return self.all_k
        turn = LOOP.turn
        blocks = quotient_up(self.all_k, greatest(turn * ACCUMULATORS, 1))
        return select(
            self.interleaved, blocks * accumulator_stride(turn) * ACCUMULATORS, self.all_k
        )

    @property
    def interleaved(self) -> ir.Value:
        return constant(0) < LOOP.turn

    @property
    def block_columns(self) -> ir.Value:
        return self.block_panels * self.unit

    @property
    def block_panels(self) -> ir.Value:
        return self.sizes.role("block_panels", self.blocks.panels)

    @property
    def unit(self) -> ir.Value:
        """Granularity in columns of blocks and of threads' shares."""
        return self.sizes.role("unit", as_size(self.blocks.partition.width))

    def start_of(self, name: str, start: Size, stride: Callable[[MatrixWalk], Size]) -> ir.Value:
        """Return the offset of the loops' current iteration in the operand `name`."""
        known = self.sizes.role_or_literal
        parts = [variable(w.name) * known(f"{name}_{w.name}", stride(w)) for w in self.form.loops]
        return index_sum(known(f"{name}_start", start), *parts)

    def _start_of_b(self) -> ir.Value:
        """Return the first element of the block of columns; a packed B has panels of a vector."""
        form = self.form
        if not self.schedule.packed:
            columns = LOOP.column0 * self.b_column
            return self.start_of("b", form.b_start, lambda w: w.b) + columns
        group = align_up(form.n.extent, self.tile.lanes) * form.k.extent
        loops = [(walk.name, walk.extent) for walk in form.loops if walk.b != 0]
        terms = packed_at(loops, group, self.sizes.role)
        return index_sum(*terms, LOOP.column0 * self.all_k)

    @property
    def b_column(self) -> ir.Value:
        """Elements between the columns of B."""
        return self.sizes.role_or_literal("b_column", self.form.n.b)

    @property
    def b_step(self) -> ir.Value:
        """Elements between consecutive k of B."""
        return self.sizes.role_or_literal("b_step", self.form.k.b)

    def first_row(self, tile: ir.Value) -> ir.Value:
        return tile * LOOP.even + least(tile, LOOP.taller)

    def a_at(self) -> ir.Let:
        return let(LOOP.a_at, self.start_of("a", self.form.a_start, lambda w: w.a))

    def pack_a(self) -> list[ir.Step]:
        """Copy the rows of A of this unit of work, unless their elements are contiguous.

        Where k has pieces, the next piece overwrites the zeros after a piece.
        """
        if not (self.scratch_layout.holds_a or self.interleaves):
            return []
        known, form, lanes = self.sizes.role_or_literal, self.form, self.tile.lanes
        rows = self.first_row(LOOP.tile1) - LOOP.first_row
        first = let(LOOP.first_row, self.first_row(LOOP.tile0))
        if self.interleaves:
            source = LOOP.a_at + LOOP.first_row * self.a_row
            strides = (self.a_row, self._copied_row, rows)
            copies = self._copy_interleaved(1, (self.a, source), constant(0), constant(1), strides)
            return [first, ir.If(self.interleaved, (copies,))]
        row = self._copied_row
        if form.windows is not None:
            ends = {"x": ir.Address(self.a, constant(0)), "dst": ir.Address("scratch", constant(0))}
            spot = {} if form.windows.spots != ONE else {SPOT: constant(0)}
            return [
                first,
                call(self.windows, **ends, **spot, x_at=LOOP.a_at, rows=rows, dst_row=row),
            ]
        source = LOOP.a_at + LOOP.first_row * self.a_row
        step = known("a_step", form.k.a)
        pieces = form.pieces if form.cuts_a else None
        if pieces is None:
            to = ir.Address("scratch", constant(0))
            shape = CopyShape(step, row, constant(1), rows=self.all_k, columns=rows, width=row)
            a = ir.Address(self.a, source)
            transposed = self._copy(
                copy_library("transpose", lanes, form.dtype), (a, to, *shape.arguments)
            )
            if form.m.a == 1:
                return [first, transposed]
            shape = CopyShape(self.a_row, row, step, rows, columns=self.all_k, width=self.all_k)
            strided = self._copy(
                copy_library("apart", lanes, form.dtype), (a, to, *shape.arguments)
            )
            return [first, ir.If(self.a_row.equals(1), (transposed,), (strided,))]
        length = known("piece_length", pieces.length)
        at = variable("piece") * known("a_piece", pieces.a)
        each = ir.Address(self.a, source + at)
        to = ir.Address("scratch", variable("piece") * length * form.dtype.bytes)
        whole = round_down(length + (lanes - 1), lanes)
        if form.k.a == 1:
            shape = CopyShape(self.a_row, row, constant(1), rows, columns=length, width=whole)
            copy = copy_library("gather", lanes, form.dtype)
        else:
            shape = CopyShape(step, row, constant(1), rows=length, columns=rows, width=whole)
            copy = copy_library("transpose", lanes, form.dtype)
        copied = self._copy(copy, (each, to, *shape.arguments))
        return [first, loop("piece", 0, known("pieces", pieces.count), 1, copied)]

    def _pack_b(self) -> list[ir.Step]:
        """Pack the block of columns of B into scratch, unless scratch already holds it."""
        if not self.scratch_layout.holds_b:
            return []
        columns = self.all_columns + 1
        block: ir.Value = LOOP.column0
        if not self.form.same_b:
            block = RECTANGLE.around * columns + block
        requested = block * columns + LOOP.width
        missing = B_READY.differs(variable("b_wanted"))
        return [
            ir.Let("b_wanted", requested),
            ir.If(missing, (self._panels(), ir.Assign(B_READY.name, variable("b_wanted")))),
        ]

    def _panels(self) -> ir.Step:
        """Pack the panels of a block of B, for every piece of k."""
        form, known, lanes = self.form, self.sizes.role_or_literal, self.tile.lanes
        columns, width, length = LOOP.width, constant(lanes), self.all_k
        padded = round_down(columns + (lanes - 1), lanes)
        offset: ir.Value = self._b_offset
        at: ir.Value = LOOP.b_at
        pieces = form.pieces if form.cuts_b else None
        if pieces is not None:
            length = known("piece_length", pieces.length)
            offset = offset + variable("piece") * length * (lanes * form.dtype.bytes)
            at = at + variable("piece") * known("b_piece", pieces.b)
        ends = ir.Address(self.b, at), ir.Address("scratch", offset)
        shape = CopyShape(
            self.b_column, width, self.all_k, rows=columns, columns=length, width=padded
        )
        copy = copy_library("transpose", lanes, form.dtype)
        if form.n.b == 1:
            shape = CopyShape(
                self.b_step, width, self.all_k, rows=length, columns=columns, width=padded
            )
            copy = copy_library("gather", lanes, form.dtype)
        copied: ir.Step = self._copy(copy, (*ends, *shape.arguments))
        if self.interleaves:
            rows = (self.b_column, self.b_panel, columns)
            copies = self._copy_interleaved(2, (self.b, at), offset, width, rows)
            return ir.If(self.interleaved, (copies,), (copied,))
        if pieces is None:
            return copied
        return loop("piece", 0, known("pieces", pieces.count), 1, copied)

    def _copy_interleaved(
        self, which: int, source: tuple[str, ir.Value], offset: ir.Value, each: ir.Value,
        shape: tuple[ir.Value, ...],
    ) -> ir.Step:  # fmt: skip
        """Copy rows to scratch by blocks of k; a k-step takes `each` elements there."""
        buffer, start = source
        turn, block = LOOP.turn, variable("block_of_k")
        at, to = block * turn * ACCUMULATORS, block * accumulator_stride(turn) * ACCUMULATORS
        columns, to = least(self.all_k - at, turn * ACCUMULATORS), to * each * self.form.dtype.bytes
        ends = ir.Address(buffer, start + at), ir.Address("scratch", offset + to)
        library = interleaved_libraries(self.tile.lanes, self.form.dtype)[which]
        copied = self._copy(library, (*ends, *shape, columns, LOOP.turn))
        return loop("block_of_k", 0, quotient_up(self.all_k, turn * ACCUMULATORS), 1, copied)

    @property
    def _b_offset(self) -> ir.Value:
        """Byte offset of B in scratch."""
        return self.sizes.role_or_literal("b_offset", self.scratch_layout.b_offset)

    @property
    def a_row(self) -> ir.Value:
        """Elements between the rows of the unpacked A."""
        return self.sizes.role("a_row", self.form.m.a)

    @property
    def _copied_row(self) -> ir.Value:
        """Elements between the rows of the copied A."""
        return self.sizes.role("copied_row", self.scratch_layout.k_padded)

    def _copy(self, library: ir.Library, arguments: tuple[ir.Value | ir.Address, ...]) -> ir.Call:
        """Return a call of a library's only function, and add the library to the kernel."""
        self.needs(library)
        return ir.Call(library.name, arguments)

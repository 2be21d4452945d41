"""The innermost steps of a convolution: the sums of a strip of tiles, and their epilogue.

The result's memory holds the sums, or scratch where images are joined.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import loop
from anydim.compiler.kernels.ir import constant, least, let, number, select, variable
from anydim.compiler.kernels.matmul.blocked_loops import Blocked
from anydim.compiler.kernels.matmul.convolution.convolution_plan import Plan
from anydim.compiler.kernels.matmul.convolution.convolution_variables import JOINED, LAST, LOOP
from anydim.compiler.kernels.matmul.convolution.line_buffer import LineBufferSteps
from anydim.compiler.kernels.matmul.convolution.weight_blocks import COPIED, Weights
from anydim.compiler.kernels.matmul.convolution_micro_kernels import (
    STRIP,
    choose_micro_kernel,
    images,
    line_buffer_libraries,
    strip_function,
    strips,
)
from anydim.compiler.kernels.matmul.convolution_tile import (
    ADDS,
    CAPS,
    FLOORS,
    LineBufferMicro,
    Micro,
)
from anydim.compiler.kernels.matmul.matmul_kernel import call
from anydim.compiler.kernels.matmul.tile_epilogue import TileEpilogue
from anydim.lang.tree import Read
from anydim.lang.tree.affine import affine
from anydim.sizes import ALWAYS

FIRST = LOOP.first.differs(0)


@dataclass(frozen=True)
class Strips:
    """The strips of a kernel; `epilogue` is its epilogue unless register tiles compute it."""

    plan: Plan
    kernel: Blocked
    buffer_steps: LineBufferSteps
    weights: Weights
    epilogue: ir.Function | None

    def steps(self) -> list[ir.Step]:
        """Return the steps of several tiles; after the last chunk of channels, the epilogue."""
        plan, value = self.plan, self.kernel.sizes.value
        offset: ir.Value = LOOP.column
        if plan.joins:
            offset = LOOP.image * LOOP.y_image + LOOP.place
        row_y = value(plan.form.row_y)
        row = LOOP.y_unit + LOOP.m * row_y
        remaining = LOOP.rows - LOOP.row
        sums = ir.Address(self.y, variable("y_at"))
        panel_steps = tuple(self._sums(sums, row_y, self._b(plan.schedule.direct)))
        if plan.joins:
            panel_steps = (ir.If(JOINED, tuple(self._joined_sums()), panel_steps),)
        panel_steps = (ir.Let("y_at", row + offset), *panel_steps)
        line_buffer = ir.Address("scratch", constant(0)), constant(1)
        banded = (
            []
            if plan.line_buffer is None
            else self._sums(sums, row_y, line_buffer, LineBufferMicro)
        )
        return [
            let(LOOP.m, LOOP.row0 + LOOP.row),
            let(LOOP.height, least(remaining, plan.tile.rows * STRIP)),
            *self.buffer_steps.choose([ir.Let("y_at", row), *banded], panel_steps),
        ]

    @property
    def y(self) -> str:
        return self.kernel.buffers[self.plan.target]

    def _joined_sums(self) -> list[ir.Step]:
        """Return the sums of a strip in scratch, and the copies to their images."""
        plan, value, epilogue = self.plan, self.kernel.sizes.value, self.plan.epilogue
        row = LOOP.block_columns
        at = LOOP.row * row + LOOP.column - LOOP.column0
        at = at * plan.form.dtype.bytes + value(plan.scratch.sums_at)
        sums = ir.Address("scratch", at)

        def copy_rows(into: bool, tensor: str) -> ir.If:
            library = images(plan.form.dtype, plan.tile.lanes, into)
            self.kernel.needs(library)
            y, y_row = ir.Address(tensor, variable("y_at")), value(plan.form.row_y)
            own = {"rows": LOOP.height, "c_row": row, "y_row": y_row}
            step = call(library.functions[0], sums=sums, y=y, **own)
            return ir.If(FIRST if into else LAST, (step,))

        more = None if epilogue is None else epilogue.more
        before = [] if more is None else [copy_rows(True, self.kernel.buffers[more.tensor])]
        steps = self._sums(sums, row, self._b(False))
        return [*before, *steps, *([copy_rows(False, self.y)] if plan.finished else [])]

    def _sums(
        self, sums: ir.Address, sums_row: ir.Value, b: tuple[ir.Address, ir.Value],
        kind: type[Micro] = Micro,
    ) -> list[ir.Step]:  # fmt: skip
        """Return the sums of a strip, and their epilogue."""
        strip = self.call(sums, sums_row, kind, b=b[0], b_row=b[1], columns=LOOP.width)
        copied, packed = (strip(**own) for own in self.weights.tile())
        step: ir.Step = copied if self.plan.copied == ALWAYS else packed
        if self.plan.copied.constant is None:
            step = ir.If(COPIED, (copied,), (packed,))
        if self.epilogue is None:
            return [step]
        return [step, ir.If(LAST, (self._epilogue(self.epilogue, sums, sums_row, kind),))]

    def call(
        self, sums: ir.Address, sums_row: ir.Value, kind: type[Micro] = Micro,
        **own: ir.Value | ir.Address,
    ) -> Callable[..., ir.Call]:  # fmt: skip
        """Return a partial call of the strip function; takes the remaining arguments."""
        dtype, epilogue = self.plan.form.dtype, self.plan.epilogue or TileEpilogue()
        bias, bias_step, finish = ir.Address("zeros", constant(0)), constant(0), constant(0)
        more = sums
        if epilogue.bias is not None:
            bias, bias_step = self._bias(epilogue.bias)
        if epilogue.more is not None:  # read before y is written: `more` may share its memory
            if sums.buffer != "scratch":
                more = ir.Address(self.kernel.buffers[epilogue.more.tensor], variable("y_at"))
            finish = LOOP.first * ADDS
        limits = FLOORS * (epilogue.low is not None) + CAPS * (epilogue.high is not None)
        if limits:
            finish = finish + select(LAST, limits, constant(0))
        of_buffers = line_buffer_libraries(self.plan.tile, dtype)
        library = (of_buffers if kind is LineBufferMicro else libraries(self.plan))[-1]
        return partial(
            call, strip_function(library.name, dtype, kind=kind), c=sums,
            bias=bias, more=more, bias_step=bias_step, finish=finish, c_row=sums_row,
            rows=LOOP.height, start=LOOP.first,
            low=number(dtype, 0 if epilogue.low is None else epilogue.low),
            high=number(dtype, 0 if epilogue.high is None else epilogue.high), **own,
        )  # fmt: skip

    def _b(self, direct: bool) -> tuple[ir.Address, ir.Value]:
        """Return the address of a panel, and the stride of its rows."""
        if direct:
            at = LOOP.x_at + LOOP.column
            return ir.Address("x", at), self.kernel.sizes.value(self.plan.form.channels.x)
        return ir.Address("scratch", constant(0)), constant(self.plan.panel_row)

    def _bias(self, read: Read) -> tuple[ir.Address, ir.Value]:
        form = affine(read.indices[0])
        assert form is not None
        step = self.kernel.sizes.value(form.stride("m"))
        loops = ((w.name, form.stride(w.name)) for w in self.plan.form.loops)
        at = self.kernel.at(form.constant, loops) + LOOP.m * step
        return ir.Address(self.kernel.buffers[read.tensor], at), step

    def _epilogue(
        self, epilogue: ir.Function, sums: ir.Address, sums_row: ir.Value, kind: type[Micro]
    ) -> ir.Step:
        """Return the epilogue of a strip, image by image where images are joined."""
        form, value = self.plan.form, self.kernel.sizes.value
        own: dict[str, ir.Value | ir.Address] = {
            "sums_row": sums_row, "out_row": value(form.row_y),
            "row0": LOOP.m, "rows": LOOP.height,
        }  # fmt: skip
        out: ir.Value = variable("y_at")
        if sums.buffer != "scratch":
            first: ir.Value = LOOP.column
            count: ir.Value = LOOP.width
            if kind is LineBufferMicro:
                ends = first, first + count
                first, stop = map(self.buffer_steps.output_position, ends)
                count, out = stop - first, out + first
            own |= {"column0": first, "columns": count, "out_at": out}
            return call(epilogue, sums=ir.Address(sums.buffer, out), **own)
        images_of = self.plan.columns.loop
        assert images_of is not None, "images that are joined have a loop"
        image, run = variable("number"), LOOP.run
        own |= {"column0": constant(0), "columns": run, images_of.name: LOOP.image + image}
        at = ir.Address("scratch", sums.offset + image * run * form.dtype.bytes)
        out = out + image * LOOP.y_image
        return loop("number", 0, LOOP.images, 1, call(epilogue, sums=at, out_at=out, **own))


def libraries(plan: Plan) -> tuple[ir.Library, ...]:
    """Return the libraries of a kernel: tiles, and strips of tiles."""
    one, tiles = choose_micro_kernel(plan.tile, plan.form.dtype, plan.form.rows)
    return *tiles, strips(plan.tile, plan.form.dtype, one)

"""Weights of a block of rows and a chunk of channels: their addresses, and copies of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import index_sum
from anydim.compiler.kernels.ir import constant, select
from anydim.compiler.kernels.matmul.blocked_loops import Blocked
from anydim.compiler.kernels.matmul.convolution.convolution_packing import weights_function
from anydim.compiler.kernels.matmul.convolution.convolution_plan import Plan
from anydim.compiler.kernels.matmul.convolution.convolution_variables import LOOP, PACK
from anydim.compiler.kernels.matmul.convolution.cropped_taps import (
    FIRST,
    KEPT,
    first_taps,
    kept_weights_function,
)
from anydim.compiler.kernels.matmul.convolution_form import ConvolutionForm
from anydim.compiler.kernels.matmul.matmul_kernel import call, packed_at
from anydim.sizes import NEVER, Size, align_up

COPIED = ir.Var(ir.FLAG, "copied")


@dataclass(frozen=True)
class Weights:
    """The weights of a kernel; `functions` holds the function that copies them, if any."""

    plan: Plan
    kernel: Blocked
    functions: tuple[ir.Function, ...]

    @property
    def row(self) -> ir.Value:
        """Elements between rows of packed weights."""
        return self.kernel.role("all_k", self.plan.given.k)

    def start(self) -> ir.Value:
        """Return the offset of the first weight of the block of rows."""
        kernel, form = self.kernel, self.plan.form
        if not self.plan.schedule.packed:
            first = kernel.at(form.w_start, ((walk.name, walk.w) for walk in form.loops))
            return first + LOOP.row0 * kernel.sizes.value(form.row_w)
        group = align_up(form.rows, self.plan.tile.rows) * self.plan.given.k
        row = LOOP.row0 * self.row
        loops = [(walk.name, walk.extent) for walk in form.loops if walk.w != 0]
        return index_sum(row, *packed_at(loops, group, kernel.role))

    def copy(self) -> list[ir.Step]:
        """Copy the weights of a chunk, where they are copied."""
        plan, value = self.plan, self.kernel.sizes.value
        if plan.copied == NEVER:
            return []
        if not plan.schedule.packed:
            dst, step = self._copy, value(plan.form.channels.w)
            at = LOOP.w_unit + LOOP.channel0 * step
            return [call(self.functions[0], dst=dst, w_at=at)]
        copy = self.copying()
        starts = first_taps(plan.given)
        own = {f"{FIRST}{n}": value(start) for n, start in enumerate(starts)}
        own |= {f"{KEPT}{n}": value(tap.extent) for n, tap in enumerate(plan.form.taps)}
        copied = ir.Let("copied", self.kernel.sizes.holds(plan.copied))
        return [copied, ir.If(COPIED, (copy(**own),))]

    def copying(self) -> Callable[..., ir.Call]:
        """Return a partial call that copies taps of a chunk of packed weights; takes the taps."""
        dst = self._copy
        at = LOOP.w_unit + LOOP.channel0 * self._channel
        return partial(call, self.functions[0], dst=dst, w_at=at, w_row=self.row)

    def tile(self) -> list[dict[str, ir.Value | ir.Address]]:
        """Return the arguments of a tile call with copied weights, and with weights as packed."""
        given, form = self.plan.given, self.plan.form
        k = LOOP.channels * self.kernel.sizes.value(form.window)
        k0 = LOOP.channel0 * self._channel
        kept, copied = self._valid_steps(form, ())
        first, packed = self._valid_steps(given, first_taps(given)[:1])
        at = (LOOP.row * k + kept) * form.dtype.bytes + self._copy.offset
        first = LOOP.w_unit + LOOP.row * self.row + k0 + first
        return [
            {"a": ir.Address("scratch", at), "a_row": k, **copied},
            {"a": ir.Address("w", first), "a_row": self.row, **packed},
        ]

    def _valid_steps(
        self, held: ConvolutionForm, firsts: Sequence[Size]
    ) -> tuple[ir.Value, dict[str, ir.Value]]:
        """Return the offset of a panel's first tap in a channel, contiguous k-steps, and the gap.

        The channel has the taps of `held`; the plan's form lacks those before `firsts`.
        """
        valid_taps, value = self.plan.valid_taps, self.kernel.sizes.value
        if valid_taps is None:
            return constant(0), {"span": LOOP.k, "gap": constant(0)}
        tap = value(valid_taps.rest * self.plan.tile.rows)
        gap = (value(held.taps[0].extent) - valid_taps.kept) * tap
        span = select(gap.equals(0), LOOP.k, LOOP.span)
        return index_sum(PACK.seen, *map(value, firsts)) * tap, {"span": span, "gap": gap}

    @property
    def _channel(self) -> ir.Value:
        """Elements of a channel of a tile."""
        return self.kernel.sizes.value(self.plan.given.window * self.plan.tile.rows)

    @property
    def _copy(self) -> ir.Address:
        return ir.Address("scratch", self.kernel.sizes.value(self.plan.scratch.panel))


def weights_of(plan: Plan, kernel: Blocked) -> Weights:
    """Return the weights of a kernel; adds the copying function to the kernel."""
    write = partial(weights_function, plan.form, kernel.sizes, plan.tile.rows)
    if plan.schedule.packed:
        own = plan.given, kernel.sizes, plan.tile.rows, plan.tile.lanes
        write = partial(kept_weights_function, *own)
    return Weights(plan, kernel, (kernel.with_all_sizes(write),) if plan.copies else ())

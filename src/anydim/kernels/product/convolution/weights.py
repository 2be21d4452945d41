"""The weights of a block of rows and a chunk of channels: where they lie, and copies of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.ir import variable
from anydim.kernels.product.blocked import Blocked
from anydim.kernels.product.convolution.cropped import (
    FIRST,
    KEPT,
    first_taps,
    kept_weights_function,
)
from anydim.kernels.product.convolution.packing import weights_function
from anydim.kernels.product.convolution.plan import Plan
from anydim.kernels.product.convolution.seen import FROM, TO
from anydim.kernels.product.kernel import call, packed_at
from anydim.kernels.write.arithmetic import summed
from anydim.sizes import align_up

COPIED = ir.Var(ir.FLAG, "copied")


@dataclass(frozen=True)
class Weights:
    """Those of a kernel, whose `functions` are what copies them, or none."""

    plan: Plan
    kernel: Blocked
    functions: tuple[ir.Function, ...]

    @property
    def row(self) -> ir.Value:
        """Elements between rows of packed weights."""
        return self.kernel.role("all_k", self.plan.given.k)

    def start(self) -> ir.Value:
        """The first weight of the block of rows."""
        kernel, form = self.kernel, self.plan.form
        if not self.plan.schedule.packed:
            first = kernel.at(form.w_start, ((walk.name, walk.w) for walk in form.loops))
            return first + variable("row0") * kernel.sizes.value(form.row_w)
        group = align_up(form.rows, self.plan.tile.rows) * self.plan.given.k
        row = variable("row0") * self.row
        loops = [(walk.name, walk.extent) for walk in form.loops if walk.w != 0]
        return summed(row, *packed_at(loops, group, kernel.role))

    def copy(self) -> list[ir.Step]:
        """Those of a chunk, where they are copied."""
        plan, value = self.plan, self.kernel.sizes.value
        if plan.copied == 0 and plan.seen is None:
            return []
        if not plan.schedule.packed:
            dst, step = self._copy, value(plan.form.channels.w)
            at = variable("w_unit") + variable("channel0") * step
            return [call(self.functions[0], dst=dst, w_at=at)]
        copy = self.copying()
        starts = first_taps(plan.given, plan.form)
        own = {f"{FIRST}{n}": value(start) for n, start in enumerate(starts)}
        own |= {f"{KEPT}{n}": value(tap.extent) for n, tap in enumerate(plan.form.taps)}
        if plan.seen is not None:
            own[f"{FIRST}0"] = own[f"{FIRST}0"] + variable(FROM)
            own[f"{KEPT}0"] = variable(TO) - variable(FROM)
        return [ir.If(COPIED, (copy(**own),))]

    def note(self) -> list[ir.Step]:
        """Whether they are copied, where some are not."""
        plan, value = self.plan, self.kernel.sizes.value
        if plan.copied.constant is not None and plan.seen is None:
            return []
        copied = value(plan.copied).differs(0)
        if plan.seen is not None:
            taps = value(plan.form.taps[0].extent)
            copied = copied | (variable(TO) - variable(FROM)).differs(taps)
        return [ir.Let("copied", copied)]

    def copying(self) -> Callable[..., ir.Call]:
        """What copies some taps, those of its arguments, of a chunk of packed weights."""
        dst = self._copy
        at = variable("w_unit") + variable("channel0") * self._channel
        return partial(call, self.functions[0], dst=dst, w_at=at, w_row=self.row)

    def tile(self) -> list[tuple[ir.Address, ir.Value]]:
        """Those of a tile as they were copied, and as they came; how far their rows are apart."""
        at = variable("row") * variable("k") * self.plan.form.dtype.bytes
        k0 = variable("channel0") * self._channel
        start = self._copy.offset
        came = ir.Address("w", variable("w_unit") + variable("row") * self.row + k0)
        return [(ir.Address("scratch", at + start), variable("k")), (came, self.row)]

    @property
    def _channel(self) -> ir.Value:
        """Elements of a channel of a tile."""
        return self.kernel.sizes.value(self.plan.given.window * self.plan.tile.rows)

    @property
    def _copy(self) -> ir.Address:
        return ir.Address("scratch", self.kernel.sizes.value(self.plan.scratch.panel))


def weights_of(plan: Plan, kernel: Blocked) -> Weights:
    """Those of a kernel, which has the function then."""
    write = partial(weights_function, plan.form, kernel.sizes, plan.tile.rows)
    if plan.schedule.packed:
        own = plan.given, kernel.sizes, plan.tile.rows, plan.tile.lanes
        write = partial(kept_weights_function, *own)
    return Weights(plan, kernel, (kernel.sized(write),) if plan.copies else ())

"""The columns of a result vector: which lanes exist, and which are in bounds of a tensor."""

from __future__ import annotations

from collections.abc import Callable

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, quotient_up
from anydim.compiler.kernels.codegen.scalar_lowering import Context, ScalarLowering
from anydim.compiler.kernels.ir import constant, greatest, least
from anydim.compiler.kernels.matmul.epilogue import Output
from anydim.compiler.kernels.window_reduction.window_form import Limit, Window, WindowForm
from anydim.lang.tree import Expr
from anydim.lang.tree.affine import to_expr

Level = Callable[[tuple[Limit, ...]], tuple[ScalarLowering, dict[object, list[ir.Value]]]]
"""Maps limits to the scope in which their masks are computed, and the masks already there."""


@dataclass(frozen=True)
class Setting:
    """State shared by the variants of a kernel, and their vector lanes."""

    form: WindowForm
    context: Context
    lanes: int

    def buffer(self, window: Window) -> str:
        return self.context.buffers[window.read.tensor]


class Columns:
    """The lanes from `at` + `by` on; lanes at or above `extent` are masked unless `whole`."""

    def __init__(
        self, setting: Setting, scope: ScalarLowering, at: ir.Value, extent: ir.Value, by: int = 0,
        whole: bool = False,
    ) -> None:  # fmt: skip
        lanes = setting.lanes
        self.setting, self.scope = setting, scope
        self.at = scope.name(at + by)
        self.count: ir.Value = constant(lanes)
        self.inside: ir.Value | None = None
        if not whole:
            self.count = scope.name(greatest(least(extent - self.at, lanes), 0))
            self.inside = scope.name(first_lanes(self.count, lanes))
        self.found: dict[object, list[ir.Value]] = {}

    def uniform(self, limit: Limit) -> bool:
        """Whether a limit is the same for all lanes."""
        return limit.index.stride(self.setting.form.lane.name).constant == 0

    def spread(self, window: Window) -> int:
        """The number of vectors loaded for one."""
        return window.stride

    def masks(
        self, level: Level, scope: ScalarLowering, at: ir.Value, mask: ir.Value | None,
        limits: tuple[Limit, ...], spread: int,
    ) -> list[ir.Value | None]:  # fmt: skip
        """The masks of the vectors that a strided load consists of; None: all lanes."""
        if not limits and spread == 1:
            return [mask]
        home, found = level(limits)
        key = (spread, limits, id(self))
        if key not in found:
            found[key] = self._make_masks(home, at, limits, spread)
        return list(found[key])

    def _make_masks(
        self, home: ScalarLowering, at: ir.Value, limits: tuple[Limit, ...], spread: int
    ) -> list[ir.Value]:
        """Masks of the lanes in bounds, for lanes `spread` elements apart."""
        lanes, lane = self.setting.lanes, self.setting.form.lane.name
        value = self.setting.context.sizes.value
        low: ir.Value = constant(0)
        high = self.count
        for limit in limits:
            by = value(limit.index.stride(lane))
            first = home.scalar(to_expr(limit.index.without(lane)))
            first = home.name(first + at * by)
            low, high = narrow_range(home, low, high, first, value(limit.extent) - first, by)
        if spread > 1:
            behind = (high - 1) * spread + 1
            high, low = home.name(greatest(behind, 0)), home.name(low * spread)
        masks: list[ir.Value] = []
        for part in range(spread):
            mask = first_lanes(high - part * lanes, lanes)
            if limits:
                mask = mask & ~first_lanes(low - part * lanes, lanes)
            masks.append(home.name(mask))
        return masks

    def load(
        self, vector: ir.Type, window: Window, start: ir.Value, mask: ir.Value | None
    ) -> ir.Value:
        """The lanes of a window, from offset `start` on."""
        return ir.Load(vector, self.setting.buffer(window), start, mask)

    def pseudo_tensors(self, scope: ScalarLowering) -> dict[str, ir.Value]:
        """Values of pseudo-tensors that an output may read."""
        return {}

    def result(self, output: Output) -> Expr:
        """The expression that is stored."""
        return output.value


def inside(scope: ScalarLowering, limit: Limit) -> ir.Value:
    """Whether a uniform index is in bounds."""
    at = scope.scalar(to_expr(limit.index))
    return scope.name((at >= 0) & (at < scope.context.sizes.value(limit.extent)))


def narrow_range(
    scope: ScalarLowering, low: ir.Value, high: ir.Value, first: ir.Value, bound: ir.Value,
    by: ir.Value,
) -> tuple[ir.Value, ir.Value]:  # fmt: skip
    """The indices i in `low`:`high` with `first` + `by` * i >= 0 and `by` * i < `bound`."""
    below, above = (quotient_up(greatest(ends, 0), by) for ends in (0 - first, bound))
    return scope.name(greatest(low, below)), scope.name(least(high, above))

"""Work partition of a product: the range of its launch, and the rectangles of a part of it.

The work consists of tiles of rows times panels of columns, in loops: a kernel runs all tiles of a
panel, then those of the next panel. A tile counts one cell per vector of its panel, so that a
narrow last panel counts less. A part consists of rectangles: the rest of its first panel, its
whole panels, the beginning of its last panel. Inside a rectangle the blocks are as large as the
caches allow: one thread has one rectangle, and every tile is computed in the same manner with any
number of threads.

Where rows are many, all panels count as one, and threads share the rows alone. The range of the
launch is time: one step is about half a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import (
    START,
    STOP,
    constant,
    greatest,
    least,
    select,
    variable,
    variables,
)
from anydim.compiler.kernels.limits import DEFAULTS
from anydim.sizes import Condition, Size, as_size, ceil_div, maximum, minimum, product

STEP = 50_000  # of `WorkPartition.work`
MAX_STEPS = 1 << 16  # of a product that packs weights: each piece of its range would pack again
MAX_STEPS_PACKED = 1 << 21  # with packed weights: a call checks for other work between pieces
_VECTOR, _TILE = 16, 3000


@dataclass(frozen=True)
class Rectangle:
    """The variables of a rectangle: its tiles of rows and its panels, `around` of the loops.

    `left`: tiles after its first one in the part of the thread, see `WorkPartition.rectangles`.
    """

    first_tile: ir.Var
    stop_tile: ir.Var
    first_panel: ir.Var
    stop_panel: ir.Var
    around: ir.Var
    left: ir.Var


RECTANGLE = variables(Rectangle)


@dataclass(frozen=True)
class WorkPartition:
    """The partition of a product in `loops` (name, extent).

    `tiles` of rows, `columns` in panels of `width`. Panels stay together where `whole` holds.
    `work` is about 100 per nanosecond. The range of the launch has at most `max_steps` steps,
    of which `grain` are worth a thread.
    """

    loops: tuple[tuple[str, Size], ...]
    tiles: Size
    columns: Size
    width: Size | int
    lanes: int
    whole: Condition
    work: Size
    max_steps: int = MAX_STEPS
    grain: int = DEFAULTS.product_steps

    @property
    def panels(self) -> Size:
        """Number of panels."""
        return ceil_div(self.columns, self.width)

    @property
    def vectors(self) -> Size:
        """Cells of a tile in all panels, where the panels do not stay together."""
        return ceil_div(self.columns, self.lanes)

    @property
    def around(self) -> Size:
        """Number of iterations of the loops."""
        return product(extent for _, extent in self.loops)

    @property
    def steps(self) -> Size:
        """The range of the launch; 0 when there are no results."""
        return minimum(ceil_div(self.work, STEP), self.max_steps)

    def rectangles(
        self, value: Callable[[str, Size], ir.Value], body: Sequence[ir.Step], done: str = ""
    ) -> tuple[ir.Step, ...]:
        """Return steps that run `body` for each rectangle of start:stop.

        The body can use the indices of the loops and the variables of `RECTANGLE`. `value` returns
        a size by role name. With a register name `done`, the body may process several tiles that
        are alone in their iteration, out of the `left` remaining ones; it stores their number in
        `done`.
        """
        code = Writer()

        def define(name: ir.Var, term: ir.Value) -> ir.Var:
            code.emit(ir.Let(name.name, term))
            return name

        tiles, panels = value("tiles", self.tiles), value("panels", self.panels)
        # Threads with rows of their own read all of B; others read A from each other's caches.
        whole = code.let(value("whole", self.whole.flag).differs(0))
        groups = code.let(select(whole, constant(1), panels))
        span = code.let(select(whole, panels, 1))
        weight = as_size(self.width) // self.lanes
        known_weight = weight.constant
        each = value("weight", weight) if known_weight is None else constant(known_weight)
        cells = _Cells(
            tiles, groups, code.let(select(whole, constant(1), value("vectors", self.vectors))),
            code.let(select(whole, constant(1), each)),
            value("iterations", self.around), code.let(greatest(value("steps", self.steps), 1)),
        )  # fmt: skip
        end = cells.first(code, STOP)
        at = code.variable(cells.first(code, START))
        with code.loop(lambda: at() < end):
            here = at()
            column = code.let(here / tiles)
            first = define(RECTANGLE.first_tile, here - column * tiles)
            rest: ir.Value = define(RECTANGLE.around, column / groups)
            group = code.let(column - rest * groups)
            remaining = code.let(end - here, RECTANGLE.left.name if done else "")
            if done:
                code.emit(ir.Declare(done, constant(1)))
            all_of = least(remaining / tiles, groups - group)
            complete = code.let(select(first.equals(0), all_of, 0))
            many = code.let(greatest(complete, 1))
            last = select(complete > 0, tiles, least(first + remaining, tiles))
            stop = define(RECTANGLE.stop_tile, last)
            define(RECTANGLE.first_panel, group * span)
            define(RECTANGLE.stop_panel, least((group + many) * span, panels))
            for name, extent in reversed(self.loops[1:]):
                count = value(f"{name}_extent", extent)
                above = code.let(rest / count)
                define(variable(name), rest - above * count)
                rest = above
            for name, _ in self.loops[:1]:
                define(variable(name), rest)
            for step in body:
                code.emit(step)
            advance = many * (stop - first)
            at += advance * ir.Get(ir.INDEX, done) if done else advance
        return code.written


@dataclass(frozen=True)
class _Cells:
    """Counts of tiles and groups of panels; a group has `weight` cells, all groups `weights`."""

    tiles: ir.Value
    groups: ir.Value
    weights: ir.Value
    weight: ir.Value
    around: ir.Value
    steps: ir.Value

    def first(self, code: Writer, step: ir.Value) -> ir.Value:
        """Return the first tile, over all groups, whose cells begin at `step` or later."""
        each = code.let(self.tiles * self.weights)
        position = code.let(step * each * self.around / self.steps)
        each = code.let(greatest(each, 1))
        around = code.let(position / each)
        inside = code.let(position - around * each)
        each = code.let(greatest(self.tiles * self.weight, 1))
        group = code.let(inside / each)
        own = code.let(greatest(least(self.weight, self.weights - group * self.weight), 1))
        above = (inside - group * each + own - 1) / own
        return code.let((around * self.groups + group) * self.tiles + above)


def work_of(loops: Size, rows: Size, tiles: Size, columns: Size, k: Size) -> Size:
    """Return the work of a product: a tile costs as much as two more rows, with k = 0 as one row.

    Few columns cost as much as one vector, and a tile has a fixed cost of `_TILE`. Measured on a
    Xeon with AVX-512: 100 multiply-adds of floats in a nanosecond.
    """
    each = maximum(columns, _VECTOR) * maximum(k, 1)
    return loops * minimum(columns, 1) * ((rows + 2 * tiles) * each + tiles * _TILE)

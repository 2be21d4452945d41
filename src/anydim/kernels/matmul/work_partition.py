"""How threads share a product: the range of its launch, and the rectangles that a part of it is.

Tiles of rows times panels of columns, in loops: a kernel goes through all tiles of a panel, then
those of the next one, and each tile counts as many positions as its panel has vectors, so that a
narrow last panel counts less. Its part is rectangles: what it has of its first panel, all panels
that it has as a whole, what it has of its last one. Within them it goes by blocks as large as
caches allow: on one thread there is one rectangle, and on any number of threads every tile is
computed in the same way.

Where rows are many, all panels count as one, and threads share the rows alone. The range of the
launch is time: it has a step for about half a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.codegen.writer import Writer
from anydim.kernels.ir import constant, greatest, least, select
from anydim.sizes import Size, as_size, ceil_div, maximum, minimum, product

GRAIN = 8  # steps that are worth a thread
STEP = 50_000  # of `Sharing.work`
MOST_STEPS = 1 << 16  # of a product that packs weights: each piece of its range would pack again
MOST_PACKED = 1 << 21  # of one whose weights are packed: a call looks behind pieces of its range
_VECTOR, _TILE = 16, 3000


@dataclass(frozen=True)
class Sharing:
    """Of a product in `loops` (name, extent): `tiles` of rows, `columns` in panels of `width`.

    Where `whole` is 1, not 0, all panels stay together. `work` is about 100 for each nanosecond.
    The range of the launch has `most` steps.
    """

    loops: tuple[tuple[str, Size], ...]
    tiles: Size
    columns: Size
    width: Size | int
    lanes: int
    whole: Size
    work: Size
    most: int = MOST_STEPS

    @property
    def panels(self) -> Size:
        """All panels."""
        return ceil_div(self.columns, self.width)

    @property
    def vectors(self) -> Size:
        """The positions of a tile in all panels, where they do not stay together."""
        return ceil_div(self.columns, self.lanes)

    @property
    def around(self) -> Size:
        """Iterations of the loops."""
        return product(extent for _, extent in self.loops)

    @property
    def steps(self) -> Size:
        """The range of the launch: nothing for no results."""
        return minimum(ceil_div(self.work, STEP), self.most)

    def rectangles(
        self, value: Callable[[str, Size], ir.Value], body: Sequence[ir.Step], done: str = ""
    ) -> tuple[ir.Step, ...]:
        """Do `body` for each rectangle of start:stop.

        It knows the indices of the loops, the number `around` of their iteration, and `first_tile`,
        `stop_tile`, `first_panel`, `stop_panel`. `value` gives a size, for a name of its role.
        Of tiles that are alone in their iteration it may do several of those that are `left`: it
        sets the register `done`, where that has a name, to their number.
        """
        code = Writer()

        def size(role: str, size: Size) -> ir.Value:
            return value(role, size)

        def known(name: str, term: ir.Value) -> ir.Value:
            code.emit(ir.Let(name, term))
            return ir.Var(ir.INDEX, name)

        tiles, panels = size("tiles", self.tiles), size("panels", self.panels)
        whole = code.let(size("whole", self.whole).differs(0))
        groups = code.let(select(whole, constant(1), panels))
        span = code.let(select(whole, panels, 1))
        weight = as_size(self.width) // self.lanes
        known_weight = weight.constant
        each = size("weight", weight) if known_weight is None else constant(known_weight)
        cells = _Cells(
            tiles, groups, code.let(select(whole, constant(1), size("vectors", self.vectors))),
            code.let(select(whole, constant(1), each)),
            size("iterations", self.around), code.let(greatest(size("steps", self.steps), 1)),
        )  # fmt: skip
        end = cells.first(code, ir.Var(ir.INDEX, "stop"))
        at = code.variable(cells.first(code, ir.Var(ir.INDEX, "start")))
        with code.loop(lambda: at() < end):
            here = at()
            column = code.let(here / tiles)
            first = known("first_tile", here - column * tiles)
            rest = known("around", column / groups)
            group = code.let(column - rest * groups)
            left = code.let(end - here, "left" if done else "")
            if done:
                code.emit(ir.Declare(done, constant(1)))
            all_of = least(left / tiles, groups - group)
            complete = code.let(select(first.equals(0), all_of, 0))
            many = code.let(greatest(complete, 1))
            stop = known("stop_tile", select(complete > 0, tiles, least(first + left, tiles)))
            known("first_panel", group * span)
            known("stop_panel", least((group + many) * span, panels))
            for name, extent in reversed(self.loops[1:]):
                count = size(f"{name}_extent", extent)
                above = code.let(rest / count)
                known(name, rest - above * count)
                rest = above
            for name, _ in self.loops[:1]:
                known(name, rest)
            for step in body:
                code.emit(step)
            took = many * (stop - first)
            at += took * ir.Get(ir.INDEX, done) if done else took
        return code.written


@dataclass(frozen=True)
class _Cells:
    """Tiles of `groups` of panels, which count `weight` each, all groups `weights`."""

    tiles: ir.Value
    groups: ir.Value
    weights: ir.Value
    weight: ir.Value
    around: ir.Value
    steps: ir.Value

    def first(self, code: Writer, step: ir.Value) -> ir.Value:
        """The first tile, counted through all groups, whose positions begin at a step or later."""
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
    """That of a product: a tile takes as long as two more rows, without any k as long as with one.

    Few columns take as long as those of a vector, and a tile of next to nothing `_TILE`. Measured
    on a Xeon with AVX-512: 100 multiply-adds of floats in a nanosecond.
    """
    each = maximum(columns, _VECTOR) * maximum(k, 1)
    return loops * minimum(columns, 1) * ((rows + 2 * tiles) * each + tiles * _TILE)


def from_on(size: Size | int, least: Size | int) -> Size:
    """1 where a size is at least so much, else 0."""
    return minimum(maximum(as_size(size) - least + 1, 0), 1)

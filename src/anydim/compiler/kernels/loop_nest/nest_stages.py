"""Loop IR of stages (`lang/dependence/stages.py`): one launch whose range covers all stages.

    kernel(start, stop):                  numbers stage * each + position; threads share a stage
      for s in start/each : stop/each rounded up:
        low, high = the positions of stage s from start to stop
        t = s - first                                               an iteration
        for x in low * block : high * block: ...                    the part of its range
        for r in low:high { tile r, s - first - r of a band }       a diagonal of tiles

A part of the range runs as on one thread: in order, stage by stage.
"""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import int64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen import arithmetic
from anydim.compiler.kernels.codegen.vector_loops import START, STOP, for_loop
from anydim.compiler.kernels.ir import greatest, least, variable
from anydim.compiler.kernels.loop_nest.nest_elements import NestElements
from anydim.compiler.kernels.loop_nest.nest_loops import NestCode
from anydim.lang.dependence.chunks import Chunks
from anydim.lang.dependence.stages import Stages
from anydim.lang.tree import Loop, OrderedStep, SizeTerm
from anydim.lang.tree.stepping import written_tensors
from anydim.sizes import Size, as_size, maximum

# A recurrence of 1000 x 1000: 1740 us; strips of 4 take 1870, of 16 2070, whole rows 4530.
ROWS, STRIP = 64, 8  # iterations of a strip of a tile, along both loops
Span = tuple[ir.Value, ir.Value]


@dataclass(frozen=True)
class Tiles:
    """Tiles of a band: iterations of both loops per tile, and the number of tiles `across`."""

    rows: Size
    columns: Size
    across: Size


@dataclass(frozen=True)
class Staged:
    """Stages, the chunks of each part, and how much of them a position covers; or tiles, of which a
    position is a row."""

    stages: Stages
    cuts: tuple[Chunks | None, ...]
    blocks: tuple[Size, ...]
    tiles: Tiles | None = None

    def count(self, each: Size) -> Size:
        """The number of stages."""
        if self.tiles is not None:
            return self.tiles.across + each - 1
        loop = self.stages.loop
        return (as_size(1) if loop is None else trips(loop)) * len(self.cuts)


def trips(loop: Loop) -> Size:
    """The number of iterations of a loop with size bounds."""
    assert isinstance(loop.start, SizeTerm) and isinstance(loop.stop, SizeTerm)
    return maximum(0, loop.stop.size - loop.start.size)


class StagedCode(NestCode):
    """Emits the body of a kernel whose launch has stages of `each` positions."""

    def emit_stages(self, staged: Sequence[Staged], each: Size) -> tuple[ir.Step, ...]:
        """All steps of the main function."""
        kernel = NestElements(self.context)
        inside = kernel.inner({}, certain=False)
        first = as_size(0)
        for some in staged:
            self._stages(inside, some, first, each)
            first = first + some.count(each)
        return (*kernel.steps, ir.If(START < STOP, tuple(inside.steps)))

    def _stages(self, scope: NestElements, some: Staged, first: Size, each: Size) -> None:
        here = scope.inner({}, certain=False)
        width, begin = here.size(each), here.size(first)
        end = here.size(first + some.count(each))
        stage = variable(self.context.fresh("s"))
        inner = here.inner({}, certain=False)
        base = inner.name(stage * width)
        self.low = inner.name(greatest(START - base, 0))
        self.high = inner.name(least(STOP - base, width))
        number = inner.name(stage - begin)
        if some.tiles is not None:
            self._diagonal(inner, some, some.tiles, number)
        else:
            self._iteration(inner, some, number)
        low = here.name(greatest(begin, START // width))
        high = here.name(least(end, (STOP + width - 1) // width))
        loop = arithmetic.loop(stage.name, low, high, 1, *inner.steps)
        scope.steps += [*here.steps, loop]

    def _iteration(self, scope: NestElements, some: Staged, number: ir.Value) -> None:
        """A stage of an iteration: the part selected by the stage number."""
        loop, count = some.stages.loop, len(some.cuts)
        variables: dict[str, ir.Value] = {}
        if loop is not None:
            self.loops += 1
            assert isinstance(loop.start, SizeTerm)
            iteration = number if count == 1 else number // count
            variables[loop.variable] = scope.name(scope.size(loop.start.size) + iteration)
        low, high = self.low, self.high
        for index, (part, cut, block) in enumerate(zip(some.stages.parts, some.cuts, some.blocks)):
            inner = scope.inner(
                {}, certain=False, variables=variables, written=written_tensors(part.steps)
            )
            self.chunks = cut
            if cut is not None:
                by = inner.size(block)
                self.low, self.high = inner.name(low * by), inner.name(high * by)
            self.steps(inner, part.steps)
            steps = tuple(inner.steps)
            if cut is None:
                steps = (ir.If(low.equals(0), steps),)
            if count > 1:
                mine = scope.name((number % count).equals(index))
                steps = (ir.If(mine, steps),)
            scope.steps += steps

    def _diagonal(self, scope: NestElements, some: Staged, tiles: Tiles, number: ir.Value) -> None:
        """The tiles of a diagonal; a position is a row of tiles."""
        outer = some.stages.loop
        assert outer is not None and isinstance(outer.body[0], Loop)
        self.chunks = None
        with for_loop(scope, self.high, self.low, letter="r", certain=False) as (line, row):
            column = line.name(number - row)
            tile = line.inner({}, certain=False)
            spans = (
                self._span(tile, outer, row, tiles.rows),
                self._span(tile, outer.body[0], column, tiles.columns),
            )
            self._strips(tile, outer, spans)
            inside = (column >= 0) & (column < line.size(tiles.across))
            line.steps.append(ir.If(line.name(inside), tuple(tile.steps)))

    def _strips(self, scope: NestElements, outer: Loop, spans: Sequence[Span]) -> None:
        """A tile in narrow strips: while the end of a row waits for its dependences, out-of-order
        execution starts the next row."""
        starts = [variable(self.context.fresh("q")) for _ in spans]
        strip = scope.inner({}, certain=False)
        for depth, (start, (_, stop), by) in enumerate(zip(starts, spans, (ROWS, STRIP))):
            end = strip.name(least(start + by, stop))
            self.spans[self.loops + depth] = start, end
        step: OrderedStep = outer
        self.steps(strip, (step,))
        steps = tuple(strip.steps)
        for start, (low, high), by in reversed(list(zip(starts, spans, (ROWS, STRIP)))):
            steps = (arithmetic.loop(start.name, low, high, by, *steps),)
        scope.steps += steps

    def _span(self, scope: NestElements, loop: Loop, number: ir.Value, by: Size) -> Span:
        """The iterations of a loop that are in a tile."""
        start, stop = (scope.now(bound, int64) for bound in (loop.start, loop.stop))
        size = scope.size(by)
        low = scope.name(start + number * size)
        return low, scope.name(least(low + size, stop))

"""Partitions a nest over threads, and estimates its work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from anydim.base.records import dataclass
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.loop_nest.nest_form import NestForm, Ranges, extremes, loop_ranges
from anydim.compiler.kernels.loop_nest.nest_stages import Staged, Tiles, trips
from anydim.compiler.kernels.loop_nest.nest_writes import Vectorization, part_of
from anydim.compiler.kernels.partial_rows import uncounted_axes
from anydim.compiler.kernels.work_estimate import PART_WORK, TYPICAL_ROW, cost
from anydim.lang.dependence.chunks import Chunks
from anydim.lang.dependence.stages import Stages, stages_of
from anydim.lang.tree import Axis, Branch, Loop, OrderedStep, Write
from anydim.lang.tree.bounds_checks import has_checks
from anydim.lang.tree.stepping import expressions_of
from anydim.sizes import Box, Size, align_up, as_size, ceil_div, maximum, minimum, product

STAGES = "stages"  # threads share each stage, with a barrier after it
SHORT = 32  # shorter ranges are shared only if there is no other
LEAST_SHARE = 8  # the serial share of the work is at most 1 / LEAST_SHARE
# Two threads gain 1.4 from 4 us of work on, 1.9 from 25; shared from 1 us on, stages lost 14 %.
STAGE_WORK = PART_WORK // 16  # operations of a stage worth a thread: barriers are fast
BAND_WORK = PART_WORK // 2  # operations of a band worth a thread
NARROW, MOST_TILES = 8, 16  # minimum iterations of a tile; maximum tiles across, on few threads


def best(all: Sequence[Chunks]) -> Chunks | None:
    """The outermost range that is not known to be short, else the longest."""
    known = {chunks: chunks.extent.constant for chunks in all}
    long = (c for c, extent in known.items() if extent is None or extent >= SHORT)
    return next(long, max((c for c in known if known[c] != 1), key=lambda c: known[c] or 0,
                          default=None))  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The stages of a kernel, of `each` positions, and the range that covers all of them."""

    staged: tuple[Staged, ...]
    each: Size
    range: Size


def plan_stages(
    form: NestForm, box: Box, vectorized: Mapping[int, Vectorization], machine: Machine
) -> Plan | None:
    """How threads share stages; None where most of the work is serial.

    A failing check ends loops in order, so nests with checks have no stages. Bands are tiled even
    for one thread.
    """
    threads = max(1, machine.threads)
    if machine.max_lanes or any(has_checks(expr) for _, expr in expressions_of(form.steps)):
        return None
    types = form.types | {tensor.name: tensor.type for tensor in form.temporaries}
    stages = tuple(stages_of(form.steps, types, box))
    if threads == 1 and not any(some.band for some in stages):
        return None
    work, alone = _shares(stages, loop_ranges(form.steps))
    if not work or alone * LEAST_SHARE > sum(work) or (any(s.band for s in stages) and form.rings):
        return None
    wanted = [
        _wanted_threads(some, loop_ranges(form.steps)) for some in stages if some.loop is not None
    ]
    each = maximum(1, minimum(threads, *wanted))
    made = tuple(_cut(some, each, threads, vectorized) for some in stages)
    count = sum((some.count(each) for some in made), as_size(0))
    return Plan(made, each, count * each)


def _iterations(some: Stages) -> Size:
    return as_size(1) if some.loop is None else trips(some.loop)


def _shares(all: Sequence[Stages], ranges: Ranges) -> tuple[list[int], int]:
    """Operations of each stage at typical sizes, and the serial operations among them."""
    work, alone = [], 0
    for some in all:
        for part in some.parts:
            operations = operations_of(part.steps, _iterations(some), ranges)
            typical = operations.evaluate(dict.fromkeys(operations.symbols, TYPICAL_ROW))
            work.append(typical)
            alone += 0 if part.chunks or some.band else typical
    return work, alone


def _wanted_threads(some: Stages, ranges: Ranges) -> Size:
    """The number of threads that a stage's work justifies; for a band, the work of all its
    stages."""
    steps = [step for part in some.parts for step in part.steps]
    if some.band:
        return operations_of(steps, _iterations(some), ranges) // BAND_WORK
    return operations_of(steps, as_size(1), ranges) // (STAGE_WORK * len(some.parts))


def _cut(some: Stages, each: Size, threads: int, vectorized: Mapping[int, Vectorization]) -> Staged:
    if some.band:
        return Staged(some, (None,), (as_size(1),), _tiles(some, each, threads))
    cuts = tuple(best(part.chunks) for part in some.parts)
    return Staged(some, cuts, tuple(_block(cut, each, vectorized) for cut in cuts))


def _block(cut: Chunks | None, each: Size, vectorized: Mapping[int, Vectorization]) -> Size:
    """Indices of a range per position of a stage; whole vectors of the vectorized axis."""
    if cut is None:
        return as_size(1)
    found = ((vectorized[number], own) for number, own in cut.cuts.items())
    lanes = [w.lanes for w, own in found if w.lane is not None and w.lane.name == own.variable]
    return align_up(ceil_div(cut.extent, each), max(lanes, default=1))


def _tiles(some: Stages, each: Size, threads: int) -> Tiles:
    """One row of tiles per position; a single tile for one thread."""
    inner = some.parts[0].steps[0]
    assert isinstance(inner, Loop)
    length = trips(inner)
    many = minimum(
        length // NARROW, max(MOST_TILES, 4 * threads), (each - 1) * MOST_TILES * threads
    )
    across = maximum(1, many)
    return Tiles(ceil_div(_iterations(some), each), ceil_div(length, across), across)


def operations_of(
    steps: Sequence[OrderedStep], iterations: Size, ranges: Ranges,
    loops: Mapping[str, Size] = MappingProxyType({}),
) -> Size:  # fmt: skip
    """The number of operations of steps in `loops`, by variable, and in `iterations` around them.

    Data-dependent trip counts count as one; for ranges of reductions see `uncounted_axes`.
    """
    total = as_size(0)
    for step in steps:
        if isinstance(step, Loop):
            span = ranges[step.variable]
            more = as_size(1) if span is None else maximum(0, span[1] - span[0] + 1)
            inner = {**loops, step.variable: more}
            total = total + operations_of(step.body, iterations, ranges, inner)
        elif isinstance(step, Branch):
            both = (*step.then, *step.otherwise)
            total = total + operations_of(both, iterations, ranges, loops)
        elif isinstance(step, Write):
            part, body = part_of(step)
            left_out = uncounted_axes(part, [*loops, *(axis.name for axis in step.axes)])
            axes = (a for a in (*step.axes, *step.reduced) if a.name not in left_out)
            around = product(more for name, more in loops.items() if name not in left_out)
            points = around * product(_upper_bound(axis, ranges) for axis in axes)
            each = max(1, round(cost(body)) + bool(step.combine))
            total = total + iterations * points * each
    return total


def _upper_bound(axis: Axis, ranges: Ranges) -> Size:
    span = extremes(axis.extent, ranges)
    return as_size(1) if span is None else span[1]

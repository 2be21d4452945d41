"""Stages: threads share one iteration of a loop whose iterations depend on each other.

    for t in 0:T { u(t + 1, x) = u(t, x - 1) + u(t, x) + u(t, x + 1) }

has a stage for each t, split along x. Where steps of an iteration need all results of earlier
steps, each has a stage of its own.

    for i in 1:N { for j in 1:M { d(i,j) = min(d(i - 1,j), d(i,j - 1)) + c(i,j) } }

is a permutable band: no dependence goes backwards in i or in j, so it can be tiled, and the tiles
of a diagonal are a stage (a wavefront).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product as pairs

from anydim.base.records import dataclass
from anydim.lang.dependence.accesses import Access, Instance, accesses, instances
from anydim.lang.dependence.chunks import Chunks, split_ranges
from anydim.lang.dependence.distances import disjoint
from anydim.lang.tree import Loop, OrderedStep, SizeTerm, TensorType
from anydim.sizes import Box


@dataclass(frozen=True)
class Part:
    """Steps of a stage, and the ranges along which they can be split; with none they are serial."""

    steps: tuple[OrderedStep, ...]
    chunks: tuple[Chunks, ...]


@dataclass(frozen=True)
class Stages:
    """Consecutive stages: the parts in order, repeated in each iteration of `loop` if it is set.

    A band has one part, whose step is the inner loop.
    """

    loop: Loop | None
    parts: tuple[Part, ...]
    band: bool = False


Cutter = Callable[[Sequence[Instance]], tuple[Chunks, ...]]


def stages_of(
    steps: Sequence[OrderedStep], types: Mapping[str, TensorType], box: Box
) -> Iterator[Stages]:
    """Yield the stages of a nest, in order."""
    known = dict(types)
    for step, own in _with_instances(steps, instances(steps)):
        loop = step if isinstance(step, Loop) and _is_plain(step) else None
        whole = tuple(split_ranges(own, known, (), box))
        if loop is None or whole:
            yield Stages(None, (Part((step,), whole),))
            continue
        inside = [replace(one, loops=one.loops[1:]) for one in own]
        parts = tuple(
            _parts(
                list(_with_instances(loop.body, inside)),
                partial(_cuts, types=known, box=box, variable=loop.variable),
            )
        )
        band = not any(part.chunks for part in parts) and _is_band(loop, own, known)
        yield Stages(loop, (Part(loop.body, ()),) if band else parts, band)


def _is_plain(loop: Loop) -> bool:
    return loop.step == 1 and all(isinstance(b, SizeTerm) for b in (loop.start, loop.stop))


def _with_instances(
    steps: Sequence[OrderedStep], found: Sequence[Instance]
) -> Iterator[tuple[OrderedStep, Sequence[Instance]]]:
    """Pair each step with its instances."""
    start = 0
    for step in steps:
        stop = start + len(instances((step,)))
        yield step, found[start:stop]
        start = stop


def _parts(steps: Sequence[tuple[OrderedStep, Sequence[Instance]]], cuts: Cutter) -> Iterator[Part]:
    """Merge as many consecutive steps as can be split together."""
    start = 0
    while start < len(steps):
        for stop in range(len(steps), start, -1):
            some = steps[start:stop]
            chunks = cuts([instance for _, own in some for instance in own])
            if chunks or stop == start + 1:
                yield Part(tuple(step for step, _ in some), chunks)
                break
        start = stop


def _cuts(
    found: Sequence[Instance], types: dict[str, TensorType], box: Box, variable: str
) -> tuple[Chunks, ...]:
    """Splits of one iteration; elements that it does not write keep their values."""
    written = [a for i in found for a in accesses(i, types) if a.writes]

    def still(access: Access) -> bool:
        same = (other for other in written if other.tensor == access.tensor)
        return not access.writes and all(disjoint(access, other, box) for other in same)

    def steady(chunks: Chunks) -> bool:
        sizes = (chunks.extent, *(cut.offset for cut in chunks.cuts.values()))
        return not any(variable in size.symbols for size in sizes)

    return tuple(c for c in split_ranges(found, types, (), box, still) if steady(c))


def _is_band(loop: Loop, found: Sequence[Instance], types: dict[str, TensorType]) -> bool:
    """Whether a loop contains just one other loop, and no dependence is negative in either."""
    inner = loop.body[0]
    if len(loop.body) > 1 or not isinstance(inner, Loop) or not _is_plain(inner):
        return False
    bounds = [b.size for b in (inner.start, inner.stop) if isinstance(b, SizeTerm)]
    if any(loop.variable in size.symbols for size in bounds):
        return False
    if any(len(instance.loops) < 2 for instance in found):
        return False
    numbers = [at.number for at in found[0].loops[:2]]
    all = [access for instance in found for access in accesses(instance, types)]
    return all != [] and all_forward(all, numbers)


def all_forward(all: Sequence[Access], loops: Sequence[int]) -> bool:
    """Whether all dependences have distances of one sign in all these loops."""
    for first, second in pairs(all, all):
        if first.tensor == second.tensor and (first.writes or second.writes):
            gaps = [_gap(first, second, loop) for loop in loops]
            known = [gap for gap in gaps if gap is not None]
            if len(known) < len(gaps) or min(known) < 0 < max(known):
                return False
    return True


def _gap(first: Access, second: Access, loop: int) -> int | None:
    """Iterations of a loop from one access to the other, from a dimension indexed by it alone."""
    for dimension in range(len(first.indices or ())):
        left, right = first.form(dimension), second.form(dimension)
        if left is not None and right is not None:
            if left.alone == right.alone == ("loop", loop):
                return (left.rest - right.rest).constant
    return None

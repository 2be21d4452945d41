"""Bytes of an arena that suffices for a run of a program with regions, whatever its data decides.

The blocks of a run lie in the arena in chunks. A chunk fails to fit only if every gap between the
chunks in use is smaller than it. Between k chunks there are at most k + 1 gaps, so an arena of the
bytes in use, and k times the new chunk, has room for it. The block of segments is the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from anydim.base.errors import DimError
from anydim.base.records import dataclass
from anydim.deploy.export.bounds import Bounds
from anydim.runtime.program.program import Program
from anydim.runtime.program.region import LoopStep
from anydim.runtime.program.region_plan import largest, needs
from anydim.runtime.program.segment import ALIGNMENT
from anydim.runtime.signature import TensorSpec
from anydim.sizes import Size, align_up, as_size

_CHUNK = 192  # bytes of a chunk besides its content, see `regions/runs.c.in`


@dataclass(frozen=True)
class Arena:
    """`bytes` of the arena, and those of the block of segments, `scratch`."""

    bytes: Size
    scratch: Size


def arena_of(
    program: Program, known: frozenset[str], copied: Iterable[TensorSpec] = ()
) -> Arena | None:
    """Return formulas over the `known` dims.

    `copied` are inputs of which the run makes a copy. None: data decides the sizes without a bound,
    or the formulas are beyond the limits of sizes.
    """
    try:
        return _arena(program, known, copied)
    except DimError:
        return None


def _arena(program: Program, known: frozenset[str], copied: Iterable[TensorSpec]) -> Arena | None:
    found = needs(program)
    bounds = Bounds.of(found.box, known)
    growing = sum(1 for step in _loops(program) for _ in filter(None, _copies_of_stacks(step)))
    candidates: dict[Size, None] = {}
    for moment in found.moments:
        sizes = [bounds.most(size) for size in moment.sizes]
        if None in sizes:
            return None
        candidates |= dict.fromkeys(_candidates([s for s in sizes if s is not None], growing))
    scratch = bounds.most(found.arena)
    if scratch is None:
        return None
    most = largest([*candidates], bounds.box) if candidates else as_size(0)
    first = 0 if scratch == 0 else scratch + _CHUNK
    copies = sum((align_up(spec.bytes, ALIGNMENT) + _CHUNK for spec in copied), as_size(0))
    return Arena(most + first + copies, scratch)


def _candidates(sizes: Sequence[Size], growing: int) -> Iterator[Size]:
    """Yield the bytes with which each block of a moment fits, if it is allocated last."""
    chunks = [size + _CHUNK for size in sizes]
    count = len(chunks) + growing
    total = sum(chunks, as_size(0)) + growing * _CHUNK
    for chunk in dict.fromkeys(chunks):
        yield total + (count - 1) * chunk


def _loops(program: Program) -> Iterator[LoopStep]:
    for region in program.regions:
        yield from (step for step in region.steps if isinstance(step, LoopStep))


def _copies_of_stacks(step: LoopStep) -> Iterator[bool]:
    """Yield, per stack, whether it is copied to larger memory as it grows."""
    known = step.trips is not None and step.condition is None
    yield from (stack.extent is None and not known for stack in step.stacks)

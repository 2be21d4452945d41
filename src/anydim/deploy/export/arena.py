"""Bytes of an arena that suffices for a run of a program with regions, whatever its data decides.

The blocks of a run lie in the arena in chunks. A chunk fails to fit only if every gap between the
chunks in use is smaller than it. Between k chunks there are at most k + 1 gaps, so an arena of the
bytes in use, and k times the new chunk, has room for it. The block of segments is the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from anydim.base.records import dataclass
from anydim.program.program import Program
from anydim.program.region import LoopStep
from anydim.program.region_plan import Moment, largest, needs
from anydim.program.segment import ALIGNMENT
from anydim.runtime.signature import TensorSpec
from anydim.sizes import Atom, Box, Size, align_up, as_size, minimum

_CHUNK = 192  # bytes of a chunk besides its content, see `regions/runs.c.in`


@dataclass(frozen=True)
class Arena:
    """`bytes` of the arena, and those of the block of segments, `scratch`."""

    bytes: Size
    scratch: Size


def arena_of(
    program: Program, known: frozenset[str], copied: Iterable[TensorSpec] = ()
) -> Arena | None:
    """Return formulas over the `known` dims; None if data decides the sizes without a bound.

    `copied` are inputs of which the run makes a copy.
    """
    found = needs(program)
    growing = sum(1 for step in _loops(program) for _ in filter(None, _grown(step)))
    candidates = [
        size for moment in found.moments for size in _candidates(moment, found.box, growing)
    ]
    values = largest(candidates, found.box) if candidates else as_size(0)
    bounds = _bounds(found.box, known)
    most, scratch = (_at_most(size, bounds, known) for size in (values, found.arena))
    if most is None or scratch is None:
        return None
    first = 0 if scratch == 0 else scratch + _CHUNK
    copies = sum((align_up(spec.bytes, ALIGNMENT) + _CHUNK for spec in copied), as_size(0))
    return Arena(most + first + copies, scratch)


def _candidates(moment: Moment, box: Box, growing: int) -> Iterator[Size]:
    """Yield the bytes with which each block of a moment fits, if it is allocated last."""
    chunks = [size + _CHUNK for size in moment.sizes]
    count = len(chunks) + growing
    total = sum(chunks, as_size(0)) + growing * _CHUNK
    for chunk in dict.fromkeys(chunks):
        yield total + (count - 1) * chunk


def _loops(program: Program) -> Iterator[LoopStep]:
    for region in program.regions:
        yield from (step for step in region.steps if isinstance(step, LoopStep))


def _grown(step: LoopStep) -> Iterator[bool]:
    """Yield, per stack, whether it is copied to larger memory as it grows."""
    known = step.trips is not None and step.condition is None
    yield from (stack.extent is None and not known for stack in step.stacks)


# ---- sizes that data decides -------------------------------------------------------------------


def _bounds(box: Box, known: frozenset[str]) -> Mapping[str, Size]:
    """Return upper bounds of dims that data decides, over the `known` ones."""
    found: dict[str, Size] = {}
    before = -1
    while before != len(found):
        before = len(found)
        for dim in box.dims:
            if dim.name not in known and dim.name not in found:
                over = [
                    bound.substitute(found) for constraint in box.constraints
                    if dim.name not in (bound := constraint + dim.size).symbols
                    and bound.symbols <= known | found.keys()
                ]  # fmt: skip
                over += [] if dim.hi is None else [as_size(dim.hi)]
                if over:
                    found[dim.name] = minimum(*over)
    return found


def _at_most(size: Size, bounds: Mapping[str, Size], known: frozenset[str]) -> Size | None:
    """Return the maximum of a size over dims that data decides; None: unknown."""
    free = size.symbols - known
    if not free <= bounds.keys() or not all(_grows(size, dim) for dim in free):
        return None
    return size.substitute({dim: bounds[dim] for dim in free})


def _grows(size: Size, dim: str) -> bool:
    """Whether a size evidently never falls as a dim grows: sizes of dims are never below 0."""
    return all(
        dim not in Size({term: 1}).symbols
        or (count >= 0 and all(_factor_grows(factor, dim) for factor in term))
        for term, count in size.coefficients.items()
    )


def _factor_grows(factor: str, dim: str) -> bool:
    if not isinstance(factor, Atom) or dim not in factor.symbols:
        return True
    first, *others = factor.arguments
    if factor.function in ("min", "max"):
        return all(_grows(each, dim) for each in factor.arguments)
    divides = factor.function == "floordiv" and _grows(first, dim)
    return divides and not any(dim in each.symbols for each in others)

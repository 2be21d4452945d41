"""Arena offsets as size expressions: values that live at the same time never share a byte.

Each value has an interval of launches in which it lives and a number of bytes, a size expression.
Values are placed largest first, each at the lowest offset at which it *provably*, for every size
in the box, keeps clear of those it lives together with; where no offset can be proven, above all
of them. So the plan holds for every size, and its total is a formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anydim.sizes import Atom, Box, Size, Truth, as_size, maximum, prove

UNBOUNDED_SAMPLE = 1024  # stands for a dim without upper bound when offsets are compared


@dataclass(frozen=True)
class Lifetime:
    """A value in the arena: its bytes, and the first and last launch that touch it."""

    name: str
    bytes: Size
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class ArenaPlan:
    """Where each value lies, and the bytes of the whole, as formulas."""

    offsets: Mapping[str, Size]
    bytes: Size


@dataclass(frozen=True)
class PlanMemory:
    """Give each value an offset in one arena."""

    def run(self, lifetimes: Sequence[Lifetime], box: Box) -> ArenaPlan:
        sample = {d.name: UNBOUNDED_SAMPLE if d.hi is None else d.hi for d in box.dims}
        order = sorted(lifetimes, key=lambda v: (-v.bytes.evaluate(sample), v.first, v.name))
        placed: list[tuple[Lifetime, Size]] = []
        for value in order:
            others = [(other, at) for other, at in placed if other.meets(value)]
            placed.append((value, _lowest(value, others, box, sample)))
        ends = [at + value.bytes for value, at in placed]
        return ArenaPlan(
            {value.name: at for value, at in placed}, _maximum(ends, box, sample)
        )


def _lowest(
    value: Lifetime, others: list[tuple[Lifetime, Size]], box: Box, sample: Mapping[str, int]
) -> Size:
    ends = dict.fromkeys([as_size(0), *(at + other.bytes for other, at in others)])
    for candidate in sorted(ends, key=lambda end: end.evaluate(sample)):
        if all(_apart(candidate, value.bytes, at, other.bytes, box) for other, at in others):
            return candidate
    return _maximum([at + other.bytes for other, at in others], box, sample)


def _apart(at: Size, size: Size, other: Size, other_size: Size, box: Box) -> bool:
    """Whether [at, at+size) and [other, other+other_size) provably share nothing."""
    return _at_most(other + other_size, at, box) or _at_most(at + size, other, box)


def _at_most(left: Size, right: Size, box: Box) -> bool:
    if left == right:
        return True
    if all(dim.lo >= 0 for dim in box.dims) and _never_negative(right - left):
        return True
    return prove(left, "<=", right, box) is Truth.PROVED


def _never_negative(size: Size) -> bool:
    """Whether a polynomial of plain dims has no negative coefficient: the common, cheap proof."""
    return all(
        coefficient >= 0 and not any(isinstance(atom, Atom) for atom, _ in atoms)
        for coefficient, atoms in size.terms()
    )


def _maximum(ends: Sequence[Size], box: Box, sample: Mapping[str, int]) -> Size:
    """The largest of `ends`, without those that another one provably reaches."""
    kept: list[Size] = []
    for end in sorted(dict.fromkeys(ends), key=lambda e: -e.evaluate(sample)):
        if not any(_at_most(end, other, box) for other in kept):
            kept.append(end)
    return maximum(*kept) if kept else as_size(0)

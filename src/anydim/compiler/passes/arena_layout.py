"""Offsets of the values of an arena as formulas: each is a maximum of a few sums of bytes.

    offset(v) = max over the values u that v is stacked on of offset(u) + bytes(u)

Written this way, offsets nest as deep as the stack is high, so sums are distributed over maxima and
terms that another term dominates coefficient-wise (`sizes/covering.py`) are dropped. A value with
slack above it at the sampled sizes may get a higher offset than its lower bound: the offset of
another value, or one term that covers several. The result is valid at every size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from anydim.base.records import dataclass
from anydim.compiler.passes.arena_order import Order, Problem, heights
from anydim.sizes import Covering, Sampled, Size, as_size, maximum

_FEW_TERMS = 6  # kept readable
_MAX_TERMS = 64  # of one formula; more terms are joined regardless of the bytes wasted
_MAX_UNDER = 1 << 10  # values recorded under a value; only saves comparisons of sizes
_ANY = 1e30
_ROUNDING = 0.5  # bytes: sums over samples are floats


@dataclass(frozen=True, eq=False)
class Term:
    """A size without maxima, and its values `at` the samples [samples]."""

    size: Size
    at: numpy.ndarray


Terms = tuple[Term, ...]


class Stack:
    """Offset formulas of values of `sizes`, stacked in `order`; `sampled` has the samples."""

    def __init__(
        self, sizes: Sequence[Size], problem: Problem, order: Order, covering: Covering,
        sampled: Sampled,
    ) -> None:  # fmt: skip
        self.sizes, self.problem, self.order = sizes, problem, order
        self.covering, self.sampled = covering, sampled
        self.offsets: list[Terms] = []  # distinct offsets so far
        self.heights = numpy.zeros_like(problem.bytes)  # of `offsets`, at the samples

    def formulas(self, slack: float) -> tuple[list[Size], Size]:
        """Return the offset of each value and the total bytes.

        The total exceeds the minimum for this order by at most the share `slack` at the samples.
        """
        needed = (heights(self.problem, self.order) + self.problem.bytes).max(0)
        limit = needed * (1 + slack) + _ROUNDING
        highest = limit - self._loads()
        found: list[Terms] = [()] * len(self.sizes)
        ends: list[Terms] = [()] * len(self.sizes)
        stood: list[frozenset[int]] = [frozenset()] * len(self.sizes)  # values ending below
        stacked = [False] * len(self.sizes)
        for value in self.order:
            below = [u for u in self.problem.near[value].tolist() if stacked[u]]
            under = frozenset().union(*(stood[u] for u in below))
            terms = self._highest([t for u in below if u not in under for t in ends[u]])
            found[value] = self._offset(terms, highest[value])
            ends[value] = self._raise_offset(found[value], value)
            stacked[value] = True
            if self.covering.not_negative(self.sizes[value]):
                stood[value] = under.union(below) if len(under) < _MAX_UNDER else frozenset(below)
        tops = self._highest([term for terms in ends for term in terms])
        smooth = [self._smooth(term, term.at * (1 + slack) + _ROUNDING) for term in tops]
        whole = self._fewer(self._highest(smooth), limit, (slack, 2 * slack, 5 * slack, 10 * slack))
        written = {terms: _maximum(terms) for terms in dict.fromkeys(found)}
        return [written[terms] for terms in found], _maximum(whole)

    def _loads(self) -> numpy.ndarray:
        """Bytes [values, samples] of each value plus the highest stack above it."""
        bytes = self.problem.bytes
        loads = numpy.zeros_like(bytes)
        for value in reversed(self.order):
            above = loads[self.problem.near[value]]  # 0 for values before it in the order
            loads[value] = bytes[value] + (above.max(0) if len(above) else 0)
        return loads

    def _raise_offset(self, offset: Terms, value: int) -> Terms:
        size, at = self.sizes[value], self.problem.bytes[value]
        if not offset:
            return (Term(size, at),)
        return tuple(Term(term.size + size, term.at + at) for term in offset)

    def _highest(self, terms: Sequence[Term]) -> Terms:
        """Terms that no other term covers."""
        kept: list[Term] = []
        distinct = {term.size: term for term in terms}.values()
        for term in sorted(distinct, key=lambda each: -each.at.sum()):
            if not any(self.covering.covers(other.size, term.size) for other in kept):
                kept.append(term)
        return tuple(kept)

    def _offset(self, terms: Terms, limit: numpy.ndarray) -> Terms:
        """An offset at or above `terms` that does not exceed `limit` at the samples."""
        if not terms:
            return ()
        lower = numpy.maximum.reduce([term.at for term in terms])
        known = self.heights[: len(self.offsets)]
        fits = ((lower <= known + _ROUNDING) & (known <= limit)).all(1)
        for number in sorted(numpy.flatnonzero(fits).tolist(), key=known.sum(1).__getitem__):
            offset = self.offsets[number]
            if all(any(self.covering.covers(k.size, t.size) for k in offset) for t in terms):
                return offset
        offset = self._fewer(terms, limit, (_ANY,))
        self.heights[len(self.offsets)] = numpy.maximum.reduce([term.at for term in offset])
        self.offsets.append(offset)
        return offset

    def _smooth(self, term: Term, limit: numpy.ndarray) -> Term:
        """The term with as few quotients as `limit` permits."""
        for atom in dict.fromkeys(atom for monomial in term.size.coefficients for atom in monomial):
            size = self.covering.without_rounding(term.size, atom)
            if size is not None and ((at := self.sampled.at(size)) <= limit).all():
                term = Term(size, at)
        return term

    def _fewer(self, terms: Sequence[Term], limit: numpy.ndarray, shares: Sequence[float]) -> Terms:
        """Terms that cover these, joined while they stay within `limit` at the samples.

        A join may exceed its parts by one of `shares` at most, since samples do not cover all
        corners of the box; the first share that leaves few terms is used.
        """
        joined = list(terms)
        for share in shares:
            joined = self._join_terms(terms, limit, share)
            if len(joined) <= _FEW_TERMS:
                break
        if len(joined) > _MAX_TERMS:
            joined = self._join_terms(terms, numpy.full_like(limit, _ANY), _ANY)
        return self._highest(joined)

    def _join_terms(self, terms: Sequence[Term], limit: numpy.ndarray, share: float) -> list[Term]:
        groups: list[Term] = []
        usual = _median(limit)
        for term in terms:
            for number, group in enumerate(groups):
                size = self.covering.joined(group.size, term.size)
                if size is None:
                    continue
                at, larger = self.sampled.at(size), numpy.maximum(group.at, term.at)
                if (at <= limit).all() and (at <= larger * (1 + share) + share * usual).all():
                    groups[number] = Term(size, at)
                    break
            else:
                groups.append(term)
        return groups


def _median(values: numpy.ndarray) -> float:
    """The median; numpy's imports its masked arrays, 12 ms."""
    middle = numpy.sort(values)[(len(values) - 1) // 2 : len(values) // 2 + 1]
    return float(middle.mean())


def _maximum(terms: Terms) -> Size:
    return maximum(*(term.size for term in terms)) if terms else as_size(0)

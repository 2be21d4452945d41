"""Bounds of the values of a size expression over given ranges of its symbols.

`polynomial_range` treats a quotient, remainder, minimum or maximum as an independent variable and
loses its relation to its operands: the bound of n - n//2 would be negative. So several forms of a
size that are equal by definition are bounded, and the bounds are intersected:

    x // c  =  (x - x % c) / c
    x % y   =  x - y * (x // y)
    min(x, y) is x or y and not above either; max likewise
    (x if condition else y) is x or y
    0 <= x % y < y for y > 0, and 0 <= x // y <= x for x >= 0 and y > 0
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import gcd, inf

from anydim.sizes.atoms import Atom, Factor, Monomial, inside_out
from anydim.sizes.expression import Size
from anydim.sizes.interval import Interval, Number, greater, hull, interval, lesser
from anydim.sizes.polynomial import polynomial_range, slope, term_by_term

_MAX_QUOTIENTS = 6  # maximum number of quotients of a size to be rewritten
_MAX_TERMS = 64
_DEEPEST = 3  # nested replacements of atoms by their limits
_DEEPEST_CONSTRAINT = 2  # nested uses of constraints
_DEEP = 16  # nesting depth from which the enclosures of atoms are used as they are
_MAX_WORK = 100  # enclosures of other sizes per query


class Enclosure:
    """Ranges for symbols, constraints (each a size that is >= 0), and the bounds they imply.

    A symbol without a range may be any integer. Results are cached.
    """

    def __init__(self, ranges: Mapping[str, Interval], constraints: Iterable[Size] = ()) -> None:
        self.ranges = dict(ranges)
        self.constraints = tuple(constraints)
        self._sizes: dict[tuple[Size, int], Interval] = {}
        self._rough: dict[Size, Interval] = {}
        self._atoms: dict[tuple[Factor, int], Interval] = {}
        self._work = 0
        self._tighten()

    def of(self, size: Size, depth: int = 0) -> Interval:
        """A sound enclosure of the values of a size.

        `depth` counts the replacements that led here; it bounds the work and the recursion, since a
        constraint may introduce quotients of the symbols being bounded.
        """
        known = self._sizes.get((size, depth))
        if known is None:
            if not depth:
                self._from_inside(size)
                self._work = 0
            self._work += 1
            known = self._enclose(size, depth)
            if not depth or self._work <= _MAX_WORK:
                self._sizes[size, depth] = known
        return known

    def roughly(self, size: Size) -> Interval:
        """A fast enclosure, which treats atoms as independent."""
        known = self._rough.get(size)
        if known is None:
            self._from_inside(size)
            self._work = 0
            known = self._rough[size] = self._polynomial(size, 0)
        return known

    def of_atom(self, atom: Factor, depth: int = 0) -> Interval:
        """A sound enclosure of a symbol, quotient, remainder, minimum or maximum."""
        if not isinstance(atom, Atom):
            return self.ranges.get(atom, Interval())
        known = self._atoms.get((atom, depth))
        if known is None and atom.depth > _DEEP:
            known = self._atoms.get((atom, 0))
        if known is None:
            parts = [self.of(argument, depth) for argument in atom.arguments]
            known = _OPERATORS[atom.function](parts)
            if self._work <= _MAX_WORK:
                self._atoms[atom, depth] = known
        return known

    def _from_inside(self, size: Size) -> None:
        """Enclose deeply nested atoms from the inside, to avoid deep recursion."""
        if size.depth > _DEEP:
            for atom in inside_out(size, _Enclosed(self._atoms)):
                self._work = 0
                self._atoms[atom, 0] = self.of_atom(atom)

    def _enclose(self, size: Size, depth: int) -> Interval:
        result = self._polynomial(size, depth)
        compound = [atom for m, _ in size.monomials for atom in m if isinstance(atom, Atom)]
        simple = len(size.monomials) < 2 and not (self.constraints or compound)
        if simple or len(size.monomials) > _MAX_TERMS or result.value is not None:
            return result
        if self._work > _MAX_WORK or size.depth > _DEEP:
            return result
        if any(atom.function == "floordiv" for atom in compound):
            result &= self._without_quotients(size, depth)
        if any(atom.function == "mod" for atom in compound):
            result &= self._without_remainders(size, depth)
        if depth < _DEEPEST:
            for atom in dict.fromkeys(compound):
                if atom.function in ("min", "max", "where"):
                    result &= self._by_operands(size, atom, depth)
                if atom.arguments[1].constant is None or atom.function in ("min", "max"):
                    result &= self._by_limits(size, atom, depth)
        if depth < _DEEPEST_CONSTRAINT:
            for constraint in self.constraints:
                result &= self._by_constraint(size, constraint, depth)
        return result

    def _polynomial(self, size: Size, depth: int) -> Interval:
        return polynomial_range(dict(size.monomials), self._atom_ranges(size, depth))

    def _atom_ranges(self, size: Size, depth: int) -> dict[Factor, Interval]:
        return {atom: self.of_atom(atom, depth) for m, _ in size.monomials for atom in m}

    def _without_quotients(self, size: Size, depth: int) -> Interval:
        """Replace x // c by (x - x % c) / c, multiplying the whole size by c."""
        scale = 1
        for _ in range(_MAX_QUOTIENTS):
            found = next(iter(_quotients(size)), None)
            if found is None:
                break
            by = found.arguments[1]
            inner = found.arguments[0] - found.arguments[0] % by
            linear = {m for m, _ in size.monomials if m.count(found)}
            kept = Size({m: c for m, c in size.monomials if m not in linear})
            rest = Size({_drop(m, found): c for m, c in size.monomials if m in linear})
            size, scale = kept * by + rest * inner, scale * (by.constant or 1)
        where = self._polynomial(size, depth)
        return interval(_ceil(where.low, scale), _floor(where.high, scale))

    def _without_remainders(self, size: Size, depth: int) -> Interval:
        """Replace x % y by x - y * (x // y)."""

        def swap(atom: Factor) -> Size:
            if isinstance(atom, Atom) and atom.function == "mod":
                left, right = atom.arguments
                return left - right * (left // right)
            return Size.of_atom(atom)

        return self._polynomial(size.replace_atoms(swap), depth)

    def _by_operands(self, size: Size, atom: Atom, depth: int) -> Interval:
        """Replace an atom by each operand that it may equal."""
        operands = atom.arguments[1:] if atom.function == "where" else atom.arguments
        return hull(self._replaced(size, atom, each, depth) for each in operands)

    def _replaced(self, size: Size, atom: Atom, value: Size, depth: int) -> Interval:
        return self.of(size.replace_atoms(_replacing(atom, value)), depth + 1)

    def _by_limits(self, size: Size, atom: Atom, depth: int) -> Interval:
        """Substitute the bounds of an atom where the size is monotone in it."""
        below, above = self._limits(atom, depth)
        result = Interval()
        terms = dict(size.monomials)
        growth = term_by_term(slope(terms, atom), self._atom_ranges(size, depth))
        if growth.low < 0:
            below, above = above, below
        linear = all(monomial.count(atom) < 2 for monomial in terms)  # limits may exceed its range
        if linear and (growth.low >= 0 or growth.high <= 0):
            for limit in below:
                result &= Interval(self._replaced(size, atom, limit, depth).lo, None)
            for limit in above:
                result &= Interval(None, self._replaced(size, atom, limit, depth).hi)
        return result

    def _limits(self, atom: Atom, depth: int) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
        """Lower and upper bounds of an atom, as sizes."""
        left, right = atom.arguments[0], atom.arguments[-1]
        if atom.function == "min":
            return (), atom.arguments
        if atom.function == "max":
            return atom.arguments, ()
        if atom.function == "where" or right.constant is not None:
            return (), ()
        if self.of(right, depth).low <= 0:
            return (), ()
        top = (left,) if self.of(left, depth).low >= 0 else ()
        if atom.function == "mod":
            return (_ZERO,), (right - 1, *top)
        return ((_ZERO,), top) if top else ((), ())

    def _by_constraint(self, size: Size, constraint: Size, depth: int) -> Interval:
        """size >= size - k * constraint and size <= size + k * constraint, for k >= 0."""
        low: Number = -inf
        high: Number = inf
        mine = dict(size.monomials)
        for monomial, theirs in constraint.monomials:
            coefficient = mine.get(monomial, 0)
            if not monomial or not coefficient:
                continue
            common = gcd(coefficient, theirs)
            scale, times = abs(theirs) // common, abs(coefficient) // common
            if (coefficient > 0) == (theirs > 0):
                lower = self.of(size * scale - constraint * times, depth + 1)
                low = max(low, _ceil(lower.low, scale))
            else:
                upper = self.of(size * scale + constraint * times, depth + 1)
                high = min(high, _floor(upper.high, scale))
        return interval(low, high)

    def _tighten(self) -> None:
        """Narrow the ranges by constraints that are linear in a symbol, in a few rounds."""
        for _ in range(3 if self.constraints else 0):
            plain, before = Enclosure(self.ranges), dict(self.ranges)
            for constraint in self.constraints:
                for name, factor, rest in _linear_terms(constraint):
                    bound = _bound_of(factor, rest, plain)
                    narrowed = self.ranges.get(name, Interval()) & bound
                    if narrowed.low <= narrowed.high:
                        self.ranges[name] = narrowed
            if self.ranges == before:
                return


class _Enclosed:
    """View of the atoms that have an enclosure."""

    def __init__(self, atoms: Mapping[tuple[Factor, int], Interval]) -> None:
        self._atoms = atoms

    def __contains__(self, atom: object) -> bool:
        return (atom, 0) in self._atoms


@lru_cache(maxsize=1 << 14)
def _linear_terms(constraint: Size) -> tuple[tuple[str, int, Size], ...]:
    """The symbols in which a size is linear, each with its factor and the rest of the size."""
    found = []
    for name in sorted(constraint.symbols):
        split = constraint.linear_in((name,))
        factor = None if split is None else split[0][name].constant
        if split is not None and factor is not None:
            found.append((name, factor, split[1]))
    return tuple(found)


def _bound_of(factor: int, rest: Size, plain: Enclosure) -> Interval:
    """The bound for a symbol that factor * symbol + rest >= 0 implies."""
    high = plain.of(rest).high
    if factor > 0:
        return interval(_ceil(-high, factor), inf)
    return interval(-inf, _floor(high, -factor))


_ZERO = Size.constant_of(0)
_OPERATORS: dict[str, Callable[[list[Interval]], Interval]] = {
    "min": lesser,
    "max": greater,
    "floordiv": lambda parts: parts[0] // parts[1],
    "mod": lambda parts: parts[0] % parts[1],
    "where": lambda parts: _chosen(*parts),
}


def _chosen(test: Interval, then: Interval, otherwise: Interval) -> Interval:
    """The values of `then` where test >= 0, of `otherwise` elsewhere."""
    if test.low >= 0:
        return then
    return otherwise if test.high < 0 else hull((then, otherwise))


def _quotients(size: Size) -> Iterable[Atom]:
    """Yield quotients by a constant that occur with power 1 at most."""
    for monomial, _ in size.monomials:
        for atom in monomial:
            if isinstance(atom, Atom) and atom.function == "floordiv":
                once = all(m.count(atom) < 2 for m, _ in size.monomials)
                if once and atom.arguments[1].constant is not None:
                    yield atom


def _replacing(atom: Atom, by: Size) -> Callable[[Factor], Size]:
    return lambda other: by if other == atom else Size.of_atom(other)


def _drop(monomial: Monomial, atom: Atom) -> Monomial:
    return tuple(other for other in monomial if other != atom)


def _ceil(value: Number, by: int) -> Number:
    return value if abs(value) == inf else -(-int(value) // by)


def _floor(value: Number, by: int) -> Number:
    return value if abs(value) == inf else int(value) // by

"""Bounds of sizes over dims that data decides, as formulas over the dims that inputs determine.

Each term has its own bound: an upper bound of a sum takes the most of the terms that are added, and
the least of those that are subtracted. Dims are never below 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from anydim.base.records import dataclass
from anydim.sizes import Atom, Box, Factor, Monomial, Size, as_size, maximum, minimum, product


@dataclass
class Bounds:
    """`box` has the known dims, `whole` all dims; `lowest` and `highest` bound the dims that data
    decides, `highest` over known dims."""

    box: Box
    whole: Box
    lowest: dict[str, int]
    highest: dict[str, Size] = field(default_factory=dict)
    cached: dict[tuple[Size, bool], Size | None] = field(default_factory=dict)

    @classmethod
    def of(cls, box: Box, known: frozenset[str]) -> Bounds:
        """Return the bounds that the ranges and constraints of a box give to dims not `known`."""
        dims = tuple(dim for dim in box.dims if dim.name in known)
        within = Box(dims, tuple(c for c in box.constraints if c.symbols <= known))
        lowest = {dim.name: dim.lo for dim in box.dims if dim.name not in known}
        found = cls(within, box, lowest)
        before = -1
        while before != len(found.highest):
            before = len(found.highest)
            found.cached.clear()
            for dim in box.dims:
                if dim.name in found.lowest and dim.name not in found.highest:
                    over = [] if dim.hi is None else [as_size(dim.hi)]
                    over += found._over(dim.size, box.constraints)
                    if over:
                        found.highest[dim.name] = found._clip_at_zero(minimum(*over))
        found.cached.clear()
        return found

    def _over(self, dim: Size, constraints: Iterable[Size]) -> list[Size]:
        """Return what is not below a dim by constraints `bound - dim >= 0`."""
        bounds = (constraint + dim for constraint in constraints)
        found = (self.most(bound) for bound in bounds if not dim.symbols <= bound.symbols)
        return [bound for bound in found if bound is not None]

    def most(self, size: Size) -> Size | None:
        """Return an upper bound of a size; None: unknown."""
        return self._bound_of(size, upper=True)

    def least(self, size: Size) -> Size | None:
        """Return a lower bound of a size; None: unknown."""
        return self._bound_of(size, upper=False)

    def _bound_of(self, size: Size, upper: bool) -> Size | None:
        if size.symbols.isdisjoint(self.lowest):
            return size
        if (size, upper) not in self.cached:
            parts = [
                self._term(term, upper == (count > 0)) for term, count in size.coefficients.items()
            ]
            counts = size.coefficients.values()
            total = [None if part is None else part * count for part, count in zip(parts, counts)]
            self.cached[size, upper] = _all(total, lambda found: sum(found, as_size(0)))
        return self.cached[size, upper]

    def _term(self, factors: Monomial, upper: bool) -> Size | None:
        """Bound a product of which at most one factor may be negative."""
        free = [f for f in factors if not Size.of_atom(f).symbols.isdisjoint(self.lowest)]
        if not free:
            return Size({factors: 1})
        odd = [f for f in factors if self.whole.interval(Size.of_atom(f)).low < 0]
        if len(odd) > 1 or (odd and len(factors) > 1 and not upper):
            return None
        bounds = [self._factor(factor, upper) for factor in factors]
        if len(factors) > 1:
            bounds = [None if bound is None else self._clip_at_zero(bound) for bound in bounds]
        return _all(bounds, product)

    def _factor(self, factor: Factor, upper: bool) -> Size | None:
        size = Size.of_atom(factor)
        if size.symbols.isdisjoint(self.lowest):
            return size
        if not isinstance(factor, Atom):
            return self.highest.get(factor) if upper else as_size(self.lowest[factor])
        bounds = [self._bound_of(each, upper) for each in factor.arguments]
        if factor.function == "max":
            return _all(bounds, lambda found: maximum(*found))
        if factor.function == "min":
            some = [bound for bound in bounds if bound is not None]
            return minimum(*some) if some and (upper or None not in bounds) else None
        if factor.function == "where":
            ends = bounds[1:]
            return _all(ends, lambda found: (maximum if upper else minimum)(*found))
        divisor = factor.arguments[1]
        if not divisor.symbols.isdisjoint(self.lowest) or self.box.interval(divisor).low < 0:
            return None
        if factor.function == "mod":
            return divisor - 1 if upper else as_size(0)
        return None if bounds[0] is None else bounds[0] // divisor

    def _clip_at_zero(self, bound: Size) -> Size:
        """Return the maximum of 0 and a size over known dims."""
        return bound if self.box.interval(bound).low >= 0 else maximum(bound, 0)


def _all(sizes: Iterable[Size | None], combine: Callable[[Sequence[Size]], Size]) -> Size | None:
    """Combine sizes; None if one of them is unknown."""
    found = list(sizes)
    known = [size for size in found if size is not None]
    return combine(known) if len(known) == len(found) else None

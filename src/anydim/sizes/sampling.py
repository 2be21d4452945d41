"""Sample sizes of a box for cost comparisons; the same ones in every run.

They decide only which of several valid plans is selected, never whether something holds: that is
`prove`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

import numpy

from anydim.base.errors import DimError
from anydim.sizes.atoms import Atom, Factor, Monomial
from anydim.sizes.box import Box
from anydim.sizes.expression import Size
from anydim.sizes.guard import Guard, holds
from anydim.sizes.interned import Results

_OPEN_SPAN = 1024  # assumed span of a dim without upper bound
_TRIES = 6  # candidates per requested sample
_STEP = 32  # sizes of images are multiples of powers of 2


_RESULTS: Results[list[dict[str, int]]] = Results()  # the segments of a program share boxes


def samples(box: Box, count: int, guards: Sequence[Guard] = ()) -> list[dict[str, int]]:
    """At most `count` points of a box where the guards hold, including the ends and small sizes.

    If too few are found, points where guards fail fill the list up; if no point of the box is
    found, it is empty.
    """
    key = box, count, tuple(guards)
    found = _RESULTS.get(key)
    if found is None:
        found = _RESULTS.keep(key, _samples(box, count, guards))
    return [{**point} for point in found]


def _samples(box: Box, count: int, guards: Sequence[Guard]) -> list[dict[str, int]]:
    good: list[dict[str, int]] = []
    other: list[dict[str, int]] = []
    for point in _candidates(box, _TRIES * count):
        if point in good or point in other or not box.contains(point):
            continue
        (good if _all_hold(guards, point) else other).append(point)
        if len(good) == count:
            break
    if not good and not other and box.constraints:
        for point in _candidates(box, count):
            raised = _raised(box, point)
            if raised not in good and box.contains(raised):
                good.append(raised)
    return (good + other)[:count]


def _raised(box: Box, point: Mapping[str, int]) -> dict[str, int]:
    """The point with dims raised to what constraints such as `total - first - count >= 0` need."""
    found = dict(point)
    for constraint in box.constraints:
        least = next((a for (a,), c in _single(constraint) if c == 1 and a in found), None)
        if least is not None:
            found[least] += max(0, -constraint.evaluate(found))
    return found


def _single(size: Size) -> Iterator[tuple[Monomial, int]]:
    """The terms of a size that are a multiple of one dim."""
    return ((m, c) for m, c in size.monomials if len(m) == 1 and not isinstance(m[0], Atom))


def _candidates(box: Box, count: int) -> Iterator[dict[str, int]]:
    """Dims at their upper bounds, at their lower ones, at usual sizes; then random.

    Sizes of 0 come last: empty tensors need no good choice.
    """
    ranges = box.enclosure.ranges
    ends = {}
    for dim in box.dims:
        within = ranges[dim.name]
        low = max(1, dim.lo if within.lo is None else within.lo)
        ends[dim.name] = (low, low + _OPEN_SPAN if within.hi is None else max(low, within.hi))
    yield {name: high for name, (_, high) in ends.items()}
    for step in (1, _STEP, 7 * _STEP):
        yield {name: min(-(-low // step) * step, high) for name, (low, high) in ends.items()}
    chance = Random(0)
    for number in range(count):
        yield {
            name: _random_size(low, high, number % 2, chance) for name, (low, high) in ends.items()
        }
    yield {dim.name: dim.lo for dim in box.dims}


def _random_size(low: int, high: int, whole: int, chance: Random) -> int:
    """A size between the ends, log-uniform; every other one a multiple of 32."""
    value = low + round((high - low + 1) ** chance.random()) - 1
    if whole:
        value = -(-value // _STEP) * _STEP
    return max(low, min(value, high))


def _all_hold(guards: Sequence[Guard], point: Mapping[str, int]) -> bool:
    try:
        return all(holds(guard, point) for guard in guards)
    except DimError:  # a divisor is 0 there, or a size is known only at run time
        return False


class Sampled:
    """The values of sizes at some points, as arrays [points]; each atom is computed once.

    Float precision, enough for cost comparisons; 0 where a size has no value.
    """

    def __init__(self, points: Sequence[Mapping[str, int]]) -> None:
        self._count = len(points)
        names = dict.fromkeys(name for point in points for name in point)
        self._atoms: dict[Factor, numpy.ndarray] = {
            name: numpy.array([float(p[name]) for p in points]) for name in names
        }
        self._monomials: dict[Monomial, numpy.ndarray] = {}

    @classmethod
    def over(cls, columns: Mapping[str, numpy.ndarray]) -> Sampled:
        """At points given by the values [points] of each name."""
        made = cls([])
        made._atoms = {name: column.astype(float) for name, column in columns.items()}
        made._count = max(map(len, columns.values()), default=1)
        return made

    def at(self, size: Size) -> numpy.ndarray:
        """The values of a size."""
        total = numpy.zeros(self._count)
        for monomial, coefficient in size.coefficients.items():
            total += coefficient * self.monomial(monomial)
        return total

    def monomial(self, monomial: Monomial) -> numpy.ndarray:
        """The values of a product of atoms."""
        if monomial not in self._monomials:
            product = numpy.ones(self._count)
            for atom in monomial:
                product *= self._atom(atom)
            self._monomials[monomial] = product
        return self._monomials[monomial]

    def _atom(self, atom: Factor) -> numpy.ndarray:
        if atom not in self._atoms:
            if not isinstance(atom, Atom):
                return numpy.zeros(self._count)
            arguments = [self.at(argument) for argument in atom.arguments]
            with numpy.errstate(divide="ignore", invalid="ignore"):
                value = _FUNCTIONS[atom.function](arguments)
            self._atoms[atom] = numpy.nan_to_num(value, posinf=0.0, neginf=0.0)
        return self._atoms[atom]


_FUNCTIONS: Mapping[str, Callable[[list[numpy.ndarray]], numpy.ndarray]] = {
    "min": numpy.minimum.reduce,
    "max": numpy.maximum.reduce,
    "floordiv": lambda parts: parts[0] // parts[1],
    "mod": lambda parts: parts[0] % parts[1],
    "where": lambda parts: numpy.where(parts[0] >= 0, parts[1], parts[2]),
}

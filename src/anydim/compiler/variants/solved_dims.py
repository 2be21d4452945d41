"""Solve launch sizes for dims: for numbers, or as formulas over a span.

A variant is a function of the sizes of its launch, so any dims that produce these sizes are valid.
A dim that occurs only in products with others is set to 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anydim.base.records import dataclass
from anydim.runtime.variant_tables import Span
from anydim.sizes import LARGEST, Box, Dim, Size, bounds

ONE = Size.constant_of(1)


@dataclass(frozen=True)
class SolvedDim:
    """A dim solved from launch size number `source`, over earlier dims.

    Its value is (size - rest) // factor; 1 if `source` is None.

    `low` and `high` bound it within the span of the sizes.
    """

    name: str
    source: int | None
    factor: Size
    rest: Size
    low: int
    high: int

    @property
    def dim(self) -> Dim:
        """The dim with its bounds."""
        return Dim(self.name, self.low, None if self.high >= LARGEST else self.high)

    @property
    def plain(self) -> bool:
        """Whether it is within its bounds exactly if its launch size is within its own."""
        known = self.factor.constant is not None and self.rest.constant is not None
        return self.source is not None and known


def size_name(number: int) -> str:
    """The name of a launch size in formulas; dims never have such names."""
    return f"launch.word.{number}"


def narrow_dim(dim: Dim, low: int, high: int | None) -> Dim | None:
    """A dim within a range; None if no size is left."""
    low, highs = max(dim.lo, low), [each for each in (dim.hi, high) if each is not None]
    high = min(highs, default=None)
    return Dim(dim.name, low, high) if high is None or low <= high else None


def dims_of_span(sizes: Sequence[Size], span: Span) -> tuple[SolvedDim, ...] | None:
    """Solve launch sizes for their dims over a span; None if a dim has no bounds."""
    found: dict[str, SolvedDim] = {}
    left = {name for size in sizes for name in size.symbols}
    while left - found.keys():
        solved = _solved_in_span(sizes, span, found) or _guessed_in_span(sizes, found)
        if solved is None or solved.low > solved.high:
            return None
        found[solved.name] = solved
    return tuple(found.values())


def _solved_in_span(
    sizes: Sequence[Size], span: Span, known: Mapping[str, SolvedDim]
) -> SolvedDim | None:
    """The next dim that a launch size determines, preferably with a constant factor."""
    box = Box.of(*(solved.dim for solved in known.values()))
    found = []
    for number, size in enumerate(sizes):
        unknown = size.symbols - known.keys()
        linear = size.linear_in(unknown) if len(unknown) == 1 else None
        if linear is None or not linear[0]:
            continue
        ((name, factor),) = linear[0].items()
        by, rest = bounds(factor, box), bounds(linear[1], box)
        if by.lo is None or by.lo < 1 or rest.lo is None or rest.hi is None:
            continue
        low = max(
            0, _up(span.low[number] - rest.hi, by.hi if span.low[number] > rest.hi else by.lo)
        )
        high = LARGEST
        if span.high[number] < LARGEST:
            high = (span.high[number] - rest.lo) // by.lo
        found.append(SolvedDim(name, number, factor, linear[1], low, high))
    return min(found, key=lambda solved: not solved.plain, default=None)


def _up(value: int, by: int | None) -> int:
    """Ceiling division; None stands for an unbounded divisor."""
    return -(-value // by) if by is not None else int(value > 0)


def _guessed_in_span(sizes: Sequence[Size], known: Mapping[str, SolvedDim]) -> SolvedDim | None:
    """Set a dim that occurs only in products to 1; launches check the sizes afterwards."""
    given = dict.fromkeys(known, ONE)  # solved dims count as known, with any value
    name = _factor_to_guess([size.substitute(given) for size in sizes])
    return SolvedDim(name, None, ONE, ONE, 1, 1) if name else None


def dims_that_give(sizes: Sequence[Size], values: Sequence[int]) -> dict[str, int] | None:
    """Dims at which size expressions have these values; None if none are found."""
    known: dict[str, int] = {}
    left = {name for size in sizes for name in size.symbols}
    while left - known.keys():
        found = next(filter(None, (_solve_size(s, v, known) for s, v in zip(sizes, values))), None)
        if found is None:
            found = _guess_dim(sizes, known)
        if found is None:
            return None
        known[found[0]] = found[1]
    right = all(size.evaluate(known) == value for size, value in zip(sizes, values))
    return known if right else None


def _solve_size(size: Size, value: int, known: Mapping[str, int]) -> tuple[str, int] | None:
    """Solve a size for its only unknown dim, if linear in it."""
    rest = size.substitute(known)
    if len(rest.symbols) != 1:
        return None
    (name,) = rest.symbols
    linear = rest.linear_in([name])
    if linear is None or name not in linear[0]:
        return None
    factor, offset = linear[0][name].constant, linear[1].constant
    if not factor or offset is None or (value - offset) % factor:
        return None
    found = (value - offset) // factor
    return (name, found) if found >= 0 else None


def _guess_dim(sizes: Sequence[Size], known: Mapping[str, int]) -> tuple[str, int] | None:
    """Set a dim to 1 that occurs only in products with others, or is otherwise undetermined."""
    open = [size.substitute(known) for size in sizes]
    others = (name for size in open for name in size.symbols)
    name = _factor_to_guess(open) or min(others, default="")
    return (name, 1) if name else None


def _factor_to_guess(open: Sequence[Size]) -> str:
    """A factor of a product; '' if there is none."""
    products = (s for s in open if len(s.symbols) > 1 and len(s.monomials) <= 2)
    return next((min(size.symbols) for size in products), "")

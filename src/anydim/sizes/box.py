"""Dims (named sizes with bounds) and boxes of dims: the sizes that a program supports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from importlib import import_module
from itertools import product as combinations
from threading import local
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from anydim.base.errors import DimError, OptionError
from anydim.base.keywords import public
from anydim.base.records import dataclass
from anydim.base.text import quote_list, suggestion
from anydim.base.user_values import integer_of, short_repr
from anydim.sizes.atoms import Atom, Factor
from anydim.sizes.expression import Size
from anydim.sizes.interval import LARGEST, Interval

if TYPE_CHECKING:  # not needed by a process that loads its program
    from anydim.sizes.enclosure import Enclosure
    from anydim.sizes.points import Points

_UNBOUNDED_SPAN = 64  # how far above `lo` samples go where a dim has no upper bound
_MAX_CORNER_DIMS = 10
_MAX_TRIES = 2000
_MAX_BITS = 8192  # maximum bits of a bound


class Random(Protocol):
    """Interface for sampling; random.Random and numpy's Generator provide it."""

    def random(self) -> float:
        """A float in [0, 1)."""


@public
@dataclass(frozen=True, init=False)
class Dim:
    """A named size with inclusive bounds.

    `Dim("seq", 1, 512)`, `Dim(1, 512)` (named where it is used), `Dim("seq")`, `Dim(hi=512)`.

    Args:
        name: Name of the dim, or the lower bound.
        lo: Lower bound, at least 0.
        hi: Upper bound; None: no upper bound.

    Raises:
        OptionError: Unless 0 <= lo <= hi.
    """

    name: str
    lo: int
    hi: int | None

    def __init__(self, name: str | int = "", lo: int | None = None, hi: int | None = None) -> None:
        if not isinstance(name, str):  # Dim(lo), Dim(lo, hi), Dim(lo, hi=...)
            if lo is not None and hi is not None:
                raise OptionError("Dim takes a name and two bounds", 'such as Dim("seq", 1, 512)')
            lo, hi, name = name, hi if lo is None else lo, ""
        name = str(name)  # the argument's class may be unhashable
        label = f"dim '{name}'" if name else "a dim"
        low, high = _bound(label, 0 if lo is None else lo), _bound(label, hi)
        if low is None or low < 0:
            raise OptionError(f"{label}: the lower bound {low} is negative")
        if low > LARGEST:
            raise OptionError(f"{label}: the lower bound {low} does not fit 64 bits")
        if high is not None and high < low:
            raise OptionError(f"{label}: the upper bound {high} is below the lower bound {low}")
        if name:
            Size.symbol(name)  # raises for a name that is not one
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "lo", low)
        object.__setattr__(self, "hi", high)

    def named(self, name: str) -> Dim:
        """The same bounds under a name."""
        return replace(self, name=name)

    @property
    def size(self) -> Size:
        """The size expression of this dim."""
        return Size.symbol(self.name)

    @property
    def range(self) -> Interval:
        """The bounds as an interval."""
        return Interval(self.lo, self.hi)

    def __contains__(self, value: int) -> bool:
        return value in self.range

    def __str__(self) -> str:
        return f"{self.name or '?'}={self.range}"


def _bound(label: str, value: object) -> int | None:
    """Check a bound of a dim; a bound may exceed 64 bits, as a product of others."""
    if value is None:
        return None
    try:
        bound = integer_of(value)
    except TypeError:
        raise OptionError(f"{label}: bounds are integers, not {short_repr(value)}") from None
    if bound.bit_length() > _MAX_BITS:
        raise OptionError(f"{label}: a bound has {bound.bit_length()} bits")
    return bound


Found = TypeVar("Found")


def _shared(find: Callable[[Any], Found]) -> cached_property[Found]:
    """A cached property of a box; equal boxes of a thread share the value of the first one."""

    def found(self: Box) -> Found:
        first = _EQUAL.first.setdefault((self.dims, self.constraints), self)
        if first is self:
            return find(self)
        self.__dict__["_first"] = first  # keeps it alive
        return getattr(first, find.__name__)

    return cached_property(found)


@dataclass(frozen=True)
class Box:
    """All size assignments inside the bounds of `dims` where every constraint is >= 0.

    A constraint that is undefined (a divisor is 0) does not hold.
    """

    dims: tuple[Dim, ...] = ()
    constraints: tuple[Size, ...] = ()

    def __post_init__(self) -> None:
        names = [dim.name for dim in self.dims]
        if "" in names:
            raise OptionError("a dim of a box has no name", 'give it one: Dim("seq", 1, 512)')
        for name in names:
            if names.count(name) > 1:
                raise OptionError(f"dim '{name}' is declared twice")
        for constraint in self.constraints:
            for name in sorted(constraint.symbols.difference(names)):
                raise OptionError(
                    f"constraint {constraint} >= 0 uses '{name}', which is not a dim",
                    suggestion(name, names) or f"the dims are {quote_list(names)}",
                )

    @staticmethod
    def of(*dims: Dim, constraints: tuple[Size, ...] = ()) -> Box:
        """A box of these dims."""
        return Box(tuple(dims), tuple(constraints))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the dims, in declaration order."""
        return tuple(dim.name for dim in self.dims)

    def dim(self, name: str) -> Dim:
        """The dim of that name; raises DimError if there is none."""
        for dim in self.dims:
            if dim.name == name:
                return dim
        hint = suggestion(name, self.names) or f"the dims are {quote_list(self.names)}"
        raise DimError(f"there is no dim '{name}'", hint)

    def without(self, names: Collection[str]) -> Box:
        """The box of the other dims, with the constraints on them alone."""
        if not names:
            return self
        return Box(
            tuple(dim for dim in self.dims if dim.name not in names),
            tuple(c for c in self.constraints if c.symbols.isdisjoint(names)),
        )

    def without_zero(self) -> Box:
        """The sizes of the box at which no dim is 0, if there are any."""
        some = (d if d.hi == 0 else Dim(d.name, max(1, d.lo), d.hi) for d in self.dims)
        return Box(tuple(some), self.constraints)

    def also(self, *dims: Dim, constraints: tuple[Size, ...] = ()) -> Box:
        """The box extended by dims and constraints."""
        return Box((*self.dims, *dims), (*self.constraints, *constraints))

    def at_most(self, most: int) -> Box:
        """The sizes at which no dim exceeds `most`, or its lower bound if that is larger."""
        if all(dim.hi is not None and dim.hi <= most for dim in self.dims):
            return self
        if most not in self._smaller:
            tops = ((d, most if d.hi is None else min(d.hi, most)) for d in self.dims)
            dims = tuple(Dim(d.name, d.lo, max(d.lo, top)) for d, top in tops)
            self._smaller[most] = Box(dims, self.constraints)
        return self._smaller[most]

    @_shared
    def _smaller(self) -> dict[int, Box]:
        """Cache of the boxes of `at_most`."""
        return {}

    def about(self, size: Size) -> Box:
        """A box of the dims and constraints that determine the values of a size.

        Boxes that differ in others share it, with all that is known about it. A constraint such as
        `total - start - count >= 0` says nothing about `count` if `total` has no upper bound.
        """
        if not self.constraints and not size.depth:
            return self
        symbols = size.symbols
        found = self._parts.get(symbols)
        if found is None:
            kept = _binding(self, symbols)
            names = symbols.union(*(constraint.symbols for constraint in kept))
            dims = tuple(dim for dim in self.dims if dim.name in names)
            found = self if dims == self.dims and kept == self.constraints else _part(dims, kept)
            self._parts[symbols] = found
        return found

    @cached_property
    def _parts(self) -> dict[frozenset[str], Box]:
        """Cache of the boxes of `about`."""
        return {}

    @_shared
    def enclosure(self) -> Enclosure:
        """Cached bounds of sizes over the box."""
        made = import_module("anydim.sizes.enclosure").Enclosure
        found: Enclosure = made({dim.name: dim.range for dim in self.dims}, self.constraints)
        return found

    @_shared
    def simplified(self) -> dict[Factor, Size]:
        """Cache of simplified compound atoms over this box; `simplify` fills it."""
        return {}

    @_shared
    def open_questions(self) -> dict[tuple[Size, str], bool]:
        """(size, relation to 0) -> whether points of the box disagree; `prove` fills it."""
        return {}

    @_shared
    def answers(self) -> dict[tuple[Size, str], Any]:
        """(size, relation to 0) -> whether it holds over this box; `prove` fills it."""
        return {}

    @_shared
    def evaluated(self) -> dict[int, dict[Factor, int]]:
        """Index of a point -> the values of compound atoms there; `prove` fills it."""
        return {}

    @_shared
    def points(self) -> Points:
        """Some points inside the box, the same ones in every run."""
        found: Points = import_module("anydim.sizes.points").Points(self)
        return found

    def interval(self, size: Size) -> Interval:
        """Sound, often tight bounds of a size over the box. Memoised."""
        return self.about(size).enclosure.of(size)

    def contains(self, env: Mapping[str, int]) -> bool:
        """Whether the sizes are inside the box."""
        return not self.violations(env)

    def violations(self, env: Mapping[str, int]) -> list[str]:
        """Describe the violated bounds and constraints, one line each; empty if none."""
        found = []
        for dim in self.dims:
            value = env.get(dim.name)
            if value is None:
                found.append(f"dim '{dim.name}' has no size")
            elif value < dim.lo:
                found.append(f"dim '{dim.name}' is {value}, below its bound {dim.lo}")
            elif dim.hi is not None and value > dim.hi:
                found.append(f"dim '{dim.name}' is {value}, above its bound {dim.hi}")
        if all(name in env for name in self.names):
            found.extend(filter(None, (_violation(c, env) for c in self.constraints)))
        return found

    def sample(self, rng: Random) -> dict[str, int]:
        """Random sizes inside the box; bounds and small sizes are frequent.

        Raises OptionError when random sampling finds no size that meets the constraints.
        """
        ranges = self.enclosure.ranges
        for _ in range(_MAX_TRIES):
            env = {dim.name: _sample_dim(dim, ranges[dim.name], rng) for dim in self.dims}
            if self.contains(env):
                return env
        raise OptionError(
            f"no size in the box {self} was found", "the constraints may contradict the bounds"
        )

    @property
    def corners(self) -> tuple[dict[str, int], ...]:
        """The size assignments at the ends of the bounds that meet the constraints.

        A missing upper bound counts as some larger size. For more than ten dims, only the corners
        where at most one dim differs from the rest.
        """
        ends = [tuple(dict.fromkeys((d.lo, _top(d)))) for d in self.dims]
        envs = (dict(zip(self.names, values)) for values in _corner_values(ends))
        return tuple(env for env in envs if self.contains(env))

    def __str__(self) -> str:
        parts = [str(dim) for dim in self.dims]
        return ", ".join(parts + [f"{constraint} >= 0" for constraint in self.constraints])

    def _repr_html_(self) -> str:
        """A table of the dims for notebooks."""
        rows = [(d.name, str(d.lo), "no bound" if d.hi is None else str(d.hi)) for d in self.dims]
        facts = [("constraints", f"{constraint} >= 0") for constraint in self.constraints]
        sheet = import_module("anydim.base.sheet")  # only a notebook needs it
        html: str = sheet.Sheet(
            "dims", facts, [sheet.Table(("name", "least", "most"), rows)]
        ).html()
        return html


class _Equal(local):
    """The first of equal boxes, by dims and constraints, while one of them is alive.

    For each thread: an enclosure counts the work of the question in progress.
    """

    def __init__(self) -> None:
        self.first = WeakValueDictionary[tuple[tuple[Dim, ...], tuple[Size, ...]], Box]()


_EQUAL = _Equal()


def _violation(constraint: Size, env: Mapping[str, int]) -> str:
    try:
        value = constraint.evaluate(env)
    except DimError as error:
        return f"{constraint} >= 0 does not hold: {error.problem}"
    if value >= 0:
        return ""
    at = ", ".join(f"{name} = {env[name]}" for name in sorted(constraint.symbols))
    return f"{constraint} >= 0 does not hold: it is {value} at {at}"


def _top(dim: Dim) -> int:
    return dim.lo + _UNBOUNDED_SPAN if dim.hi is None else dim.hi


def _corner_values(ends: list[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    if len(ends) <= _MAX_CORNER_DIMS:
        yield from combinations(*ends)
        return
    seen = set()
    for base in (0, -1):
        for flipped in range(-1, len(ends)):
            seen.add(tuple(e[-1 - base if i == flipped else base] for i, e in enumerate(ends)))
    yield from sorted(seen)


def _sample_dim(dim: Dim, within: Interval, rng: Random) -> int:
    low = dim.lo if within.lo is None else within.lo
    span = (low + _UNBOUNDED_SPAN if within.hi is None else within.hi) - low
    choice = rng.random()
    if choice < 0.25:
        edges = (0, 1, span - 1, span)
        return low + max(0, min(span, edges[int(rng.random() * 4)]))
    if choice < 0.5:
        return low + min(span, int(rng.random() * 17))
    return low + min(span, int(rng.random() * (span + 1)))


@lru_cache(maxsize=32)
def _part(dims: tuple[Dim, ...], constraints: tuple[Size, ...]) -> Box:
    return Box(dims, constraints)


def _binding(box: Box, symbols: frozenset[str]) -> tuple[Size, ...]:
    """The constraints that may narrow the values of `symbols`."""
    kept, before = list(box.constraints), -1
    while len(kept) != before:
        before = len(kept)
        signs = dict[str, set[int]]()
        for constraint in kept:
            for name, sign in _signs(constraint).items():
                signs.setdefault(name, set()).add(sign)
        free = {
            dim.name for dim in box.dims
            if dim.name not in symbols and dim.hi is None and signs.get(dim.name) == {1}
        }  # fmt: skip
        kept = [constraint for constraint in kept if free.isdisjoint(constraint.symbols)]
    reached, before = set(symbols), -1
    while len(reached) != before:
        before = len(reached)
        for constraint in kept:
            if not reached.isdisjoint(constraint.symbols):
                reached |= constraint.symbols
    return tuple(constraint for constraint in kept if reached >= constraint.symbols)


def _signs(constraint: Size) -> dict[str, int]:
    """By symbol: 1 if it is a term with a positive factor and occurs in no other, else 0."""
    found = dict[str, int]()
    for monomial, coefficient in constraint.monomials:
        plain = len(monomial) == 1 and not isinstance(monomial[0], Atom) and coefficient > 0
        for name in Size({monomial: 1}).symbols:
            found[name] = int(plain and name not in found)
    return found

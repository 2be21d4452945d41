"""The strategy `buckets`: variants for ranges of dims, compiled with the model.

A list has the upper end of each bucket: `seq=[16, 32]` means 1..16 and 17..32. A pair is a bucket
with both ends, and a single number is that size only: `seq=[[16, 20]]`, `batch=8`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import product
from keyword import iskeyword
from typing import Any, ClassVar

from anydim.base.errors import OptionError
from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.base.user_values import short_repr
from anydim.compiler.variants.strategies.strategy import (
    MOST,
    SAME,
    Cuts,
    Strategy,
    bits_of,
    print_value,
    whole,
)
from anydim.sizes import LARGEST

Between = tuple[int, int]  # the smallest and the largest size


@dataclass(frozen=True)
class Buckets(Strategy):
    """A variant per combination of ranges of dims, compiled with the model.

    Attributes:
        sizes: Ranges of each dim.
        profile: File of `Model.record`; the ranges are chosen for its sizes, in addition to
            `sizes`.
        count: Most combinations chosen from `profile`.
        bits: As in `Adaptive`.
    """

    prepared: ClassVar[bool] = True

    sizes: Mapping[str, tuple[Between, ...]] = field(default_factory=FrozenMapping)
    profile: str = ""
    count: int = 8
    bits: str = SAME

    def __post_init__(self) -> None:
        held = {name: tuple(_between(name, given)) for name, given in self.sizes.items()}
        object.__setattr__(self, "sizes", FrozenMapping(held))
        whole("count", self.count, 1, MOST)
        bits_of(self.bits)
        if not isinstance(self.profile, str):
            raise OptionError(f"profile is {short_repr(self.profile)}", "give the path of a file")
        count = sum(1 for _, _ in zip(self.combinations(), range(MOST + 1)))
        if not (self.sizes or self.profile) or count > MOST:
            raise OptionError(
                f"buckets of {len(self.sizes)} dims, {count} combinations",
                f"name dims and some sizes of each, {MOST} combinations at most",
            )

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.sizes)

    def combinations(self) -> Iterator[dict[str, Between]]:
        """All combinations of buckets of the named dims."""
        return (dict(zip(self.sizes, values)) for values in product(*self.sizes.values()))

    def fill_buckets(self, cuts: Cuts) -> Buckets:
        if not self.profile:
            return self
        found = cuts(self.profile, self.sizes, self.count)
        return Buckets({**self.sizes, **found}, bits=self.bits)

    def __str__(self) -> str:
        cuts = {name: _cuts(given) for name, given in self.sizes.items()}
        plain = all(name.isidentifier() and not iskeyword(name) for name in cuts)
        form, around = ("{}={}", "{}") if plain else ('"{}": {}', "{{{}}}")
        rows = [form.format(name, print_value(given)) for name, given in cuts.items()]
        parts = [around.format(", ".join(rows))] if rows else []
        if self.profile:
            parts += [f"profile={print_value(self.profile)}", f"count={self.count}"]
        if self.bits != SAME:
            parts += [f"bits={print_value(self.bits)}"]
        return f"buckets({', '.join(parts)})"


def buckets(sizes: Mapping[str, Any] | None = None, /, **more: Any) -> Buckets:
    """Buckets of dims by name; `sizes` has those whose names are not Python identifiers.

    `profile` and `bits` are options if they are strings, and `count` is one with a profile.
    """
    options = {name: more.pop(name) for name in ("profile", "bits") if _text(more.get(name))}
    if "profile" in options and "count" in more:
        options["count"] = more.pop("count")
    return Buckets({**(sizes or {}), **more}, **options)


def _text(given: Any) -> bool:
    return isinstance(given, str)


def _between(name: str, given: Any) -> Iterator[Between]:
    """The buckets of a dim, in ascending order."""
    if not isinstance(given, (list, tuple, range)):
        size = _size(name, given)
        given = [(size, size)]
    above = 1
    for each in sorted(given, key=lambda each: _ends(name, each, 0)[1]):
        low, high = _ends(name, each, above)
        if low > high:
            raise OptionError(
                f"buckets of '{name}': {short_repr(each)} has no sizes", "sort its ends"
            )
        yield low, high
        above = high + 1


def _ends(name: str, given: Any, above: int) -> Between:
    """The ends of a bucket; a number alone starts above the previous bucket."""
    if isinstance(given, (list, tuple)) and len(given) == 2:
        return _size(name, given[0]), _size(name, given[1])
    high = _size(name, given)
    return min(above, high), high


def _size(name: str, given: Any) -> int:
    return whole(f"a size of '{name}'", given, 0, LARGEST)


def _cuts(given: tuple[Between, ...]) -> tuple[int | Between, ...]:
    """The shortest form of buckets for text."""
    above, found = 1, list[int | Between]()
    for low, high in given:
        found.append(high if low == min(above, high) else (low, high))
        above = high + 1
    return tuple(found)

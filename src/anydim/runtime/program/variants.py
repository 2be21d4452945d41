"""Variants of kernels: their records, and those stored in a saved model.

A stored variant is code in the image of its model; it is selected by size like a compiled one
(`runtime/variant_tables.py`). A loaded model creates no further variants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.errors import ArtefactError
from anydim.base.records import dataclass
from anydim.runtime.executable import Executable
from anydim.runtime.variant_tables import (
    AS_LAUNCHED,
    Choice,
    Key,
    Site,
    Sizes,
    Span,
    VariantEntry,
    key_of,
)
from anydim.sizes import LARGEST, Interval

_MOST_OPERANDS = 1 << 16


@dataclass(frozen=True)
class Variant:
    """A variant of a kernel: its sizes, and its statistics.

    `sources` are the nodes whose launches it serves; `sizes` are its sizes, a pair for a range.
    `ratio` is its time divided by the generic kernel's, None if not measured; `seconds` is the time
    to create and measure it. `hits` are the launches that it served, `misses` the launches of its
    kernel without a variant; both are approximate with several threads.
    """

    kernel: str
    sources: tuple[str, ...]
    sizes: Mapping[str, int | tuple[int, int]]
    schedule: str
    ratio: float | None
    seconds: float
    hits: int
    misses: int = 0

    @property
    def guard(self) -> str:
        """Its sizes as text."""
        plain = {name: value for name, value in self.sizes.items() if name.isidentifier()}
        return shown_sizes(plain or self.sizes)

    def __str__(self) -> str:
        share = "not measured" if self.ratio is None else f"{self.ratio:.2f} of the generic time"
        made = f"made in {self.seconds:.2f} s" if self.seconds else "from a file"
        return f"{self.kernel} at {self.guard}: {self.schedule}, {share}, {self.hits} hits, {made}"


def shown_sizes(sizes: Mapping[str, int | tuple[int, int]]) -> str:
    """Format as `n=4, m=17..32, k=1..`."""
    ends = {
        name: str(Interval(*map(_end, size))) if isinstance(size, tuple) else size
        for name, size in sizes.items()
    }
    return ", ".join(f"{name}={size}" for name, size in ends.items())


def _end(size: int) -> int | None:
    """Return None for an unbounded end."""
    return size if abs(size) < LARGEST else None


def sizes_of(names: Sequence[str], key: Key) -> dict[str, int | tuple[int, int]]:
    """Return the sizes of a variant by name; pairs for ranges."""
    if not isinstance(key, Span):
        return dict(zip(names, key))
    pairs = zip(names, key.low, key.high)
    return {name: low if low == high else (low, high) for name, low, high in pairs}


@dataclass(frozen=True)
class StoredVariant:
    """A stored variant: sizes `low` to `high`, its symbols, its launch parameters.

    `thousandths` is its measured time relative to the generic kernel, if any.
    """

    low: tuple[int, ...]
    high: tuple[int, ...]
    symbol: str
    parallel: int
    grain: int
    scratch: int
    schedule: str
    extent: str = ""
    thousandths: int | None = None

    @property
    def symbols(self) -> tuple[str, ...]:
        """Its symbols in the image."""
        return (self.symbol, *filter(None, [self.extent]))


@dataclass(frozen=True)
class StoredSite:
    """Launches, by their numbers in the program, that share the same variants.

    `names` are those of the sizes of a launch, its parallel range last; a launch has `operands`
    operands.
    """

    kernel: str
    sources: tuple[str, ...]
    launches: tuple[int, ...]
    operands: int
    names: tuple[str, ...]
    bodies: tuple[StoredVariant, ...]

    def lines(self) -> Iterator[str]:
        """Yield a text per variant."""
        for body in self.bodies:
            guard = shown_sizes(sizes_of(self.names, key_of(body.low, body.high)))
            yield f"{self.kernel} at {guard}: {body.schedule}"

    def check(self, kernels: Sequence[str]) -> None:
        """Raise ArtefactError for variants that no launch of these kernels can have."""
        inside = all(0 <= number < len(kernels) for number in self.launches)
        if not inside or {kernels[number] for number in self.launches} != {self.kernel}:
            raise ArtefactError(f"variants of '{self.kernel}' belong to launches of another kernel")
        wide = len(self.names)
        for body in self.bodies:
            single = body.low == body.high
            fine = (
                len(body.low) == len(body.high) == wide
                and all(low <= high for low, high in zip(body.low, body.high))
                and body.grain >= 1
                and body.scratch >= 0
                and body.parallel >= (0 if single else AS_LAUNCHED)
            )
            if not fine or not 0 <= self.operands <= _MOST_OPERANDS:
                raise ArtefactError(f"a variant of '{self.kernel}' has invalid sizes")


class StoredVariants:
    """The variants of a loaded model, selected by launches from now on."""

    def __init__(
        self, executable: Executable[Any], places: Sequence[StoredSite],
        address: Callable[[str], int],
    ) -> None:  # fmt: skip
        words = list(_words(executable))
        kernels = [name for *_, name in words]
        self._words, self._held = words, list[tuple[StoredSite, Choice]]()
        for place in places:
            place.check(kernels)
            table, word, _ = words[place.launches[0]] if place.launches else (None, 0, "")
            if table is None:
                continue
            choice = Choice(Site(int(table[word]), place.operands, len(place.names)))
            choice.change([_body(body, address) for body in place.bodies])
            for number in place.launches:
                table, word, _ = words[number]
                table[word] = choice.entry
            self._held.append((place, choice))

    def close(self) -> None:
        """Select the generic kernels only, before the first call."""
        for place, choice in self._held:
            for number in place.launches:
                table, word, _ = self._words[number]
                table[word] = choice.site.generic

    def serving(self, number: int, sizes: Sizes) -> str:
        """Return the variant of a launch at these sizes, the parallel range last."""
        for place, _ in self._held:
            if number in place.launches:
                keys = [(key_of(body.low, body.high), body) for body in place.bodies]
                for key, body in sorted(keys, key=lambda each: isinstance(each[0], Span)):
                    if isinstance(key, Span) and sizes in key:
                        return f"span {body.schedule}"
                    if key == sizes:
                        return f"exact {body.schedule}"
        return "generic"

    def variants(self) -> tuple[Variant, ...]:
        """Return all variants with their hits."""
        return tuple(
            Variant(
                place.kernel, place.sources, sizes_of(place.names, key), body.schedule,
                None if body.thousandths is None else body.thousandths / 1000, 0.0,
                choice.hits(key), choice.misses,
            )
            for place, choice in self._held
            for body in place.bodies
            for key in [key_of(body.low, body.high)]
        )  # fmt: skip


def _words(executable: Executable[Any]) -> Iterator[tuple[numpy.ndarray, int, str]]:
    """Yield the entry of each launch, in program order: its table, its index, its kernel."""
    for entries, names in executable.interface.entries:
        table = executable.entries[entries]
        yield from ((table, word, name) for word, name in enumerate(names))


def _body(kept: StoredVariant, address: Callable[[str], int]) -> VariantEntry:
    extent = address(kept.extent) if kept.extent else 0
    launched = (kept.parallel, kept.grain, kept.scratch)
    return VariantEntry(key_of(kept.low, kept.high), address(kept.symbol), *launched, None, extent)

"""Where values lie at given sizes, launch by launch; runs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from anydim.program.program import Program
from anydim.program.region_plan import needs, values_at
from anydim.program.segment import ALIGNMENT, Segment
from anydim.sizes import Size, align_up, as_size

SCRATCH = "scratch"  # what the memory of a thread is called


@dataclass(frozen=True)
class Placed:
    """A value of the arena, or scratch of a thread: the launches in which it lives, and where.

    `offset` and `bytes` are those at the sizes, `at` and `takes` their formulas.
    """

    name: str
    first: int
    last: int
    offset: int
    bytes: int
    at: str
    takes: str
    scratch: bool = False

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.bytes


@dataclass(frozen=True)
class Arena:
    """The arena of a program at given sizes: its launches as (kernel, source), and all in it.

    `bytes` is what a call takes for it, `between` what values outside of it take at most: those
    that live between the steps of a program with branches, loops or sizes that data decides.
    """

    name: str
    sizes: Mapping[str, int]
    launches: tuple[tuple[str, str], ...]
    placed: tuple[Placed, ...]
    bytes: int
    between: int = 0

    @cached_property
    def live(self) -> tuple[int, ...]:
        """The bytes that live at each launch."""
        changes = [0] * (len(self.launches) + 1)
        for value in self.placed:
            changes[value.first] += value.bytes
            changes[value.last + 1] -= value.bytes
        total, live = 0, []
        for change in changes[:-1]:
            total += change
            live.append(total)
        return tuple(live)

    @cached_property
    def peak(self) -> int:
        """The launch at which most bytes live."""
        return max(range(len(self.live)), key=self.live.__getitem__, default=0)

    @property
    def lower_bound(self) -> int:
        """The bytes that live there: what any plan takes at least."""
        return max(self.live, default=0)

    def at_peak(self, value: Placed) -> bool:
        """Whether a value is one of those."""
        return value.first <= self.peak <= value.last


def arena(program: Program, sizes: Mapping[str, int]) -> Arena:
    """The arena at sizes that a plan takes; segments that share it follow one another."""
    known = needs(program)
    values, _ = values_at(known.box, sizes)
    launches: list[tuple[str, str]] = []
    placed: list[Placed] = []
    for segment, env in known.parts:
        own = {name: size.evaluate(values) for name, size in env.items()}
        placed += _placed(segment, own, len(launches))
        launches += [(site.kernel, site.source) for site in segment.sites]
    straight = program.straight is not None
    total = known.bytes if straight else known.arena
    between = as_size(0) if straight else known.values
    return Arena(
        program.signature.name,
        {name: values[name] for name in known.box.names},
        tuple(launches),
        tuple(placed),
        max(0, total.evaluate(values)),
        max(0, between.evaluate(values)),
    )


def _placed(segment: Segment, sizes: Mapping[str, int], start: int) -> Iterator[Placed]:
    def made(name: str, first: int, last: int, at: Size, takes: Size, scratch: bool) -> Placed:
        offset, bytes = (max(0, size.evaluate(sizes)) for size in (at, takes))
        launches = (start + first, start + last)
        return Placed(name, *launches, offset, bytes, str(at), str(takes), scratch)

    for name, (first, last) in segment.lives.items():
        buffer = segment.buffer[name]
        if buffer.kind == "arena" and buffer.offset is not None:
            takes = align_up(buffer.bytes, ALIGNMENT)
            yield made(name, first, last, buffer.offset, takes, False)
    for number, site in enumerate(segment.sites):
        if site.scratch != 0:
            for thread in range(segment.threads):
                at = segment.value_bytes + thread * segment.scratch_stride
                takes = align_up(site.scratch, ALIGNMENT)
                yield made(f"{SCRATCH} {thread}", number, number, at, takes, True)

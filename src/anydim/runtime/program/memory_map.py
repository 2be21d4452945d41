"""The arena offsets and lifetimes of values at given sizes, launch by launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from anydim.base.records import dataclass
from anydim.runtime.program.program import Program
from anydim.runtime.program.region_plan import needs, values_at
from anydim.runtime.program.segment import ALIGNMENT, Segment
from anydim.sizes import align_up


@dataclass(frozen=True)
class ArenaValue:
    """A value of the arena, or the scratch of a launch: its lifetime in launches, and its location.

    `offset` and `bytes` are numbers at the sizes, `at` and `takes` their formulas.
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
    """The arena of a program at given sizes: its launches as (kernel, source), and its values.

    `bytes` is the size of the arena, `between` the maximum size of values outside it: those that
    live between steps with data-dependent control flow.
    """

    name: str
    sizes: Mapping[str, int]
    launches: tuple[tuple[str, str], ...]
    placed: tuple[ArenaValue, ...]
    bytes: int
    between: int = 0

    @cached_property
    def live(self) -> tuple[int, ...]:
        """The live bytes at each launch."""
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
        """The launch with the maximum of live bytes."""
        return max(range(len(self.live)), key=self.live.__getitem__, default=0)

    @property
    def lower_bound(self) -> int:
        """The live bytes at the peak: a lower bound for any layout."""
        return max(self.live, default=0)

    def at_peak(self, value: ArenaValue) -> bool:
        """Whether a value is live at the peak."""
        return value.first <= self.peak <= value.last


def arena(program: Program, sizes: Mapping[str, int]) -> Arena:
    """Return the arena at given sizes; segments that share it are concatenated."""
    known = needs(program)
    values, _ = values_at(known.box, sizes)
    launches: list[tuple[str, str]] = []
    placed: list[ArenaValue] = []
    for segment, env in known.parts:
        own = {name: size.evaluate(values) for name, size in env.items()}
        placed += _arena_values(segment, own, len(launches))
        launches += [(site.kernel, site.source) for site in segment.sites]
    return Arena(
        program.signature.name,
        {name: values[name] for name in known.box.names},
        tuple(launches),
        tuple(placed),
        max(0, known.arena.evaluate(values)),
        max(0, known.values.evaluate(values)),
    )


def _arena_values(segment: Segment, sizes: Mapping[str, int], start: int) -> Iterator[ArenaValue]:
    workspaces = {site.workspace for site in segment.sites}
    for name, (first, last) in segment.lives.items():
        buffer = segment.buffer[name]
        if buffer.kind == "arena" and buffer.offset is not None:
            takes = align_up(buffer.bytes, ALIGNMENT)
            offset, bytes = (max(0, size.evaluate(sizes)) for size in (buffer.offset, takes))
            yield ArenaValue(
                name, start + first, start + last, offset, bytes, str(buffer.offset), str(takes),
                name in workspaces,
            )  # fmt: skip

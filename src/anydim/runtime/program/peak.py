"""The values that determine the peak memory of a call."""

from __future__ import annotations

from collections.abc import Mapping

from anydim.base.records import dataclass
from anydim.runtime.program.memory_map import arena
from anydim.runtime.program.program import Program
from anydim.runtime.program.region_plan import needs, values_at


@dataclass(frozen=True)
class Peak:
    """The bytes of a call, the launch of the peak, and its live values, largest first.

    `bytes` may exceed the sum of the values because offsets are fixed.
    """

    bytes: int
    where: str
    parts: tuple[tuple[str, int], ...]


def peak(program: Program, sizes: Mapping[str, int]) -> Peak:
    """Return the peak at unchecked sizes; missing ones count with their bounds."""
    placed, known = arena(program, sizes), needs(program)
    kernel, source = placed.launches[placed.peak] if placed.launches else ("", "")
    values, _ = values_at(known.box, sizes)
    parts = [(value.name, value.bytes) for value in placed.placed if placed.at_peak(value)]
    where = f"at '{source}'" if source else f"in {kernel}"
    if program.straight is None:
        moment = max(known.moments, key=lambda each: each.bytes.evaluate(values))
        parts += [(name, size.evaluate(values)) for name, size in moment.parts]
        where = f"after '{moment.where}'" if moment.where else "between steps"
    for segment, env in known.parts:
        kept = (segment.buffer[name] for setup in segment.setups for name in setup.values)
        parts += [(each.name, each.bytes.substitute(env).evaluate(values)) for each in kept]
    found = sorted((part for part in parts if part[1]), key=lambda part: -part[1])
    bytes = placed.bytes + placed.between + max(0, known.kept.evaluate(values))
    return Peak(bytes, where, tuple(found))

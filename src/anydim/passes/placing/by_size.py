"""A few placements under guards on sizes, where no single one is good at every size.

Small sizes may be faster on one device and large ones on another. The estimated time of a placement
is a formula over dims (`speeds.py`), so the guards that choose compare formulas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy

from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.graph.nodes import Graph, Node
from anydim.graph.regions import BRANCH, REGION, BranchRegion
from anydim.passes.placing.choice import Device
from anydim.passes.placing.rules import HOST
from anydim.passes.placing.speeds import bytes_of, work_of
from anydim.sizes import Box, Guard, Sampled, Size, as_size, samples

_SCATTERED = 40  # points beside those where all dims are alike
_LARGEST = 1 << 14
_WORTH = 1.02  # how much slower the chosen ones may be somewhere before there is one more
_MOST = 4  # placements of a program
_DIGITS, _DIGITS_OF_LEAST = 1 << 20, 1 << 10  # units of the largest speed, and of the least


def points_of(box: Box, guards: Sequence[Guard] = ()) -> list[dict[str, int]]:
    """Sizes at which placements are compared: powers of two in all dims, and others."""
    ranges = box.enclosure.ranges
    found = []
    power = 1
    while power <= _LARGEST:
        point = {}
        for dim in box.dims:
            within = ranges[dim.name]
            low = dim.lo if within.lo is None else within.lo
            point[dim.name] = max(low, power if within.hi is None else min(power, within.hi))
        if box.contains(point) and point not in found:
            found.append(point)
        power *= 2
    return found + [p for p in samples(box, _SCATTERED, guards) if p not in found]


@dataclass(frozen=True)
class Taken:
    """What a placement takes: seconds per unit of each formula."""

    parts: tuple[tuple[float, Size], ...]

    @staticmethod
    def by(graph: Graph, devices: Mapping[str, Device]) -> Taken:
        """Of a graph whose nodes have devices."""
        found: dict[float, Size] = {}

        def more(seconds: float, size: Size | int) -> None:
            if seconds:
                found[seconds] = found.get(seconds, as_size(0)) + size

        for node in graph.nodes:
            speed, work = devices[node.device].speed, work_of(graph, node)
            launch, flop, byte = speed.seconds(work)
            more(launch, 1)
            more(flop, work.flops)
            more(byte, work.moved)
        for name, origin, end in crossings(graph):
            size = bytes_of(graph.types[name])
            for device in (origin, end):
                if device != HOST:
                    more(devices[device].speed.copy, 1)
                    more(devices[device].speed.copied, size)
        return Taken(tuple(found.items()))

    def at(self, points: Sequence[Mapping[str, int]]) -> numpy.ndarray:
        """Seconds at some sizes."""
        sampled = Sampled(points)
        total = numpy.zeros(len(points))
        for seconds, size in self.parts:
            total += seconds * sampled.at(size)
        return total

    def formula(self, unit: float) -> Size:
        """Units of time, as a formula."""
        total = as_size(0)
        for seconds, size in self.parts:
            total = total + size * round(seconds / unit)
        return total


def crossings(graph: Graph) -> list[tuple[str, str, str]]:
    """The copies that a placed graph needs: value, from where, to where; each once."""
    makers = dict.fromkeys(graph.inputs, HOST)
    makers |= {name: node.device for node in graph.nodes for name in node.outputs}
    ends = [(name, node.device) for node in graph.nodes for name in node.given]
    ends += [(name, HOST) for name in graph.outputs]
    wanted = dict.fromkeys((n, makers[n], end) for n, end in ends if n in makers)
    return [(name, origin, end) for name, origin, end in wanted if origin != end]


def twice_bytes(placements: Sequence[Graph]) -> int:
    """Bytes of constants that some placements together hold more than each once."""
    held = {
        (name, node.device, placed.constants[name].array.nbytes)
        for placed in placements
        for node in placed.nodes
        for name in node.given
        if name in placed.constants
    }
    once = {name: bytes for name, _, bytes in held}
    return sum(bytes for *_, bytes in held) - sum(once.values())


def best_few(seconds: numpy.ndarray) -> list[int]:
    """Which of several placements [placements, points] are together good at every point.

    As few as are nowhere more than `_WORTH` of the best, `_MOST` at the most: each one added is
    that which leaves the smallest loss.
    """
    best = numpy.maximum(seconds.min(axis=0), 1e-15)
    losses = seconds / best
    chosen: list[int] = []
    kept = numpy.full(losses.shape[1], numpy.inf)
    while len(chosen) < _MOST and (not chosen or kept.max() > _WORTH):
        rest = [number for number in range(len(losses)) if number not in chosen]
        if not rest:
            break
        with_each = {number: numpy.minimum(kept, losses[number]) for number in rest}
        least = min(rest, key=lambda n: (with_each[n].max(), with_each[n].mean()))
        chosen.append(least)
        kept = with_each[least]
    return chosen


def chosen_by_size(
    graph: Graph, placements: Sequence[Graph], devices: Mapping[str, Device]
) -> Graph:
    """A graph that runs the one of some placements of it that is estimated to take least time."""
    takes = [Taken.by(placed, devices) for placed in placements]
    speeds = [seconds for each in takes for seconds, _ in each.parts]
    unit = min(max(speeds) / _DIGITS, min(speeds) / _DIGITS_OF_LEAST)
    times = [each.formula(unit) for each in takes]
    return _least(graph, list(zip(placements, times)))


def _least(graph: Graph, left: Sequence[tuple[Graph, Size]]) -> Graph:
    """The first two are compared; what is slower is no longer asked about."""
    if len(left) == 1:
        return left[0][0]
    (_, first), (_, second), *_ = left
    guard = Guard(first, "<=", second, "the faster one of two placements")
    arms = _least(graph, [left[0], *left[2:]]), _least(graph, left[1:])
    node = Node(
        BRANCH, graph.inputs, graph.outputs,
        FrozenMapping({REGION: BranchRegion(*arms, guard)}), "placement by size",
    )  # fmt: skip
    names = {*graph.inputs, *graph.outputs}
    types = FrozenMapping({name: kind for name, kind in graph.types.items() if name in names})
    return graph.replace(nodes=(node,), constants=FrozenMapping(), types=types)

"""Two placements under a guard on sizes, where no single one is good at every size.

Small sizes may be faster on one device and large ones on another. The estimated time of a placement
is a formula over dims (`speeds.py`), so the guard that chooses between two compares formulas.
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
from anydim.passes.placing.speeds import CLASSES, bytes_of, work_of
from anydim.sizes import Box, Guard, Sampled, Size, as_size, samples

_SCATTERED = 40  # points beside those where all dims are alike
_LARGEST = 1 << 14
_WORTH = 1.03  # how much slower one placement may be somewhere before there are two
_DIGITS = 1 << 20  # the largest speed is so many units, so that rounding is of no matter


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
    makers = {name: HOST for name in graph.inputs}
    makers |= {name: node.device for node in graph.nodes for name in node.outputs}
    ends = [(name, node.device) for node in graph.nodes for name in node.given]
    ends += [(name, HOST) for name in graph.outputs]
    wanted = dict.fromkeys((n, makers[n], end) for n, end in ends if n in makers)
    return [(name, origin, end) for name, origin, end in wanted if origin != end]


def held_bytes(graph: Graph, device: str) -> int:
    """Bytes of the constants that nodes on a device read."""
    names = {n for node in graph.nodes if node.device == device for n in node.given}
    return sum(graph.constants[name].array.nbytes for name in names & set(graph.constants))


def best_pair(seconds: numpy.ndarray) -> tuple[int, int]:
    """Which two of several placements [placements, points] together lose least at the worst point.

    Twice the same one where a single placement is as good, within `_WORTH`.
    """
    best = numpy.maximum(seconds.min(axis=0), 1e-12)
    losses = (seconds / best).max(axis=1)
    single = int(losses.argmin())
    if losses[single] <= _WORTH:
        return single, single
    pairs = [(i, j) for i in range(len(seconds)) for j in range(i)]
    worst = [float((numpy.minimum(seconds[i], seconds[j]) / best).max()) for i, j in pairs]
    if not pairs or min(worst) >= losses[single]:
        return single, single
    return pairs[int(numpy.argmin(worst))]


def chosen_by_size(graph: Graph, left: Graph, right: Graph, devices: Mapping[str, Device]) -> Graph:
    """A graph that runs `left` where its estimated time is no longer than that of `right`.

    Both are placements of `graph`.
    """
    takes = [Taken.by(placed, devices) for placed in (left, right)]
    unit = max(seconds for each in takes for seconds, _ in each.parts) / _DIGITS
    least = min(seconds for each in takes for seconds, _ in each.parts)
    unit = min(unit, least / 1024)
    guard = Guard(
        takes[0].formula(unit), "<=", takes[1].formula(unit), "the faster of two placements"
    )
    node = Node(
        BRANCH, graph.inputs, graph.outputs,
        FrozenMapping({REGION: BranchRegion(left, right, guard)}), "placement by size",
    )  # fmt: skip
    names = {*graph.inputs, *graph.outputs}
    return graph.replace(
        nodes=(node,), constants={},
        types={name: kind for name, kind in graph.types.items() if name in names},
    )  # fmt: skip


__all__ = ["CLASSES", "Taken", "best_pair", "chosen_by_size", "crossings", "held_bytes"]

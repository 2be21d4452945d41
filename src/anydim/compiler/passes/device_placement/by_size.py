"""Several placements under guards on sizes, if no single one is good at every size.

Small sizes may be faster on one device and large ones on another. The estimated time of a placement
is a formula over dims (`speeds.py`), so guards can compare formulas; if times were measured
(`timed.py`), guards follow these (`trees.py`).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import combinations

import numpy

from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.compiler.graph.dims import symbols_of
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.graph.regions import BRANCH, REGION, BranchRegion
from anydim.compiler.passes.device_placement.min_cut_choice import Device
from anydim.compiler.passes.device_placement.rules import HOST
from anydim.compiler.passes.device_placement.speeds import bytes_of, work_of
from anydim.compiler.passes.device_placement.trees import Feature, Tree
from anydim.sizes import Box, Guard, Sampled, Size, as_size, samples

_SCATTERED = 40  # points in addition to those with equal dims
_LARGEST = 1 << 14
_DIGITS, _DIGITS_OF_SMALLEST = 1 << 20, 1 << 10  # resolution of speeds


def points_of(box: Box, guards: Sequence[Guard] = ()) -> list[dict[str, int]]:
    """Sizes at which placements are compared: powers of two in all dims, and samples."""
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
class PlacementTime:
    """Estimated time of a placement: a sum of formulas, each with seconds per unit."""

    parts: tuple[tuple[float, Size], ...]

    @staticmethod
    def by(graph: Graph, devices: Mapping[str, Device]) -> PlacementTime:
        """The time of a graph whose nodes have devices."""
        found: dict[float, Size] = {}

        def more(seconds: float, size: Size | int) -> None:
            if seconds:
                found[seconds] = found.get(seconds, as_size(0)) + size

        for node in graph.nodes:
            known = devices.get(node.device, devices[HOST])  # speeds of engines are unknown
            speed, work = known.speed, work_of(graph, node)
            launch, flop, byte = speed.seconds(work)
            more(launch, 1)
            more(flop, work.flops)
            more(byte, work.moved)
        engines = {node.device for node in graph.nodes} - devices.keys()
        for name, origin, end in crossings(graph, engines):
            size = bytes_of(graph.types[name])
            for device in (origin, end):
                if device != HOST:
                    more(devices[device].speed.copy, 1)
                    more(devices[device].speed.copied, size)
        return PlacementTime(tuple(found.items()))

    def at(self, points: Sequence[Mapping[str, int]]) -> numpy.ndarray:
        """Evaluate in seconds at some sizes."""
        sampled = Sampled(points)
        total = numpy.zeros(len(points))
        for seconds, size in self.parts:
            total += seconds * sampled.at(size)
        return total

    def formula(self, unit: float) -> Size:
        """The time in multiples of `unit`, as a formula."""
        total = as_size(0)
        for seconds, size in self.parts:
            total = total + size * round(seconds / unit)
        return total

    def fit(self, points: Sequence[Mapping[str, int]], seconds: numpy.ndarray) -> PlacementTime:
        """Least-squares fit of the speeds to measured seconds, non-negative."""
        sampled, weights = Sampled(points), 1.0 / numpy.maximum(seconds, 1e-9)
        columns = [sampled.at(size) * weights for _, size in self.parts]
        kept = [number for number, column in enumerate(columns) if column.any()]
        rates: list[float] = []
        while kept:
            scales = [abs(columns[number]).max() for number in kept]
            scaled = numpy.array([columns[n] / s for n, s in zip(kept, scales)]).T
            rates = list(numpy.linalg.lstsq(scaled, weights * seconds, rcond=None)[0] / scales)
            if min(rates) >= 0:
                break
            del kept[int(numpy.argmin(numpy.array(rates) * scales))]
        return PlacementTime(
            tuple((rate, self.parts[n][1]) for n, rate in zip(kept, rates) if rate)
        )


def crossings(graph: Graph, engines: Container[str] = ()) -> list[tuple[str, str, str]]:
    """The copies that a placed graph needs: (value, source device, target device), each once.

    Values that `engines` compute and read reside on the host.
    """
    devices = [HOST if node.device in engines else node.device for node in graph.nodes]
    makers = dict.fromkeys(graph.inputs, HOST)
    makers |= {name: device for node, device in zip(graph.nodes, devices) for name in node.outputs}
    ends = [(name, device) for node, device in zip(graph.nodes, devices) for name in node.given]
    ends += [(name, HOST) for name in graph.outputs]
    wanted = dict.fromkeys((n, makers[n], end) for n, end in ends if n in makers)
    return [(name, origin, end) for name, origin, end in wanted if origin != end]


def twice_bytes(placements: Sequence[Graph]) -> int:
    """Bytes of constants that several placements duplicate across devices."""
    held = {
        (name, node.device, placed.constants[name].nbytes)
        for placed in placements
        for node in placed.nodes
        for name in node.given
        if name in placed.constants
    }
    once = {name: bytes for name, _, bytes in held}
    return sum(bytes for *_, bytes in held) - sum(once.values())


def features_of(graph: Graph, takes: Sequence[PlacementTime]) -> list[Feature]:
    """Features for guards: dims, products of two dims, total work, differences of times.

    Simple ones come first. Only dims known from the inputs: guards are evaluated before any step.
    """
    known = set(graph.box.names) - graph.origins.all_found
    works = [work_of(graph, node) for node in graph.nodes]
    sums = [sum((getattr(work, part) for work in works), as_size(0)) for part in ("flops", "moved")]
    dims = [Size.symbol(name) for name in sorted(known)]
    if len(dims) == 1:  # all others are monotonic in it
        return [Feature(dims[0])]
    pairs = [left * right for left, right in combinations(dims, 2)]
    found = [Feature(size) for size in (*dims, *pairs, *sums)]
    found += [Feature(*pair) for pair in combinations(formulas(takes), 2)]
    return [each for each in found if set() < each.left.symbols | each.right.symbols <= known]


def formulas(takes: Sequence[PlacementTime]) -> list[Size]:
    """Times in a common unit, as formulas with integer coefficients."""
    speeds = [seconds for each in takes for seconds, _ in each.parts] or [1.0]
    unit = min(max(speeds) / _DIGITS, min(speeds) / _DIGITS_OF_SMALLEST)
    return [each.formula(unit) for each in takes]


def chosen_by_size(graph: Graph, placements: Sequence[Graph], tree: Tree) -> Graph:
    """A graph that branches to the placement that a decision tree selects."""
    if isinstance(tree, int):
        return placements[tree]
    then, otherwise = (
        chosen_by_size(graph, placements, arm) for arm in (tree.then, tree.otherwise)
    )
    node = Node(
        BRANCH, graph.inputs, graph.outputs,
        FrozenMapping({REGION: BranchRegion(then, otherwise, tree.guard)}), "placement by size",
    )  # fmt: skip
    names = {*graph.inputs, *graph.outputs}
    types = FrozenMapping({name: kind for name, kind in graph.types.items() if name in names})
    inside = graph.origins.all_found - symbols_of(types.values())  # each placement finds them
    guards = tuple(guard for guard in graph.guards if inside.isdisjoint(symbols_of(guard)))
    return graph.replace(
        nodes=(node,), constants=FrozenMapping(), types=types, box=graph.box.without(inside),
        guards=guards,
    )  # fmt: skip

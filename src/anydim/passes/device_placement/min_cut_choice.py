"""The device of each node of a graph: as a user says, as it must be, or where time is least.

What a rule or the graph itself places is placed. What a device cannot compile, what runs other
graphs and what finds sizes is the host's. The rest goes where the estimated time is least, copies
counted: one for each value and device that reads it, however many readers there are. For two
devices a minimum cut says exactly where that is; for more, pairs of devices exchange nodes until
nothing gains (Y. Boykov, O. Veksler, R. Zabih, "Fast approximate energy minimization via graph
cuts", 2001).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from anydim.base.records import dataclass
from anydim.passes.device_placement.network import NEVER, SINK, SOURCE, Network
from anydim.passes.device_placement.rules import HOST
from anydim.passes.device_placement.speeds import Speed

_ROUNDS = 4  # over all pairs of devices


@dataclass(frozen=True)
class Device:
    """A device that nodes may be placed on; `ordered`: it runs loops in order and routines."""

    name: str
    speed: Speed
    ordered: bool = True


@dataclass(frozen=True)
class Value:
    """A value that crosses devices or does not: who makes it and who reads it.

    A maker or reader is the number of a node that is free, or the name of a device. `seconds` says
    what a copy of it takes from a device to another.
    """

    maker: int | str
    readers: frozenset[int | str]
    seconds: Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Problem:
    """Free nodes with the seconds that each takes on devices it may be on, and values between."""

    nodes: Mapping[int, Mapping[str, float]]
    values: Sequence[Value]

    def seconds(self, places: Mapping[int, str]) -> float:
        """What a placement takes, copies counted."""
        total = sum(self.nodes[number][device] for number, device in places.items())
        for value in self.values:
            origin = _place(value.maker, places)
            ends = {_place(reader, places) for reader in value.readers} - {origin}
            total += sum(value.seconds[origin, end] for end in ends)
        return total

    def solve(self, devices: Sequence[str]) -> dict[int, str]:
        """The placement that takes least time: exactly so where there are two devices."""
        places = min((self._all_on(device, devices[0]) for device in devices), key=self.seconds)
        best = self.seconds(places)
        for _ in range(_ROUNDS):
            before = best
            for pair in combinations(devices, 2):
                other = self._exchanged(places, *pair)
                seconds = self.seconds(other)
                if seconds < best:
                    places, best = other, seconds
            if best >= before or len(devices) == 2:
                break
        return places

    def _all_on(self, device: str, fallback: str) -> dict[int, str]:
        return {
            number: device if device in costs else fallback for number, costs in self.nodes.items()
        }

    def _exchanged(self, places: Mapping[int, str], left: str, right: str) -> dict[int, str]:
        """The best placement that differs in nodes of two devices, between these."""
        free = {number for number, device in places.items() if device in (left, right)}
        network = Network()
        for number in free:
            costs, point = self.nodes[number], network.point(number)
            network.edge(SOURCE, point, costs.get(right, NEVER))
            network.edge(point, SINK, costs.get(left, NEVER))
        ends = {left: SOURCE, right: SINK}

        def point_of(place: int | str) -> int | str:
            """A point of the network, or a device that is not one of the two."""
            if isinstance(place, int) and place in free:
                return network.point(place)
            device = _place(place, places)
            return ends.get(device, device)

        for number, value in enumerate(self.values):
            readers = {point_of(reader) for reader in value.readers}
            _connect(network, (number, value), point_of(value.maker), readers, (left, right))
        kept = network.cut()
        return {
            number: device if number not in free
            else left if network.point(number) in kept else right
            for number, device in places.items()
        }  # fmt: skip


def _place(place: int | str, places: Mapping[int, str]) -> str:
    return places[place] if isinstance(place, int) else place


def _connect(
    network: Network, numbered: tuple[int, Value], maker: int | str, readers: set[int | str],
    pair: tuple[str, str],
) -> None:  # fmt: skip
    """Edges for the copies of a value between two devices, and between them and others."""
    (left, right), (number, value) = pair, numbered
    to_right, to_left = network.point((number, right)), network.point((number, left))
    inside = [reader for reader in readers if isinstance(reader, int)]
    for reader in inside:  # one copy for all readers of a side
        network.edge(to_right, reader, NEVER)
        network.edge(reader, to_left, NEVER)
    if isinstance(maker, str):
        network.edge(SOURCE, to_right, value.seconds[maker, right])
        network.edge(to_left, SINK, value.seconds[maker, left])
        return
    network.edge(maker, to_right, value.seconds[left, right])
    network.edge(to_left, maker, value.seconds[right, left])
    for other in readers:
        if isinstance(other, str):
            network.edge(maker, SINK, value.seconds[left, other])
            network.edge(SOURCE, maker, value.seconds[right, other])


__all__ = ["HOST", "Device", "Problem", "Value"]

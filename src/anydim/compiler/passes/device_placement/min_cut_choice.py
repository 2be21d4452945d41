"""Device of each free node of a graph: minimises estimated time by minimum cuts.

Nodes with a device from a rule or the graph are fixed. Nodes that a device cannot compute, contain
other graphs or find sizes are on the host. The others are placed where the estimated total time is
lowest, including copies: one per value and reading device, independent of the count of readers. A
minimum cut is optimal for two devices; with more, pairs of devices exchange nodes until no exchange
helps (Y. Boykov, O. Veksler, R. Zabih, "Fast approximate energy minimization via graph cuts",
2001).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from anydim.base.records import dataclass
from anydim.compiler.passes.device_placement.network import NEVER, SINK, SOURCE, Network
from anydim.compiler.passes.device_placement.rules import HOST
from anydim.compiler.passes.device_placement.speeds import Speed

_ROUNDS = 4  # over all pairs of devices


@dataclass(frozen=True)
class Device:
    """A device that nodes may be placed on; `ordered`: supports ordered loops and routines."""

    name: str
    speed: Speed
    ordered: bool = True


@dataclass(frozen=True)
class Value:
    """A value with its maker and readers, which may be on different devices.

    A maker or reader is the number of a free node, or the name of a device. `seconds` are the times
    of a copy from a device to another.
    """

    maker: int | str
    readers: frozenset[int | str]
    seconds: Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Problem:
    """Free nodes, with the seconds of each on its possible devices, and the values between them."""

    nodes: Mapping[int, Mapping[str, float]]
    values: Sequence[Value]

    def seconds(self, placement: Mapping[int, str]) -> float:
        """The time of a placement, including copies."""
        total = sum(self.nodes[number][device] for number, device in placement.items())
        for value in self.values:
            origin = _device_of(value.maker, placement)
            ends = {_device_of(reader, placement) for reader in value.readers} - {origin}
            total += sum(value.seconds[origin, end] for end in ends)
        return total

    def solve(self, devices: Sequence[str]) -> dict[int, str]:
        """The placement with the lowest time; optimal for two devices."""
        placement = min((self._all_on(device, devices[0]) for device in devices), key=self.seconds)
        best = self.seconds(placement)
        for _ in range(_ROUNDS):
            before = best
            for pair in combinations(devices, 2):
                other = self._exchange(placement, *pair)
                seconds = self.seconds(other)
                if seconds < best:
                    placement, best = other, seconds
            if best >= before or len(devices) == 2:
                break
        return placement

    def _all_on(self, device: str, fallback: str) -> dict[int, str]:
        return {
            number: device if device in costs else fallback for number, costs in self.nodes.items()
        }

    def _exchange(self, placement: Mapping[int, str], left: str, right: str) -> dict[int, str]:
        """The best reassignment of the nodes on two devices between these two."""
        free = {number for number, device in placement.items() if device in (left, right)}
        network = Network()
        for number in free:
            costs, point = self.nodes[number], network.point(number)
            network.edge(SOURCE, point, costs.get(right, NEVER))
            network.edge(point, SINK, costs.get(left, NEVER))
        ends = {left: SOURCE, right: SINK}

        def point_of(end: int | str) -> int | str:
            """A node of the network, or the name of a third device."""
            if isinstance(end, int) and end in free:
                return network.point(end)
            device = _device_of(end, placement)
            return ends.get(device, device)

        for number, value in enumerate(self.values):
            readers = {point_of(reader) for reader in value.readers}
            _connect(network, (number, value), point_of(value.maker), readers, (left, right))
        kept = network.cut()
        return {
            number: device if number not in free
            else left if network.point(number) in kept else right
            for number, device in placement.items()
        }  # fmt: skip


def _device_of(end: int | str, placement: Mapping[int, str]) -> str:
    return placement[end] if isinstance(end, int) else end


def _connect(
    network: Network, numbered: tuple[int, Value], maker: int | str, readers: set[int | str],
    pair: tuple[str, str],
) -> None:  # fmt: skip
    """Add edges for copies of a value between the two devices, and to and from others."""
    (left, right), (number, value) = pair, numbered
    to_right, to_left = network.point((number, right)), network.point((number, left))
    inside = [reader for reader in readers if isinstance(reader, int)]
    for reader in inside:  # one copy for all readers on a device
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

"""Graph -> graph whose nodes have devices, with the reason for each.

Runs first of all passes where a program uses more than the host: `segment` cuts by device.

After: each node has its device; nested graphs are placed, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy

from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.base.text import count_of
from anydim.compiler.graph.evaluate import group_of
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.graph.regions import REGION, Foreign, Region
from anydim.compiler.passes.device_placement.min_cut_choice import Device, Problem, Value
from anydim.compiler.passes.device_placement.rules import HOST, Rule, all_nodes
from anydim.compiler.passes.device_placement.speeds import bytes_of, work_of
from anydim.compiler.passes.loop_nodes import pays
from anydim.lang.tree import TensorType
from anydim.sizes import Sampled, samples

ESTIMATED = "lowest estimated time, including copies"
_POINTS = 8  # sample sizes at which times are compared
_SMALL = 64  # elements of values that determine sizes


@dataclass(frozen=True)
class Placed:
    """A graph with devices, the reasons by the name of a node's first result, and notes.

    `times` are lines about measured times; `engines` are the devices that are engines and whose
    values reside on the host.
    """

    graph: Graph
    reasons: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    engines: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Place:
    """Assign a device to each node; `devices` begin with the host.

    `points` are the sizes at which times are compared; empty: samples of the box.
    """

    devices: Sequence[Device]
    rules: Sequence[Rule] = ()
    points: Sequence[Mapping[str, int]] = ()

    def run(self, graph: Graph) -> Placed:
        """The graph with devices."""
        reasons: dict[str, str] = {}
        return Placed(_Level(self, graph, reasons).run(), reasons)

    def free(self, graph: Graph) -> bool:
        """Whether the device of any node depends on time estimates."""
        ordered = any(device.ordered for device in self.devices if device.name != HOST)
        return any(
            node.region is None
            and not node.device
            and not any(rule.fits(node) for rule in self.rules)
            and (ordered or not _is_routine(node))
            for node in all_nodes(graph)
        )


class _Level:
    """Assigns the nodes of one graph; nested graphs have levels of their own."""

    def __init__(self, options: Place, graph: Graph, reasons: dict[str, str]) -> None:
        self.options, self.reasons = options, reasons
        self.held = {n: self._inner(node) for n, node in enumerate(graph.nodes) if node.region}
        self.graph = graph
        self.speeds = {device.name: device.speed for device in options.devices}
        points = list(options.points) or samples(graph.box, _POINTS, graph.guards)
        names = graph.box.names
        lowest = {dim.name: dim.lo for dim in graph.box.dims}
        points = [{name: point[name] for name in names} for point in points] or [lowest]
        columns = {name: numpy.array([p[name] for p in points], float) for name in names}
        self.at, self.count = Sampled.over(columns), len(points)
        self.finding = _finding(graph)

    def run(self) -> Graph:
        fixed: dict[int, tuple[str, str]] = {}
        free: dict[int, dict[str, numpy.ndarray]] = {}
        for number, node in enumerate(self.graph.nodes):
            known = self._required_device(number, node)
            if known is not None:
                fixed[number] = known
            else:
                free[number] = self._costs(node)
        scale = self._scale(free)
        problem = Problem(
            {n: {d: float(s @ scale) for d, s in costs.items()} for n, costs in free.items()},
            self._values({n: self._memory(device) for n, (device, _) in fixed.items()}, scale),
        )
        chosen = problem.solve([device.name for device in self.options.devices])
        nodes = []
        for number, node in enumerate(self.graph.nodes):
            device, why = fixed.get(number) or (chosen[number], _reason(problem, number))
            inner = self.held.get(number)
            if inner is not None:
                node = replace(node, attributes=FrozenMapping({**node.attributes, REGION: inner}))
            self.reasons[(*node.outputs, node.source)[0]] = why
            nodes.append(replace(node, device=device))
        return self.graph.replace(nodes=tuple(nodes))

    def _memory(self, device: str) -> str:
        """The device that stores a device's values; the host for an engine."""
        return device if device in self.speeds else HOST

    def _inner(self, node: Node) -> Region:
        """The region of a node with its nested graphs placed."""
        assert node.region is not None
        held = {
            name: _Level(replace(self.options, points=()), graph, self.reasons).run()
            for name, graph in node.region.held.items()
        }
        changed: Region = replace(node.region, **held)  # type: ignore[arg-type]
        return changed

    def _required_device(self, number: int, node: Node) -> tuple[str, str] | None:
        """The device a node has to run on, and the reason; None if estimates decide."""
        if node.region is not None:
            if isinstance(node.region, Foreign):
                return HOST, f"{node.region.engine} runs it"
            return HOST, "it contains other graphs" if node.region.held else "it determines sizes"
        rule = next((rule for rule in self.options.rules if rule.fits(node)), None)
        wanted = rule.device if rule is not None else node.device or None
        why = f"placement {rule}" if rule is not None else "set in the graph"
        if wanted is not None:
            refused = self._refusal(wanted, node)
            return (HOST, f"{why}, but {wanted} {refused}") if refused else (wanted, why)
        if number in self.finding:
            return HOST, "it determines sizes"
        return None

    def _refusal(self, name: str, node: Node) -> str:
        device = next((d for d in self.options.devices if d.name == name), None)
        return "" if device is None or not name else refusal(device, self.graph, node)

    def _costs(self, node: Node) -> dict[str, numpy.ndarray]:
        """Seconds at each point on each device that can run a node."""
        work = work_of(self.graph, node)
        flops, moved = (
            numpy.broadcast_to(self.at.at(size), (self.count,)) for size in (work.flops, work.moved)
        )
        found = {}
        for device in self.options.devices:
            if device.name == HOST or not refusal(device, self.graph, node):
                launch, flop, byte = device.speed.seconds(work)
                found[device.name] = launch + flops * flop + moved * byte
        return found

    def _scale(self, free: Mapping[int, Mapping[str, numpy.ndarray]]) -> numpy.ndarray:
        """Weight of a second at each point; gives all points the same total weight."""
        total = sum((costs[HOST] for costs in free.values()), numpy.full(self.count, 1e-9))
        return 1.0 / (total * self.count)

    def _values(self, fixed: Mapping[int, str], scale: numpy.ndarray) -> list[Value]:
        """Values that may cross devices: from inputs and nodes to nodes and results."""
        graph = self.graph
        makers: dict[str, int | str] = dict.fromkeys(graph.inputs, HOST)
        readers: dict[str, set[int | str]] = {name: set() for name in graph.types}
        for number, node in enumerate(graph.nodes):
            inner = self.held.get(number)
            for name in node.outputs:
                makers[name] = fixed.get(number, number)
            for name in node.given:
                if inner is None or not inner.held:
                    readers[name].add(fixed.get(number, number))
        for name in graph.outputs:
            readers[name].add(HOST)
        return [
            Value(maker, frozenset(readers[name]), self._copies(graph.types[name], scale))
            for name, maker in makers.items()
            if readers[name] - {maker}
        ]

    def _copies(self, kind: TensorType, scale: numpy.ndarray) -> dict[tuple[str, str], float]:
        moved = numpy.broadcast_to(self.at.at(bytes_of(kind)), (self.count,))
        seconds = {
            name: 0.0 if name == HOST else float((speed.copy + moved * speed.copied) @ scale)
            for name, speed in self.speeds.items()
        }
        return {(a, b): seconds[a] + seconds[b] for a in seconds for b in seconds}


def refusal(device: Device, graph: Graph, node: Node) -> str:
    """The reason why a device cannot run a node; '' if it can."""
    if device.ordered:
        return ""
    if _is_routine(node):
        return "has no such routine"
    steps = group_of(graph, node).steps
    return "runs no loops in order" if steps and not pays(steps) else ""


def _is_routine(node: Node) -> bool:
    return node.operator != FUSED and operator(node.operator).routine is not None


def _reason(problem: Problem, number: int) -> str:
    costs = problem.nodes[number]
    if len(costs) == 1:
        return "no other device can run it"
    return ESTIMATED


def _finding(graph: Graph) -> set[int]:
    """Nodes on small integers that only determine sizes or branch conditions."""
    wanted: set[str] = set()
    found: set[int] = set()
    for number in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[number]
        if node.region is not None:
            wanted.update(node.given[:1])
        elif wanted & set(node.outputs) and all(_small(graph.types[n]) for n in node.outputs):
            found.add(number)
            wanted.update(name for name in node.given if _small(graph.types[name]))
    return found


def _small(kind: TensorType) -> bool:
    count = 1
    for size in kind.shape:
        if size.constant is None:
            return False
        count *= size.constant
    return kind.dtype.kind != "float" and count <= _SMALL


def summary(placed: Graph) -> str:
    """Count of nodes per device, as text."""
    counts: dict[str, int] = {}
    for node in placed.nodes:
        counts[node.device or "cpu"] = counts.get(node.device or "cpu", 0) + 1
    return ", ".join(f"{count_of(n, 'node')} on {name}" for name, n in counts.items())

"""Device placement of a graph's nodes: rules first, then times.

placement={"backbone/*": "accel"}    nodes on a device by pattern, others where the time is lowest
placement="auto"                     all nodes where the time is lowest
placement=None                       devices set in the graph, if any; else "auto"
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from anydim.base import settings
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes.assign_devices import Place, Placed, summary
from anydim.compiler.passes.device_placement.by_size import crossings
from anydim.compiler.passes.device_placement.measure import Run, speed_of
from anydim.compiler.passes.device_placement.min_cut_choice import Device
from anydim.compiler.passes.device_placement.rules import (
    HOST,
    all_nodes,
    check_rules_match,
    known_rules,
    unknown_devices,
)
from anydim.compiler.passes.device_placement.speeds import Speed
from anydim.compiler.passes.device_placement.timed import Tell, Timing, Trial
from anydim.compiler.passes.placement_choice import Choosing
from anydim.runtime.devices.device import Device as OpenDevice
from anydim.runtime.devices.table import unknown_device

AUTOMATIC = "auto"
_SAME_SPEED = Speed()  # where no times are compared


@dataclass(frozen=True)
class Placement:
    """Options of a user for placement; `devices` are open devices, by the program's names.

    `compiled` compiles a graph for the device of that name to a callable; `tried` compiles a graph
    with devices to a program, with some `options`. Devices that are `ordered` support ordered loops
    and routines. `tell` receives progress lines. Nodes go to `engines` by rules only.
    """

    given: Any
    devices: Mapping[str, OpenDevice]
    threads: int
    compiled: Callable[[Graph, str], Run]
    tried: Callable[[Graph], Trial]
    ordered: Collection[str] = ()
    tell: Tell = lambda text: None
    options: str = ""
    engines: Collection[str] = ()

    def run(self, graph: Graph) -> Placed:
        """Return the graph with devices, and the reasons.

        Raises OptionError for invalid rules, DeviceError for devices that are not given.
        """
        automatic = self.given == AUTOMATIC
        names = (*self.devices, *self.engines)
        rules = known_rules(None if automatic else self.given, names)
        check_rules_match(rules, graph)
        missing = unknown_devices(rules, graph, names)
        if missing:
            raise unknown_device(graph.name, missing, tuple(self.devices))
        if self.given is None and any(node.device for node in all_nodes(graph)):
            return Placed(graph)
        if self.given is None and not self.devices:
            return Placed(graph)
        plain = Place([self._device(name, _SAME_SPEED) for name in (HOST, *self.devices)], rules)
        if not self.devices or not plain.free(graph):
            return plain.run(graph)
        devices = [self._device(name, self._speed(name)) for name in (HOST, *self.devices)]
        watched, seconds = list(self.devices.values()), float(settings.placing_seconds)
        timing = Timing(self.tried, watched, self.threads, seconds, self.tell, self.options)
        return Choosing(graph, replace(plain, devices=devices), timing).run()

    def _device(self, name: str, speed: Speed) -> Device:
        return Device(name, speed, name == HOST or name in self.ordered)

    def _speed(self, name: str) -> Speed:
        def compiled(graph: Graph) -> Run:
            nodes = tuple(replace(node, device=name) for node in graph.nodes)
            return self.compiled(graph.replace(nodes=nodes), name)

        described = self.devices[name].name if name else "this processor"
        return speed_of(
            self.devices.get(name), compiled, self.threads,
            partial(self.tell, f"measuring the speed of {described}"),
        )  # fmt: skip


def placed_text(placed: Placed) -> str:
    """Text of each node with its device and reason, copies, and guards on sizes."""
    lines = [*_lines(placed, placed.graph), *(f"# {line}" for line in placed.times)]
    return "\n".join(lines) + "\n"


def placed_notes(placed: Placed) -> tuple[str, ...]:
    """Notes for `explain` on a placement."""
    refused: dict[str, list[str]] = {}
    for name, why in placed.reasons.items():
        if ", but " in why:
            refused.setdefault(why, []).append(name)
    alone = (f"{why}: {_few(names)}" for why, names in refused.items())
    return (*_summary_lines(placed.graph, placed.engines), *alone, *placed.notes)


def _few(names: Sequence[str]) -> str:
    """The first names, and the count of others."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:_NAMED]) + more


_NAMED = 4


def _summary_lines(graph: Graph, engines: Container[str], guard: str = "") -> Iterator[str]:
    region = graph.nodes[0].region if len(graph.nodes) == 1 else None
    condition = getattr(region, "condition", None)
    if region is None or condition is None:
        copies = len(crossings(graph, engines))
        yield f"placement{guard}: {summary(graph)}, {copies} copies"
        return
    arms = list(region.held.values())
    said = f"{condition.left} {condition.relation} {condition.right}"
    yield from _summary_lines(arms[0], engines, f" where {said}")
    yield from _summary_lines(arms[1], engines, " else" if guard else " elsewhere")


def _lines(placed: Placed, graph: Graph, depth: int = 0) -> Iterator[str]:
    space = "  " * depth
    copied: dict[str, list[str]] = {}
    for name, origin, end in crossings(graph, placed.engines):
        copied.setdefault(name, []).append(f"{origin or 'cpu'} to {end or 'cpu'}")
    for name in graph.inputs:
        yield from (f"{space}copy '{name}', {route}" for route in copied.get(name, ()))
    for node in graph.nodes:
        results = ", ".join(f"'{name}'" for name in node.outputs)
        why = placed.reasons.get((*node.outputs, node.source)[0], "")
        yield f"{space}{node.device or 'cpu'}: {results} = {node.operator}  # {why}".rstrip()
        condition = getattr(node.region, "condition", None)
        for number, held in enumerate(node.region.held.values() if node.region else ()):
            if condition is not None:
                said = f"{condition.left} {condition.relation} {condition.right}"
                yield f"{space}  {'unless' if number else 'where'} {said}"
            yield from _lines(placed, held, depth + 2)
        for name in node.outputs:
            yield from (f"{space}copy '{name}', {route}" for route in copied.get(name, ()))

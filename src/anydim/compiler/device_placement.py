"""Device placement: from the user's request to a placed graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.graphs.foreign import describe_foreign
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.graph.regions import Foreign
from anydim.compiler.graph.verify import verify
from anydim.compiler.passes.delegate_partition import Partition
from anydim.compiler.passes.device_placement.measure import Run
from anydim.compiler.passes.device_placement.rules import all_nodes
from anydim.compiler.passes.device_placement.timed import Trial, trial_of
from anydim.compiler.passes.placement import Placement, placed_notes, placed_text
from anydim.compiler.progress import Work
from anydim.compiler.targets.device_targets import DeviceTarget
from anydim.runtime.devices.engines.engine import Engine
from anydim.runtime.devices.engines.table import ENGINES, engine_named


@dataclass(frozen=True)
class PlacementRequest:
    """The user's placement request."""

    placement: Any
    devices: Mapping[str, DeviceTarget]
    engines: Mapping[str, str | Engine]
    threads: int
    options: str

    def engines_of(self, graph: Graph) -> dict[str, Engine]:
        """The engines that nodes of a graph use, opened, by name."""
        nodes = list(all_nodes(graph))
        names = {node.device for node in nodes} - self.devices.keys()
        names |= {node.region.engine for node in nodes if isinstance(node.region, Foreign)}
        found = {name: engine_named(name, self.engines) for name in sorted(names)}
        return {name: engine for name, engine in found.items() if engine is not None}


def placed_graph(
    graph: Graph, request: PlacementRequest, work: Work, probe: Callable[..., Any],
    tried: Callable[..., Any],
) -> tuple[Graph, dict[str, Engine]]:  # fmt: skip
    """Place the nodes of a graph; return the graph with devices, and the engines among them.

    `probe` compiles small graphs to measure device speeds, `tried` candidates of the placed graph.
    """
    devices, threads = request.devices, request.threads
    wanted = bool(devices or request.placement is not None or request.engines)

    def run(small: Graph, name: str) -> Run:
        ran: Run = probe(small, devices={name: devices[name]} if name else None).executable
        return ran

    def trial(placed: Graph) -> Trial:
        made = tried(placed, devices=devices if any(n.device for n in placed.nodes) else None)
        watched = list(opened.values())
        return trial_of(made.program, made.executable, made.index_ranges(), watched)

    opened = {name: each.device for name, each in devices.items()}
    others = (in_order(devices), work.tell, request.options, (*request.engines, *ENGINES))
    work.total += not wanted  # unknown before the graph was read
    placing = Placement(request.placement, opened, threads, run, trial, *others)
    placed = work.timed("place", lambda: placing.run(graph))
    engines = request.engines_of(placed.graph)
    placed = Partition(engines).run(placed)
    work.stage("placed", lambda: placed_text(placed), (placed.graph,))
    ran = [describe_foreign(n) for n in all_nodes(graph) if isinstance(n.region, Foreign)]
    idle = (
        f"no node is on '{n}': use placement= or g.on"
        for n in sorted({*request.engines} - {*engines})
    )
    work.notes = (*placed_notes(placed), *ran, *idle)
    return verify(placed.graph), engines


def in_order(devices: Mapping[str, DeviceTarget]) -> frozenset[str]:
    """The devices that support ordered loops and routines."""
    return frozenset(name for name, each in devices.items() if each.target.ordered)

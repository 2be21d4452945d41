"""Partition of nodes assigned to an engine into those it supports and those that stay on the host.

After: a node whose device is an engine's name can be exported to ONNX, and the engine supports it;
all other nodes are on the host, with the reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import field, replace
from math import prod

from anydim.base.errors import DeviceError
from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.compiler.graph.evaluate import group_of
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.graph.regions import REGION
from anydim.compiler.passes.assign_devices import Placed
from anydim.compiler.passes.delegate.empty_tensors import may_be_empty
from anydim.compiler.passes.delegate.inexact_nodes import reason_of_deviation
from anydim.compiler.passes.delegate.onnx_export import export_model
from anydim.compiler.passes.delegate.onnx_writer import Refused
from anydim.compiler.passes.device_placement.rules import HOST
from anydim.compiler.passes.flow import with_nodes
from anydim.runtime.devices.engines.engine import Engine

_SMALL = 64  # elements of a constant that may decide whether an engine supports a node


@dataclass(frozen=True)
class Partition:
    """Keep nodes on those `engines` that support them; move the others to the host."""

    engines: Mapping[str, Engine]
    known: dict[tuple[str, str], str] = field(default_factory=dict)  # by engine and model

    def run(self, placed: Placed) -> Placed:
        """The graph with nodes that engines refuse moved to the host, with reasons."""
        reasons = dict(placed.reasons)
        graph = self._level(placed.graph, reasons)
        return replace(placed, graph=graph, reasons=reasons, engines=frozenset(self.engines))

    def _level(self, graph: Graph, reasons: dict[str, str]) -> Graph:
        nodes = []
        for node in graph.nodes:
            name = (*node.outputs, node.source)[0]
            if node.region is not None and node.region.held:
                held = {k: self._level(each, reasons) for k, each in node.region.held.items()}
                inner = replace(node.region, **held)  # type: ignore[arg-type]
                node = replace(node, attributes=FrozenMapping({**node.attributes, REGION: inner}))
            if node.device in self.engines:
                why = self._refusal(graph, node)
                reason = reasons.get(name, f"set to {node.device} in the graph")
                if why:
                    reasons[name] = f"{reason}, but {node.device} does not support it: {why}"
                    node = replace(node, device=HOST)
            nodes.append(node)
        return graph.replace(nodes=tuple(nodes))

    def _refusal(self, graph: Graph, node: Node) -> str:
        """The reason why an engine does not support a node; '' if it does."""
        if node.region is not None:
            return "it contains other graphs or determines sizes"
        if node.operator != FUSED and operator(node.operator).routine is not None:
            return f"there is no ONNX operator for '{node.operator}'"
        if group_of(graph, node).steps:
            return "it has ordered loops"
        bare = may_be_empty(graph, node)
        if bare:
            sizes = ", ".join(map(str, bare))
            hint = "give dims a lower bound of 1"
            return f"it does not support empty tensors, and {sizes} may be 0: {hint}"
        engine = self.engines[node.device]
        odd = reason_of_deviation(engine.name, graph, node)
        if odd:
            return odd
        try:
            made = export_model(_single(graph, node), named=False)
        except Refused as reason:
            return str(reason)
        for port in (*made.inputs, *made.outputs):
            if not engine.holds(port.dtype):
                return f"it does not support tensors of {port.dtype}"
        key = (node.device, hashlib.sha256(made.model).hexdigest())
        if key not in self.known:
            try:
                engine.check(made.model)
                self.known[key] = ""
            except DeviceError as error:
                self.known[key] = error.problem
        return self.known[key]


def _single(graph: Graph, node: Node) -> Graph:
    """A graph of one node; its operands are inputs, except small constants."""
    constants = {
        name: graph.constants[name]
        for name in node.given
        if name in graph.constants and prod(graph.constants[name].shape) <= _SMALL
    }
    inputs = dict.fromkeys(name for name in node.given if name not in constants)
    whole = graph.replace(
        inputs=tuple(inputs), outputs=node.outputs, guards=(), lists={},
        constants=FrozenMapping(constants),
    )  # fmt: skip
    return with_nodes(whole, (node,), graph.types)

"""Imports the nodes of one ONNX graph in order: resolves each, calls its row, binds its results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from anydim.base.errors import GraphError
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.graphs import cases
from anydim.compiler.frontends.onnx.graphs.cases import Numbered
from anydim.compiler.frontends.onnx.graphs.definitions import import_body
from anydim.compiler.frontends.onnx.graphs.functions import problem_of
from anydim.compiler.frontends.onnx.graphs.names import Names
from anydim.compiler.frontends.onnx.graphs.resolve import resolve
from anydim.compiler.frontends.onnx.graphs.subgraphs import Failed, NodeScope
from anydim.compiler.frontends.onnx.operators.call import OnnxNode
from anydim.compiler.frontends.onnx.operators.relations import Unlike
from anydim.compiler.frontends.onnx.values.bindings import (
    Broken,
    Items,
    Known,
    Maybe,
    Packed,
    Ranked,
    Result,
)
from anydim.compiler.graph.nodes import Node


class GraphImporter(Names):
    """Imports the nodes of a graph, and knows what its names are bound to."""

    # ---- nodes ----

    def run(self, nodes: Sequence[Any], results: Sequence[str] = ()) -> None:
        """Import nodes in order and record failures; `results` are the outputs of the graph."""
        self.produced = {name for node in nodes for name in node.output if name}
        remaining, moved = list(enumerate(nodes)), dict[str, int]()
        while remaining:
            (position, proto), *remaining = remaining
            own = proto.name or next(filter(None, proto.output), f"node {position}")
            scope = NodeScope(self, self.path + own)
            mark, before = scope.mark(), self.emitter.mark()
            try:
                self.node(proto, scope.label)
            except Unlike as reason:
                scope.reset(mark)
                self.emitter.back(before)
                moved[own] = moved.get(own, 0) + 1 + moved.get(own, 0) // 2
                remaining = self.apart_of(
                    (position, proto), remaining, results, own, moved[own], reason
                )
        self.held.update(cases.results_of_any_rank(self))

    def apart_of(
        self, numbered: Numbered, remaining: Sequence[Numbered], results: Sequence[str], own: str,
        count: int, reason: Unlike,
    ) -> list[Numbered]:  # fmt: skip
        """The nodes left to import after a node whose results have different ranks by size."""
        position, proto = numbered
        if proto.op_type == "If":
            try:
                return cases.follow(self, numbered, remaining, results, own, count, reason)
            except Unlike:
                raise
            except Unsupported as problem:
                self.refuse(proto, self.path + own, str(problem))
        elif reason.relation is not None and cases.is_split(self, reason.relation):
            return [(position, cases.split(self, proto, own, reason.relation)), *remaining]
        else:
            self.fall_back(proto, self.path + own, str(reason))
        return list(remaining)

    def node(self, proto: Any, label: str) -> None:
        """Add one ONNX node to the graph, or record why it fails; raises Unlike."""
        try:
            self.build(proto, label)
        except Failed:
            self.held.update((name, Broken()) for name in proto.output if name)
        except Unlike:
            raise
        except (Unsupported, GraphError) as reason:
            self.fall_back(proto, label, problem_of(reason))

    def fall_back(self, proto: Any, label: str, reason: str) -> None:
        """Run a node in onnxruntime if allowed; else record why it cannot be imported."""
        if self.model.fallback:
            try:
                import_module("anydim.compiler.frontends.onnx.graphs.foreign").add_foreign_node(
                    self, proto, label, reason
                )
                return
            except Unsupported as other:
                reason = f"{reason}; nor by onnxruntime: {other}"
        self.refuse(proto, label, reason)

    def refuse(self, proto: Any, label: str, reason: str) -> None:
        """Record why a node cannot be imported."""
        self.fail(label, proto.op_type, reason)
        self.held.update((name, Broken()) for name in proto.output if name)

    def build(self, proto: Any, label: str) -> None:
        """Add the nodes of one ONNX node; its results are broken if one of its inputs is."""
        call, importer = resolve(self, proto, label)
        if any(isinstance(held, Broken) for held in call.inputs):
            self.held.update((name, Broken()) for name in proto.output if name)
            return
        results = importer(call)
        if results is None:  # the row leaves this case to the standard's own definition
            results = import_body(self, label, call)
        self.define(call, results)

    def define(self, call: OnnxNode, results: Result | Sequence[Result]) -> None:
        """Bind the results of a node to their names, and add its nodes to the graph.

        Nodes that read only known values are evaluated instead.
        """
        if isinstance(results, (str, Known, Items, Packed, Maybe, Ranked, Broken)):
            results = [results]
        emitter = self.emitter
        nodes = call.nodes
        own = {name for node in nodes for name in node.outputs}
        given = {name for node in nodes for name in node.given} - own
        if nodes and all(n in emitter.known or n in emitter.assumed for n in given):
            folded = emitter.fold(nodes)
            emitter.assumed.update(folded.assumed)
            if folded.known is not None:
                for name, known in folded.known.items():
                    emitter.add_known(name, known, call.source)
                nodes, own = [], set()
        renamed: dict[str, str] = {}
        for name, value, result in zip(call.proto.output, call.outputs, results):
            if not name:
                continue
            if isinstance(result, Known):
                emitter.add_known(value, result, call.source)
                self.held[name] = value
            elif isinstance(result, str) and result in own and result not in renamed:
                renamed[result] = value
                emitter.types[value] = emitter.types.pop(result)
                if result in emitter.known:
                    emitter.known[value] = emitter.known.pop(result)
                if result in emitter.assumed:
                    emitter.assumed[value] = emitter.assumed.pop(result)
                self.held[name] = value
            else:
                self.held[name] = renamed.get(result, result) if isinstance(result, str) else result
        emitter.commit(_rename_values(nodes, renamed))


def _rename_values(nodes: Iterable[Node], names: Mapping[str, str]) -> list[Node]:
    if not names:
        return list(nodes)
    return [
        Node(
            node.operator,
            tuple(names.get(n, n) if n else n for n in node.inputs),
            tuple(names.get(n, n) for n in node.outputs),
            node.attributes,
            node.source,
        )
        for node in nodes
    ]

"""A subgraph assigned to an engine -> the step that runs it.

After: the exported model of the subgraph is a constant of the program, stored once if equal.
"""

from __future__ import annotations

from dataclasses import field

import numpy

from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Constant, Graph
from anydim.compiler.passes.assemble import Store
from anydim.compiler.passes.delegate.empty_tensors import nonempty_sizes
from anydim.compiler.passes.delegate.onnx_export import export_model
from anydim.compiler.passes.delegate.onnx_writer import Refused
from anydim.runtime.program.region import EngineStep


@dataclass(frozen=True)
class Delegate:
    """Convert subgraphs to engine steps; their models go into `store`."""

    store: Store
    models: dict[bytes, Constant] = field(default_factory=dict)

    def run(self, engine: str, graph: Graph) -> EngineStep:
        """The step for the graph of a subgraph on an engine."""
        try:
            made = export_model(graph)
        except Refused as reason:  # each of its nodes was accepted
            raise InternalError(f"{graph.name}: {reason}") from None
        source = graph.nodes[0].source
        if len(graph.nodes) > 1:
            source = f"{source} and {len(graph.nodes) - 1} more"
        return EngineStep(
            engine=engine,
            model=self.model(f"{engine}/{graph.nodes[0].outputs[0]}", made.model),
            reads=graph.inputs,
            makes=graph.outputs,
            inputs=tuple(port.name for port in made.inputs),
            outputs=tuple(port.name for port in made.outputs),
            vectors=made.vectors,
            needed=tuple(
                dict.fromkeys(s for node in graph.nodes for s in nonempty_sizes(graph, node))
            ),
            source=source,
        )

    def model(self, name: str, model: bytes) -> str:
        """The name of the constant that holds a model."""
        if model not in self.models:
            self.models[model] = Constant(numpy.frombuffer(model, numpy.uint8))
        return self.store.constant(name, self.models[model])

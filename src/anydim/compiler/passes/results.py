"""Make every output a separate value.

An output that is an input or a constant would otherwise have no launch that writes it. It becomes
a copy under its own name; callers see the name that the model gives it.

After: each output is made by a node, and no output is named twice.
"""

from __future__ import annotations

from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph, Node
from anydim.runtime.signature import PASSED_THROUGH


@dataclass(frozen=True)
class Results:
    """Copy outputs that are inputs, constants or other outputs."""

    def run(self, graph: Graph) -> Graph:
        given = {*graph.inputs, *graph.constants}
        outputs = dict.fromkeys(graph.outputs)
        passed = {name: f"{name}{PASSED_THROUGH}" for name in outputs if name in given}
        if not passed and len(outputs) == len(graph.outputs):
            return graph
        copies = tuple(
            Node("identity", (name,), (copy,), source=f"output {name}")
            for name, copy in passed.items()
        )
        types = {**graph.types, **{copy: graph.types[name] for name, copy in passed.items()}}
        return graph.replace(
            nodes=graph.nodes + copies,
            types=types,
            outputs=tuple(passed.get(name, name) for name in outputs),
        )

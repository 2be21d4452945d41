"""Parts other than straight lines of comprehensions -> launches: routines and ordered groups.

After: as after `schedule`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anydim.base.records import dataclass
from anydim.compiler.graph.evaluate import group_of
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.kernels.launch import STATUS_TENSOR, Launch, Machine
from anydim.compiler.kernels.template import Template
from anydim.compiler.passes.flow import fused_node, unique_name
from anydim.compiler.passes.options import PLAIN, KernelOptions
from anydim.compiler.passes.recipes import routine_recipes
from anydim.compiler.passes.schedule import Alias, Schedule, Scheduled
from anydim.lang.tree import Group, Tensor
from anydim.lang.tree.renaming import rename_steps
from anydim.sizes import merged_guards


def add_guards(graph: Graph) -> Graph:
    """The graph of operators with the guards of its nodes added."""
    guards = list(graph.guards)
    for node in graph.nodes:
        source = node.source.removeprefix(f"{graph.name}: ")
        guards = merged_guards(guards, group_of(graph, node).guards, source)
    return graph.replace(guards=tuple(guards))


@dataclass(frozen=True)
class Opaque:
    """Lower a graph of one node that other passes skip to launches."""

    machine: Machine
    templates: tuple[Template, ...]
    options: KernelOptions = PLAIN

    def run(self, graph: Graph) -> tuple[Scheduled | Alias, ...]:
        (node,) = graph.nodes
        if node.operator != FUSED and operator(node.operator).routine is not None:
            return self._routine(graph, node)
        named = graph.replace(nodes=(_as_comprehensions(graph, node),))
        return Schedule(self.machine, self.templates, self.options).run(named)

    def _routine(self, graph: Graph, node: Node) -> tuple[Scheduled, ...]:
        record = operator(node.operator)
        routine, attributes = record.routine, record.complete(node.attributes)
        assert routine is not None
        given = [graph.types[name] for name in node.given]
        steps = routine.lower(given, attributes, graph.box, self.machine)
        group = group_of(graph, node)
        tensors = {tensor.name: tensor for tensor in (*group.inputs, *group.outputs)}
        values = {f"x{number}": name for number, name in enumerate(node.given)}
        values.update({f"y{number}": name for number, name in enumerate(node.outputs)})
        for tensor in steps.temporaries:
            tensors[tensor.name] = tensor
            values[tensor.name] = unique_name(f"{node.outputs[0]}/{tensor.name}", graph.types)
        inputs = {tensor.name for tensor in group.inputs}
        results = [graph.types[name] for name in node.outputs]
        recipes = routine_recipes(node, given, results, graph.box, self.machine, steps.launches)
        name, source = node.operator, node.source
        return tuple(
            Scheduled(
                launch, values, name, source, _touched_tensors(launch, tensors, inputs), recipe
            )
            for launch, recipe in zip(steps.launches, recipes)
        )


def _touched_tensors(launch: Launch, tensors: dict[str, Tensor], inputs: set[str]) -> Group:
    """The tensors of a launch: inputs of the routine, and those it may write."""
    names: Sequence[str] = list(dict.fromkeys(a.tensor for a in launch.arguments))
    used = [tensors[name] for name in names if name != STATUS_TENSOR]
    read = tuple(tensor for tensor in used if tensor.name in inputs)
    return Group(read, tuple(tensor for tensor in used if tensor.name not in inputs), ())


def _as_comprehensions(graph: Graph, node: Node) -> Node:
    """The node as the comprehensions of its operator, over the graph's value names."""
    if node.operator == FUSED:
        return node
    group = group_of(graph, node)
    names = dict(zip((tensor.name for tensor in group.inputs), node.given))
    names.update(zip((tensor.name for tensor in group.outputs), node.outputs))
    for tensor in group.temporaries:
        names[tensor.name] = unique_name(f"{node.outputs[0]}/{tensor.name}", graph.types)

    def renamed(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(Tensor(names[tensor.name], tensor.type) for tensor in tensors)

    own = replace(
        group,
        inputs=renamed(group.inputs),
        outputs=renamed(group.outputs),
        temporaries=renamed(group.temporaries),
        steps=rename_steps(group.steps, names),
    )
    return fused_node(own, node.source)

"""Cut graphs with regions into ordered steps: straight-line parts, and opaque nodes.

A part passes through all other passes as its own graph and becomes one program, for one device.
Nodes that hold graphs, find dims, run ordered loops or are routines are steps between parts; the
first two run on the host, the others on devices that support them. Every node is assigned to the
first part of its device that has all its inputs, then moved down to that of its first reader, so
that it fuses with its readers and no value lives longer than necessary.

After: each part holds dense nodes of one device only, or a single node of another kind; every step
follows those whose values and dims it needs; nested graphs that differ in names only are stored
once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import field, replace

from anydim.base.records import dataclass
from anydim.compiler.graph.dims import symbols_of, uses
from anydim.compiler.graph.evaluate import group_of
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.graph.regions import LoopRegion, Sizes
from anydim.compiler.passes.copy_elimination import without_copies
from anydim.compiler.passes.flow import with_nodes
from anydim.compiler.passes.graph_forms import form_of
from anydim.runtime.program.binding import determined_dims
from anydim.runtime.signature import TensorSpec
from anydim.sizes import Dim


@dataclass(frozen=True)
class Part:
    """A straight-line graph; `opaque`: its only node is no comprehension, or has ordered steps.

    `counter` is the iteration counter of the enclosing loop, if the part refers to it. `device` is
    where it runs, '' the host. A `setup` makes the last inputs of the next part (`sizes_once.py`).
    """

    graph: Graph
    opaque: bool = False
    counter: str | None = None
    device: str = ""
    setup: bool = False


@dataclass(frozen=True)
class NestingNode:
    """A node that defines dims or runs the nested graphs numbered `regions`."""

    node: Node
    regions: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cut:
    """A graph as steps; `given` are the dims from enclosing graphs."""

    graph: Graph
    given: frozenset[str]
    steps: tuple[Part | NestingNode, ...]

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(step for step in self.steps if isinstance(step, Part))


@dataclass(frozen=True)
class Segment:
    """Cut a graph and its nested graphs; `prepare` is applied to each of them first.

    Devices that are `ordered` support ordered loops and routines.
    """

    prepare: Callable[[Graph], Graph]
    ordered: frozenset[str] = frozenset()

    def run(self, graph: Graph) -> tuple[Cut, ...]:
        """Return nested graphs before those that contain them; the given graph is last.

        Requires that each of its results is made by a node, as after `results`.
        """
        work = _Work(self.prepare, self.ordered)
        work.cut(graph, {})
        *held, outermost = work.cuts
        steps = outermost.steps
        if len(steps) == 1 and isinstance(steps[0], Part) and not steps[0].device:
            whole = Part(outermost.graph, steps[0].opaque)
            outermost = replace(outermost, steps=(whole,))
        return (*held, outermost)


def straight(cuts: Sequence[Cut]) -> bool:
    """Whether the whole graph is one part on the host."""
    if len(cuts) != 1 or len(cuts[0].steps) != 1:
        return False
    return any(not part.device for part in cuts[0].parts)


def devices_of(cuts: Sequence[Cut]) -> tuple[str, ...]:
    """The devices of parts, without the host, sorted."""
    found = dict.fromkeys(part.device for cut in cuts for part in cut.parts)
    return tuple(sorted(device for device in found if device))


def cut_text(cuts: Sequence[Cut]) -> str:
    """Text of each graph as its steps: parts by their values, nodes with their nested graphs."""
    lines = []
    for number, cut in enumerate(cuts):
        given = f" given {', '.join(sorted(cut.given))}" if cut.given else ""
        lines.append(f"graph {number}: {cut.graph.name}{given}")
        for step in cut.steps:
            if isinstance(step, Part):
                kind = "alone" if step.opaque else "part"
                kind = f"{kind} on '{step.device}'" if step.device else kind
                lines.append(f"  {kind} ({', '.join(step.graph.inputs)})")
                made = (f"{', '.join(n.outputs)} = {n.operator}" for n in step.graph.nodes)
                lines += [f"    {line}" for line in made]
                continue
            held = "".join(f" graph {region}" for region in step.regions)
            made_by = f"{', '.join(step.node.outputs)} = {step.node.operator}".removeprefix(" = ")
            lines.append(f"  {made_by} ({', '.join(step.node.given)}){held}")
    return "\n".join(lines) + "\n"


@dataclass
class _Work:
    prepare: Callable[[Graph], Graph]
    ordered: frozenset[str]
    cuts: list[Cut] = field(default_factory=list)
    numbers: dict[Hashable, int] = field(default_factory=dict)
    depth: int = 0

    def cut(
        self, graph: Graph, around: Mapping[str, Dim], counter: str | None = None,
        wanted: frozenset[str] = frozenset(),
    ) -> int:  # fmt: skip
        """Cut a graph; return its number. `around` are known dims; `counter` is its loop's, which
        needs the dims `wanted`."""
        referenced = _referenced_dims(graph)
        given = {name: dim for name, dim in around.items() if name in referenced}
        counter = counter if counter in given else None
        form = form_of(graph)
        key = (form.key, form.sources, form.weights, frozenset(given), counter)
        if key not in self.numbers:
            made = self._cut(graph, given, counter, wanted)
            self.numbers[key] = len(self.cuts)
            self.cuts.append(made)
        return self.numbers[key]

    def _cut(
        self, graph: Graph, given: Mapping[str, Dim], counter: str | None, wanted: frozenset[str]
    ) -> Cut:
        outermost = not self.depth
        graph = self.prepare(graph).pruned(wanted & set(graph.box.names))
        several = any(node.device for node in graph.nodes)
        if several or not outermost or any(map(_Kinds(graph).opaque, graph.nodes)):
            graph = without_copies(graph, outermost)
        own = set(graph.box.names)
        inside = graph.replace(
            box=graph.box.also(*(dim for name, dim in given.items() if name not in own))
        )
        self.depth += 1
        steps = tuple(self._steps(inside, _Order(inside, frozenset(given), self.ordered), counter))
        self.depth -= 1
        return Cut(inside, frozenset(given), steps)

    def _steps(
        self, graph: Graph, order: _Order, counter: str | None
    ) -> Iterable[Part | NestingNode]:
        for nodes in order.runs():
            node = graph.nodes[nodes[0]]
            if node.region is None:
                alone, device = order.kinds.opaque(node), order.devices[nodes[0]]
                part = _part(graph, [graph.nodes[n] for n in nodes])
                yield Part(part, alone, counter, device)
                continue
            known = {name: graph.box.dim(name) for name in order.known[nodes[0]]}
            inner = node.region.counter if isinstance(node.region, LoopRegion) else None
            wanted = frozenset[str]()
            if isinstance(node.region, LoopRegion):
                known[node.region.counter] = node.region.body.box.dim(node.region.counter)
                wanted = symbols_of([scan.position for scan in node.region.scans])
            held = node.region.held.values()
            yield NestingNode(node, tuple(self.cut(other, known, inner, wanted) for other in held))


def _referenced_dims(graph: Graph) -> set[str]:
    """The dims that a graph and its nested graphs refer to."""
    names = set(graph.box.names)
    for node in graph.nodes:
        if node.region is not None:
            names |= uses(node)
            names.update(*(_referenced_dims(held) for held in node.region.held.values()))
    return names


@dataclass(frozen=True)
class _Kinds:
    graph: Graph

    def opaque(self, node: Node) -> bool:
        """Whether a node cannot be part of a straight line of comprehensions."""
        if node.region is not None:
            return True
        if node.operator != FUSED and operator(node.operator).routine is not None:
            return True
        return bool(group_of(self.graph, node).steps)


class _Order:
    """Groups nodes into steps, and orders the steps.

    `known` are the dims with known values at each node.
    """

    def __init__(self, graph: Graph, given: frozenset[str], ordered: frozenset[str]) -> None:
        self.graph = graph
        self.kinds = _Kinds(graph)
        self.alone = [self.kinds.opaque(node) for node in graph.nodes]
        self.devices = [
            "" if alone and (node.region or node.device not in ordered) else node.device
            for node, alone in zip(graph.nodes, self.alone)
        ]
        self.known: list[frozenset[str]] = []
        self.needs = self._needs(given)
        self.levels = self._levels()

    def runs(self) -> Iterable[list[int]]:
        """Node numbers of each step, in order."""
        for level in range(max(self.levels, default=-1) + 1):
            own = [n for n, other in enumerate(self.levels) if other == level]
            dense = [n for n in own if not self.alone[n]]
            for device in sorted({self.devices[n] for n in dense}, reverse=True):  # host last
                yield [n for n in dense if self.devices[n] == device]
            yield from ([n] for n in own if self.alone[n])

    def _needs(self, given: frozenset[str]) -> list[set[int]]:
        """For each node, the nodes whose values or dims it needs."""
        graph = self.graph
        makers: dict[str, int] = {}
        finders: dict[str, int] = {}
        known = given | determined_dims(graph.box, _specs(graph, graph.inputs), given)
        needs = []
        for number, node in enumerate(graph.nodes):
            self.known.append(known)
            dims = uses(node) | symbols_of([graph.types[name] for name in node.outputs])
            for held in node.region.held.values() if node.region else ():
                dims |= _referenced_dims(held)  # their values are checked at the entry of the graph
            needed = {finders[dim] for dim in dims if dim in finders}
            needed |= {makers[name] for name in node.given if name in makers}
            needs.append(needed)
            makers.update(dict.fromkeys(node.outputs, number))
            if node.region is not None:
                new = determined_dims(graph.box, _specs(graph, node.outputs), known) - known
                if isinstance(node.region, Sizes):
                    new = frozenset(node.region.dims)
                finders.update(dict.fromkeys(new, number))
                known |= new
        return needs

    def _levels(self) -> list[int]:
        """Levels of nodes; dense nodes of a level run first, grouped by device, then the others."""
        levels: list[int] = []
        readers: dict[int, list[int]] = {}
        for number, needs in enumerate(self.needs):
            levels.append(max((levels[n] + self._later(number, n) for n in needs), default=0))
            for needed in needs:
                readers.setdefault(needed, []).append(number)
        for number in reversed(range(len(levels))):
            if not self.alone[number] and number in readers:
                found = readers[number]
                levels[number] = min(levels[each] - self._later(each, number) for each in found)
        return levels

    def _later(self, reader: int, needed: int) -> bool:
        """Whether a reader has to be in a later level than the node it reads."""
        if self.alone[reader]:
            return False
        return self.alone[needed] or self.devices[needed] != self.devices[reader]


def _specs(graph: Graph, names: Iterable[str]) -> list[TensorSpec]:
    return [TensorSpec(name, graph.types[name].dtype, graph.types[name].shape) for name in names]


def _part(graph: Graph, nodes: Sequence[Node]) -> Graph:
    """The graph of some nodes; values that cross to other nodes are inputs and outputs."""
    made = {name for node in nodes for name in node.outputs}
    read = dict.fromkeys(name for node in nodes for name in node.given)
    inside = {id(node) for node in nodes}
    wanted = {name for node in graph.nodes if id(node) not in inside for name in node.given}
    wanted |= set(graph.outputs)
    part = graph.replace(
        inputs=tuple(name for name in read if name not in made and name not in graph.constants),
        outputs=tuple(name for node in nodes for name in node.outputs if name in wanted),
        guards=(),
        lists={},
    )
    return with_nodes(part, tuple(nodes), graph.types)

"""Origins of the dims of a graph: its inputs, nodes that define them, or the enclosing graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from anydim.base.records import dataclass
from anydim.compiler.graph.regions import BranchRegion, LoopRegion, PartRegion, Sizes
from anydim.lang import tree
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Guard, Size

if TYPE_CHECKING:
    from anydim.compiler.graph.nodes import Graph, Node


@dataclass(frozen=True)
class Origins:
    """`found` holds the dims that each node defines, by position; `free` are the dims that a graph
    uses and neither its inputs nor its nodes define; `bounding` are further dims, of constraints
    alone: they bound memory if they are known where the graph runs."""

    found: tuple[frozenset[str], ...]
    free: frozenset[str]
    bounding: frozenset[str] = frozenset()

    @property
    def all_found(self) -> frozenset[str]:
        return frozenset().union(*self.found)


def origins(graph: Graph) -> Origins:
    """Determine the origins of the dims that a graph's nodes use."""
    known = set(symbols_of(graph.types[name] for name in graph.inputs))
    free: set[str] = set()
    bounding = set(symbols_of(graph.box.constraints))
    found = []
    for node in graph.nodes:
        bounding |= _bounding(node)
        made = symbols_of(graph.types[name] for name in node.outputs)
        own: set[str] = set()
        if isinstance(node.region, Sizes):
            own = set(node.region.dims) - known
        elif node.region is not None:
            free |= uses(node) - known
            known |= uses(node)
            own = set(made - known)
        known |= own
        found.append(frozenset(own))
        used = uses(node) | made
        free |= used - known
        known |= used
    free |= symbols_of(graph.guards) - known
    return Origins(tuple(found), frozenset(free), frozenset(bounding - known - free))


def uses(node: Node) -> frozenset[str]:
    """The dims whose values a node needs, except those in the types of its results."""
    region = node.region
    if region is None:
        return symbols_of(node.attributes.values())
    if isinstance(region, Sizes):
        return symbols_of(region.row)
    if isinstance(region, PartRegion):
        return symbols_of(region.first)
    taken = frozenset[str]().union(*(graph.origins.free for graph in region.held.values()))
    if isinstance(region, LoopRegion):
        own = symbols_of([region.trips, *((s.position, s.extent) for s in region.scans)])
        inside = region.body.origins.all_found | {region.counter}
        return (taken | own) - inside
    return taken | symbols_of(region.condition) if isinstance(region, BranchRegion) else taken


def _bounding(node: Node) -> frozenset[str]:
    """The dims that only constraints of the nested graphs of a node need."""
    if node.region is None:
        return frozenset()
    held = node.region.held.values()
    return frozenset[str]().union(*(graph.origins.bounding for graph in held))


def symbols_of(value: Any) -> frozenset[str]:
    """The dims in the sizes of an attribute, a type, a guard, a group, or several of them."""
    if isinstance(value, Size):
        return value.symbols
    if isinstance(value, (Group, TensorType)):
        return _symbols_of_record(value)
    if isinstance(value, Guard):
        return value.left.symbols | value.right.symbols
    if isinstance(value, Iterable) and not isinstance(value, str):
        return frozenset[str]().union(*map(symbols_of, value))
    return frozenset()


@lru_cache(maxsize=1 << 18)
def _symbols_of_record(record: Group | TensorType) -> frozenset[str]:
    if isinstance(record, TensorType):
        return symbols_of(record.shape)
    found: set[str] = set()
    bound: set[str] = set()  # indices, which extents may also use
    waiting: list[Any] = [record]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Size):
            found |= item.symbols
        elif isinstance(item, tuple):
            waiting.extend(item)
        elif is_dataclass(item):
            if isinstance(item, (tree.Axis, tree.Loop)):
                bound.add(item.variable if isinstance(item, tree.Loop) else item.name)
            waiting.extend(getattr(item, entry.name) for entry in fields(item))
    return frozenset(found - bound)


def pruned(graph: Graph, dims: frozenset[str] = frozenset()) -> Graph:
    """Remove the nodes, constants, types and found dims that no output or guard needs.

    `dims` are needed outside of the graph.
    """
    found = graph.origins.found if graph.has_regions else (frozenset[str](),) * len(graph.nodes)
    needed = set(graph.outputs)
    wanted = set(symbols_of(graph.guards)) | dims if graph.has_regions else set[str]()
    kept: list[Node] = []
    lost: set[str] = set()
    for node, own in zip(reversed(graph.nodes), reversed(found)):
        if not (needed.intersection(node.outputs) or wanted & own):
            lost |= own
            continue
        kept.append(node)
        needed.update(node.given)
        needed.update(node.outputs)
        if graph.has_regions:
            wanted |= uses(node) | symbols_of(graph.types[name] for name in node.outputs)
            wanted |= _bounding(node)  # where an earlier node finds them
    needed.update(graph.inputs)
    return graph.replace(
        box=graph.box.without(lost),
        nodes=tuple(reversed(kept)),
        constants={name: c for name, c in graph.constants.items() if name in needed},
        types={name: kind for name, kind in graph.types.items() if name in needed},
    )

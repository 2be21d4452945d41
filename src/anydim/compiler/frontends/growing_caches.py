"""Rewrite growing key/value caches from `concat(past, new)` to an in-place update.

    keys[b, h, past, d]                      keys[b, h, capacity, d]
    present = concat(keys, new)      ->      present = put(keys, new, first=past)
                                             whole = present[:, :, :past + s]

Consumers of the concatenation read the view `whole`. Input and result have the same size in bytes,
so a caller passes one array for both and only the new elements are written (docs/decisions/021). No
input then determines `past`, unless another one has that size; `capacity >= past + s` is a
constraint of the box.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anydim.base.errors import GraphError
from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.base.text import quote_list
from anydim.compiler.graph.nodes import Graph, Node
from anydim.lang.tree import TensorType
from anydim.runtime.slabs import Cache
from anydim.sizes import Dim, Size

_SAME = "identity"
_HINT = "a cache is an input with a result that appends to it: concat(past, new)"


@dataclass(frozen=True)
class SpareCaches:
    """A graph with spare capacity in its caches; dims: `past`, their length, and `capacity`."""

    graph: Graph
    caches: tuple[Cache, ...]
    past: str
    capacity: str


def with_spare_capacity(graph: Graph, results: Mapping[str, str] | None = None) -> SpareCaches:
    """Give caches spare capacity.

    `results` maps inputs to results; None selects all caches that are found. Raises GraphError for
    a pair that is no cache, and for caches of different lengths.
    """
    work = _Work(graph)
    wanted = results or work.find_caches()
    if not wanted:
        raise GraphError(f"'{graph.name}' has no result that appends to an input", _HINT)
    caches = tuple(work.cache(*pair) for pair in wanted.items())
    lengths = {graph.types[each.input].shape[each.axis] for each in caches}
    counts = {each.count for each in caches}
    past = next(iter(lengths))
    if len(lengths) > 1 or len(counts) > 1 or past.atom not in graph.box.names:
        sizes = quote_list(sorted(map(str, (*lengths, *counts))))
        raise GraphError(
            f"the caches of '{graph.name}' differ in length or growth: {sizes}",
            "all need the same length, one dim, and the same number of new elements",
        )
    return work.build(caches, str(past.atom))


class _Work:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.types = dict(graph.types)

    def _origin(self, name: str) -> str:
        """The value that a chain of copies starts from."""
        node = self.graph.producers.get(name)
        while node is not None and node.operator == _SAME:
            name = node.given[0]
            node = self.graph.producers.get(name)
        return name

    def find_caches(self) -> dict[str, str]:
        """Map each input that is a cache to its result."""
        pairs: dict[str, str] = {}
        for result in self.graph.outputs:
            node = self._join(result)
            first = None if node is None else self._origin(node.given[0])
            if first in self.graph.inputs:
                pairs.setdefault(str(first), result)
        return pairs

    def _join(self, result: str) -> Node | None:
        node = self.graph.producers.get(self._origin(result))
        return node if node is not None and node.operator == "concat" else None

    def cache(self, input: str, result: str) -> Cache:
        """Build the cache of a pair; GraphError if the pair is none."""
        where = f"input '{input}' and result '{result}' of '{self.graph.name}' are no cache"
        if input not in self.graph.inputs or result not in self.graph.outputs:
            raise GraphError(f"{where}: there is no such pair", _HINT)
        node = self._join(result)
        if node is None or self._origin(node.given[0]) != input or len(node.given) != 2:
            raise GraphError(where, _HINT)
        kind = self.graph.types[node.given[1]]
        axis = int(node.attributes.get("axis", 0)) % kind.rank
        return Cache(input, result, axis, kind.shape[axis])

    def build(self, caches: tuple[Cache, ...], past: str) -> SpareCaches:
        """Build the graph whose caches have spare capacity."""
        graph, length = self.graph, Size.symbol(past)
        capacity = _fresh("capacity", set(graph.box.names))
        whole_size, count = Size.symbol(capacity), caches[0].count
        joins = {str(self._origin(each.result)): each for each in caches}
        again = {each.input: _fresh(f"{each.input}.past", self.types) for each in caches}
        whole = {name: _fresh(f"{each.result}.whole", self.types) for name, each in joins.items()}
        nodes: list[Node] = []
        for each in caches:
            self._view(nodes, each, each.input, again[each.input], length)
            self.types[each.input] = _resize_axis(graph.types[each.input], each.axis, whole_size)
        names = {**again, **whole}
        results = {each.result for each in caches}
        for node in graph.nodes:
            name = node.outputs[0]
            if name in joins:
                self._put(nodes, joins[name], node, names, length, whole[name])
            elif name not in results:
                given = tuple(None if n is None else names.get(n, n) for n in node.inputs)
                nodes.append(Node(
                    node.operator, given, node.outputs, node.attributes, node.source, node.device
                ))  # fmt: skip
        made = graph.replace(
            box=graph.box.also(Dim(capacity), constraints=(whole_size - length - count,)),
            types=FrozenMapping(self.types), nodes=tuple(nodes),
        )  # fmt: skip
        return SpareCaches(made.pruned(), caches, past, capacity)

    def _put(
        self, nodes: list[Node], cache: Cache, node: Node, names: Mapping[str, str], past: Size,
        whole: str,
    ) -> None:  # fmt: skip
        """Update the input in place to make the result, and add the view for its consumers."""
        new = names.get(str(node.inputs[1]), str(node.inputs[1]))
        attributes: dict[str, Any] = {"axis": cache.axis, "first": past}
        nodes.append(Node(
            "put", (cache.input, new), (cache.result,), FrozenMapping(attributes), node.source
        ))  # fmt: skip
        self.types[cache.result] = self.types[cache.input]
        self._view(nodes, cache, cache.result, whole, past + cache.count)

    def _view(
        self, nodes: list[Node], cache: Cache, value: str, name: str, count: Size
    ) -> None:  # fmt: skip
        """A view of the first elements of a value along the cache's axis."""
        attributes = {"starts": (0,), "ends": (count,), "axes": (cache.axis,)}
        node = Node("slice", (value,), (name,), FrozenMapping(attributes), "caches")
        self.types[name] = _resize_axis(self.graph.types[cache.input], cache.axis, count)
        nodes.append(node)


def _resize_axis(kind: TensorType, axis: int, size: Size) -> TensorType:
    return TensorType(kind.dtype, (*kind.shape[:axis], size, *kind.shape[axis + 1 :]))


def _fresh(stem: str, taken: Any) -> str:
    name, number = stem, 0
    while name in taken:
        number += 1
        name = f"{stem}_{number}"
    return name

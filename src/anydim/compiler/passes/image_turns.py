"""Networks of images, one image after another where the values of a batch would leave the caches.

    y[batch, 1000] = network(x[batch, 3, 224, 224])       becomes
    for image in 0:batch: y[image] = network(x[image:image + 1])

Weights are read anew for each image. In float32 that costs what it saves (ResNet50, 8 images, Zen
5: 1.0 of the time); weights of 16 and 8 bits are half of the bytes or less (bfloat16 0.86).
`ragged/loop_costs.py` has the estimate.

After: a graph whose images do not depend on each other is one loop over them, if that is faster.
"""

from __future__ import annotations

from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.graph.regions import LOOP, REGION, LoopRegion, Scan
from anydim.compiler.passes.flow import unique_name
from anydim.compiler.passes.options import BFLOAT16_PARTS, INT8
from anydim.compiler.passes.ragged.groups import at_one_row
from anydim.compiler.passes.ragged.loop_costs import CACHE, LoopCosts, family
from anydim.compiler.passes.ragged.row_checks import mixing
from anydim.sizes import Dim, Size

# Bytes of an element of weights in the precisions that multiply fewer bits than float32.
WEIGHT_BYTES = {**{name: 2 * parts for name, parts in BFLOAT16_PARTS.items()}, INT8: 1}


@dataclass(frozen=True)
class ImageTurns:
    """The rewrite; `precision` is that of the model."""

    precision: str

    def run(self, graph: Graph) -> Graph:
        """The graph as a loop over images, or the graph itself."""
        if self.precision not in WEIGHT_BYTES or graph.has_regions or graph.lists or graph.guards:
            return graph
        if not any(family(node) == "window" for node in graph.nodes):
            return graph
        dim = _batch_of(graph)
        if dim is None or mixing(graph, dim.name):
            return graph
        one = at_one_row(graph, dim.name)
        return _loop(graph, one, dim) if _pays(one, WEIGHT_BYTES[self.precision]) else graph


def _batch_of(graph: Graph) -> Dim | None:
    """The dim that is the first axis of all inputs and results, and the only free one."""
    kinds = [graph.types[name] for name in (*graph.inputs, *graph.outputs)]
    first = {str(kind.shape[0]) if kind.shape else "" for kind in kinds}
    free = [dim for dim in graph.box.dims if dim.lo != dim.hi]
    if len(free) != 1 or first != {free[0].name} or graph.box.constraints:
        return None
    return free[0]


def _pays(one: Graph, weight_bytes: int) -> bool:
    """Whether values of many images beyond the caches cost more than weights read anew.

    Small images need others to fill products, and launches of each image count for them.
    """
    moving = frozenset(one.types) - one.constants.keys()
    costs = LoopCosts(one, frozenset(), moving, weight_bytes)
    if max(costs.bytes.values()) < CACHE:
        return False
    return costs.cost(frozenset(range(len(one.nodes)))) < costs.cost(frozenset())


def _loop(graph: Graph, one: Graph, dim: Dim) -> Graph:
    taken = {*one.types, *graph.box.names}
    counter = unique_name("image", taken)
    whole = {name: unique_name(f"{name}/batch", taken) for name in graph.inputs}
    at = Size.symbol(counter)
    one_of = {"starts": (at,), "ends": (at + 1,), "axes": (0,)}
    slices = tuple(
        Node("slice", (whole[name],), (name,), FrozenMapping(one_of), graph.name)
        for name in graph.inputs
    )
    inside = graph.box.also(Dim(counter), constraints=(Size.symbol(dim.name) - at - 1,))
    body = Graph(
        f"{graph.name}.image", inside,
        FrozenMapping({**one.types, **{whole[name]: graph.types[name] for name in graph.inputs}}),
        tuple(whole.values()), one.outputs, one.constants, (*slices, *one.nodes),
    )  # fmt: skip
    batch = Size.symbol(dim.name)
    scans = tuple(Scan(at, batch, joined=True) for _ in graph.outputs)
    region = FrozenMapping({REGION: LoopRegion(body, counter, batch, False, 0, scans)})
    names = (*graph.inputs, *graph.outputs)
    return Graph(
        graph.name, graph.box, FrozenMapping({name: graph.types[name] for name in names}),
        graph.inputs, graph.outputs,
        nodes=(Node(LOOP, graph.inputs, graph.outputs, region, "images"),),
    )  # fmt: skip

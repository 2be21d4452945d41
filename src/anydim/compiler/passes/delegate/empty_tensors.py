"""Empty tensors, on which engines fail or deviate from the ONNX standard.

An engine is not run if all results of a subgraph are empty. If only some are, only operators of
`SAFE` may receive an empty tensor; the operator tests run each of them at size 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from anydim.compiler.graph.dims import symbols_of
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.graph.regions import Foreign
from anydim.sizes import Size, Truth, as_size, prove

_KINDS = ("elementwise", "view", "source")
SAFE = ("concat", "tile")
_RISKY = ("slice", "clip", "prelu")


def nonempty_sizes(graph: Graph, node: Node) -> Iterator[Size]:
    """Sizes of operands and results that must be at least 1 for an engine to run the node."""
    if _safe(node):
        return
    for name in (*node.given, *node.outputs):
        for size in graph.types[name].shape:
            if prove(size, ">=", as_size(1), graph.box) is not Truth.PROVED:
                yield size


def may_be_empty(graph: Graph, node: Node) -> tuple[Size, ...]:
    """Sizes that an engine needs to be at least 1, and that may be 0 in a call with results."""
    found = dict.fromkeys(nonempty_sizes(graph, node))
    results = [graph.types[name].shape for name in node.outputs]
    return tuple(size for size in found if not all(_covers(shape, size) for shape in results))


def nonempty_sizes_of_file(graph: Graph, node: Node, region: Foreign) -> Iterator[Size]:
    """Sizes that must not be 0 when onnxruntime runs a node of a file."""
    from anydim.runtime.devices.engines.onnxruntime import may_crash

    if not may_crash(region.operator):
        return
    known = symbols_of([graph.types[name] for name in node.given])
    for name in (*node.given, *node.outputs):
        for size in graph.types[name].shape:
            if (
                size.symbols <= known
                and prove(size, ">=", as_size(1), graph.box) is not Truth.PROVED
            ):
                yield size


def _safe(node: Node) -> bool:
    kind = operator(node.operator).kind
    return node.operator in SAFE or (kind in _KINDS and node.operator not in _RISKY)


def _covers(shape: tuple[Size, ...], size: Size) -> bool:
    """Whether a tensor of this shape is empty if the size is 0."""
    return any(own.divide_exactly(size) is not None for own in shape)

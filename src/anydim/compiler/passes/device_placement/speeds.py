"""Time model of nodes on devices: work as formulas over dims, and measured speeds.

A node costs a launch, its operations at the speed of its class, and its bytes at memory speed. The
sum of the three overestimates overlapping work, but it is linear in formulas: the time of a
placement is a formula, too, and a guard can compare two placements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from anydim.base.records import dataclass
from anydim.compiler.graph.evaluate import group_of
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.kernels.launch import moved_bytes
from anydim.compiler.kernels.work_estimate import work
from anydim.lang.tree import Apply, Statement, TensorType
from anydim.sizes import Size, as_size, product

PRODUCT, ROWS, ELEMENTS = "product", "rows", "elements"  # classes of nodes
CLASSES = (PRODUCT, ROWS, ELEMENTS)


@dataclass(frozen=True)
class Speed:
    """Seconds of a device per launch, per operation by class, and per byte read or written.

    `copy` and `copied` are the seconds of a copy to or from the host, and per byte.
    """

    launch: float = 0.0
    flop: Mapping[str, float] = field(default_factory=dict)
    moved: float = 0.0
    copy: float = 0.0
    copied: float = 0.0

    def seconds(self, work: Work) -> tuple[float, float, float]:
        """Seconds per launch, operation and byte of such work."""
        return self.launch, self.flop.get(work.kind, 0.0), self.moved


@dataclass(frozen=True)
class Work:
    """The work of a node: its class, operations and bytes moved."""

    kind: str
    flops: Size
    moved: Size


NO_WORK = Work(ELEMENTS, as_size(0), as_size(0))


def work_of(graph: Graph, node: Node) -> Work:
    """The work of a node, by its comprehensions; estimated from its bytes for routines."""
    if node.region is not None:
        return NO_WORK
    group = group_of(graph, node)
    if node.operator != FUSED and operator(node.operator).routine is not None:
        return Work(ROWS, moved_bytes(group), moved_bytes(group))
    if not group.statements:  # ordered loops
        return Work(ROWS, moved_bytes(group), moved_bytes(group))
    kinds = [_kind(statement) for statement in group.statements]
    return Work(next(kind for kind in CLASSES if kind in kinds), *work(group))


def bytes_of(kind: TensorType) -> Size:
    """Bytes of a value."""
    return product(kind.shape) * kind.dtype.bytes


def _kind(statement: Statement) -> str:
    if not statement.reduced:
        return ELEMENTS
    body = statement.body
    sums = statement.combine == "add" and isinstance(body, Apply) and body.function == "mul"
    return PRODUCT if sums else ROWS

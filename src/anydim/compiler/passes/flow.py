"""Graphs as flat, ordered lists of statements.

Between `lower` and `schedule` every node of the graph is 'fused': a group of comprehensions. The
passes between work on single statements: they unpack a graph into lines and pack it again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from functools import lru_cache

from anydim.base.dtypes import bfloat16, float32, int32
from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.lang.tree import Apply, Cast, Expr, Group, Read, Statement, Tensor, TensorType
from anydim.lang.tree.affine import reads


@dataclass(frozen=True)
class Line:
    """One statement and the source node it came from."""

    statement: Statement
    source: str

    @property
    def target(self) -> str:
        return self.statement.target


@lru_cache(maxsize=1 << 18)
def inputs_of(statement: Statement) -> tuple[str, ...]:
    """The distinct tensors a statement reads, in order of first read."""
    return tuple(dict.fromkeys(read.tensor for read in reads(statement.body)))


def unpack(graph: Graph) -> list[Line]:
    """The statements of a graph of fused nodes, in order."""
    return [
        Line(statement, node.source) for node in graph.nodes for statement in node.group.statements
    ]


def group_of(
    statements: Iterable[Statement], types: Mapping[str, TensorType], kept: Iterable[str]
) -> Group:
    """A group of `statements` with outputs `kept`; its other values are temporaries."""
    statements = tuple(statements)
    made = dict.fromkeys(statement.target for statement in statements)
    needed = dict.fromkeys(name for s in statements for name in inputs_of(s))
    wanted = set(kept)

    def tensors(names: Iterable[str]) -> tuple[Tensor, ...]:
        return tuple(Tensor(name, types[name]) for name in names)

    return Group(
        inputs=tensors(name for name in needed if name not in made),
        outputs=tensors(name for name in made if name in wanted),
        statements=statements,
        temporaries=tensors(name for name in made if name not in wanted),
    )


def fused_node(group: Group, source: str, device: str = "") -> Node:
    """The graph node that holds a group."""
    return Node(
        operator=FUSED,
        inputs=tuple(tensor.name for tensor in group.inputs),
        outputs=tuple(tensor.name for tensor in group.outputs),
        attributes=FrozenMapping({"group": group}),
        source=source,
        device=device,
    )


def pack(graph: Graph, lines: Iterable[Line], types: Mapping[str, TensorType]) -> Graph:
    """A graph with one fused node per statement; values that no line defines are dropped."""
    nodes = tuple(
        fused_node(group_of([line.statement], types, [line.target]), line.source) for line in lines
    )
    return with_nodes(graph, nodes, types)


def with_nodes(graph: Graph, nodes: tuple[Node, ...], types: Mapping[str, TensorType]) -> Graph:
    """`graph` with other nodes, keeping only the types and constants that are still in use."""
    used = set(graph.inputs) | set(graph.outputs)
    for node in nodes:
        used.update(name for name in (*node.inputs, *node.outputs) if name is not None)
    return graph.replace(
        nodes=nodes,
        types={name: kind for name, kind in types.items() if name in used},
        constants={name: value for name, value in graph.constants.items() if name in used},
    )


def unique_name(name: str, taken: Container[str]) -> str:
    """`name`, with primes appended until it is unique."""
    while name in taken:
        name += "'"
    return name


def live(lines: list[Line], outputs: Iterable[str]) -> list[Line]:
    """The lines that the outputs need."""
    needed = set(outputs)
    kept: list[Line] = []
    for line in reversed(lines):
        if line.target in needed:
            needed.update(inputs_of(line.statement))
            kept.append(line)
    return kept[::-1]


def is_product(statement: Statement) -> bool:
    """Whether the statement is a contraction: a sum of products of two plain reads.

    Reads converted to float32 count, too, also those rounded to bfloat16 before: templates that
    widen or round accept them.
    """
    body = statement.body
    return (
        statement.combine == "add"
        and getattr(body, "function", "") == "mul"
        and all(
            isinstance(_without_widening(argument), Read)
            for argument in getattr(body, "arguments", ())
        )
    )


def read_of(factor: Expr) -> Read:
    """The read of a factor of a plain product, without its conversions."""
    read = _without_widening(factor)
    assert isinstance(read, Read)
    return read


def is_product_of_bytes(statement: Statement) -> bool:
    """Whether the statement is an int8 contraction, with zero points subtracted."""
    body = statement.body
    return (
        statement.combine == "add"
        and getattr(body, "function", "") == "mul"
        and all(map(_is_integer_read, getattr(body, "arguments", ())))
    )


def _is_integer_read(factor: Expr) -> bool:
    if isinstance(factor, Apply) and factor.function == "sub":
        factor = factor.arguments[0]
    if not isinstance(factor, Cast) or factor.dtype != int32:
        return False
    return isinstance(factor.argument, Read)


def _without_widening(factor: Expr) -> Expr:
    for dtype in (float32, bfloat16, float32):
        if isinstance(factor, Cast) and factor.dtype == dtype:
            factor = factor.argument
    return factor

"""Values that kernels round to bfloat16, stored so by the kernel that makes them.

    y = gelu(sums);  z +=! float(bfloat16(y)) * w         becomes
    y' = bfloat16(gelu(sums));  z +=! float(bfloat16(float(y'))) * w

Rounding twice is rounding once, so this changes no bit. The value takes half of the memory, and
products read its rows where they lie instead of packing them (`matmul/int8/packed_layout.py`). If
others read the value as well, as residuals do, the kernel stores both. The outer rounding stays: it
distinguishes attention with rounded factors from attention of 16-bit values. If a value is stored
rounded only, the functions behind its last reduction are those of `COARSE`. Concatenations stay:
one that appends to a cache in place would round all of it.

After: no kernel rounds a value of another kernel that could store it rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anydim.base.dtypes import bfloat16, float32
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.kernels.concat.concat_form import concat_form_of
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.template import Template, first_match
from anydim.compiler.passes.flow import fused_node, group_of, unique_name, with_nodes
from anydim.compiler.passes.options import ROUNDED
from anydim.lang.tree import Apply, Cast, Expr, Group, Index, Read, Statement, TensorType
from anydim.lang.tree.affine import rewrite

COARSE = {"erf": "coarse_erf"}  # functions of values that are rounded


@dataclass(frozen=True)
class StoreRounded:
    """Store values rounded to bfloat16 where kernels round what they read."""

    machine: Machine
    templates: tuple[Template, ...]

    def run(self, graph: Graph) -> Graph:
        work = _Storing(graph, self.machine, self.templates)
        for name in [n for node in graph.nodes for n in node.outputs]:
            work.store(name)
        return with_nodes(graph, tuple(work.nodes), work.types) if work.changed else graph


class _Storing:
    """State of the rewrite: the nodes and types of the new graph."""

    def __init__(self, graph: Graph, machine: Machine, templates: Sequence[Template]) -> None:
        self.graph, self.machine, self.templates = graph, machine, templates
        self.nodes, self.types, self.changed = list(graph.nodes), dict(graph.types), False
        self.writer = {name: n for n, node in enumerate(graph.nodes) for name in node.outputs}
        self.readers: dict[str, list[int]] = {}
        for n, node in enumerate(graph.nodes):
            for name in node.inputs:
                if name is not None:
                    self.readers.setdefault(name, []).append(n)

    def store(self, name: str) -> None:
        """Store a value rounded, if all kernels concerned keep their templates."""
        if self.types[name].dtype != float32:
            return
        readers = [n for n in self.readers.get(name, ()) if _rounds(self.nodes[n], name)]
        writer = self.writer[name]
        if not readers or self.nodes[writer].operator != FUSED:
            return
        if concat_form_of(self.nodes[writer].group, self.graph.box) is not None:
            return
        narrow = unique_name(f"{name}{ROUNDED}", self.types)
        types = {**self.types, narrow: TensorType(bfloat16, self.types[name].shape)}
        new = {n: self._reader(self.nodes[n], name, narrow, types) for n in readers}
        others = [n for n in self.readers[name] if n not in new or name in new[n].inputs]
        kept = name in self.graph.outputs or bool(others)
        new[writer] = self._writer(self.nodes[writer], name, narrow, types, kept)
        if all(self._has_same_template(self.nodes[n].group, node.group) for n, node in new.items()):
            for n, node in new.items():
                self.nodes[n] = node
            self.types, self.changed = types, True

    def _reader(self, node: Node, name: str, narrow: str, types: dict[str, TensorType]) -> Node:
        def change(expr: Expr) -> Expr | None:
            read = _rounded_read(expr)
            if read is None or read.tensor != name:
                return None
            return Cast(bfloat16, Cast(float32, replace(read, tensor=narrow)))

        statements = [s.with_body(rewrite(s.body, change)) for s in node.group.statements]
        return _node(node, statements, node.outputs, types)

    def _writer(
        self, node: Node, name: str, narrow: str, types: dict[str, TensorType], kept: bool
    ) -> Node:
        made = next(s for s in node.group.statements if s.target == name)
        own = Read(name, tuple(Index(axis.name) for axis in made.axes))
        last = Statement(narrow, made.axes, Cast(bfloat16, own))
        outputs = [n for n in node.outputs if n != name or kept]
        statements: Sequence[Statement] = node.group.statements
        if not outputs:
            statements = _with_coarse_functions(statements)
        return _node(node, [*statements, last], [*outputs, narrow], types)

    def _has_same_template(self, old: Group, new: Group) -> bool:
        known = frozenset(self.graph.constants)
        before, after = (
            first_match(self.templates, group, self.graph.box, self.machine, known)
            for group in (old, new)
        )
        return before is not None and after is not None and before[0] is after[0]


def _node(
    node: Node, statements: Sequence[Statement], outputs: Sequence[str],
    types: dict[str, TensorType],
) -> Node:  # fmt: skip
    inside = {tensor.name: tensor.type for tensor in node.group.temporaries}
    made = group_of(statements, {**types, **inside}, outputs)
    return fused_node(made, node.source, node.device)


def _with_coarse_functions(statements: Sequence[Statement]) -> list[Statement]:
    """Statements whose results are rounded, with shorter functions after the last reduction."""

    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, Apply) or expr.function not in COARSE:
            return None
        return Apply(COARSE[expr.function], expr.arguments)

    first = 1 + max((n for n, s in enumerate(statements) if s.combine), default=-1)
    return [*statements[:first],
            *(s.with_body(rewrite(s.body, change)) for s in statements[first:])]  # fmt: skip


def _rounded_read(expr: Expr) -> Read | None:
    """The read of a value that is rounded to bfloat16."""
    if not (isinstance(expr, Cast) and expr.dtype == bfloat16 and isinstance(expr.argument, Read)):
        return None
    return expr.argument if expr.argument.default is None else None


def _rounds(node: Node, name: str) -> bool:
    """Whether a group rounds what it reads of a value."""
    found: list[Read] = []
    statements = node.group.statements if node.operator == FUSED else ()

    def change(expr: Expr) -> Expr | None:
        read = _rounded_read(expr)
        found.extend([read] if read is not None and read.tensor == name else [])
        return None

    for statement in statements:
        rewrite(statement.body, change)
    return bool(found)

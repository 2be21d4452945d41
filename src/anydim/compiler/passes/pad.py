"""Run loops over a dim to a padded size: the strategy `pad` (docs/strategies.md).

Where `pad_analysis.py` allows it, loops over the dim run to a longer extent, and the values they
compute are longer: their rows are laid out as if the dim had that size. Readers at the true size
read the same elements. A value that is not padded but read by a padded loop is copied first, with
trailing zeros. Results are written at their true size: no cropping is needed.

After: a group computes the same true elements, with the same template as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from itertools import chain

from anydim.base.errors import OptionError
from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.base.text import suggestion
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.template import Template, first_match
from anydim.compiler.passes.flow import fused_node, group_of, unique_name, with_nodes
from anydim.compiler.passes.pad_analysis import Padding
from anydim.compiler.passes.pad_analysis import group_of as statements_of
from anydim.compiler.passes.padded_addresses import joined_address
from anydim.lang.tree import Axis, Expr, Group, Index, Literal, Read, Statement, TensorType
from anydim.lang.tree.affine import rewrite, to_expr
from anydim.sizes import Box, Size
from anydim.sizes.padded import padded_size

_SHOWN = 3  # names listed in a line


@dataclass(frozen=True)
class Pad:
    """Pad each dim of `pads` by its rule (`sizes/padded.py`); `notes` report the outcome."""

    pads: Mapping[str, int | str]
    machine: Machine
    templates: tuple[Template, ...]
    notes: list[str] = field(default_factory=list)

    def run(self, graph: Graph) -> Graph:
        for name, rule in self.pads.items():
            if name in graph.box.names:
                graph = self._pad_dim(graph, name, padded_size(name, rule, graph.box))
        return graph

    def _pad_dim(self, graph: Graph, name: str, extent: Size) -> Graph:
        padding = Padding(graph, Size.symbol(name), extent)
        while True:
            padding.settle()
            writer = _Writer(padding)
            made = [writer.node(number) for number in range(len(graph.nodes))]
            wrong = [n for n, node in enumerate(made) if not self._same(graph, n, node)]
            if not wrong:
                break
            for number in wrong:
                padding.drop(number, set(padding.loops[number]), "no kernel supports it padded")
        self.notes.extend(_lines(padding, name))
        nodes = tuple(chain.from_iterable(map(writer.with_copies, made)))
        return with_nodes(graph, nodes, writer.types)

    def _same(self, graph: Graph, number: int, node: Node) -> bool:
        """Whether the template of the original node also matches the padded one."""
        before = graph.nodes[number]
        if node is before:
            return True
        old, new = (self._template(graph, each) for each in (before, node))
        return new is not None and old is not None and old.name == new.name

    def _template(self, graph: Graph, node: Node) -> Template | None:
        constants = frozenset(graph.constants)
        found = first_match(self.templates, node.group, graph.box, self.machine, constants)
        return None if found is None else found[0]


def known_pads(pads: Mapping[str, int | str], box: Box) -> FrozenMapping[str, int | str]:
    """Validate pads; raises OptionError for unknown dims and missing bounds."""
    for name, rule in pads.items():
        if name not in box.names:
            hint = suggestion(name, box.names) or f"there is {box}"
            raise OptionError(f"pad names dim '{name}'", hint)
        padded_size(name, rule, box)
    return FrozenMapping(pads)


class _Writer:
    """Rewrites nodes with the loops, tensors and addresses of a padding."""

    def __init__(self, padding: Padding) -> None:
        self.padding = padding
        self.types: dict[str, TensorType] = dict(padding.types)
        for name in padding.types:
            self.types[name] = self._longer(name, padding.padded_dimensions(name))
        self.copies: dict[str, str] = {}
        for name, dims in padding.copies.items():
            copy = self.copies[name] = unique_name(f"{name}/padded", self.types)
            self.types[copy] = self._longer(name, dims)

    def node(self, number: int) -> Node:
        """The rewritten node; the node itself if unchanged."""
        node = self.padding.graph.nodes[number]
        group = statements_of(node)
        if group is None:
            return node
        made = [self._statement(number, statement) for statement in group.statements]
        kept = [tensor.name for tensor in group.outputs]
        whole = replace(group_of(made, self.types, kept), guards=group.guards)
        return node if whole == group else fused_node(whole, node.source)

    def with_copies(self, node: Node) -> Iterator[Node]:
        """The node, preceded by the copies that it needs first."""
        for name, copy in list(self.copies.items()):
            if copy in node.inputs:
                yield fused_node(self._copying(name, copy), node.source)
                del self.copies[name]
        yield node

    def _longer(self, name: str, dims: set[int] | frozenset[int]) -> TensorType:
        kind = self.padding.types[name]
        shape = (self.padding.extent if d in dims else s for d, s in enumerate(kind.shape))
        return TensorType(kind.dtype, tuple(shape)) if dims else kind

    def _statement(self, number: int, statement: Statement) -> Statement:
        loops, extent = self.padding.loops[number], self.padding.extent

        def change(expr: Expr) -> Expr | None:
            return self._read(number, statement, expr) if isinstance(expr, Read) else None

        axes = tuple(Axis(a.name, extent) if a.name in loops else a for a in statement.axes)
        body = rewrite(statement.body, change)
        return Statement(statement.target, axes, body, statement.combine, statement.reduced)

    def _read(self, number: int, statement: Statement, read: Read) -> Read:
        """Rewrite a read to the longer tensor or its copy."""
        padding, tensor = self.padding, read.tensor
        dims: set[int] | frozenset[int] = padding.padded_dimensions(tensor)
        if padding.missing(number, statement, read):
            dims, tensor = padding.copies[tensor], self.copies[tensor]
        if not read.flat or not dims:
            return replace(read, tensor=tensor)
        parts = padding.parts(statement, read, dims)
        assert parts is not None, "the analysis has looked at it"
        address = to_expr(joined_address(parts, self.types[tensor].shape))
        return replace(read, tensor=tensor, indices=(address,))

    def _copying(self, name: str, copy: str) -> Group:
        """The group that makes the copy: the elements, then zeros."""
        kind = self.types[copy]
        axes = tuple(Axis(f"i{d}", size) for d, size in enumerate(kind.shape))
        zero = Literal(0, kind.dtype)
        body = Read(name, tuple(Index(axis.name) for axis in axes), default=zero)
        return group_of([Statement(copy, axes, body)], self.types, [copy])


def _lines(padding: Padding, name: str) -> Iterator[str]:
    """Report lines: what is padded, and what is not, with reasons."""
    padded = sum(1 for loops in padding.loops if loops)
    yield f"pad: {name} runs to {padding.extent} in {padded} of {len(padding.loops)} launches"
    if padding.copies:
        yield f"pad: padded copies are made of {_some(list(padding.copies))}"
    left: dict[str, list[str]] = {}
    for node, loops, reason in zip(padding.graph.nodes, padding.loops, padding.reasons):
        if reason and not loops:
            left.setdefault(reason, []).append(node.source or ", ".join(node.outputs))
    for reason, sources in left.items():
        yield f"pad: not padded along {name}, {reason}: {_some(sources)}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more

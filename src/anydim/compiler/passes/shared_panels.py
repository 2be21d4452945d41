"""Tied weights: a gather reads the panels that a product has of the same constant.

    y(i,j) = w(ids(i), j)      ->      y(i,j) = panels(ids(i) / width, j, ids(i) mod width)

The constant is then held once, as the embedding and the head of a language model are. A product
reads its panels for each call; a gather takes a few rows, and reads single elements.

After: no matrix of at least `LEAST` bytes whose rows are gathered is packed for a product as well,
but for products of 8-bit factors, whose panels have sums between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from anydim.base.dtypes import from_numpy, int8, int32, int64
from anydim.base.records import dataclass
from anydim.compiler.graph.derivations import InPanels
from anydim.compiler.graph.nodes import Constant, Graph, Node
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.template import Template, first_match
from anydim.compiler.passes.flow import (
    fused_node,
    group_of,
    unique_name,
    unpack,
    with_nodes,
)
from anydim.lang.tree import Apply, Cast, Expr, Group, Literal, Read, TensorType
from anydim.lang.tree.affine import affine, reads, rewrite
from anydim.runtime.panels import NarrowPanels, Packing, Panels
from anydim.sizes import as_size

LEAST = 1 << 16  # bytes
SHARED = "/shared"  # ends the name of a constant in the layout of a product
_FIELDS = 8  # weights of 4 bits in a word


@dataclass(frozen=True)
class SharedPanels:
    """Let gathers of all parts read the panels of products on the host."""

    machine: Machine
    templates: tuple[Template, ...]

    def run(self, graphs: Sequence[Graph]) -> list[Graph]:
        """The graphs, in order."""
        gathered = {constant for graph in graphs for constant in _find_gathers(graph)}
        if not gathered:
            return list(graphs)
        layouts: dict[Constant, Packing] = {}
        for graph in graphs:
            for constant, packing in self._packings(graph, gathered):
                layouts.setdefault(constant, packing)
        return [_read_panels(graph, layouts) for graph in graphs]

    def _packings(
        self, graph: Graph, wanted: Iterable[Constant]
    ) -> Iterator[tuple[Constant, Packing]]:
        """The layouts in which products of a graph read some constants."""
        names = {name for name, each in graph.constants.items() if each in wanted}
        for node in graph.nodes:
            group = node.group
            read = (each for s in group.statements for each in reads(s.body))
            if all(each.tensor not in names or _is_gather(each) for each in read):
                continue
            fixed = frozenset(t.name for t in group.inputs if t.name in graph.constants)
            found = first_match(self.templates, group, graph.box, self.machine, fixed)
            if found is None:
                continue
            template, schedule = found
            launch = template.lower(group, schedule, graph.box, self.machine, fixed)
            for argument in launch.arguments:
                if argument.tensor in names and argument.packing is not None:
                    yield graph.constants[argument.tensor], argument.packing


def _find_gathers(graph: Graph) -> Iterator[Constant]:
    """The large matrices whose rows some nodes gather."""
    large = {
        name for name, each in graph.constants.items()
        if len(each.shape) == 2 and each.dtype.itemsize * each.shape[0] * each.shape[1] >= LEAST
    }  # fmt: skip
    for line in unpack(graph) if large else ():
        for read in reads(line.statement.body):
            if read.tensor in large and _is_gather(read):
                yield graph.constants[read.tensor]


def _is_gather(read: Read) -> bool:
    """Whether the row of an element is read from a tensor, and its column is a formula."""
    if read.flat or read.default is not None or len(read.indices) != 2:
        return False
    row, column = read.indices
    return bool(reads(row)) and affine(column) is not None


def _read_panels(graph: Graph, layouts: dict[Constant, Packing]) -> Graph:
    """A graph whose gathers read panels."""
    constants, types = dict(graph.constants), dict(graph.types)
    names: dict[str, str] = {}

    def change(expr: Expr) -> Expr | None:
        inner = expr.argument if isinstance(expr, Cast) else expr
        if not isinstance(inner, Read) or not _is_gather(inner):
            return None
        held = graph.constants.get(inner.tensor)
        step = None if held is None else _step(held, layouts.get(held))
        if held is None or step is None or (inner is expr and _is_coded(step)):
            return None
        if inner.tensor not in names:
            names[inner.tensor] = name = unique_name(inner.tensor + SHARED, types)
            constants[name] = Constant.later(step, step.dtype.numpy, step.shape, held)
            types[name] = TensorType(step.dtype, tuple(map(as_size, step.shape)))
        made = _element(inner, names[inner.tensor], step)
        return Cast(expr.dtype, made) if isinstance(expr, Cast) else made

    nodes = tuple(_with_reads(node, change, types) for node in graph.nodes)
    if not names:
        return graph
    return with_nodes(graph.replace(constants=constants), nodes, types)


def _with_reads(
    node: Node, change: Callable[[Expr], Expr | None], types: Mapping[str, TensorType]
) -> Node:
    """A node with changed reads of its statements."""
    group = node.group
    made = tuple(each.with_body(rewrite(each.body, change)) for each in group.statements)
    if made == group.statements:
        return node
    kept = group_of(made, {**types, **_types_of(group)}, [t.name for t in group.outputs])
    return fused_node(replace(kept, guards=group.guards), node.source)


def _types_of(group: Group) -> dict[str, TensorType]:
    return {tensor.name: tensor.type for tensor in (*group.outputs, *group.temporaries)}


def _is_coded(step: InPanels) -> bool:
    """Whether elements are fields of words."""
    return step.dtype == int32


def _step(constant: Constant, packing: Packing | None) -> InPanels | None:
    """What makes panels of a matrix; None for layouts of other kinds, or with more elements."""
    rows, columns = constant.shape
    if isinstance(packing, NarrowPanels) and (packing.n, packing.k) == (
        (rows, columns), (columns, 1)
    ):  # fmt: skip
        count = -(-rows // packing.width)
        if packing.bits == 8:
            return InPanels(packing, int8, (count, packing.depth, packing.width))
        return InPanels(packing, int32, (count, packing.depth // _FIELDS, packing.width))
    plain = ((), ((columns, 1),), ((rows, columns),), 0)
    if type(packing) is Panels and (packing.batch, packing.k, packing.n, packing.offset) == plain:
        count = -(-rows // packing.width)
        return InPanels(packing, from_numpy(constant.dtype), (count, columns, packing.width))
    return None


def _element(read: Read, panels: str, step: InPanels) -> Expr:
    """The element of a matrix in its panels."""
    row, column = read.indices
    width = Literal(step.shape[-1], int64)
    panel, lane = Apply("floordiv", (row, width)), Apply("mod", (row, width))
    if not _is_coded(step):
        return Read(panels, (panel, column, lane))
    fields = Literal(_FIELDS, int64)
    word = Read(panels, (panel, Apply("floordiv", (column, fields)), lane))
    place = Cast(int32, Apply("mul", (Apply("mod", (column, fields)), Literal(4, int64))))
    code = Apply("bit_and", (Apply("shift_right", (word, place)), Literal(15, int32)))
    return Cast(int8, Apply("sub", (code, Literal(8, int32))))

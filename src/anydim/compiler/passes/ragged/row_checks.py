"""Whether the nodes of a graph compute each row from that row alone.

`independence.py` checks comprehensions; this file checks nodes: operators, routines, and nodes that
hold graphs. The checks are sufficient: what they refuse may still be independent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from itertools import chain

from anydim.base.errors import UserError
from anydim.base.records import dataclass
from anydim.compiler.graph.dims import symbols_of
from anydim.compiler.graph.evaluate import group_of
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.graph.regions import BranchRegion, Foreign, LoopRegion, PartRegion, Sizes
from anydim.compiler.passes.ragged.groups import record_of, split, with_fixed_sizes
from anydim.compiler.passes.ragged.independence import (
    Marked,
    Marks,
    Mixed,
    check_independent,
    marks_of,
)
from anydim.compiler.passes.ragged.size_values import SizeValues
from anydim.lang.tree import TensorType
from anydim.sizes import Size

_ALONG = ("sort", "cum_sum", "cum_prod", "top_k", "dft", "compress_fill")  # of each line of an axis
_OF_FIRST = ("tree_ensemble", "ngram_counts", "pairwise_coupling", "stft")  # each index of axis 0
_OF_ELEMENTS = ("find_keys",)


def mixing(graph: Graph, dim: str) -> str:
    """Why results at an index of a dim may depend on inputs at other indices, or on their number;
    empty if the graph shows that they do not."""
    graph = split(with_fixed_sizes(graph))
    if dim not in graph.box.names:
        return f"'{dim}' has one size"
    try:
        NodeChecks(dim, strict=True).graph(graph)
    except Mixed as reason:
        return str(reason)
    except UserError as error:
        return error.problem
    return ""


@dataclass(frozen=True)
class NodeChecks:
    """Checks of nodes; `strict` includes what decides loops, branches and sizes, and routines that
    run row by row. Otherwise each row has loops, branches and sizes of its own."""

    dim: str
    strict: bool = False

    @property
    def dims(self) -> frozenset[str]:
        """The dim of rows."""
        return frozenset((self.dim,))

    @property
    def marks(self) -> Marks:
        """Finds the axis of rows of a tensor."""
        return marks_of(Size.symbol(self.dim), self.dims)

    def graph(self, graph: Graph, known: SizeValues | None = None) -> set[str]:
        """Check all nodes; raise Mixed, which names the node.

        Returns values that depend on the place of a row in the batch, so that loops compute them:
        numbers of rows, and values whose rows do not lie in one part of an axis.
        """
        known = SizeValues(graph) if known is None else known
        apart: dict[str, Marked] = {}
        mixed: dict[str, str] = {}  # values of sizes that are not independent
        for node in graph.nodes:
            for held in node.region.held.values() if node.region else ():
                self.graph(held)
            try:
                self._node(graph, node, known, mixed.keys(), apart)
            except Mixed as reason:
                problem = f"{node.source or node.where()}: {reason}"
                problem = next((mixed[name] for name in node.given if name in mixed), problem)
                mixed.update(dict.fromkeys(node.outputs, problem))
                if not known.is_deferred(node):
                    raise Mixed(problem) from None
        for name in graph.outputs:
            if name in mixed:
                raise Mixed(mixed[name])
            if name in apart:
                raise Mixed(f"rows of result '{name}' do not lie in one part")
        return {*apart, *mixed}

    def _node(
        self, graph: Graph, node: Node, known: SizeValues, mixed: Set[str],
        apart: dict[str, Marked],
    ) -> None:  # fmt: skip
        """Raise Mixed unless a node computes each row alone; held graphs are checked elsewhere.

        `mixed` are the values that are known, and no node may read but inlined; `apart` are marks
        of axes such as `seq * rows`.
        """
        if isinstance(node.region, Foreign):
            raise Mixed("another engine runs it")
        record = record_of(node)
        routine = record is not None and record.routine is not None
        if node.region is not None or routine:
            if not mixed.isdisjoint(node.given):
                raise Mixed("it reads the numbers of rows")
            if not apart.keys().isdisjoint(node.given):
                raise Mixed("its rows do not lie in one part")
        if node.region is not None:
            if self.strict:
                self._region(graph, node)
        elif routine:
            self._routine(graph, node)
        else:
            group = known.inline(node, group_of(graph, node))
            if any(tensor.name in mixed for tensor in group.inputs):
                raise Mixed("it reads the numbers of rows")
            check_independent(group, self.marks, self.dims, known.box, apart, known.ranges)

    # ---- routines ------------------------------------------------------------------------------

    def _routine(self, graph: Graph, node: Node) -> None:
        given = [self.marks(graph.types[name]) for name in node.given]
        made = [self.marks(graph.types[name]) for name in node.outputs]
        if not any(given) and not any(made):
            return
        if not self._is_by_row(graph, node, given, made):
            raise Mixed(f"'{node.operator}' has no form for rows")

    def _is_by_row(
        self, graph: Graph, node: Node, given: list[Marked | None], made: list[Marked | None]
    ) -> bool:
        """Whether a routine with rows computes each of them alone, by its axes."""
        found = {mark for mark in (*given, *made) if mark is not None}
        if given[0] is None or any(mark is None for mark in made) or len(found) > 1:
            return False
        (mark,) = found
        tables = all(each is None for each in given[1:])
        if self.strict and node.operator in (*_OF_FIRST, *_OF_ELEMENTS):
            return tables and (node.operator in _OF_ELEMENTS or mark.axis == 0)
        axis = operator(node.operator).complete(node.attributes).get("axis")
        if node.operator not in _ALONG or not isinstance(axis, int) or not tables:
            return False
        return mark.axis != axis % graph.types[node.given[0]].rank

    # ---- nodes that hold graphs ----------------------------------------------------------------

    def _region(self, graph: Graph, node: Node) -> None:
        """Check what a node decides, and that its graphs see rows along the same axes."""
        region, types = node.region, graph.types
        if isinstance(region, Sizes):
            if any(self.marks(types[name]) for name in node.given):
                raise Mixed("rows decide sizes")
            return
        if isinstance(region, PartRegion):
            if any(self.marks(types[name]) for name in (*node.given, *node.outputs)):
                raise Mixed("it is a part of all of them")
            return
        decided: list[object] = []
        if isinstance(region, BranchRegion):
            decided = [region.condition]
        elif isinstance(region, LoopRegion):
            scans = ((scan.position, scan.extent) for scan in region.scans)
            decided = [region.trips, *chain.from_iterable(scans)]
        if symbols_of([each for each in decided if each is not None]) & self.dims:
            raise Mixed("their number decides what it runs")
        for outside, inside, shift in _pairs(node):
            if outside is not None:
                self._alike(types, outside, inside, shift)

    def _alike(
        self,
        types: Mapping[str, TensorType],
        outside: str,
        inside: tuple[Graph, str],
        shift: int | None,
    ) -> None:
        """Raise Mixed unless two names of a value have their rows along the same axis, `shift` axes
        further outside; None: results are joined along the first axis."""
        held, name = inside
        outer = self.marks(types[outside])
        inner = self.marks(held.types[name])
        if outer is None and inner is None:
            return
        if outer is None or inner is None:
            raise Mixed("the graphs that it holds do not know the number of rows")
        expected = Marked(inner.axis + (shift or 0), inner.count, inner.before)
        if outer != expected or (shift is None and not inner.axis):
            raise Mixed("the graphs that it holds have rows along other axes")


_Pair = tuple[str | None, tuple[Graph, str], int | None]


def _pairs(node: Node) -> Iterator[_Pair]:
    """Yield the inputs and results of a node that holds graphs, with the values of these graphs."""
    region, given = node.region, list(node.inputs)
    assert region is not None
    if not isinstance(region, LoopRegion):
        if isinstance(region, BranchRegion) and region.condition is None:
            given = given[1:]
        for held in region.held.values():
            yield from ((o, (held, i), 0) for o, i in zip(given, held.inputs))
            yield from ((o, (held, i), 0) for o, i in zip(node.outputs, held.outputs))
        return
    body, first, count = region.body, int(region.conditional), region.carried
    results = body.outputs[first:]
    yield from ((o, (body, i), 0) for o, i in zip(given[first:], body.inputs[:count]))
    yield from ((o, (body, i), 0) for o, i in zip(node.outputs, body.inputs[:count]))
    yield from ((o, (body, i), 0) for o, i in zip(node.outputs, results[:count]))
    rest = given[first + count + region.initials :]
    yield from ((o, (body, i), 0) for o, i in zip(rest, body.inputs[count + region.histories :]))
    initial = iter(given[first + count :])
    history = iter(body.inputs[count:])
    for scan, stack, part in zip(region.scans, node.outputs[count:], results[count:]):
        shift = None if scan.joined else 1
        yield stack, (body, part), shift
        if scan.history:
            yield stack, (body, next(history)), 0
        if scan.initial:
            yield next(initial), (body, part), shift

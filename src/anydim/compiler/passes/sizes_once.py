"""Split expensive values that depend only on sizes into a separate graph.

    mask(i,j) = where(j <= i, 0.0, -inf)          cheap: stays in its readers
    table(p,c) = sin(p * frequency(c))            expensive: computed once per distinct sizes

A value without inputs among its direct or indirect operands is the same in every call with the same
sizes. Fusion would recompute it in each reader. So the expensive ones become outputs of a `setup`
graph and inputs of the other one, before fusion. Which launches of both graphs do not depend on
inputs is decided once launches exist (`setups.py`).

Values that depend on reductions stay: readers of a sum influence its work partition and its bits.

After: no statement that reads inputs computes an element of a value of sizes alone for more than
`MAX_COST` cheap operations, unless it looks up single elements, or the whole value is little work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace

import numpy

from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.kernels.work_estimate import cost
from anydim.compiler.passes.flow import Line, inputs_of, live, pack, unique_name, unpack
from anydim.lang.tree import Axis, Expr, Read, Statement, TensorType
from anydim.lang.tree.affine import reads, rewrite
from anydim.sizes import Size
from anydim.sizes.sampling import Sampled, samples

MAX_COST = 10.0  # cheap operations per element: more than a read from memory costs
MIN_COST = 4096.0  # cheap operations for all elements, about a microsecond
_WIDER = 1.5  # ratio of elements to those of the operands, above which operands are kept instead
_POINTS = 6


@dataclass(frozen=True)
class SizesOnce:
    """Split off expensive values of sizes alone, up to a number of bytes."""

    max_bytes: int = 64 << 20

    def run(self, graph: Graph) -> Graph:
        """Return the graph: parts among others, or on a device, have no setup."""
        return graph

    def split(self, graph: Graph) -> tuple[Graph, ...]:
        """(graph), or (setup, graph): the outputs of `setup` are the last inputs of the other."""
        lines = unpack(graph)
        chosen = _choose_values(_Values(lines, graph, self.max_bytes), lines)
        if not chosen:
            return (graph,)
        setup = _with_unique_names(live(lines, chosen), chosen, graph)
        rest = [line for line in lines if line.target not in chosen]
        types = {**graph.types, **setup.types}
        outer = graph.replace(inputs=(*graph.inputs, *chosen))
        name = f"{graph.name} setup"
        inner = graph.replace(name=name, inputs=(), outputs=tuple(chosen), lists={})
        return (
            pack(inner, setup.lines, types),
            pack(outer, live(rest, graph.outputs), graph.types),
        )


# ---- selection ---------------------------------------------------------------------------------


@dataclass
class _Values:
    """The values of sizes alone (`every`), and costs of those that do not depend on reductions.

    `own` is the cost of an element with its operands in memory, `each` with its operands computed
    by its reader; `count` is the number of elements at sample sizes.
    """

    lines: list[Line]
    graph: Graph
    max_bytes: int
    every: set[str] = field(default_factory=set)
    each: dict[str, float] = field(default_factory=dict)
    own: dict[str, float] = field(default_factory=dict)
    count: dict[str, numpy.ndarray] = field(default_factory=dict)
    statements: dict[str, Statement] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.graph
        known = Sampled(samples(graph.box, _POINTS, graph.guards))
        for statement in (line.statement for line in self.lines):
            needed = [name for name in inputs_of(statement) if name not in graph.constants]
            if statement.target in graph.outputs or not self.every.issuperset(needed):
                continue
            self.every.add(statement.target)
            if statement.combine or not self.each.keys() >= set(needed):
                continue
            self.statements[statement.target] = statement
            self.count[statement.target] = _product(statement.axes, known.at)
            own = cost(statement.body)
            found = [read.tensor for read in reads(statement.body) if read.tensor in self.each]
            self.own[statement.target] = own
            self.each[statement.target] = own + sum(self.each[name] for name in found)

    def expensive(self, name: str) -> bool:
        """Whether elements cost more to compute than to read, and fit in `max_bytes`."""
        each, bytes = self.each[name], self.count[name] * self.graph.types[name].dtype.bytes
        if each <= MAX_COST or not (each * self.count[name] >= MIN_COST).any():
            return False
        return bool((bytes <= self.max_bytes).all())

    def wider(self, name: str) -> bool:
        """Whether it is cheap, and larger than all its operands together."""
        made_of = [n for n in inputs_of(self.statements[name]) if n in self.each]
        if not made_of or self.own[name] > MAX_COST:
            return False
        parts = sum((self.count[each] for each in made_of), numpy.zeros(1))
        return bool((self.count[name] > _WIDER * parts).any())


def _product(axes: Iterable[Axis], at: Callable[[Size], numpy.ndarray]) -> numpy.ndarray:
    return numpy.prod([at(axis.extent) for axis in axes] or [numpy.ones(1)], axis=0)


def _choose_values(values: _Values, lines: list[Line]) -> dict[str, None]:
    """The values to keep, in statement order."""
    readers: dict[str, list[Statement]] = {}
    for line in lines:
        if line.target not in values.every:
            for name in inputs_of(line.statement):
                readers.setdefault(name, []).append(line.statement)
    chosen: set[str] = set()
    pending = [
        name for name, found in readers.items()
        if name in values.each and not all(_looks_up(each, name) for each in found)
    ]  # fmt: skip
    seen = set(pending)
    while pending:
        name = pending.pop()
        if not values.expensive(name):
            continue
        if not values.wider(name):
            chosen.add(name)
            continue
        for each in inputs_of(values.statements[name]):
            if each in values.each and each not in seen:
                seen.add(each)
                pending.append(each)
    return {line.target: None for line in lines if line.target in chosen}


def _looks_up(reader: Statement, table: str) -> bool:
    """Whether a statement reads a table only at data-dependent indices."""
    found = [read for read in reads(reader.body) if read.tensor == table]
    return all(any(reads(index) for index in read.indices) for read in found)


# ---- names -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Setup:
    lines: list[Line]
    types: Mapping[str, TensorType]


def _with_unique_names(lines: list[Line], chosen: Iterable[str], graph: Graph) -> _Setup:
    """Rename intermediate values of the setup, which both graphs may need."""
    names = {line.target: line.target for line in lines}
    types = dict(graph.types)
    for line in lines:
        if line.target not in chosen:
            names[line.target] = unique_name(f"{line.target}/setup", types)
            types[names[line.target]] = graph.types[line.target]

    def renamed(expr: Expr) -> Expr | None:
        if isinstance(expr, Read) and names.get(expr.tensor, expr.tensor) != expr.tensor:
            return replace(expr, tensor=names[expr.tensor])
        return None

    made = []
    for line in lines:
        body = rewrite(line.statement.body, renamed)
        statement = replace(line.statement.with_body(body), target=names[line.target])
        made.append(Line(statement, line.source))
    return _Setup(made, types)

"""Flatten nested concatenations: the outer one reads the parts of the inner one directly.

    z = x then y                      out = x, then y, then a, then b
    c = a then b              ->
    out = z then c

Other readers of z read it from `out`, if that is a graph output: then z needs no memory either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes.flow import Line, inputs_of, live, pack, unpack
from anydim.lang.tree import Apply, Expr, Index, Literal, Read, SizeTerm, Statement
from anydim.lang.tree.affine import Affine, affine, reads, to_expr
from anydim.sizes import Size, as_size

_MAX = 16  # parts along an outer axis
_MAX_IN_ROWS = 4  # parts along the innermost axis: each vector selects between them


@dataclass(frozen=True)
class Part:
    """A part of a concatenation: its read and its range along the axis."""

    read: Read
    start: Size
    stop: Size


@dataclass(frozen=True)
class Join:
    """A concatenation along an axis of its statement."""

    statement: Statement
    axis: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Joins:
    """Replace concatenations in a larger one by their parts."""

    def run(self, graph: Graph) -> Graph:
        work = _Work(graph)
        changed = [
            work.put(part, name)
            for name, join in list(work.joins.items())
            for part in join.parts
            if part.read.tensor in work.joins
        ]
        if not any(changed):
            return graph
        return pack(graph, live(list(work.ordered()), graph.outputs), graph.types)


def join_of(statement: Statement) -> Join | None:
    """Match a statement as a concatenation; else None."""
    names = [axis.name for axis in statement.axes]
    rest, start, parts, along = statement.body, as_size(0), [], None
    while not statement.combine and isinstance(rest, Apply) and rest.function == "select":
        condition, chosen, rest = rest.arguments
        if not (isinstance(condition, Apply) and condition.function == "less"):
            return None
        index, stop = condition.arguments[0], affine(condition.arguments[1])
        if not isinstance(index, Index) or stop is None or stop.terms or along not in (None, index):
            return None
        along = index
        parts.append((chosen, start, stop.constant))
        start = stop.constant
    if along is None or along.name not in names:
        return None
    axis = names.index(along.name)
    parts.append((rest, start, statement.axes[axis].extent))
    found = [
        Part(read, start, stop)
        for read, start, stop in parts
        if isinstance(read, Read) and _is_part(read, start, names, axis)
    ]
    return Join(statement, axis, tuple(found)) if len(found) == len(parts) else None


def _is_part(read: Read, start: Size, names: list[str], axis: int) -> bool:
    if read.flat or not isinstance(read.default, Literal):
        return False
    expected = [Affine(as_size(0), ((name, as_size(1)),)) for name in names]
    expected[axis] = Affine(as_size(0) - start, expected[axis].terms)
    return [affine(index) for index in read.indices] == expected


class _Work:
    """The statements of a graph by target, and the concatenations among them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lines = {line.target: line for line in unpack(graph)}
        found = ((name, join_of(line.statement)) for name, line in self.lines.items())
        self.joins = {name: join for name, join in found if join is not None}

    def put(self, part: Part, into: str) -> bool:
        """Replace `part` of `into` by its own parts, unless other readers need its value."""
        name = part.read.tensor
        inner, whole = self.joins[name], self.joins[into]
        if name in self.graph.outputs or not _fits(inner, part, whole):
            return False
        users = [user for user, line in self.lines.items() if name in inputs_of(line.statement)]
        others = [user for user in users if user not in self.joins]
        if others and not (len(users) == 1 + len(others) and self._may_read(others, name, into)):
            return False
        at = whole.parts.index(part)
        parts = (*whole.parts[:at], *_flatten_join(inner, part, whole), *whole.parts[at + 1 :])
        statement = whole.statement.with_body(_body(parts, whole))
        self.joins[into] = Join(statement, whole.axis, parts)
        self._set(into, statement)
        if others:
            self._set(name, _view(inner, part, into))
            del self.joins[name]
        return True

    def _set(self, name: str, statement: Statement) -> None:
        self.lines[name] = replace(self.lines[name], statement=statement)

    def _may_read(self, others: Sequence[str], name: str, into: str) -> bool:
        """Whether `others` can read `name` from `into`: an output that does not depend on them."""
        found = [r for user in others for r in reads(self.lines[user].statement.body)]
        if any(r.tensor == name and (r.flat or r.default is not None) for r in found):
            return False
        if into not in self.graph.outputs and not any(
            map(self._is_copy(into), self.lines.values())
        ):
            return False
        needed, pending = {into}, [into]
        while pending:
            line = self.lines.get(pending.pop())
            new = set() if line is None else {*inputs_of(line.statement)} - needed
            needed |= new
            pending += new
        return not needed & {*others}

    def _is_copy(self, name: str) -> Callable[[Line], bool]:
        """A predicate: whether a line copies `name` to a graph output."""

        def found(line: Line) -> bool:
            axes = tuple(Index(axis.name) for axis in line.statement.axes)
            return line.target in self.graph.outputs and line.statement.body == Read(name, axes)

        return found

    def ordered(self) -> Iterator[Line]:
        """The lines in topological order."""
        waiting = list(self.lines.values())
        while waiting:
            missing = {line.target for line in waiting}
            rest = []
            for line in waiting:
                if missing.isdisjoint(inputs_of(line.statement)):
                    missing.discard(line.target)
                    yield line
                else:
                    rest.append(line)
            waiting = rest


def _fits(inner: Join, outer: Part, whole: Join) -> bool:
    """Whether a concatenation can be flattened into another along the same axis."""
    axes = whole.statement.axes
    most = _MAX_IN_ROWS if whole.axis + 1 == len(axes) else _MAX
    wanted = [axis.extent for axis in axes]
    wanted[whole.axis] = outer.stop - outer.start
    return (
        inner.axis == whole.axis
        and [axis.extent for axis in inner.statement.axes] == wanted
        and [part.read.tensor for part in whole.parts].count(outer.read.tensor) == 1
        and len(inner.parts) + len(whole.parts) - 1 <= most
    )


def _flatten_join(inner: Join, outer: Part, whole: Join) -> Iterator[Part]:
    """The parts of an inner concatenation, as parts of the whole."""
    for part in inner.parts:
        start, stop = outer.start + part.start, outer.start + part.stop
        indices: list[Expr] = [Index(axis.name) for axis in whole.statement.axes]
        name = whole.statement.axes[whole.axis].name
        indices[whole.axis] = to_expr(Affine(as_size(0) - start, ((name, as_size(1)),)))
        yield Part(replace(part.read, indices=tuple(indices)), start, stop)


def _body(parts: Sequence[Part], whole: Join) -> Expr:
    along = Index(whole.statement.axes[whole.axis].name)
    body: Expr = parts[-1].read
    for part in reversed(parts[:-1]):
        inside = Apply("less", (along, SizeTerm(part.stop)))
        body = Apply("select", (inside, part.read, body))
    return body


def _view(inner: Join, part: Part, into: str) -> Statement:
    """An inner concatenation as a slice of `into`."""
    indices: list[Expr] = [Index(axis.name) for axis in inner.statement.axes]
    name = inner.statement.axes[inner.axis].name
    indices[inner.axis] = to_expr(Affine(part.start, ((name, as_size(1)),)))
    return inner.statement.with_body(Read(into, tuple(indices)))

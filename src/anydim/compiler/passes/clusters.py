"""Clusters of statements during fusion: membership, legality, cycles.

Matches of templates are cached per group up to renaming of its tensors.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import field, replace
from functools import lru_cache

from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.template import Template, first_match
from anydim.compiler.passes.canonical_groups import canonical, in_canonical_sizes
from anydim.compiler.passes.flow import Line, fused_node, group_of, inputs_of
from anydim.compiler.passes.shared_loops import loop_names, rename_axes
from anydim.compiler.passes.view_forms import is_view
from anydim.lang.tree import Cast, Expr, Group, Index, Read, SizeTerm, Statement
from anydim.lang.tree.affine import reads, rewrite
from anydim.sizes import Box

MAX_STATEMENTS = 48  # of one kernel: longer ones gain nothing and take long to match


@dataclass
class Clusters:
    """The grouping under construction. Clusters are numbered by their first statement."""

    lines: Sequence[Line]
    graph: Graph
    machine: Machine
    templates: tuple[Template, ...]
    owner: dict[int, int] = field(default_factory=dict)  # statement -> cluster
    members: dict[int, list[int]] = field(default_factory=dict)
    writer: dict[str, int] = field(default_factory=dict)  # value -> statement
    users: dict[str, set[int]] = field(default_factory=dict)  # value -> statements
    constants: frozenset[str] = frozenset()
    forms: Forms = field(default_factory=lambda: Forms())
    decisions: dict[Key, Template | None] = field(default_factory=dict)
    alike: dict[tuple[Group, Box, frozenset[str]], Template | None] = field(default_factory=dict)
    chosen: dict[int, tuple[Template, int]] = field(default_factory=dict)  # and member count
    loops: dict[Key, tuple[dict[str, str], ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.constants = frozenset(self.graph.constants)
        for number, line in enumerate(self.lines):
            self.owner[number] = number
            self.members[number] = [number]
            self.writer[line.target] = number
            for name in inputs_of(line.statement):
                self.users.setdefault(name, set()).add(number)

    def group(self, numbers: Iterable[int]) -> Group:
        """The group of these statements, with shared loops under common names."""
        inside = sorted(numbers)
        found = [self.lines[number].statement for number in inside]
        key = self._key(inside)
        if key not in self.loops:
            self.loops[key] = loop_names(found)
        statements = list(map(rename_axes, found, self.loops[key]))
        kept = [s.target for s in statements if self.used_outside(s.target, set(inside))]
        return group_of(statements, self.graph.types, kept)

    def template(self, numbers: Sequence[int]) -> Template | None:
        """The template that matches these statements as one kernel; cached per equal group."""
        key = self._key(sorted(numbers))
        if key not in self.decisions:
            self.decisions[key] = self._decide(numbers)
        return self.decisions[key]

    def _decide(self, numbers: Iterable[int]) -> Template | None:
        group = self.group(numbers)
        own = in_canonical_sizes(group, self.graph.box)
        if own.names is None:
            return self._first(group, self.graph.box, self.constants)
        alike, values, _ = canonical(own.group)
        constants = frozenset(n for n, value in values.items() if value in self.constants)
        if (alike, own.box, constants) not in self.alike:
            self.alike[alike, own.box, constants] = self._first(alike, own.box, constants)
        return self.alike[alike, own.box, constants]

    def _first(self, group: Group, box: Box, constants: frozenset[str]) -> Template | None:
        found = first_match(self.templates, group, box, self.machine, constants)
        return None if found is None else found[0]

    def _key(self, numbers: Sequence[int]) -> Key:
        """Everything a template can match on of these statements, without tensor names."""
        order: dict[str, int] = {}
        inside = set(numbers)
        parts: list[Hashable] = []
        for number in numbers:
            statement = self.lines[number].statement
            form, tensors = self.forms.of(statement)
            kept = self.used_outside(statement.target, inside)
            parts += [form, kept]
            for name in (statement.target, *tensors):
                parts.append(order.setdefault(name, len(order)))
        outside = [(self.graph.types[name], name in self.constants) for name in order]
        return (*parts, *outside)

    def add(self, number: int) -> None:
        """Add a statement to the latest of its producers' clusters that accepts it."""
        statement = self.lines[number].statement
        if self.owner[number] != number or len(self.members[number]) > 1:
            return
        if is_view(statement, self.graph.types) and not self._second(statement):
            return
        made = [self.writer[name] for name in inputs_of(statement) if name in self.writer]
        for cluster in sorted({self.owner[writer] for writer in made}, reverse=True):
            joined = [*self.members[cluster], number]
            if len(joined) > MAX_STATEMENTS:
                continue
            if self._is_copy(cluster) or self._cyclic(joined):
                continue
            if self._grows(cluster, joined):
                self.merge(joined)
                self._absorb(made, number)
                return
        if statement.combine:
            self._join_reduction(number)

    def _join_reduction(self, number: int) -> None:
        """Fuse a reduction with another of the same operand, which is then read once."""
        statement, own = self.lines[number].statement, self.template([number])
        read = inputs_of(statement)
        if len(read) != 1 or own is None:
            return
        for other in sorted(n for n in self.users[read[0]] if n < number):
            first, cluster = self.lines[other].statement, self.owner[other]
            joined = [*self.members[cluster], number]
            if not first.combine or inputs_of(first) != read or first.shape != statement.shape:
                continue
            if len(joined) > MAX_STATEMENTS or self._cyclic(joined):
                continue
            if own is self._own(cluster) is self.template(joined):
                self.merge(joined)
                return

    def _grows(self, cluster: int, joined: Sequence[int]) -> bool:
        """Whether a template matches the larger cluster and the cluster need not stay as it is."""
        own = self._own(cluster)
        if own is not None and own.extends and self._on_own_elements(joined):
            self.chosen[cluster] = own, len(joined)
            return True
        found = self.template(joined)
        return found is not None and (found is own or own is None or not own.keeps)

    def _own(self, cluster: int) -> Template | None:
        """The template of a cluster; not matched again where growth is known to match."""
        template, count = self.chosen.get(cluster, (None, 0))
        members = self.members[cluster]
        return template if count == len(members) else self.template(members)

    def _on_own_elements(self, joined: Sequence[int]) -> bool:
        """Whether the last statement reads only the others' values, at its own indices."""
        statement = self.lines[joined[-1]].statement
        found = reads(statement.body)
        if statement.reduced or not statement.axes or not found:
            return False
        own = tuple(Index(axis.name) for axis in statement.axes)
        inside = set(joined[:-1])
        return _indices(statement.body) == len(found) * len(own) and all(
            self.writer.get(read.tensor) in inside
            and read.indices == own
            and not read.flat
            and read.default is None
            and self.graph.types[read.tensor].shape == statement.shape
            for read in found
        )

    def _absorb(self, made: Sequence[int], number: int) -> None:
        """Merge the other producers' clusters into the statement's, where all are elementwise."""
        for cluster in sorted({self.owner[writer] for writer in made}, reverse=True):
            own, members = self.members[self.owner[number]], self.members[cluster]
            joined = sorted({*own, *members})
            if cluster == self.owner[number] or self._is_copy(cluster):
                continue
            if len(joined) > MAX_STATEMENTS:
                continue
            if any(self.lines[n].statement.reduced for n in joined):
                continue
            if not self._cyclic(joined) and self.template(joined) is not None:
                self.merge(joined)

    def _second(self, statement: Statement) -> bool:
        """Whether a copy is a second output of one value: its kernel writes both."""
        source = self._copied_value(statement)
        if source not in self.writer:
            return False
        first = min(n for n in self.users[source] if self._copied_value(self.lines[n].statement))
        return source in self.graph.outputs or self.lines[first].target != statement.target

    def _copied_value(self, statement: Statement) -> str:
        """The value that a statement copies to a graph output; '' for other statements."""
        body = statement.body
        if statement.target not in self.graph.outputs or not isinstance(body, Read) or body.flat:
            return ""
        names = [index.name for index in body.indices if isinstance(index, Index)]
        return body.tensor if names == [axis.name for axis in statement.axes] else ""

    def merge(self, numbers: Sequence[int]) -> None:
        """Make these statements one cluster."""
        first = min(self.owner[number] for number in numbers)
        for number in numbers:
            if self.owner[number] != first:
                self.members.pop(self.owner[number], None)
                self.owner[number] = first
        self.members[first] = sorted(numbers)

    def nodes(self) -> list[Node]:
        """One fused node per cluster, in topological order."""
        return [
            fused_node(
                self.group(self.members[cluster]),
                joined_sources(self.lines[n].source for n in self.members[cluster]),
            )
            for cluster in self._order()
        ]

    def _is_copy(self, cluster: int) -> bool:
        return len(self.members[cluster]) == 1 and is_view(
            self.lines[cluster].statement, self.graph.types
        )

    def used_outside(self, name: str, inside: set[int]) -> bool:
        return name in self.graph.outputs or not self.users.get(name, set()) <= inside

    def _inputs(self, numbers: Iterable[int]) -> set[int]:
        """Clusters outside of these statements that they read from."""
        inside = set(numbers)
        return {
            self.owner[self.writer[name]]
            for number in inside
            for name in inputs_of(self.lines[number].statement)
            if name in self.writer and self.writer[name] not in inside
        }

    def _cyclic(self, numbers: Sequence[int]) -> bool:
        """Whether an input of these statements depends on one of their outputs."""
        inside = {self.owner[number] for number in numbers}
        pending = [cluster for cluster in self._inputs(numbers) if cluster not in inside]
        seen = set(pending)
        earliest = min(inside)
        while pending:
            cluster = pending.pop()
            if max(self.members[cluster]) < earliest:
                continue
            for source in self._inputs(self.members[cluster]):
                if source in inside:
                    return True
                if source not in seen:
                    seen.add(source)
                    pending.append(source)
        return False

    def _order(self) -> list[int]:
        done: list[int] = []
        state: dict[int, bool] = {}

        for root in sorted(self.members):
            stack = [(root, False)]
            while stack:
                cluster, ready = stack.pop()
                if ready:
                    if not state.get(cluster, False):
                        state[cluster] = True
                        done.append(cluster)
                elif cluster not in state:
                    state[cluster] = False
                    stack.append((cluster, True))
                    sources = sorted(self._inputs(self.members[cluster]), reverse=True)
                    stack += [(source, False) for source in sources if source not in state]
        return done


@lru_cache(maxsize=1 << 12)
def _indices(expr: Expr) -> int:
    """Count of axis indices and sizes in an expression."""
    if isinstance(expr, (Index, SizeTerm)):
        return 1
    if isinstance(expr, Read):
        parts: tuple[Expr, ...] = expr.indices
    else:
        parts = (expr.argument,) if isinstance(expr, Cast) else getattr(expr, "arguments", ())
    return sum(_indices(part) for part in parts)


def joined_sources(sources: Iterable[str]) -> str:
    """Sources of a group's statements, the file named once: 'm.onnx: /a + /b'."""
    distinct = list(dict.fromkeys(sources))
    parts = [source.rpartition(": ") for source in distinct]
    files = {file for file, _, _ in parts}
    if len(files) != 1 or not parts[0][1]:
        return " + ".join(distinct)
    return f"{parts[0][0]}: {' + '.join(dict.fromkeys(node for _, _, node in parts))}"


Key = tuple[Hashable, ...]


class Forms:
    """Numbers statements up to renaming of their tensors."""

    def __init__(self) -> None:
        self.numbers: dict[Statement, int] = {}
        self.known: dict[int, tuple[int, tuple[str, ...]]] = {}
        self.held: list[Statement] = []

    def of(self, statement: Statement) -> tuple[int, tuple[str, ...]]:
        """The number of a statement's form, and the tensors it reads, in order."""
        if id(statement) not in self.known:
            tensors = inputs_of(statement)
            positions = {name: str(position) for position, name in enumerate(tensors)}

            def change(expr: Expr) -> Expr | None:
                if isinstance(expr, Read):
                    return replace(expr, tensor=positions[expr.tensor])
                return None

            form = replace(statement, target="", body=rewrite(statement.body, change))
            number = self.numbers.setdefault(form, len(self.numbers))
            self.known[id(statement)] = (number, tensors)
            self.held.append(statement)
        return self.known[id(statement)]

"""Groups -> launches: the first template that takes a group turns it into a kernel.

Groups that differ only in the names of their tensors share one kernel: tensors are renamed in
order of appearance before a template sees them, and its answer is kept per renamed group; checked
indices are numbered likewise.
A group that only renames bytes (a reshape of a value nobody else needs in place) launches nothing.

After: every value is an input, a constant, an alias of another value, or written by a launch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anydim.base.errors import InternalError
from anydim.graph.nodes import Graph, Node
from anydim.kernels.launch import Launch, Machine
from anydim.kernels.template import Template
from anydim.lang.affine import rewrite
from anydim.lang.inside import (
    checks,
    counted_from_end,
    index_tensor,
    number_of,
    numbered,
    size_of,
)
from anydim.lang.printer import print_statement
from anydim.lang.renaming import renamed as renamed_steps
from anydim.lang.tree import Apply, Expr, Group, Read, Statement, Tensor
from anydim.passes.stepping import expressions_of, with_expressions
from anydim.passes.views import is_reshape
from anydim.sizes import Box, Size


@dataclass(frozen=True)
class Found:
    """A check of a launch: the number of the node it came from, and of what it is a position.

    `indices` is the graph value that holds the indices; empty when they are computed.
    """

    node: int
    tensor: str
    size: Size
    from_end: bool
    indices: str


@dataclass(frozen=True)
class Scheduled:
    """A launch with the graph value behind each tensor name of its group, and its checks."""

    launch: Launch
    values: dict[str, str]
    template: str
    source: str
    group: Group
    checks: tuple[Found, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(self.values[t.name] for t in self.group.inputs)

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(self.values[t.name] for t in self.group.outputs)


@dataclass(frozen=True)
class Alias:
    """A value that is another value's bytes under another shape."""

    target: str
    source: str


@dataclass(frozen=True)
class Schedule:
    """Choose a template and a schedule for every group."""

    machine: Machine
    templates: tuple[Template, ...]

    def run(self, graph: Graph) -> tuple[Scheduled | Alias, ...]:
        known: dict[tuple[Group, frozenset[str]], tuple[Launch, str]] = {}
        taken: set[str] = {*graph.inputs, *graph.constants, *graph.outputs}
        result: list[Scheduled | Alias] = []
        for node in graph.nodes:
            alias = _alias(node, graph, taken)
            if alias is not None:
                taken.add(alias.source)
                result.append(alias)
                continue
            group, values, found = canonical(node.group)
            constants = frozenset(n for n, value in values.items() if value in graph.constants)
            key = (group, constants)
            if key not in known:
                known[key] = self._launch(group, graph.box, constants, node)
            launch, template = known[key]
            result.append(Scheduled(launch, values, template, node.source, group, found))
        return tuple(result)

    def _launch(
        self, group: Group, box: Box, constants: frozenset[str], node: Node
    ) -> tuple[Launch, str]:
        for template in self.templates:
            schedule = template.match(group, box, self.machine, constants)
            if schedule is not None:
                return template.lower(group, schedule, box, self.machine, constants), template.name
        dump = "\n".join(map(print_statement, group.statements))
        raise InternalError(f"no template takes {node.where()}\n{dump}")


def _alias(node: Node, graph: Graph, taken: set[str]) -> Alias | None:
    statements = node.group.statements
    if len(statements) != 1 or not is_reshape(statements[0], graph.types):
        return None
    body = statements[0].body
    assert isinstance(body, Read)
    return None if body.tensor in taken else Alias(statements[0].target, body.tensor)


def canonical(group: Group) -> tuple[Group, dict[str, str], tuple[Found, ...]]:
    """The group with tensors named t0, t1, ... and checks 0, 1, ..., and what is behind each."""
    tensors = (*group.inputs, *group.outputs, *group.temporaries)
    names = {tensor.name: f"t{place}" for place, tensor in enumerate(tensors)}
    numbers: dict[Apply, int] = {}

    def change(expr: Expr) -> Expr | None:
        if isinstance(expr, Read):
            return replace(expr, tensor=names[expr.tensor])
        return None

    def statement(old: Statement) -> Statement:
        body = numbered(rewrite(old.body, change), number)
        return replace(old, target=names[old.target], body=body)

    def number(check: Apply) -> int:
        return numbers.setdefault(check, len(numbers))

    def renamed(old: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(Tensor(names[tensor.name], tensor.type) for tensor in old)

    result = Group(
        inputs=renamed(group.inputs),
        outputs=renamed(group.outputs),
        statements=tuple(statement(s) for s in group.statements),
        temporaries=renamed(group.temporaries),
        steps=with_expressions(renamed_steps(group.steps, names), lambda e: numbered(e, number)),
    )
    values = {new: old for old, new in names.items()}
    nodes = [number_of(check) for check in numbers]
    return result, values, _found(result, values, nodes) if numbers else ()


def _found(group: Group, values: dict[str, str], nodes: list[int]) -> tuple[Found, ...]:
    """The checks of a canonical group by number."""
    found: dict[int, Found] = {}
    expressions = [("", statement.body) for statement in group.statements]
    for target, expr in (*expressions, *expressions_of(group.steps)):
        for tensor, check in checks(expr, target):
            place = number_of(check)
            from_end = counted_from_end(check) is not None
            indices = values.get(index_tensor(check), "")
            known = Found(nodes[place], values[tensor], size_of(check), from_end, indices)
            found.setdefault(place, known)
    return tuple(found[place] for place in range(len(nodes)))

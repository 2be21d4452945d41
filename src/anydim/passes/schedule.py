"""Groups -> launches: the first template that takes a group turns it into a kernel.

Groups that differ only in the names of their tensors share one kernel: tensors are renamed in
order of appearance before a template sees them, and its answer is kept per renamed group; checked
indices are numbered likewise.
A group that only renames bytes (a reshape of a value nobody else needs in place) launches nothing.

After: every value is an input, a constant, an alias of another value, or written by a launch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from anydim.base.errors import InternalError, OptionError
from anydim.base.records import dataclass
from anydim.graph.nodes import Constant, Graph, Node
from anydim.kernels.ir import Kernel
from anydim.kernels.launch import Launch, Machine, Packing
from anydim.kernels.schedule import parse_options
from anydim.kernels.template import Template
from anydim.kernels.wishes import first_match, wished
from anydim.lang.surface.printer import print_statement
from anydim.lang.tree import Apply, Expr, Group, Read, Statement, Tensor
from anydim.lang.tree.affine import rewrite
from anydim.lang.tree.bounds_checks import (
    checks,
    counted_from_end,
    index_tensor,
    number_of,
    numbered,
    size_of,
)
from anydim.lang.tree.renaming import renamed as renamed_steps
from anydim.lang.tree.stepping import expressions_of, with_expressions
from anydim.passes.options import PLAIN, WHOLE, Options
from anydim.passes.recipes import template_recipe
from anydim.passes.view_forms import is_reshape
from anydim.program.recipe import Recipe
from anydim.sizes import Box, Size

_CANONICAL = re.compile(r"\bt\d+\b")


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
    recipe: Recipe
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
    """Choose a template and a schedule for every group; `counter` is that of the loop around.

    Each kernel is `begun` when it is there, and each constant `packed`: whoever compiles and packs
    need not wait for the others.
    """

    machine: Machine
    templates: tuple[Template, ...]
    options: Options = PLAIN
    counter: str | None = None
    begun: Callable[[Kernel], None] = lambda kernel: None
    packed: Callable[[str, Constant, Packing], object] = lambda value, constant, packing: None

    def run(self, graph: Graph) -> tuple[Scheduled | Alias, ...]:
        known: dict[tuple[Group, frozenset[str], str], tuple[Launch, str, Recipe]] = {}
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
            wish = self.options.wish(node.outputs)
            key = (group, constants, "" if wish is None else wish[1])
            if key not in known:
                made = self._launch(group, graph.box, constants, node, wish, values)
                self.begun(made[0].kernel)
                recipe = template_recipe(made[0], group, graph.box, self.machine, constants)
                known[key] = (*made, recipe)
            launch, template, recipe = known[key]
            if self.counter is not None:
                launch = launch.in_loop(self.counter)
            if group.steps:
                launch = replace(launch, reason=_named(launch.reason, values))
            result.append(Scheduled(launch, values, template, node.source, group, recipe, found))
            self._pack(launch, values, graph)
        return tuple(result)

    def _pack(self, launch: Launch, values: Mapping[str, str], graph: Graph) -> None:
        for argument in launch.arguments:
            value = values.get(argument.tensor, "")
            if argument.packing is not None and value in graph.constants:
                self.packed(value, graph.constants[value], argument.packing)

    def _launch(
        self, group: Group, box: Box, constants: frozenset[str], node: Node,
        wish: tuple[str, str] | None, values: Mapping[str, str],
    ) -> tuple[Launch, str]:  # fmt: skip
        chosen = first_match(self.templates, group, box, self.machine, constants)
        if chosen is None:
            dump = "\n".join(map(print_statement, group.statements))
            raise InternalError(f"no template takes {node.where()}\n{dump}")
        template, schedule = chosen
        if wish is None or (wish[0] == WHOLE and parse_options(wish[1])[0] != template.schedule):
            return template.lower(group, schedule, box, self.machine, constants), template.name
        try:
            template, schedule = wished(
                wish[1], self.templates, group, box, self.machine, constants
            )
            return template.lower(group, schedule, box, self.machine, constants), template.name
        except OptionError as error:
            where = f"options of {node.source or node.where()}, {wish[1]}"
            problem, hint = (_named(text, values) for text in (error.problem, error.hint))
            raise OptionError(f"{where}: {problem}", hint) from None


def unmet(options: Options, scheduled: Iterable[Scheduled | Alias]) -> None:
    """Raise OptionError for a schedule that no kernel has."""
    launches = [item for item in scheduled if isinstance(item, Scheduled)]
    met: set[str] = set()
    for item in launches:
        wish = options.wish(item.writes)
        if wish is not None and wish[0] != WHOLE:
            met.add(wish[0])
        elif wish is not None and _kind(wish[1]) == _kind(item.launch.schedule):
            met.add(WHOLE)
    for name, text in options.schedules.items():
        if name not in met:
            made = "; ".join(f"{', '.join(i.writes)}: {i.launch.schedule}" for i in launches)
            what = f"makes '{name}'" if name else "is of that kind"
            raise OptionError(f"options ask for {text}, but no kernel {what}", f"there is {made}")


def _kind(schedule: str) -> str:
    return schedule.partition("(")[0].strip()


def _named(text: str, values: Mapping[str, str]) -> str:
    """Words about a canonical group with the names of the values."""
    return _CANONICAL.sub(lambda found: values.get(found[0], found[0]), text)


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
            known = Found(nodes[place], values.get(tensor, ""), size_of(check), from_end, indices)
            found.setdefault(place, known)
    return tuple(found[place] for place in range(len(nodes)))

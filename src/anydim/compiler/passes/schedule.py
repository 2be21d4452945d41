"""Groups -> launches: the first template that matches a group lowers it to a kernel.

Groups that differ only in names share one kernel: tensors, checked indices and compound sizes are
renamed (`canonical_groups.py`) before a template sees them, and its result is cached per renamed
group. A group that only reinterprets bytes (a reshape without a reader that needs its own buffer)
has no launch.

After: every value is an input, a constant, an alias of another value, or written by a launch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from anydim.base.errors import InternalError, OptionError
from anydim.base.records import dataclass
from anydim.base.text import quote_list
from anydim.compiler.graph.nodes import Constant, Graph, Node
from anydim.compiler.kernels.ir import Kernel
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.schedule import ANY, parse_options, parse_schedule, version_of
from anydim.compiler.kernels.template import Template, first_match, schedule_from_text
from anydim.compiler.kernels.versions import forced_launch
from anydim.compiler.passes.canonical_groups import (
    Canonical,
    IndexCheck,
    canonical,
    in_signature,
)
from anydim.compiler.passes.flow import unique_name
from anydim.compiler.passes.options import PLAIN, WHOLE, KernelOptions
from anydim.compiler.passes.recipes import template_recipe
from anydim.compiler.passes.shared_panels import SHARED
from anydim.compiler.passes.view_forms import is_reshape
from anydim.lang.surface.printer import print_statement
from anydim.lang.tree import Group, Read
from anydim.runtime.panels import Packing
from anydim.runtime.program.recipe import Recipe
from anydim.sizes import Box

Key = tuple[Group, Box, frozenset[str], str]
_CANONICAL = re.compile(r"\bt\d+\b")


@dataclass(frozen=True)
class Scheduled:
    """A launch with the graph value of each tensor name of its group, and its index checks.

    A launch that `goes_on` computes its group together with the next launch.
    """

    launch: Launch
    values: dict[str, str]
    template: str
    source: str
    group: Group
    recipe: Recipe
    checks: tuple[IndexCheck, ...] = ()
    goes_on: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(self.values[t.name] for t in self.group.inputs)

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(self.values[t.name] for t in self.group.outputs)


@dataclass(frozen=True)
class Alias:
    """A value that shares another value's bytes, with a different shape."""

    target: str
    source: str


@dataclass(frozen=True)
class Schedule:
    """Choose a template and a schedule for every group; `counter` is that of the enclosing loop.

    `begun` receives each kernel, and `packed` each packed constant, as soon as known, so that
    compilation and packing can start early. `tuned` returns a schedule that was measured to be
    better for a recipe than the template's own, or ''. `known` has the launches of groups so far;
    parts with the same machine, templates and options share it.
    """

    machine: Machine
    templates: tuple[Template, ...]
    options: KernelOptions = PLAIN
    counter: str | None = None
    begun: Callable[[Kernel], None] = lambda kernel: None
    packed: Callable[[str, Constant, Packing], object] = lambda value, constant, packing: None
    tuned: Callable[[Recipe], str] = lambda recipe: ""
    known: dict[Key, tuple[Launch, str, Recipe]] = field(default_factory=dict)

    def run(self, graph: Graph) -> tuple[Scheduled | Alias, ...]:
        known = self.known
        taken, given = {*graph.constants, *graph.outputs}, set(graph.inputs)
        result: list[Scheduled | Alias] = []
        for node in graph.nodes:
            alias = _alias(node, graph, taken, given)
            if alias is not None:
                if alias.source in given:
                    given.add(alias.target)
                else:
                    taken.add(alias.source)
                result.append(alias)
                continue
            group, values, found = canonical(node.group)
            own = in_signature(group, graph.box, self.machine.llc_bytes)
            constants = frozenset(n for n, value in values.items() if value in graph.constants)
            request = self.options.requested_schedule(node.outputs)
            key = (own.group, own.box, constants, "" if request is None else request[1])
            if key not in known:
                made = self._launch(own.group, own.box, constants, node, request, values)
                recipe = template_recipe(made[0], own.group, own.box, self.machine, constants)
                better = (
                    self._launch_tuned(recipe, own.group, own.box, constants)
                    if not request
                    else None
                )
                if better is not None:
                    made = better
                    recipe = template_recipe(made[0], own.group, own.box, self.machine, constants)
                self.begun(made[0].kernel)
                known[key] = (*made, recipe)
            launch, template, recipe = known[key]
            result += self._before(*known[key], own, values, node, group, graph)
            launch = own.back(launch)
            if self.counter is not None:
                launch = launch.in_loop(self.counter)
            if group.steps:
                launch = replace(launch, reason=_use_graph_names(launch.reason, values))
            found = tuple(replace(each, tensor=each.tensor.removesuffix(SHARED)) for each in found)
            result.append(Scheduled(launch, values, template, node.source, group, recipe, found))
            self._pack(launch, values, graph)
        return tuple(result)

    def _before(
        self, last: Launch, name: str, recipe: Recipe, own: Canonical, values: Mapping[str, str],
        node: Node, group: Group, graph: Graph,
    ) -> Iterator[Scheduled]:  # fmt: skip
        """Launches before that of a group, for sizes at which that one does nothing."""
        template = next(each for each in self.templates if each.name == name)
        schedule, constants = parse_schedule(last.schedule), recipe.constants
        for made, tensors in template.before(own.group, schedule, own.box, self.machine):
            self.begun(made.kernel)
            text = template_recipe(made, own.group, own.box, self.machine, constants)
            left = {
                t.name: unique_name(f"{node.outputs[0]}/{t.name}", graph.types) for t in tensors
            }
            outputs = (*map(own.tensor, tensors), *group.outputs)  # for names in reports
            yield Scheduled(
                own.back(made), {**values, **left}, name, node.source,
                replace(group, outputs=outputs), text, goes_on=True,
            )  # fmt: skip

    def _pack(self, launch: Launch, values: Mapping[str, str], graph: Graph) -> None:
        for argument in launch.arguments:
            value = values.get(argument.tensor, "")
            if argument.packing is not None and value in graph.constants:
                self.packed(value, graph.constants[value], argument.packing)

    def _launch(
        self, group: Group, box: Box, constants: frozenset[str], node: Node,
        request: tuple[str, str] | None, values: Mapping[str, str],
    ) -> tuple[Launch, str]:  # fmt: skip
        chosen = first_match(self.templates, group, box, self.machine, constants)
        if chosen is None:
            dump = "\n".join(map(print_statement, group.statements))
            raise InternalError(f"no template matches {node.where()}\n{dump}")
        template, schedule = chosen
        if request is None or (
            request[0] == WHOLE and parse_options(request[1])[0] != template.schedule
        ):
            return template.lower(group, schedule, box, self.machine, constants), template.name
        try:
            template, schedule = schedule_from_text(
                request[1], self.templates, group, box, self.machine, constants
            )
            return self._launch_requested(
                group, box, constants, template, schedule, request[0] != WHOLE
            )
        except OptionError as error:
            where = f"options of {node.source or node.where()}, {request[1]}"
            problem, hint = (_use_graph_names(text, values) for text in (error.problem, error.hint))
            raise OptionError(f"{where}: {problem}", hint) from None

    def _launch_requested(
        self, group: Group, box: Box, constants: frozenset[str], template: Template, schedule: Any,
        strict: bool,
    ) -> tuple[Launch, str]:  # fmt: skip
        """The launch of a requested schedule; a version of no size is an error if `strict`."""

        def make(version: str) -> Launch:
            own = schedule
            if version != version_of(schedule):
                own = replace(schedule, version=version)
            return template.lower(group, own, box, self.machine, constants)

        return forced_launch(make, version_of(schedule), box, strict), template.name

    def _launch_tuned(
        self, recipe: Recipe, group: Group, box: Box, constants: frozenset[str]
    ) -> tuple[Launch, str] | None:
        """The launch with a tuned schedule; None without one or if it does not match."""
        text = self.tuned(recipe)
        if text in ("", recipe.schedule):
            return None
        try:
            template, schedule = schedule_from_text(
                text, self.templates, group, box, self.machine, constants
            )
            launch = template.lower(group, schedule, box, self.machine, constants)
        except (OptionError, ValueError, ZeroDivisionError):  # from an outdated record
            return None
        return replace(launch, reason=f"{launch.reason}; tuned for recorded sizes"), template.name


def unmet(options: KernelOptions, scheduled: Iterable[Scheduled | Alias]) -> None:
    """Raise OptionError for a requested schedule, or a version of one, that no kernel uses."""
    every = [item for item in scheduled if isinstance(item, Scheduled)]
    launches = [item for item in every if not item.goes_on]
    for name, text in options.schedules.items():
        requests = (options.requested_schedule(item.writes) for item in launches)
        met = [i.launch for i, r in zip(launches, requests) if r is not None and r[0] == name]
        if name == WHOLE:
            met = [launch for launch in met if _kind(launch.schedule) == _kind(text)]
        if not met:
            made = "; ".join(f"{', '.join(i.writes)}: {i.launch.schedule}" for i in launches)
            what = f"makes '{name}'" if name else "is of that kind"
            raise OptionError(f"options request {text}, but no kernel {what}", f"there is {made}")
        version = parse_options(text)[1].get("version", ANY)
        if version != ANY and not any(_version(own) == version for own in met):
            known = quote_list(dict.fromkeys(each for own in met for each, _ in own.versions))
            raise OptionError(f"options request {text}, but no kernel has this version",
                              f"their versions are {known}")  # fmt: skip


def _version(launch: Launch) -> str:
    return version_of(parse_schedule(launch.schedule))


def _kind(schedule: str) -> str:
    return schedule.partition("(")[0].strip()


def _use_graph_names(text: str, values: Mapping[str, str]) -> str:
    """A text about a canonical group, with the graph's value names."""
    return _CANONICAL.sub(lambda found: values.get(found[0], found[0]), text)


def _alias(node: Node, graph: Graph, taken: set[str], given: set[str]) -> Alias | None:
    """Match a reshape of a value not in `taken`; a `given` input must not become a result."""
    statements = node.group.statements
    if len(statements) != 1 or not is_reshape(statements[0], graph.types):
        return None
    target, body = statements[0].target, statements[0].body
    assert isinstance(body, Read)
    if body.tensor in taken or (body.tensor in given and target in graph.outputs):
        return None
    return Alias(target, body.tensor)

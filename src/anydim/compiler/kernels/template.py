"""Kernel templates: a matcher that proposes a schedule, and a lowering that uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import lru_cache
from typing import Any, TypeVar

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.base.text import quote_list
from anydim.compiler.kernels.knobs import Knob
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.schedule import parse_options, print_schedule, register
from anydim.lang.tree import Group, Tensor
from anydim.sizes import Box

Form = TypeVar("Form")
Schedule = TypeVar("Schedule")
_REMEMBERED = 512  # forms of groups
Before = tuple[Launch, tuple[Tensor, ...]]


def _nothing_before(group: Group, schedule: Any, box: Box, machine: Machine) -> Iterator[Before]:
    return iter(())


@dataclass(frozen=True)
class Template:
    """Lowers groups of one form to one kernel each.

    `schedule` is a frozen dataclass of the template's options; texts call it `name`. `match`
    returns the schedule proposed for a group, or None when the group does not match (never raises).
    `lower` makes the launch; it must be correct at every size in the box, 0 and 1 included. Both
    receive the names of the input tensors that are constants (known before the first call).
    `keeps`: the kernel is so much faster than the alternatives that fusion stops at a matching
    group if the next statement would break the match; its consumers become separate kernels.
    `extends`: each matching group also matches with one more statement that computes elementwise on
    the group's results, and no earlier template matches that. `widens`: matches products whose
    factors are conversions from 16-bit floats. `least_lanes`: its kernels need vectors of as many
    lanes. `reads_codes`: its kernels read constant weights of 4 or 8 bits. `rounds`: its kernels
    multiply factors rounded to 16 bits. `transforms`: its kernels take fewer products than a group
    has. `before` yields more
    launches of a group, to run before the launch of `lower`, and the tensors that live only between
    those launches: for sizes at which the launch of `lower` does nothing. `knobs`: the options of
    schedules that a user or a search may set. `same_bits`: all versions of its kernels have the
    same bits at all sizes, so that a schedule for all sizes may force one.
    """

    name: str
    schedule: type
    match: Callable[[Group, Box, Machine, frozenset[str]], Any | None]
    lower: Callable[[Group, Any, Box, Machine, frozenset[str]], Launch]
    keeps: bool = False
    extends: bool = False
    widens: bool = False
    least_lanes: int = 1
    reads_codes: bool = False
    rounds: bool = False
    transforms: bool = False
    before: Callable[[Group, Any, Box, Machine], Iterator[Before]] = _nothing_before
    knobs: Mapping[str, Knob] = field(default_factory=dict, compare=False)
    same_bits: bool = False

    def __post_init__(self) -> None:
        register(self.name, self.schedule)


class Misfit(ValueError):
    """Raised by `lower` for a group that does not match the template at these sizes."""


@dataclass(frozen=True)
class Task:
    """A group, its box of sizes, a machine, and the names of constant inputs."""

    group: Group
    box: Box
    machine: Machine
    constants: frozenset[str]


def form_template(
    name: str, schedule: type[Schedule], form: Callable[[Task], Form | None],
    propose: Callable[[Form, Task], Schedule | None],
    lower: Callable[[Form, Schedule, Task], Launch], takes_steps: bool = False, **traits: Any,
) -> Template:  # fmt: skip
    """A template for groups that have a form: `form` returns it, or None for other groups.

    `propose` and `lower` are `match` and `lower` for a group with a form. The result of `form` is
    cached for both. Lowering a group without a form raises Misfit. A group of ordered steps, which
    has no statements, matches with `takes_steps` alone. `traits` are the other fields of the
    template.
    """
    form = lru_cache(maxsize=_REMEMBERED)(form)

    def match_form(*arguments: Any) -> Schedule | None:
        task = Task(*arguments)
        found = None if task.group.steps and not takes_steps else form(task)
        return None if found is None else propose(found, task)

    def lower_form(group: Group, chosen: Schedule, *rest: Any) -> Launch:
        task = Task(group, *rest)
        found = form(task)
        if found is None:
            raise Misfit(f"template '{name}' was to lower a group that it does not match")
        return lower(found, chosen, task)

    return Template(name, schedule, match_form, lower_form, **traits)


def template_of(templates: Sequence[Template], schedule: type) -> Template:
    """The template of a type of schedules."""
    return next(each for each in templates if each.schedule is schedule)


def first_match(
    templates: Sequence[Template], group: Group, box: Box, machine: Machine,
    constants: frozenset[str],
) -> tuple[Template, Any] | None:  # fmt: skip
    """The first template that matches a group, with its proposal."""
    for template in templates:
        schedule = template.match(group, box, machine, constants)
        if schedule is not None:
            return template, schedule
    return None


def schedule_from_text(
    text: str, templates: Sequence[Template], group: Group, box: Box, machine: Machine,
    constants: frozenset[str],
) -> tuple[Template, Any]:  # fmt: skip
    """The template that a text names, and its proposal for a group with the text's options.

    `contraction(rows=6)` sets one option; the others keep their proposed values. Raises OptionError
    for a template that does not match the group, or an invalid value.
    """
    kind, options = parse_options(text)
    template = template_of(templates, kind)
    proposal = template.match(group, box, machine, constants)
    if proposal is None:
        chosen = first_match(templates, group, box, machine, constants)
        taken = "no template" if chosen is None else f"'{chosen[0].name}'"
        raise OptionError(
            f"'{template.name}' does not take this computation",
            f"{taken} does: {print_schedule(chosen[1])}" if chosen else "",
        )
    for option, value in options.items():
        _check_option(template, option, value, proposal)
    return template, replace(proposal, **options)


def _check_option(template: Template, option: str, value: Any, proposal: Any) -> None:
    """Raise OptionError for an option that cannot be set, or a value that is not valid."""
    if value == getattr(proposal, option):
        return
    if option not in template.knobs:
        known = [f.name for f in fields(proposal) if f.name in template.knobs]
        raise OptionError(
            f"option '{option}' of '{template.name}' follows from the computation and the machine",
            f"what can be chosen: {quote_list(known)}",
        )
    knob = template.knobs[option]
    if not knob.is_valid(value, proposal):
        raise OptionError(
            f"option '{option}' of '{template.name}' is {value}, expected {knob.words}"
        )

"""Kernel templates: a matcher that proposes a schedule, and a lowering that uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, TypeVar

from anydim.base.records import dataclass
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.schedule import register
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
    lanes. `reads_codes`: its kernels read constant weights of 4 or 8 bits. `before` yields more
    launches of a group, to run before the launch of `lower`, and the tensors that live only between
    those launches: for sizes at which the launch of `lower` does nothing.
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
    before: Callable[[Group, Any, Box, Machine], Iterator[Before]] = _nothing_before

    def __post_init__(self) -> None:
        register(self.name, self.schedule)


class Misfit(ValueError):
    """A group that, at the sizes it is lowered for, does not match the template of its schedule."""


@dataclass(frozen=True)
class Task:
    """A group, its box of sizes, a machine, and the names of constant inputs."""

    group: Group
    box: Box
    machine: Machine
    constants: frozenset[str]


def form_template(
    name: str,
    schedule: type[Schedule],
    form: Callable[[Task], Form | None],
    propose: Callable[[Form, Task], Schedule | None],
    lower: Callable[[Form, Schedule, Task], Launch],
    keeps: bool = False,
    widens: bool = False,
    extends: bool = False,
    least_lanes: int = 1,
    reads_codes: bool = False,
) -> Template:
    """A template for groups that have a form: `form` returns it, or None for other groups.

    `propose` and `lower` are `match` and `lower` for a group with a form. The result of `form` is
    cached for both. Lowering a group without a form raises Misfit.
    """
    form = lru_cache(maxsize=_REMEMBERED)(form)

    def matched(*arguments: Any) -> Schedule | None:
        task = Task(*arguments)
        found = form(task)
        return None if found is None else propose(found, task)

    def lowered(group: Group, chosen: Schedule, *rest: Any) -> Launch:
        task = Task(group, *rest)
        found = form(task)
        if found is None:
            raise Misfit(f"template '{name}' was to lower a group that it does not match")
        return lower(found, chosen, task)

    return Template(
        name, schedule, matched, lowered, keeps, extends, widens, least_lanes, reads_codes
    )

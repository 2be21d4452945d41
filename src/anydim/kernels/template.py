"""What a kernel template is: a matcher that proposes a schedule, and a lowering that uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, TypeVar

from anydim.base.records import dataclass
from anydim.kernels.launch import Launch, Machine
from anydim.kernels.schedule import register
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
    """A way to turn a group into one kernel.

    `schedule` is a frozen dataclass of the template's options; texts call it `name`. `match` gives
    the schedule it would use for a group, or None when the group is not of its form (never raises).
    `lower` makes the launch; it must be right at every size in the box, 0 and 1 included.
    Both are told which input tensors are constants (known before the first call).
    A template that `keeps` is so much faster than the next that a group it takes grows no further
    than it takes it: what follows becomes a kernel of its own.
    One that `extends` takes each of its groups also with a statement more that computes, element
    for element, on what the group makes, and no template before it takes that.
    One that `widens` takes products whose factors are conversions from 16-bit floats.
    `before` gives more launches of a group, which go before that of `lower`, and the tensors that
    live only between those: for sizes at which that of `lower` has nothing to do.
    """

    name: str
    schedule: type
    match: Callable[[Group, Box, Machine, frozenset[str]], Any | None]
    lower: Callable[[Group, Any, Box, Machine, frozenset[str]], Launch]
    keeps: bool = False
    extends: bool = False
    widens: bool = False
    before: Callable[[Group, Any, Box, Machine], Iterator[Before]] = _nothing_before

    def __post_init__(self) -> None:
        register(self.name, self.schedule)


class Misfit(ValueError):
    """A group, at the sizes it is lowered for, that the template of its schedule does not take."""


@dataclass(frozen=True)
class Task:
    """A group, the sizes that it may have, a machine, and the inputs that are constants."""

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
) -> Template:
    """The template of groups that have a form: `form` gives it, None for other groups.

    `propose` and `lower` are `match` and `lower` of a group that has one. What `form` found is
    remembered for both. Lowering a group that has none raises Misfit.
    """
    form = lru_cache(maxsize=_REMEMBERED)(form)

    def matched(*asked: Any) -> Schedule | None:
        task = Task(*asked)
        found = form(task)
        return None if found is None else propose(found, task)

    def lowered(group: Group, chosen: Schedule, *rest: Any) -> Launch:
        task = Task(group, *rest)
        found = form(task)
        if found is None:
            raise Misfit(f"a group that template '{name}' cannot take reached its lowering")
        return lower(found, chosen, task)

    return Template(name, schedule, matched, lowered, keeps, extends, widens)

"""Bodies that could serve one set of sizes of a site, with the interface of its recipe.

A body is a function of the sizes of its site, so any dims that give these sizes give the right one;
`dims_that_give` finds some.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anydim.base.errors import InternalError, OptionError
from anydim.base.records import dataclass
from anydim.graph.nodes import FUSED, Graph
from anydim.graph.reader import read_graph
from anydim.kernels.fitting import fitted
from anydim.kernels.ir import INDEX, Const, Kernel, Let, Scalar
from anydim.kernels.launch import Launch
from anydim.kernels.naming import named_kernel
from anydim.kernels.schedule import parse_options, schedule_name
from anydim.kernels.template import Template
from anydim.kernels.wishes import TRIED, wished
from anydim.lang.tree import Group
from anydim.passes.recipes import make, parse_machine
from anydim.program.recipe import Recipe
from anydim.runtime.choices import Sizes
from anydim.sizes import Box, Dim, Size


@dataclass(frozen=True)
class Candidate:
    """A kernel for these sizes alone, which it ignores; how it is launched, in numbers."""

    schedule: str
    kernel: Kernel
    parallel: int
    grain: int
    scratch: int


@dataclass(frozen=True)
class Sized:
    """A site at sizes: its recipe and graph, its generic launch, and dims that give the sizes."""

    recipe: Recipe
    graph: Graph
    generic: Launch
    dims: Mapping[str, int]

    @property
    def group(self) -> Group:
        """What the site computes."""
        return self.graph.nodes[0].group


def sized(recipe: Recipe, templates: Sequence[Template], sizes: Sizes) -> Sized | None:
    """A site at the sizes of a launch, its parallel range last.

    None where no dims that are found give them, and for launches of routines.
    """
    graph = read_graph(recipe.work, {})
    if graph.nodes[0].operator != FUSED:
        return None
    launch = make(recipe, templates)
    if len(sizes) != len(launch.sizes) + 1:
        return None
    if launch.order is not None:  # any number that it may be is right
        launch = launch.ordered(sizes[launch.order])
    dims = dims_that_give((*launch.sizes, launch.parallel), sizes)
    if dims is None:
        return None
    return Sized(recipe, graph, launch, {name: dims.get(name, 1) for name in graph.box.names})


def generic_candidate(site: Sized) -> Candidate:
    """The generic schedule with sizes known."""
    return _known(site.generic, site)


def fitting(site: Sized, templates: Sequence[Template]) -> Iterator[Candidate]:
    """What each template would take for these sizes, where that is another schedule."""
    machine, constants = parse_machine(site.recipe.machine), frozenset(site.recipe.constants)
    exact = Box.of(*(Dim(name, value, value) for name, value in site.dims.items()))
    taken = {site.generic.schedule}
    for template in templates:
        schedule = template.match(site.group, exact, machine, constants)
        made = None if schedule is None else _lowered(site, template, schedule)
        if made is not None and made.schedule not in taken:
            taken.add(made.schedule)
            yield made


def options_of(schedule: str) -> list[str]:
    """The options of a schedule that may matter."""
    return list(TRIED.get(schedule_name(parse_options(schedule)[0]), {}))


def neighbours(
    site: Sized, templates: Sequence[Template], schedule: str, option: str
) -> Iterator[Candidate]:
    """Candidates whose schedule differs in one option."""
    kind, options = parse_options(schedule)
    template = next(each for each in templates if each.schedule is kind)
    for value in TRIED[schedule_name(kind)][option]:
        made = _lowered(site, template, kind(**{**options, option: value}))
        if made is not None:
            yield made


def by_text(site: Sized, templates: Sequence[Template], text: str) -> Candidate | None:
    """The candidate of a schedule that a text says; None where it cannot serve the site."""
    machine, constants = parse_machine(site.recipe.machine), frozenset(site.recipe.constants)
    if text == site.generic.schedule:
        return generic_candidate(site)
    try:
        return _lowered(
            site, *wished(text, templates, site.group, site.graph.box, machine, constants)
        )
    except OptionError:
        return next((each for each in fitting(site, templates) if each.schedule == text), None)


def _lowered(site: Sized, template: Template, schedule: Any) -> Candidate | None:
    """A schedule at these sizes; None where its kernel is none for the site."""
    machine, constants = parse_machine(site.recipe.machine), frozenset(site.recipe.constants)
    generic = site.generic
    try:
        launch = template.lower(site.group, schedule, site.graph.box, machine, constants)
    except (InternalError, ValueError, ZeroDivisionError):  # values that do not go together
        return None
    if launch.order is not None and generic.order is not None:
        launch = launch.ordered(generic.sizes[generic.order])
    return _known(launch, site) if _serves(launch, site) else None


def _serves(launch: Launch, site: Sized) -> bool:
    """Whether a launch reads and writes what the generic one does, in no more scratch."""
    generic, dims = site.generic, site.dims
    operands = {argument.tensor: argument.packing for argument in launch.arguments}
    wanted = {argument.tensor: argument.packing for argument in generic.arguments}
    return (
        operands == wanted
        and set(generic.in_place) <= set(launch.in_place)
        and launch.scratch.evaluate(dims) <= generic.scratch.evaluate(dims)
    )


def _known(launch: Launch, site: Sized) -> Candidate:
    values = [size.evaluate(site.dims) for size in launch.sizes]
    numbers = tuple(Size.constant_of(value) for value in values)
    made = replace(launch, kernel=with_sizes(launch.kernel, values), sizes=numbers)
    return Candidate(
        launch.schedule,
        fitted(made, site.recipe),
        launch.parallel.evaluate(site.dims),
        max(1, launch.grain),
        launch.scratch.evaluate(site.dims),
    )


def with_sizes(kernel: Kernel, values: Sequence[int]) -> Kernel:
    """The kernel for sizes that are known: it takes them still, and looks at none."""
    first, second = len(kernel.operands), len(kernel.operands) + len(kernel.sizes)
    pointers, scalars, rest = (
        kernel.main.parameters[:first],
        kernel.main.parameters[first:second],
        kernel.main.parameters[second:],
    )
    known, ignored = [], []
    for number, (scalar, value) in enumerate(zip(scalars, values)):
        if not isinstance(scalar, Scalar):
            raise InternalError(f"size {number} of '{kernel.name}' is no number")
        known.append(Let(scalar.name, Const(INDEX, value)))
        ignored.append(Scalar(f"known.{number}"))
    main = replace(
        kernel.main, parameters=(*pointers, *ignored, *rest), body=(*known, *kernel.main.body)
    )
    prefix = f"{kernel.name.rpartition('_')[0]}_exact"
    return named_kernel(
        prefix, kernel.operands, kernel.sizes, (*kernel.functions[:-1], main), kernel.libraries,
        kernel.group, kernel.locals,
    )  # fmt: skip


def dims_that_give(sizes: Sequence[Size], values: Sequence[int]) -> dict[str, int] | None:
    """Dims at which size expressions have these values; None where none are found."""
    known: dict[str, int] = {}
    left = {name for size in sizes for name in size.symbols}
    while left - known.keys():
        found = next(filter(None, (_told(s, v, known) for s, v in zip(sizes, values))), None)
        if found is None:
            found = _guessed(sizes, values, known)
        if found is None:
            return None
        known[found[0]] = found[1]
    right = all(size.evaluate(known) == value for size, value in zip(sizes, values))
    return known if right else None


def _told(size: Size, value: int, known: Mapping[str, int]) -> tuple[str, int] | None:
    """The one dim that a size does not know yet, where the size is linear in it."""
    rest = size.substitute(known)
    if len(rest.symbols) != 1:
        return None
    (name,) = rest.symbols
    linear = rest.linear_in([name])
    if linear is None or name not in linear[0]:
        return None
    factor, offset = linear[0][name].constant, linear[1].constant
    if not factor or offset is None or (value - offset) % factor:
        return None
    found = (value - offset) // factor
    return (name, found) if found >= 0 else None


def _guessed(
    sizes: Sequence[Size], values: Sequence[int], known: Mapping[str, int]
) -> tuple[str, int] | None:
    """1 for a dim that only products with others tell; of what nothing tells, too."""
    open = [size.substitute(known) for size in sizes]
    for size in open:
        if len(size.symbols) > 1 and len(size.monomials) <= 2:
            return min(size.symbols), 1
    names = sorted({name for size in open for name in size.symbols})
    return (names[0], 1) if names else None

"""Candidate variants of a site for sizes or a span, with the interface of its recipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from anydim.base.errors import InternalError, OptionError
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import FUSED, Graph
from anydim.compiler.graph.reader import read_graph
from anydim.compiler.kernels.ir import INDEX, Const, Kernel, Let, Library, Scalar
from anydim.compiler.kernels.knobs import VERSION
from anydim.compiler.kernels.launch import STATUS_TENSOR, Launch
from anydim.compiler.kernels.schedule import ANY, parse_options, parse_schedule
from anydim.compiler.kernels.template import Misfit, Template, schedule_from_text, template_of
from anydim.compiler.passes.recipes import make, parse_machine
from anydim.compiler.passes.site_fitting import fit_kernel, parameters_of, with_interface
from anydim.compiler.variants.solved_dims import dims_that_give, size_name
from anydim.compiler.variants.spans import SolvedSpan, extent_of, spanned_kernel
from anydim.lang.tree import Group
from anydim.runtime.program.recipe import Recipe
from anydim.runtime.variant_tables import AS_LAUNCHED, Key, Span
from anydim.sizes import Box, Dim, Size, Truth, as_size, negated_if_negative, prove


@dataclass(frozen=True)
class Candidate:
    """A kernel for the sizes of a site, and its launch parameters.

    For a span, `parallel` is `AS_LAUNCHED`; `extent` computes the parallel range if it differs.
    `ranges` are the parallel ranges at the points of the site.
    """

    schedule: str
    kernel: Kernel
    parallel: int
    grain: int
    scratch: int
    ranges: tuple[int, ...]
    extent: Library | None = None


@dataclass(frozen=True)
class SizedSite:
    """A site at sizes: its recipe and graph, its generic launch, and dims that produce the sizes.

    `box` has these dims: a point, or a range for a `span`; `points` are points of it for trials.
    """

    recipe: Recipe
    graph: Graph
    generic: Launch
    box: Box
    points: tuple[Mapping[str, int], ...]
    span: SolvedSpan | None = None

    @property
    def group(self) -> Group:
        """The comprehensions that the site computes."""
        return self.graph.nodes[0].group

    @property
    def lowered(self) -> Box:
        """The box that code must be valid for; variants for single sizes reuse generic code."""
        return self.graph.box if self.span is None else self.box

    @property
    def dims(self) -> Mapping[str, int]:
        """The dims of a site at a single point."""
        return self.points[0]


def size_site(recipe: Recipe, templates: Sequence[Template], key: Key) -> SizedSite | None:
    """A site at the sizes of a launch, or at a span of them; the parallel range is last.

    None if no dims that produce the sizes are found, for launches of routines and of multi-stage
    groups, and for launches that pass data to the next one of their group.
    """
    graph, launch = _generic(recipe, tuple(templates))
    if launch is None:
        return None
    own = {argument.tensor for argument in launch.arguments} - {STATUS_TENSOR}
    if (
        len(key) != len(launch.sizes) + 1
        or own - graph.types.keys()
        or negated_if_negative(launch.grain) is not None
    ):
        return None
    if isinstance(key, Span):
        return _size_by_span(recipe, graph, launch, key)
    if launch.order is not None:  # any value of the counter is valid
        launch = launch.walk_from_end(key[launch.order])
    dims = dims_that_give((*launch.sizes, launch.parallel), key)
    if dims is None:
        return None
    point = {name: dims.get(name, 1) for name in graph.box.names}
    exact = Box.of(*(Dim(name, value, value) for name, value in point.items()))
    return SizedSite(recipe, graph, launch, exact, (point,))


@lru_cache(maxsize=16)
def _generic(recipe: Recipe, templates: tuple[Template, ...]) -> tuple[Graph, Launch | None]:
    """The graph of a site and its generic launch; None for routines."""
    graph = read_graph(recipe.work, {})
    return graph, make(recipe, templates) if graph.nodes[0].operator == FUSED else None


def _size_by_span(recipe: Recipe, graph: Graph, launch: Launch, span: Span) -> SizedSite | None:
    if launch.order is not None:
        launch = launch.walk_from_end(Size.symbol(size_name(launch.order)))
    found = SolvedSpan.of((*launch.sizes, launch.parallel), span, graph.box)
    if found is None:
        return None
    return SizedSite(recipe, graph, launch, found.box, found.points(), found)


def generic_candidate(site: SizedSite, templates: Sequence[Template]) -> Candidate | None:
    """The generic schedule with constant sizes; None if a span would give the generic code."""
    if site.span is None:
        return _make_candidate(site.generic, site)
    schedule = parse_schedule(site.generic.schedule)
    template = template_of(templates, type(schedule))
    launch = _launch(site, template, schedule)
    known = site.span.constant_size
    if launch is not None and launch.kernel.name == site.generic.kernel.name:
        if all(size.constant is not None or known(size) is None for size in launch.sizes):
            return None
    return None if launch is None else _make_candidate(launch, site)


def fitting(site: SizedSite, templates: Sequence[Template]) -> Iterator[Candidate]:
    """Candidates with the schedule each template selects for these sizes, if different."""
    machine, constants = parse_machine(site.recipe.machine), frozenset(site.recipe.constants)
    taken = {site.generic.schedule}
    for template in templates:
        schedule = template.match(site.group, site.box, machine, constants)
        made = None if schedule is None else _lower(site, template, schedule)
        if made is not None and made.schedule not in taken:
            taken.add(made.schedule)
            yield made


def options_of(schedule: str, templates: Sequence[Template]) -> list[str]:
    """The options of a schedule that are worth tuning; its version first."""
    knobs = template_of(templates, parse_options(schedule)[0]).knobs
    searched = [option for option, knob in knobs.items() if knob.at_sizes]
    return [VERSION, *searched] if VERSION in knobs else searched


def version_names(launch: Launch | None) -> tuple[str, ...]:
    """The versions of a launch that a search forces; none where there is no choice."""
    names = () if launch is None else tuple(dict.fromkeys(name for name, _ in launch.versions))
    return names if len(names) > 1 else ()


def neighbours(
    site: SizedSite, templates: Sequence[Template], schedule: str, option: str
) -> Iterator[Candidate]:
    """Candidates whose schedule differs in one option."""
    kind, options = parse_options(schedule)
    template = template_of(templates, kind)
    values: tuple[Any, ...] = template.knobs[option].at_sizes
    if option == VERSION:
        values = version_names(_launch(site, template, kind(**{**options, VERSION: ANY})))
    for value in values:
        made = _lower(site, template, kind(**{**options, option: value}))
        if made is not None:
            yield made


def by_text(site: SizedSite, templates: Sequence[Template], text: str) -> Candidate | None:
    """The candidate of a schedule given as text; None if it does not fit the site."""
    machine, constants = parse_machine(site.recipe.machine), frozenset(site.recipe.constants)
    if text == site.generic.schedule:
        return generic_candidate(site, templates)
    try:
        box = site.lowered
        return _lower(
            site, *schedule_from_text(text, templates, site.group, box, machine, constants)
        )
    except OptionError:
        return next((each for each in fitting(site, templates) if each.schedule == text), None)


def _lower(site: SizedSite, template: Template, schedule: Any) -> Candidate | None:
    """Lower a schedule at these sizes; None if its kernel does not fit the site."""
    launch = _launch(site, template, schedule)
    return None if launch is None else _make_candidate(launch, site)


def _launch(site: SizedSite, template: Template, schedule: Any) -> Launch | None:
    machine, constants = parse_machine(site.recipe.machine), frozenset(site.recipe.constants)
    generic = site.generic
    try:
        launch = template.lower(site.group, schedule, site.lowered, machine, constants)
    except (Misfit, OptionError):  # incompatible option values
        return None
    if launch.order is not None and generic.order is not None:
        launch = launch.walk_from_end(generic.sizes[generic.order])
    return launch if _serves(launch, site) else None


def _serves(launch: Launch, site: SizedSite) -> bool:
    """Whether a launch has the generic one's operands and needs no more scratch."""
    generic, dims = site.generic, site.dims
    if Counter(launch.arguments) != Counter(generic.arguments):
        return False
    if not set(generic.in_place) <= set(launch.in_place):
        return False
    if site.span is not None:
        return prove(launch.scratch, "<=", generic.scratch, site.box) is Truth.PROVED
    return launch.scratch.evaluate(dims) <= generic.scratch.evaluate(dims)


def _make_candidate(launch: Launch, site: SizedSite) -> Candidate | None:
    """The candidate of a launch; None if the sizes that its kernel is given are not enough."""
    try:
        return _candidate(launch, site)
    except Misfit:
        return None


def _candidate(launch: Launch, site: SizedSite) -> Candidate:
    ranges = tuple(launch.parallel.evaluate(point) for point in site.points)
    grain = max(1, as_size(launch.grain).evaluate(site.points[0]))
    if site.span is not None:
        kernel, extent = (
            spanned_kernel(launch, site.recipe, site.span),
            extent_of(launch, site.span),
        )
        return Candidate(launch.schedule, kernel, AS_LAUNCHED, grain, 0, ranges, extent)
    values = [size.evaluate(site.dims) for size in launch.sizes]
    numbers = tuple(Size.constant_of(value) for value in values)
    made = replace(launch, kernel=with_sizes(launch.kernel, values), sizes=numbers)
    scratch = launch.scratch.evaluate(site.dims)
    kernel = fit_kernel(made, site.recipe)
    return Candidate(launch.schedule, kernel, ranges[0], grain, scratch, ranges)


def with_sizes(kernel: Kernel, values: Sequence[int]) -> Kernel:
    """Specialise a kernel to constant sizes; the size parameters remain, but are ignored."""
    _, scalars, _ = parameters_of(kernel)
    known, ignored = [], []
    for number, (scalar, value) in enumerate(zip(scalars, values)):
        if not isinstance(scalar, Scalar):
            raise InternalError(f"size {number} of '{kernel.name}' is no number")
        known.append(Let(scalar.name, Const(INDEX, value)))
        ignored.append(Scalar(f"known.{number}"))
    prefix = f"{kernel.name.rpartition('_')[0]}_exact"
    return with_interface(kernel, range(len(kernel.operands)), ignored, known, prefix)

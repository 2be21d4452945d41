"""Recipes: text from which any machine regenerates the kernel of a launch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

from anydim.base.errors import ArtefactError
from anydim.base.frozen import FrozenMapping
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.graph.reader import read_graph
from anydim.compiler.graph.text import print_graph
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.limits import DEFAULTS, Limits
from anydim.compiler.kernels.schedule import parse_options, parse_schedule
from anydim.compiler.kernels.template import Template
from anydim.compiler.passes.flow import fused_node
from anydim.compiler.passes.site_fitting import size_names
from anydim.lang.tree import Group, TensorType
from anydim.runtime.program.recipe import Recipe
from anydim.sizes import Box


def template_recipe(
    launch: Launch, group: Group, box: Box, machine: Machine, constants: Iterable[str]
) -> Recipe:
    """The recipe of a launch that a template lowered from a group, by its printed schedule."""
    types = {tensor.name: tensor.type for tensor in (*group.inputs, *group.outputs)}
    work = _graph(fused_node(group, ""), box, types)
    return _recipe(work, launch, machine, launch.schedule, tuple(sorted(constants)), 0)


def routine_recipes(
    node: Node, given: Sequence[TensorType], results: Sequence[TensorType], box: Box,
    machine: Machine, launches: Sequence[Launch],
) -> list[Recipe]:  # fmt: skip
    """The recipes of the launches of a routine, whose tensors are x0, x1, ... and y0, y1, ..."""
    inputs = tuple(f"x{number}" for number in range(len(given)))
    outputs = tuple(f"y{number}" for number in range(len(results)))
    types = dict(zip((*inputs, *outputs), (*given, *results)))
    names = iter(inputs)
    held = tuple(None if name is None else next(names) for name in node.inputs)
    work = _graph(Node(node.operator, held, outputs, node.attributes), box, types)
    return [_recipe(work, launch, machine, "", (), n) for n, launch in enumerate(launches)]


def make(recipe: Recipe, templates: Sequence[Template]) -> Launch:
    """Regenerate the launch of a recipe; raises UserError for invalid recipes."""
    graph, machine = read_graph(recipe.work, {}), parse_machine(recipe.machine)
    if len(graph.nodes) != 1:
        raise ArtefactError(f"a recipe has {len(graph.nodes)} nodes", "expected one")
    (node,) = graph.nodes
    if node.operator == FUSED:
        kind, _ = parse_options(recipe.schedule)
        template = next((each for each in templates if each.schedule is kind), None)
        if template is None:
            raise ArtefactError(f"there is no template for '{recipe.schedule[:80]}'")
        schedule, constants = parse_schedule(recipe.schedule), frozenset(recipe.constants)
        return template.lower(node.group, schedule, graph.box, machine, constants)
    record = operator(node.operator)
    if record.routine is None:
        raise ArtefactError(f"'{node.operator}' is not a routine", "a recipe needs a schedule")
    given = [graph.types[name] for name in node.given]
    attributes = record.complete(node.attributes)
    launches = record.routine.lower(given, attributes, graph.box, machine).launches
    if recipe.launch >= len(launches):
        raise ArtefactError(f"'{node.operator}' has {len(launches)} launches, not {recipe.launch}")
    return launches[recipe.launch]


def machine_text(machine: Machine) -> str:
    """Print a machine as `vector_bytes=32, registers=16, ...`; `parse_machine` reads it.

    Fields that few machines have are printed only if they are not 0.
    """
    told = {name: int(value) for name, value in asdict(machine).items() if name != "limits"}
    own = [f"{name}={value}" for name, value in told.items() if value or name in _ALL]
    return ", ".join([*own, *filter(None, [str(machine.limits)])])


def parse_machine(text: str) -> Machine:
    """Parse a machine; raises ArtefactError for invalid texts."""
    pairs = [pair.partition("=")[::2] for pair in text.split(", ")]
    limits = asdict(DEFAULTS)
    names = (*(name for name in asdict(Machine()) if name != "limits"), *limits)
    fine = all(value.isascii() and value.isdigit() and len(value) < 12 for _, value in pairs)
    given = [name for name, _ in pairs]
    if given != [name for name in names if name in _ALL or name in given] or not fine:
        raise ArtefactError(f"'{text[:80]}' is not a machine", f"expected {', '.join(names)}")
    sizes = {name: int(value) for name, value in pairs}
    flags = {name: bool(sizes.pop(name, 0)) for name in _FLAGS}
    known = Limits(**{name: sizes.pop(name) for name in limits if name in sizes})
    return replace(Machine(**sizes), limits=known, **flags)  # type: ignore[arg-type]


_ALL = ("vector_bytes", "registers", "l1_bytes", "l2_bytes", "fused")
_FLAGS = ("fused", "warps", "tf32", "permutes", "pairs", "pair_tiles", "touches", "library")


def _graph(node: Node, box: Box, types: dict[str, TensorType]) -> str:
    graph = Graph(
        "", box, FrozenMapping(types), tuple(dict.fromkeys(node.given)), node.outputs, nodes=(node,)
    )
    return print_graph(graph)


def _recipe(
    work: str, launch: Launch, machine: Machine, schedule: str, constants: tuple[str, ...],
    number: int,
) -> Recipe:  # fmt: skip
    operands = tuple(argument.tensor for argument in launch.arguments)
    return Recipe(
        work, schedule, machine_text(machine), constants, number, operands, size_names(launch)
    )

"""A random case: a graph of a few operators, its domains, sizes to call it at, threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from anydim.base.errors import UserError
from anydim.compiler.frontends.builder import Value
from anydim.compiler.graph.nodes import Graph
from tests.fuzz import (
    combining,
    elementwise,
    patterns,
    positions,
    quantised,
    rare,
    routines,
    shapes,
    windows,
    written,
)
from tests.fuzz.case import Case
from tests.fuzz.maker import MOST_RANK, NAMES, Maker
from tests.fuzz.points import random_points

Weighted = tuple[tuple[float, Callable[[Maker], Any]], ...]

FAMILIES: dict[str, Weighted] = {
    "elements": (
        (5, elementwise.unary), (0.7, elementwise.unary_integer), (6, elementwise.binary),
        (1, elementwise.binary_integer), (0.3, elementwise.shift), (1.2, elementwise.compare),
        (0.7, elementwise.logical), (0.3, elementwise.classify), (1.2, elementwise.where),
        (0.6, elementwise.clip), (1, elementwise.cast), (0.8, elementwise.power),
        (0.2, elementwise.prelu), (1, elementwise.chain),
    ),
    "movement": (
        (2, shapes.transpose), (2, shapes.reshape), (0.4, shapes.flatten), (0.8, shapes.squeeze),
        (1, shapes.unsqueeze), (1, shapes.expand), (1.5, shapes.slice_), (0.7, shapes.split),
        (1.5, shapes.concat), (0.5, shapes.tile), (1, shapes.pad), (0.4, shapes.trilu),
    ),
    "positions": (
        (1, positions.gather), (0.5, positions.gather_computed),
        (0.5, positions.gather_elements), (0.3, positions.gather_nd),
        (0.2, positions.one_hot), (0.5, positions.source), (0.4, positions.mask),
    ),
    "rows": (
        (4, combining.reduce), (0.6, combining.reduce_integer), (0.3, combining.reduce_bool),
        (1.5, combining.softmax), (1.2, combining.layer_norm), (0.2, combining.batch_norm),
        (0.5, patterns.written_softmax), (1, patterns.written_norm), (0.4, patterns.rms_norm),
        (0.4, patterns.unit_rows), (0.4, patterns.pooled),
    ),
    "products": (
        (2.5, combining.matmul), (1.2, combining.linear), (0.7, combining.gemm),
        (0.8, combining.einsum), (0.4, patterns.gated), (0.4, patterns.feed_forward),
    ),
    "windows": (
        (1.2, windows.conv), (0.4, windows.conv_transpose), (0.8, windows.pool),
        (0.4, windows.resize), (0.4, windows.grid_sample), (0.3, windows.blocks),
        (0.4, windows.channel_norm), (0.4, windows.running), (0.6, windows.extreme),
        (0.2, windows.eye),
    ),
    "models": (
        (1, patterns.attention), (0.7, patterns.attention_of_one_projection),
        (0.7, patterns.projected), (0.7, patterns.gelu), (0.2, patterns.rotary),
        (0.3, patterns.embedding),
    ),
    "routines": routines.FAMILY,
    "bytes": quantised.FAMILY,
    "written": written.FAMILY,
    "rare": rare.FAMILY,
}  # fmt: skip
FAVOUR = 5.0  # how much more of its favourite family a graph has
_MOST_TRIES = 80


def random_case(seed: int, maker: Callable[[int], Maker] = Maker) -> Case:
    """The case of a seed."""
    m = maker(seed)
    m.input(m.shape(1, 4))
    favourite = m.random.choice((*FAMILIES, ""))
    makers = [
        (weight * (FAVOUR if family == favourite else 1), make)
        for family, rows in FAMILIES.items()
        for weight, make in rows
    ]
    wanted = m.random.choice((2, 3, 4, 5, 6, 8, 10, 13, 15))
    for _ in range(_MOST_TRIES):
        if wanted <= 0:
            break
        wanted -= step(m, makers)
    graph = with_outputs(m)
    points = random_points(m.random, graph)
    threads = m.random.choice((1, 1, 1, 2, 2, 3))
    eager = threads > 1 and m.chance(0.7)
    domains = {name: domain for name, domain in m.domains.items() if name in graph.inputs}
    return Case(graph, domains, points, threads, seed, m.specials, eager, m.chance(0.1))


def step(m: Maker, makers: Sequence[tuple[float, Callable[[Maker], Any]]]) -> int:
    """Add what one maker makes to the pool; how many values that were."""
    _, function = m.random.choices(makers, [weight for weight, _ in makers])[0]
    try:
        made = function(m)
    except UserError:
        return 0
    values = made if isinstance(made, tuple) else (made,)
    found = [v for v in values if isinstance(v, Value) and len(v.shape) <= MOST_RANK]
    m.values += found
    return len(found)


def with_outputs(m: Maker) -> Graph:
    """The graph with its last value, and perhaps others, as results; every dim has an input."""
    used = {name for node in m.builder._nodes for name in node.given}
    leaves = [v for v in m.values if v.name not in used and v.name not in m.domains]
    chosen = [m.values[-1]]
    if m.chance(0.6):
        chosen += [value for value in leaves[-6:] if value is not chosen[0]]
    while m.chance(0.35):
        chosen.append(m.one(m.values))
    if m.chance(0.1):
        chosen.append(m.builder.constant([[0.5, 1.5, 2.5]]))
    m.random.shuffle(chosen)
    renamed = m.chance(0.6)
    taken = set()
    for number, value in enumerate(chosen):
        plain = not renamed and value.name not in taken and value.name not in m.domains
        taken.add(value.name)
        m.builder.output(value.name if plain else output_name(m, number, value), value)
    anchor(m)
    return drop_unused(m, m.builder.graph())


def output_name(m: Maker, number: int, value: Value) -> str:
    """A name for a result, perhaps one that passes give to values of their own."""
    tails = ("squeezed", "t", "e", "total", "top", "mean")
    odd = (*NAMES, *(f"{value.name}/{tail}" for tail in tails))
    free = [n for n in odd if n not in m.builder._types and n not in m.builder._outputs]
    return m.random.choice(free) if m.odd_names and m.chance(0.6) else f"out{number}"


def anchor(m: Maker) -> None:
    """An input whose axes are the dims that no other input shows by themselves."""
    shown = {
        str(size)
        for name in m.domains
        for size in m.builder._types[name].shape
        if str(size) in m.builder._box.names
    }
    missing = [dim for dim in m.dims if str(dim) not in shown]
    if missing:
        m.input(tuple(missing))


def drop_unused(m: Maker, graph: Graph) -> Graph:
    """Most graphs lose their unused inputs, as far as each dim is still seen."""
    if m.chance(0.3):
        return graph
    used = {name for node in graph.nodes for name in node.given} | set(graph.outputs)
    inputs = list(graph.inputs)
    for name in graph.inputs:
        rest = [other for other in inputs if other != name]
        seen = {size for other in rest for size in graph.types[other].shape}
        if name not in used and rest and all(dim in seen for dim in m.dims):
            inputs = rest
    types = {n: t for n, t in graph.types.items() if n in inputs or n not in graph.inputs}
    return replace(graph, inputs=tuple(inputs), types=types)

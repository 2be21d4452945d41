"""Sizes to call a graph at: ends of bounds, 0, 1, around vector lanes, primes, larger ones."""

from __future__ import annotations

import random
from collections.abc import Mapping

from anydim.graph.evaluate import group_of
from anydim.graph.nodes import Graph
from anydim.sizes import Dim, product

INTERESTING = (
    0, 1, 2, 3, 4, 5, 7, 8, 13, 15, 16, 17, 23, 31, 32, 33, 47, 64, 65, 97, 130, 257, 400, 513,
)  # fmt: skip
MOST_WORK = (300_000, 600_000, 600_000, 600_000, 4_000_000)  # elements of all statements
Sizes = dict[str, int]


def random_points(chance: random.Random, graph: Graph) -> tuple[Sizes, ...]:
    """A sequence of size assignments, some more than once."""
    most = chance.choice(MOST_WORK)
    points = [
        affordable(graph, most, {dim.name: random_size(chance, dim) for dim in graph.box.dims})
        for _ in range(chance.randint(4, 7))
    ]
    points.append({dim.name: max(dim.lo, 1) for dim in graph.box.dims})
    points.append({**chance.choice(points), **least(chance, graph)})
    alike = chance.choice(INTERESTING[:12])
    points.append({dim.name: alike if alike in dim else dim.lo for dim in graph.box.dims})
    points.append(chance.choice(points))
    chance.shuffle(points)
    return tuple(points)


def random_size(chance: random.Random, dim: Dim) -> int:
    fitting = [size for size in INTERESTING if size in dim]
    if dim.hi is not None:
        fitting += [dim.lo, dim.hi]
    return chance.choice(fitting) if fitting else dim.lo


def least(chance: random.Random, graph: Graph) -> Sizes:
    dim = chance.choice(graph.box.dims)
    return {dim.name: dim.lo}


def affordable(graph: Graph, most: int, sizes: Sizes) -> Sizes:
    """The sizes, or smaller ones at which the graph is not much work."""
    while work(graph, sizes) > most:
        largest = max(graph.box.dims, key=lambda dim: sizes[dim.name] - dim.lo)
        if sizes[largest.name] == largest.lo:
            break
        half = largest.lo + (sizes[largest.name] - largest.lo) // 2
        sizes = {**sizes, largest.name: half}
    return sizes


def work(graph: Graph, sizes: Mapping[str, int]) -> int:
    """Elements of the inputs and those that the statements of a graph run over."""
    inputs = sum(product(graph.types[name].shape).evaluate(sizes) for name in graph.inputs)
    return inputs + sum(
        product(axis.extent for axis in (*s.axes, *s.reduced)).evaluate(sizes)
        for node in graph.nodes
        for s in group_of(graph, node).statements
    )

"""Sizes to call a graph at: ends of bounds, 0, 1, around vector lanes, primes, larger ones."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial

from anydim.compiler.graph.evaluate import group_of
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.lang.tree import Branch, Expr, Loop, OrderedStep, SizeTerm, Statement, Write
from anydim.sizes import Dim, product

INTERESTING = (
    0, 1, 2, 3, 4, 5, 7, 8, 13, 15, 16, 17, 23, 31, 32, 33, 47, 64, 65, 97, 130, 257, 400, 513,
)  # fmt: skip
ITERATIONS = 4  # how often a routine or a loop touches an element, for estimates
STEP = 300  # elements whose work is that of one step of a loop, which numpy takes one by one
FOUND = 40  # elements along an axis of which only data says how long it is, for estimates
MOST_WORK = (300_000, 600_000, 600_000, 600_000, 4_000_000)  # elements of all statements
Sizes = dict[str, int]


def shown(graph: Graph) -> list[Dim]:
    """The dims that inputs have; only data says what the others are."""
    names = {n for i in graph.inputs for size in graph.types[i].shape for n in size.symbols}
    return [dim for dim in graph.box.dims if dim.name in names]


def whole(node: Node) -> bool:
    """Whether a node is no comprehension: a routine, or one that holds graphs."""
    return node.region is not None or (
        node.operator != FUSED and operator(node.operator).routine is not None
    )


def random_points(chance: random.Random, graph: Graph) -> tuple[Sizes, ...]:
    """A sequence of size assignments, some more than once."""
    most, dims = chance.choice(MOST_WORK), shown(graph)
    points = [
        affordable(graph, most, {dim.name: random_size(chance, dim) for dim in dims})
        for _ in range(chance.randint(2, 4))
    ]
    points.append({dim.name: max(dim.lo, 1) for dim in dims})
    points.append({**chance.choice(points), **least(chance, dims)})
    alike = chance.choice(INTERESTING[:12])
    points.append({dim.name: alike if alike in dim else dim.lo for dim in dims})
    points.append(chance.choice(points))
    chance.shuffle(points)
    return tuple(points)


def random_size(chance: random.Random, dim: Dim) -> int:
    fitting = [size for size in INTERESTING if size in dim]
    if dim.hi is not None:
        fitting += [dim.lo, dim.hi]
    return chance.choice(fitting) if fitting else dim.lo


def least(chance: random.Random, dims: Sequence[Dim]) -> Sizes:
    dim = chance.choice(dims)
    return {dim.name: dim.lo}


def affordable(graph: Graph, most: int, sizes: Sizes) -> Sizes:
    """The sizes, or smaller ones at which the graph is not much work."""
    while work(graph, sizes) > most:
        largest = max(shown(graph), key=lambda dim: sizes[dim.name] - dim.lo)
        if sizes[largest.name] == largest.lo:
            break
        half = largest.lo + (sizes[largest.name] - largest.lo) // 2
        sizes = {**sizes, largest.name: half}
    return sizes


def work(graph: Graph, sizes: Mapping[str, int]) -> int:
    """Elements of the inputs and those that the statements of a graph run over."""
    known = {**{dim.name: FOUND for dim in graph.box.dims}, **sizes}
    inputs = sum(product(graph.types[name].shape).evaluate(sizes) for name in graph.inputs)
    return inputs + sum(_work(graph, node, known) for node in graph.nodes)


def _work(graph: Graph, node: Node, sizes: Mapping[str, int]) -> int:
    if whole(node):
        names = (*node.given, *node.outputs)
        return sum(ITERATIONS * product(graph.types[n].shape).evaluate(sizes) for n in names)
    group = group_of(graph, node)
    return sum(map(partial(_elements, sizes), group.statements)) + _steps(group.steps, sizes)


def _elements(sizes: Mapping[str, int], statement: Statement | Write) -> int:
    axes = (*statement.axes, *statement.reduced)
    return product(axis.extent for axis in axes).evaluate(sizes)


def _steps(steps: Sequence[OrderedStep], sizes: Mapping[str, int]) -> int:
    """The work of steps that run in order; a loop whose ends data decides has a few iterations."""
    total = 0
    for step in steps:
        if isinstance(step, Branch):
            total += max(_steps(step.then, sizes), _steps(step.otherwise, sizes))
        elif isinstance(step, Loop):
            ends = [_end(end, sizes) for end in (step.start, step.stop)]
            iterations = max(0, -((ends[0] - ends[1]) // step.step))
            total += iterations * _steps(step.body, {**sizes, step.variable: max(*ends, 0)})
        else:
            total += STEP + _elements(sizes, step)
    return total


def _end(end: Expr, sizes: Mapping[str, int]) -> int:
    return end.size.evaluate(sizes) if isinstance(end, SizeTerm) else ITERATIONS

"""Graphs that treat each row of a dim by itself: a generator that favours them, and the check.

The generator puts one dim first in most shapes and nowhere else. The check is of dependence: no
statement reduces over the dim, and the graph in float64 gives for parts of its inputs the parts of
its results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy

from anydim.base.dtypes import float64, from_numpy
from anydim.base.errors import UserError
from anydim.compiler.graph.evaluate import evaluate, group_of
from anydim.compiler.graph.nodes import Graph, Node
from anydim.sizes import Dim, Size
from tests.fuzz.case import Arrays
from tests.fuzz.maker import Domain, Maker, Shape
from tests.fuzz.points import whole

BOUNDS = ((0, None), (1, None), (0, 40), (1, 17))  # of the dim of rows
CLOSE = 1e-9  # of the largest result, as far as sums in another order move float64


class RowMaker(Maker):
    """A maker whose first dim is the first axis of most values, and of no other axis."""

    first_bounds = BOUNDS

    def size(self) -> Size:
        rest = self.dims[1:]
        return self.random.choice(rest) if rest and self.chance(0.5) else self.fixed_size()

    def shape(self, low: int = 0, high: int = 4) -> Shape:
        shape = super().shape(max(low - 1, 0), max(high - 1, 0))
        if high < 1 or (low <= len(shape) and self.chance(0.15)):
            return shape
        return (self.dims[0], *shape)


@dataclass(frozen=True)
class Rows:
    """A dim, and the axis that it is of each input and output that has it."""

    dim: Dim
    axes: Mapping[str, int]

    def part(self, arrays: Arrays, start: int, stop: int) -> Arrays:
        """Rows of all arrays that have any."""
        return {name: self._cut(name, array, start, stop) for name, array in arrays.items()}

    def _cut(self, name: str, array: numpy.ndarray, start: int, stop: int) -> numpy.ndarray:
        axis = self.axes.get(name)
        if axis is None:
            return array
        places = [slice(None)] * array.ndim
        places[axis] = slice(start, stop)
        return numpy.ascontiguousarray(array[tuple(places)]).reshape(
            *array.shape[:axis], stop - start, *array.shape[axis + 1 :]
        )

    def joined(self, *parts: Arrays) -> Arrays:
        """The rows of several results, one after another."""
        return {
            name: numpy.concatenate([part[name] for part in parts], self.axes[name])
            for name in parts[0]
            if name in self.axes
        }


def rows_of(graph: Graph, dim: Dim, domains: Iterable[Domain] = ()) -> Rows | None:
    """Where a dim stands if types and statements allow that a graph works by its rows.

    `domains` are from where numbers of inputs are drawn.
    """
    if any(node.region is not None and not node.outputs for node in graph.nodes):
        return None  # data decides sizes: rows may agree on them by chance
    if any(dim.name in domain.extent.symbols for domain in domains):
        return None
    axes = {}
    for name in (*graph.inputs, *graph.outputs):
        shape = graph.types[name].shape
        having = [axis for axis, size in enumerate(shape) if dim.name in size.symbols]
        if len(having) > 1 or any(shape[axis] != dim.size for axis in having):
            return None
        if having:
            axes[name] = having[0]
    if not set(axes) & set(graph.outputs) or any(
        _mixes(graph, node, dim.name) for node in graph.nodes
    ):
        return None
    return Rows(dim, axes)


def _mixes(graph: Graph, node: Node, dim: str) -> bool:
    """Whether statements of a node reduce over a dim (the mean of equal rows may have other bits),
    or run in an order, perhaps along it."""
    if whole(node):
        return False
    group = group_of(graph, node)
    if group.steps:
        return True
    reduced = (axis for statement in group.statements for axis in statement.reduced)
    return any(dim in axis.extent.symbols for axis in reduced)


def by_rows(graph: Graph, rows: Rows, inputs: Arrays, count: int) -> bool:
    """Whether the meaning of a graph for its first rows and the others is that for all.

    Values may agree by chance, where all are 0, or as far as a tolerance of great ones goes: a last
    row of NaN and inputs near 0 are asked as well.
    """
    asked = (inputs, _poisoned(rows, inputs, count), _moderate(inputs))
    return all(_by_rows(graph, rows, each, count) for each in asked)


def _moderate(inputs: Arrays) -> Arrays:
    """The inputs with other numbers in place of floats that are great or not finite."""
    changed = dict(inputs)
    for name, array in inputs.items():
        if from_numpy(array.dtype).is_float:
            others = numpy.random.default_rng(array.size).normal(size=array.shape)
            small = numpy.abs(array.astype(numpy.float64)) < 1e3
            changed[name] = numpy.where(small, array, others).astype(array.dtype)
    return changed


def _poisoned(rows: Rows, inputs: Arrays, count: int) -> Arrays:
    """The inputs with a last row that is not a number where it has floats."""
    changed = {name: array.copy() for name, array in inputs.items()}
    for name, axis in rows.axes.items():
        if name in changed and from_numpy(changed[name].dtype).is_float:
            places: list[slice | int] = [slice(None)] * changed[name].ndim
            places[axis] = count - 1
            changed[name][tuple(places)] = numpy.nan
    return changed


def _by_rows(graph: Graph, rows: Rows, inputs: Arrays, count: int) -> bool:
    for middle in sorted({1, count // 2}):
        try:
            full = evaluate(graph, inputs, precision=float64)
            parts = [
                evaluate(graph, rows.part(inputs, *ends), precision=float64)
                for ends in ((0, middle), (middle, count))
            ]
        except UserError:
            return False
        if not all(_close(full[name], array) for name, array in rows.joined(*parts).items()):
            return False
    return True


def _close(left: numpy.ndarray, right: numpy.ndarray) -> bool:
    left, right = left.astype(numpy.float64), right.astype(numpy.float64)
    scale = numpy.abs(left[numpy.isfinite(left)]).max(initial=0.0)
    return numpy.allclose(left, right, CLOSE, CLOSE * min(scale, 1e300), equal_nan=True)

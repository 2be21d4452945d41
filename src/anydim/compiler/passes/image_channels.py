"""Infer which dimension of each value holds channels from what convolutions reduce and produce.

Dimensions are unified where statements index them alike: `y(i, j) = x(j, i + 1)` unifies the first
of x with the last of y. Dimensions under a sliding window are not unified. Every dimension unified
with a channel dimension is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anydim.compiler.graph.nodes import Graph
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.passes.flow import Line
from anydim.compiler.passes.views import delinearise
from anydim.lang.tree import Apply, Cast, Expr, Read, Statement
from anydim.lang.tree.affine import Affine, affine, reads
from anydim.sizes import Box, Size, product

ChannelDims = dict[str, int]  # value -> its channel dimension
_Dimension = tuple[str, int]  # a value and its dimension


def channels_of(lines: Sequence[Line], graph: Graph) -> ChannelDims:
    """The channel dimension of each statement's value that has exactly one."""
    ties = Ties()
    seeds = [seed for line in lines for seed in _channels(line.statement, graph)]
    if not seeds:
        return {}
    for line in lines:
        for left, right in _tied(line.statement, graph):
            ties.join(left, right)
    marked = {ties.root(seed) for seed in seeds}
    found: dict[str, list[int]] = {}
    for line in lines:
        dims = range(len(line.statement.axes))
        found[line.target] = [n for n in dims if ties.root((line.target, n)) in marked]
    return {name: dims[0] for name, dims in found.items() if len(dims) == 1}


class Ties:
    """Union-find of dimensions of values."""

    def __init__(self) -> None:
        self._parent: dict[_Dimension, _Dimension] = {}

    def root(self, dimension: _Dimension) -> _Dimension:
        """The representative of a dimension's set."""
        parent = self._parent.get(dimension, dimension)
        while parent != dimension:
            self._parent[dimension] = self._parent.get(parent, parent)
            dimension, parent = parent, self._parent.get(parent, parent)
        return dimension

    def join(self, left: _Dimension, right: _Dimension) -> None:
        self._parent[self.root(left)] = self.root(right)


def _channels(statement: Statement, graph: Graph) -> Iterator[_Dimension]:
    """Channel dimensions of the input and the result of a product with constant weights."""
    read, weights = factors(statement, graph)
    if read is None or weights is None or read.flat:
        return
    written = {axis.name: dim for dim, axis in enumerate(statement.axes)}
    reduced = {axis.name for axis in statement.reduced}
    in_read, in_weights = free_axes(read), free_axes(weights)
    slid = any(slides(index, statement) for index in read.indices)
    for dim, index in enumerate(read.indices):
        names = free_axes(index)
        if names and names <= in_weights and not slides(index, statement):
            if slid or names <= reduced:
                yield read.tensor, dim
    for name, dim in written.items():
        if name in in_weights and (slid or name not in in_read):
            yield statement.target, dim


def factors(statement: Statement, graph: Graph) -> tuple[Read | None, Read | None]:
    """The variable operand and the constant weights of a contraction; (None, None) otherwise."""
    body = statement.body
    if statement.combine != "add" or not (isinstance(body, Apply) and body.function == "mul"):
        return None, None
    parts = [part.argument if isinstance(part, Cast) else part for part in body.arguments]
    values = [p for p in parts if isinstance(p, Read) and p.tensor not in graph.constants]
    weights = [p for p in parts if isinstance(p, Read) and p.tensor in graph.constants]
    if len(values) != 1 or len(weights) != 1:
        return None, None
    return values[0], weights[0]


def slides(index: Expr, statement: Statement) -> bool:
    """Whether an index is a window position: uses both a result axis and a reduced axis."""
    form = affine(index)
    names = () if form is None else form.indices
    return all(
        any(axis.name in names for axis in axes) for axes in (statement.axes, statement.reduced)
    )


def _tied(statement: Statement, graph: Graph) -> Iterator[tuple[_Dimension, _Dimension]]:
    """Pairs of an operand's and the result's dimension with the same index."""
    axes = {axis.name: dim for dim, axis in enumerate(statement.axes)}
    for read in reads(statement.body):
        if read.tensor in graph.constants:
            continue
        for dim, form in _forms(read, statement, graph):
            if len(form.terms) == 1 and form.terms[0][1] == 1 and form.terms[0][0] in axes:
                yield (read.tensor, dim), (statement.target, axes[form.terms[0][0]])


def _forms(read: Read, statement: Statement, graph: Graph) -> Iterator[tuple[int, Affine]]:
    """The dimensions of a tensor that a read indexes affinely, with their indices."""
    if not read.flat:
        for dim, index in enumerate(read.indices):
            form = affine(index)
            if form is not None:
                yield dim, form
        return
    shape = graph.types[read.tensor].shape
    for dim in range(len(shape) - 1):
        found = split_offset(read, shape, dim, statement, graph.box)
        if found is not None:
            yield dim, found[1]


def split_offset(
    read: Read, shape: tuple[Size, ...], dimension: int, statement: Statement, box: Box
) -> tuple[Affine, Affine, Affine] | None:
    """Split the offset of a flat read into indices before, of and after `dimension`.

    Return None if it does not split into these.
    """
    form = affine(read.indices[0])
    if form is None:
        return None
    whole = (product(shape[:dimension]), shape[dimension], product(shape[dimension + 1 :]))
    extents = {axis.name: axis.extent for axis in (*statement.axes, *statement.reduced)}
    split = delinearise(form, whole, extents, box)
    if split is None:
        return None
    before, own, after = (affine(index) for index in split)
    assert before is not None and own is not None and after is not None
    return before, own, after

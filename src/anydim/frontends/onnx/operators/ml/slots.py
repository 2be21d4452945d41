"""Nodes of trees as the tables of the operator `tree_ensemble`.

Nodes are put in an order in which the two that follow a node stand side by side, tree by tree,
level by level. That there is such an order says that no walk goes round in circles.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy

from anydim.base.records import dataclass
from anydim.frontends.onnx.file.tensors import Unsupported
from anydim.frontends.onnx.operators.ml.comparisons import Nodes

_MOST_SLOTS = 1 << 30


@dataclass(frozen=True, eq=False)
class Slots:
    """Tables of slots by name, how many columns they ask for, and how many levels there are."""

    tables: Mapping[str, numpy.ndarray]
    columns: int
    depth: int


def slots_of(nodes: Nodes, roots: numpy.ndarray, leaves: int) -> Slots:
    """The tables of an ensemble; Unsupported for one that is no ensemble of trees.

    `roots` are nodes, or leaves below 0; there are `leaves`.
    """
    count = len(nodes.features)
    for name, ends in (("root", roots), ("child", nodes.first), ("child", nodes.second)):
        wrong = (ends >= count) | (ends < -leaves)
        if wrong.any():
            raise Unsupported(f"a {name} of a tree that is no node and no leaf")
    order, depth = _ordered(nodes, roots)
    features = nodes.features[order]
    if len(features) and (features.min() < 0 or features.max() >= _MOST_SLOTS):
        raise Unsupported("a tree that asks for a column below 0, or far beyond any")
    start = len(roots) + len(roots) % 2
    pairs = numpy.stack((nodes.first[order], nodes.second[order]), 1).reshape(-1)
    length = max(1, start + len(pairs))
    if length > _MOST_SLOTS:
        raise Unsupported(f"trees of {count} nodes")
    held = numpy.full(1 << (length - 1).bit_length(), -1)
    held[: len(roots)] = roots
    held[start : start + len(pairs)] = pairs
    used, columns = numpy.unique(features, return_inverse=True)
    ends = held < 0
    inner = numpy.where(ends, count, held)  # of leaves: a row that means nothing
    follows, column = numpy.zeros((2, count + 1), numpy.int64)
    follows[order], column[order] = start + 2 * numpy.arange(len(order)), columns
    splits, missing = (numpy.append(of, 0) for of in (nodes.splits, nodes.missing))
    tables = {
        "used": used.astype(numpy.int64),
        "features": numpy.where(ends, -1 - held, column[inner]).astype(numpy.int32),
        "splits": numpy.where(ends, numpy.inf, splits[inner]).astype(nodes.splits.dtype),
        "following": numpy.where(ends, numpy.arange(len(held)), follows[inner]).astype(numpy.int32),
        "missing": ends | missing[inner].astype(bool),
    }
    return Slots(tables, int(used[-1]) + 1 if len(used) else 0, depth)


def _ordered(nodes: Nodes, roots: numpy.ndarray) -> tuple[numpy.ndarray, int]:
    """The nodes that roots lead to, tree by tree, level by level; and the number of levels."""
    children = numpy.stack((nodes.first, nodes.second), 1)
    waiting = numpy.bincount(children[children >= 0], minlength=len(children))
    owner = numpy.full(len(children), -1)
    inner = roots >= 0
    owner[roots[inner]] = numpy.flatnonzero(inner)
    level = numpy.flatnonzero(waiting == 0)
    levels = []
    while len(level):
        levels.append(level)
        below = children[level].reshape(-1)
        owners = owner[level].repeat(2)
        real = below >= 0
        below, owners = below[real], owners[real]
        known = owners >= 0
        owner[below[known]] = owners[known]
        numpy.subtract.at(waiting, below, 1)
        level = numpy.unique(below[waiting[below] == 0])
    if sum(map(len, levels)) < len(children):
        raise Unsupported("a tree whose nodes lead round in a circle")
    order = numpy.concatenate(levels) if levels else numpy.zeros(0, int)
    order = order[owner[order] >= 0]
    return order[numpy.argsort(owner[order], kind="stable")], len(levels)

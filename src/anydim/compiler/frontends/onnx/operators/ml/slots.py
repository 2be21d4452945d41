"""Tables of the operator `tree_ensemble` from nodes of trees.

Nodes are ordered tree by tree, level by level, so that the two children of a node are adjacent. The
existence of this order proves that trees have no cycles.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy

from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.ml.comparisons import Nodes

_MOST_SLOTS = 1 << 30


@dataclass(frozen=True, eq=False)
class Slots:
    """Tables of slots by name, the required column count, and the number of levels."""

    tables: Mapping[str, numpy.ndarray]
    columns: int
    depth: int


def slots_of(nodes: Nodes, roots: numpy.ndarray, leaves: int) -> Slots:
    """The tables of an ensemble; Unsupported if the nodes do not form trees.

    `roots` are nodes, or negative for leaves; `leaves` is the leaf count.
    """
    count = len(nodes.features)
    for name, ends in (("root", roots), ("child", nodes.first), ("child", nodes.second)):
        wrong = (ends >= count) | (ends < -leaves)
        if wrong.any():
            raise Unsupported(f"a {name} of a tree that is no node and no leaf")
    order, depth = _order_nodes(nodes, roots)
    features = nodes.features[order]
    if len(features) and (features.min() < 0 or features.max() >= _MOST_SLOTS):
        raise Unsupported("a tree that reads a column below 0, or far above any limit")
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
    inner = numpy.where(ends, count, held)  # leaves: a dummy row
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


def _order_nodes(nodes: Nodes, roots: numpy.ndarray) -> tuple[numpy.ndarray, int]:
    """The nodes reachable from roots, tree by tree, level by level; and the number of levels."""
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
        raise Unsupported("a tree whose nodes form a cycle")
    order = numpy.concatenate(levels) if levels else numpy.zeros(0, int)
    order = order[owner[order] >= 0]
    return order[numpy.argsort(owner[order], kind="stable")], len(levels)

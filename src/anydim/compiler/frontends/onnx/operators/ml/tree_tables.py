"""Nodes of decision trees as the tables of the operator `tree_ensemble`.

All comparisons become `x <= split`: `x < s` is `x <= t` with the next smaller t; `>` and `>=` swap
the children; membership in a set becomes a binary search in additional nodes. The path of NaN is
stored per node. Nodes are ordered tree by tree, level by level, so that the two children of a node
are adjacent. The existence of this order proves that trees have no cycles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy

from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.tensors import Unsupported

LE, LT, GE, GT, EQ, NE, MEMBER = range(7)
MODES = {
    f"BRANCH_{name}": number for number, name in enumerate(("LEQ", "LT", "GTE", "GT", "EQ", "NEQ"))
}


@dataclass(frozen=True, eq=False)
class Nodes:
    """Nodes in order: feature `features` at most `splits` goes to `first`, else to `second`.

    NaN goes to `first` if `missing`. Negative children are leaves, -1 the first.
    """

    features: numpy.ndarray
    splits: numpy.ndarray
    first: numpy.ndarray
    second: numpy.ndarray
    missing: numpy.ndarray


def as_less_equal(
    modes: numpy.ndarray, features: numpy.ndarray, splits: numpy.ndarray, yes: numpy.ndarray,
    no: numpy.ndarray, missing: numpy.ndarray, members: Sequence[Sequence[float]] = (),
) -> Nodes:  # fmt: skip
    """Rewrite nodes of any modes as `Nodes`: the same numbers, additional nodes after them.

    `yes` is the child for a true comparison, and for NaN if `missing`. `members` are the sets of
    the nodes of mode MEMBER, in order.
    """
    below = numpy.isin(modes, (LT, GE))
    down = numpy.nextafter(splits, splits.dtype.type(-numpy.inf))
    # no number is below, or comparable: all numbers go to the first child
    never = numpy.isnan(splits) | (below & numpy.isneginf(splits))
    limits = numpy.where(never, numpy.inf, numpy.where(below, down, splits)).astype(splits.dtype)
    holds = (modes == GE) & ~numpy.isnan(splits)  # of these: all are at least -inf
    swapped = numpy.where(never, ~holds, numpy.isin(modes, (GT, GE)))
    made = Nodes(
        features, limits, numpy.where(swapped, no, yes), numpy.where(swapped, yes, no),
        missing ^ swapped,
    )  # fmt: skip
    found = numpy.flatnonzero(modes >= EQ)
    if not len(found):
        return made
    sets = iter(members)
    wider = _Sets(made)
    for node in found.tolist():
        kind = modes[node]
        own = next(sets) if kind == MEMBER else [float(splits[node])]
        leads = (int(yes[node]), int(no[node]))
        if kind == NE:
            wider.put(node, own, leads[::-1], False)
        else:
            wider.put(node, own, leads, bool(missing[node]))
    return wider.nodes()


class _Sets:
    """Rewrites set membership nodes as comparisons with the borders of the members."""

    def __init__(self, nodes: Nodes) -> None:
        self.dtype = nodes.splits.dtype
        self.columns = [
            column.tolist()
            for column in (nodes.features, nodes.splits, nodes.first, nodes.second, nodes.missing)
        ]

    def put(self, node: int, members: Sequence[float], leads: tuple[int, int], nan: bool) -> None:
        """Rewrite a node: members go to leads[0], so does NaN if `nan`; others go to leads[1]."""
        values = numpy.unique(numpy.array(members, self.dtype))
        borders: list[float] = []
        inside: list[bool] = [False]  # membership before each border, and after the last
        for value in values[~numpy.isnan(values)]:
            before = float(numpy.nextafter(value, self.dtype.type(-numpy.inf)))
            if numpy.isneginf(value) or (borders and borders[-1] == before):
                inside[-1] = True
            else:
                borders.append(before)
                inside.append(True)
            borders.append(float(value))
            inside.append(False)
        if not borders:  # the set is empty
            borders, inside = [numpy.inf], [False, False]
        ends = [leads[0] if member else leads[1] for member in inside]
        if nan and True not in inside:
            ends[-1] = leads[0]  # only NaN is beyond infinity
            goal = len(ends) - 1
        else:
            goal = inside.index(nan)
        self._halves(node, borders, ends, (0, len(borders)), goal)

    def _halves(
        self, node: int, borders: list[float], ends: list[int], part: tuple[int, int], goal: int
    ) -> None:
        """Write a node that finds the end between borders low:high; NaN goes to end `goal`."""
        low, high = part
        middle = (low + high - 1) // 2
        feature = self.columns[0][node]
        children = []
        for start, stop in ((low, middle), (middle + 1, high)):
            if start == stop:
                children.append(ends[start])
                continue
            children.append(len(self.columns[0]))
            for column, value in zip(self.columns, (feature, 0.0, 0, 0, False)):
                column.append(value)
            self._halves(children[-1], borders, ends, (start, stop), goal)
        row = (feature, borders[middle], *children, goal <= middle)
        for column, value in zip(self.columns, row):
            column[node] = value

    def nodes(self) -> Nodes:
        kinds: tuple[Any, ...] = (numpy.int64, self.dtype, numpy.int64, numpy.int64, bool)
        return Nodes(*(numpy.array(column, kind) for column, kind in zip(self.columns, kinds)))


def sets_of(modes: numpy.ndarray, values: Sequence[float]) -> list[Sequence[float]] | None:
    """The sets of the MEMBER nodes; NaN ends a set. None if the count does not match."""
    ends = [-1, *(index for index, value in enumerate(values) if value != value)]
    if len(ends) - 1 != int((modes == MEMBER).sum()) or ends[-1] != len(values) - 1:
        return None
    return [values[low + 1 : high] for low, high in pairwise(ends)]


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

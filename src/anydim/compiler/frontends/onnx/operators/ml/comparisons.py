"""Rewrites all comparisons of tree nodes to `x <= split`, the form in which trees run.

`x < s` is `x <= t` with the next smaller t; `>` and `>=` swap the children; membership in a set
becomes a binary search in additional nodes. The path of NaN is stored per node.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy

from anydim.base.records import dataclass

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

"""Which values lie channels last: those for which a network takes less time then, over its box.

Values that statements tie together are a part of the graph, with images of some areas. The larger
ones may stay as they are while the smaller ones lie channels last: where the border is, and whether
there is one, is tried out with what `layout_costs.py` says of each statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as Among
from itertools import pairwise

import numpy

from anydim.base.dtypes import boolean, float32
from anydim.graph.nodes import Graph
from anydim.passes.flow import Line, inputs_of
from anydim.passes.image_channels import Places, Ties
from anydim.passes.layout_costs import MOVED, UNFIT, times_of
from anydim.sizes import Size, as_size, product
from anydim.sizes.samples import Sampled, samples

_POINTS = 12  # of the box
_GAIN = 0.98  # of the time before: what is not surely faster stays as it is

_MEASURED = (float32, boolean)  # of elements

_Set = tuple[str, Size]  # values of a part that have one area
_FIRST, _LAST = ("", as_size(0)), ("", as_size(1))  # values that keep their layout
_Costs = dict[tuple[_Set, _Set], numpy.ndarray]  # of a set and what it reads, see `_four`


def chosen(moved: Places, channels: Places, lines: Sequence[Line], graph: Graph) -> Places:
    """Those of the values that can be moved which are worth it."""
    points = [p for p in samples(graph.box, _POINTS, graph.guards) if all(p.values())]
    at = Sampled(points or [{}]).at
    sets = _sets(moved, lines, graph)
    costs: _Costs = {}
    for line in lines:
        for pair, four in _terms(line, sets, channels, graph, at):
            costs[pair] = costs[pair] + four if pair in costs else four
    last: set[_Set] = set()
    for part in {name for name, _ in sets.values()}:
        own = {key for key in sets.values() if key[0] == part}
        mine = {pair: four for pair, four in costs.items() if not own.isdisjoint(pair)}
        last |= _best(sorted(own, key=lambda key: at(key[1]).sum()), mine)
    return {name: place for name, place in moved.items() if sets[name] in last}


def _sets(moved: Places, lines: Sequence[Line], graph: Graph) -> dict[str, _Set]:
    """The set of each value that can be moved."""
    ties = Ties()
    for line in lines:
        near = [name for name in (line.target, *inputs_of(line.statement)) if name in moved]
        for left, right in pairwise(near):
            ties.join((left, 0), (right, 0))
    return {
        name: (ties.root((name, 0))[0], product(graph.types[name].shape[place + 1 :]))
        for name, place in moved.items()
    }


def _terms(
    line: Line, sets: Mapping[str, _Set], channels: Places, graph: Graph,
    at: Callable[[Size], numpy.ndarray],
) -> Iterator[tuple[tuple[_Set, _Set], numpy.ndarray]]:  # fmt: skip
    """The costs of a statement, for each value that it reads."""

    def known(name: str) -> _Set | None:
        if name in sets or name not in channels:
            return sets.get(name)
        return _LAST if channels[name] + 1 == len(graph.types[name].shape) else _FIRST

    own = known(line.target)
    if own is None:
        return
    place = channels[line.target]
    times = times_of(line.statement, place, graph, at)
    if own not in (_FIRST, _LAST) and graph.types[line.target].dtype not in _MEASURED:
        yield (own, own), _four(numpy.zeros(1), UNFIT, 0.0, 0.0)
    for name in inputs_of(line.statement):
        other = known(name)
        moving = 0.0 if other is None else MOVED * at(product(graph.types[name].shape))
        if times is not None and name == times.source:
            into = 0.0 if times.follows else moving
            yield (own, other or own), _four(times.first, times.last, moving, into)
        elif other is not None and not line.statement.combine:
            yield (own, other), _four(numpy.zeros(1), numpy.zeros(1), moving, moving)


def _four(
    first: numpy.ndarray,
    last: numpy.ndarray,
    out: numpy.ndarray | float,
    into: numpy.ndarray | float,
) -> numpy.ndarray:  # fmt: skip
    """What is made first or last, of what is first or last: [2, 2, points]."""
    rows = numpy.broadcast_arrays(first, first + out, last + into, last)
    return numpy.stack(rows).reshape(2, 2, -1)


def _best(areas: Sequence[_Set], costs: _Costs) -> Among[_Set]:
    """The smallest areas, as many of them as take the least time when they lie channels last."""

    def total(last: Among[_Set]) -> numpy.ndarray:
        found = (f[int(a in last), int(b in last)] for (a, b), f in costs.items())
        return sum(found, numpy.zeros(1))

    before = total({_LAST})
    works = before > 0
    best, least = 0, _GAIN
    for count in range(1, len(areas) + 1 if works.any() else 0):
        now = total({_LAST, *areas[:count]})
        ratio = float(numpy.exp(numpy.log((now[works] + 1) / before[works]).mean()))
        if ratio < least:
            best, least = count, ratio
    return {*areas[:best]}

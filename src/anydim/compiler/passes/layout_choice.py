"""Choose which values are stored channels last, so that the network is faster over its box.

Values connected by statements form a part of the graph and share a layout: `layout_costs.py` gives
costs per statement, summed here with the cost of transposing values at the borders of the part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy

from anydim.base.dtypes import bfloat16, boolean, float16, float32
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes.flow import Line, inputs_of
from anydim.compiler.passes.image_channels import ChannelDims, Ties
from anydim.compiler.passes.layout_costs import COPIED, MOVED, UNFIT, times_of
from anydim.lang.tree import Read
from anydim.sizes import Sampled, Size, product, samples

_POINTS = 12  # of the box
_GAIN = 0.95  # of the previous time: parts that are not clearly faster stay as they are
_GAIN_OF_COPIES = 0.7  # with copies, which take memory and which estimates favour

_MEASURED = (float32, float16, bfloat16, boolean)  # element types that were measured

_FIRST, _LAST = "$first", "$last"  # pseudo-parts of values that keep their layout
_Costs = dict[tuple[str, str], numpy.ndarray]  # by part and operand's part, see `_four`


@dataclass(frozen=True)
class Part:
    """Values that share a layout; `ratio` is time with channels last to time with channels first.

    `copies`: whether copies of inputs and results are among the values.
    """

    values: ChannelDims
    ratio: float
    copies: bool

    @property
    def goes_last(self) -> bool:
        return self.ratio < (_GAIN_OF_COPIES if self.copies else _GAIN)


def weigh_layouts(
    moved: ChannelDims, channels: ChannelDims, lines: Sequence[Line], graph: Graph,
    copies: Collection[str] = (),
) -> tuple[Part, ...]:  # fmt: skip
    """Partition movable values and cost the parts; skips parts that no product or window reads."""
    points = [p for p in samples(graph.box, _POINTS, graph.guards) if all(p.values())]
    at = Sampled(points or [{}]).at
    parts = _parts(moved, lines)
    costs: _Costs = {}
    for line in lines:
        for pair, four in _terms(line, parts, channels, graph, at):
            costs[pair] = costs[pair] + four if pair in costs else four
    between: set[str | None] = set()  # others have one border; its transpositions cost the gain,
    bordered: set[str | None] = set()  # unless all their readers are channels last already
    for line in lines:
        near = {parts[name] for name in inputs_of(line.statement) if name in parts}
        if near and line.statement.combine:
            between.add(parts.get(line.target))
        lies = _lies(line.target, parts, channels, graph)
        bordered |= near - {lies} if lies != _LAST else set()
    values: dict[str, ChannelDims] = {}
    for name, dim in moved.items():
        if parts[name] in between or parts[name] not in bordered:
            values.setdefault(parts[name], {})[name] = dim
    return tuple(
        Part(held, _ratio(part, _near(part, costs)), not held.keys().isdisjoint(copies))
        for part, held in values.items()
    )


def report_lines(parts: Sequence[Part], count: int) -> list[str]:
    """Report lines: the layouts chosen for `count` values, with reasons."""
    lines = []
    for last, fits in ((True, True), (False, True), (False, False)):
        found = [p for p in parts if (p.goes_last, math.isfinite(p.ratio)) == (last, fits)]
        if found:
            many = sum(len(part.values) for part in found)
            where = "last" if last else "first"
            lines.append(f"channels {where}: {many} of {count} values, {_why(found)}")
    return lines


def _why(parts: Sequence[Part]) -> str:
    if not math.isfinite(parts[0].ratio):
        return "as some of their layers have no kernel with channels last"
    ratios = sorted({f"{part.ratio:.2f}" for part in parts})
    span = " to ".join(ratios[:: len(ratios) - 1 or 1])
    return f"as channels last take {span} of the time, estimated over the sizes of the model"


def _near(part: str, costs: _Costs) -> _Costs:
    return {pair: four for pair, four in costs.items() if part in pair}


def _parts(moved: ChannelDims, lines: Sequence[Line]) -> dict[str, str]:
    """The part of each movable value."""
    ties = Ties()
    for line in lines:
        near = [name for name in (line.target, *inputs_of(line.statement)) if name in moved]
        for left, right in pairwise(near):
            ties.join((left, 0), (right, 0))
    return {name: ties.root((name, 0))[0] for name in moved}


def _terms(
    line: Line, parts: Mapping[str, str], channels: ChannelDims, graph: Graph,
    at: Callable[[Size], numpy.ndarray],
) -> Iterator[tuple[tuple[str, str], numpy.ndarray]]:  # fmt: skip
    """The costs of a statement, for each of its operands."""

    own = _lies(line.target, parts, channels, graph)
    if own is None:
        return
    dim = channels[line.target]
    times = times_of(line.statement, dim, graph, at)
    if own not in (_FIRST, _LAST) and graph.types[line.target].dtype not in _MEASURED:
        yield (own, own), _four(numpy.zeros(1), UNFIT, 0.0, 0.0)
    each = COPIED if isinstance(line.statement.body, Read) else MOVED
    for name in inputs_of(line.statement):
        other = _lies(name, parts, channels, graph)
        moving = 0.0 if other is None else each * at(product(graph.types[name].shape))
        if times is not None and name == times.source:
            into = 0.0 if times.follows else moving
            yield (own, other or own), _four(times.first, times.last, moving, into)
        elif other is not None and not line.statement.combine:
            yield (own, other), _four(numpy.zeros(1), numpy.zeros(1), moving, moving)


def _lies(name: str, parts: Mapping[str, str], channels: ChannelDims, graph: Graph) -> str | None:
    """The part of a value, or its layout if it is not movable; None without channels."""
    if name in parts or name not in channels:
        return parts.get(name)
    return _LAST if channels[name] + 1 == len(graph.types[name].shape) else _FIRST


def _four(
    first: numpy.ndarray,
    last: numpy.ndarray,
    out: numpy.ndarray | float,
    into: numpy.ndarray | float,
) -> numpy.ndarray:  # fmt: skip
    """Costs by layout of result and operand (first, last): [2, 2, points]."""
    rows = numpy.broadcast_arrays(first, first + out, last + into, last)
    return numpy.stack(rows).reshape(2, 2, -1)


def _ratio(part: str, costs: _Costs) -> float:
    """Geometric mean of a part's time with channels last over channels first."""
    first, last = (
        sum((f[int(a in now), int(b in now)] for (a, b), f in costs.items()), numpy.zeros(1))
        for now in ({_LAST}, {_LAST, part})
    )
    works = first > 0
    return (
        float(numpy.exp(numpy.log((last[works] + 1) / first[works]).mean())) if works.any() else 1
    )

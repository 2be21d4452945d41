"""Choose the placements of a graph in its program, and the sizes that each serves.

If no single placement is good at every size, a few are compiled, under guards on sizes. Estimates
select the candidates for trials; measured times decide where available.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy

from anydim.base import settings
from anydim.base.amounts import exact_bytes_text
from anydim.base.text import count_of, table, time_text
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes.assign_devices import ESTIMATED, Place, Placed, summary
from anydim.compiler.passes.device_placement.by_size import (
    PlacementTime,
    chosen_by_size,
    features_of,
    formulas,
    points_of,
    twice_bytes,
)
from anydim.compiler.passes.device_placement.speeds import Speed
from anydim.compiler.passes.device_placement.timed import Measured, Timing, point_text
from anydim.compiler.passes.device_placement.trees import (
    WORTH,
    Point,
    Table,
    Tree,
    best_few,
    compare_times,
    learn_tree,
    leaves,
    renumber_tree,
)

MEASURED = "lowest measured time"
_SHOWN = 24  # rows in a table of times
_ENOUGH = 24  # measured sizes that suffice to fit formulas of several dims


class Choosing:
    """Selects placements of a graph for the program, and the sizes for each."""

    def __init__(self, graph: Graph, place: Place, timing: Timing) -> None:
        self._graph, self._place, self._timing = graph, place, timing
        self._single = place.run(graph)
        self._points = points_of(graph.box, graph.guards) or [{}]
        each = [replace(place, points=(point,)).run(graph) for point in self._points]
        static = [self._all_on(device.name) for device in place.devices]
        self._every = list({p.graph: p for p in (*static, *each, self._single)}.values())
        graphs = [placed.graph for placed in self._every]
        self._static = [graphs.index(placed.graph) for placed in static]
        known = {device.name: device for device in place.devices}
        self._takes = [PlacementTime.by(placed, known) for placed in graphs]
        self._notes: list[str] = []

    def run(self) -> Placed:
        """Return one placement, or several that together are good at every size."""
        estimates = Table(self._points, self._estimate(self._points))
        few = best_few(estimates.seconds)
        measured = self._measure(few)
        if measured is None:
            tree = self._by_estimates(few, estimates)
        else:
            tree = self._by_times(measured)
            self._report(measured, few, estimates)
        placed = self._place_by_tree(tree, measured)
        if measured is None:
            return replace(placed, notes=tuple(self._notes))
        times = tuple(_times(measured, [each.graph for each in self._every]))
        reasons = {n: MEASURED if w == ESTIMATED else w for n, w in placed.reasons.items()}
        return replace(placed, reasons=reasons, notes=tuple(self._notes), times=times)

    def _place_by_tree(self, tree: Tree, measured: Measured | None) -> Placed:
        """The graph of a decision tree, if memory allows several placements."""
        chosen = [self._every[number] for number in leaves(tree)]
        extra = twice_bytes([placed.graph for placed in chosen])
        if len(chosen) > 1 and extra > settings.placed_twice_mb << 20:
            self._notes.append(
                f"{len(chosen)} placements by size would hold {exact_bytes_text(extra)} of weights"
                " twice: setting placed_twice_mb allows less"
            )
            return self._best_single(measured)
        reasons = {name: why for each in reversed(chosen) for name, why in each.reasons.items()}
        graphs = [placed.graph for placed in self._every]
        return Placed(chosen_by_size(self._graph, graphs, tree), reasons)

    def _all_on(self, name: str) -> Placed:
        """Place all nodes without rules on one device, as far as it can run them."""
        devices = [
            replace(each, speed=Speed(launch=float(each.name != name)))
            for each in self._place.devices
        ]
        return replace(self._place, devices=devices).run(self._graph)

    def _estimate(self, points: Sequence[Point]) -> numpy.ndarray:
        return numpy.array([taken.at(points) for taken in self._takes])

    # ---- from estimates ------------------------------------------------------------------------

    def _by_estimates(self, few: Sequence[int], estimates: Table) -> Tree:
        graph = self._graph
        times = formulas([self._takes[number] for number in few])
        found_dims = graph.origins.all_found if graph.has_regions else frozenset[str]()
        guards = [symbol for guard in graph.guards for symbol in guard.symbols]
        if len(few) == 1 or not found_dims.isdisjoint(guards):
            return self._every.index(self._single) if len(few) > 1 else few[0]
        if any(found_dims & time.symbols for time in times):  # not yet known to guards
            features = features_of(graph, [self._takes[number] for number in few])
            return renumber_tree(learn_tree(estimates.of(few), features), few)
        return compare_times(dict(zip(few, times)))

    # ---- from times ----------------------------------------------------------------------------

    def _measure(self, few: Sequence[int]) -> Measured | None:
        """Measure the placements with the best estimates, and each device alone.

        Not with regions: their control flow may depend on data, and trials use random data.
        """
        numbers = list(dict.fromkeys((*self._static, *few)))
        if self._graph.has_regions or len(numbers) < 2 or not self._timing.seconds:
            return None

        def estimated(points: Sequence[Point]) -> numpy.ndarray:
            return self._estimate(points)[numbers]

        graphs = [self._every[number].graph for number in numbers]
        made = self._timing.run(graphs, self._points, estimated)
        if made is None or not made.table.points:
            self._notes.append(
                f"placements were not measured, estimates decide: {self._timing.seconds:g} s"
                " (setting placing_seconds) are not enough"
            )
            return None
        return replace(made, numbers=tuple(numbers[number] for number in made.numbers))

    def _by_times(self, measured: Measured) -> Tree:
        """A decision tree from measured times: thresholds on features of sizes.

        With several dims also guards that compare times as formulas, with fitted speeds, if
        better. Sizes that were not measured use the best placement at neighbouring sizes.
        """
        numbers, timed = measured.numbers, measured.table
        takes = [
            self._takes[number].fit(timed.points, seconds)
            for number, seconds in zip(numbers, timed.seconds)
        ]
        few = best_few(timed.seconds)
        fitting = [takes[number] for number in few]
        tree = learn_tree(timed, features_of(self._graph, fitting))
        if len(self._graph.box.names) > 1 and len(timed.points) >= _ENOUGH:
            other = renumber_tree(compare_times(dict(enumerate(formulas(fitting)))), few)
            tree = min((tree, other), key=lambda each: max(timed.slowdowns(each).max(), WORTH))
        return renumber_tree(tree, numbers)

    def _best_single(self, measured: Measured | None) -> Placed:
        """The best single placement."""
        if measured is None:
            return self._single
        lost = measured.table.losses.max(axis=1)
        return self._every[measured.numbers[int(lost.argmin())]]

    def _report(self, measured: Measured, few: Sequence[int], estimates: Table) -> None:
        """Notes for `explain` on a measurement."""
        numbers, timed = measured.numbers, measured.table
        sizes = count_of(len(timed.points), "size")
        spent = f" in {time_text(measured.spent)}" if measured.spent else " before"
        self._notes.append(f"{count_of(len(numbers), 'placement')} measured at {sizes}{spent}")
        self._notes += [f"a placement was not measured: {why}" for why in measured.refused]
        if set(few) <= set(numbers):
            positions = {number: position for position, number in enumerate(numbers)}
            renaming = [positions.get(number, 0) for number in range(len(self._every))]
            lost = timed.slowdowns(renumber_tree(self._by_estimates(few, estimates), renaming))
            if lost.max() > WORTH:
                at = point_text(timed.points[int(lost.argmax())])
                self._notes.append(f"estimates alone: up to {lost.max():.3g} times slower, {at}")


def _times(measured: Measured, graphs: Sequence[Graph]) -> Iterator[str]:
    """Table of measurements: sizes, and the time of each placement."""
    points, seconds = measured.table.points, measured.table.seconds
    order = sorted(range(len(points)), key=lambda number: tuple(points[number].values()))
    step = max(1, -(-len(order) // _SHOWN))
    headers = ("measured", *(summary(graphs[number]) for number in measured.numbers))
    rows = [
        (point_text(points[number]), *map(time_text, seconds[:, number]))
        for number in order[::step]
    ]
    yield from table(headers, rows).splitlines()

"""Promise: what was measured says which placement serves which size, not what was estimated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from anydim.base import settings
from anydim.base.dtypes import float32
from anydim.base.errors import DeviceError
from anydim.compiler.frontends.builder import Builder
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.graph.verify import verify
from anydim.compiler.passes.assign_devices import Place, Placed
from anydim.compiler.passes.device_placement import timed
from anydim.compiler.passes.device_placement.by_size import PlacementTime
from anydim.compiler.passes.device_placement.min_cut_choice import Device
from anydim.compiler.passes.device_placement.speeds import CLASSES, Speed
from anydim.compiler.passes.device_placement.timed import Timing, Trial
from anydim.compiler.passes.device_placement.trees import (
    WORTH,
    Feature,
    Split,
    Table,
    compare_times,
    follow_tree,
    learn_tree,
    leaves,
)
from anydim.compiler.passes.placement_choice import Choosing
from anydim.runtime.devices.cpu import CpuDevice
from anydim.runtime.devices.null import NullDevice
from anydim.sizes import Size, as_size, holds

Point = Mapping[str, int]
Clock = Callable[[Point], float]
Clocks = Callable[[Graph], Clock]
N, M = map(Size.symbol, ("n", "m"))
GRID = [{"n": n} for n in (0, 1, 2, 3, 5, 7, *range(8, 4096, 23), 4095, 4096)]


def layers(second: bool = False) -> Graph:
    g = Builder("net")
    rows = g.dim("n", 0, 4096)
    shape = (g.dim("m", 1, 64), rows, 64) if second else (rows, 64)
    x = g.input("x", float32, shape)
    w = g.constant(numpy.ones((64, 64), numpy.float32))
    for _ in range(4):
        x = g.relu(g.matmul(x, w))
    g.output("y", x)
    return g.graph()


# ---- trees ---------------------------------------------------------------------------------------


def table(points: Sequence[Point], *clocks: Clock) -> Table:
    return Table(points, numpy.array([[clock(point) for point in points] for clock in clocks]))


def test_a_threshold_lies_where_both_take_the_same_time() -> None:
    points = [{"n": n} for n in (1, 100, 200, 400)]
    tree = learn_tree(table(points, lambda p: p["n"], lambda p: 150), [Feature(N)])
    assert isinstance(tree, Split)
    assert (follow_tree(tree, {"n": 145}), follow_tree(tree, {"n": 155})) == (0, 1)


def test_what_is_as_good_needs_no_guard() -> None:
    tree = learn_tree(table(GRID, lambda p: 100 + p["n"], lambda p: 101 + p["n"]), [Feature(N)])
    assert isinstance(tree, int)


def test_a_placement_may_serve_the_ends_and_another_the_middle() -> None:
    middle = lambda p: 1 if 50 < p["n"] < 900 else 3  # noqa: E731
    tree = learn_tree(table(GRID, lambda p: 2, middle), [Feature(N)])
    assert leaves(tree) == (0, 1)
    assert table(GRID, lambda p: 2, middle).slowdowns(tree).max() == 1


def test_products_of_dims_tell_what_no_dim_does() -> None:
    points = [{"n": n, "m": m} for n in range(1, 40) for m in range(1, 40)]
    clocks = (lambda p: p["n"] * p["m"], lambda p: 200 + p["n"] * p["m"] / 100)
    tree = learn_tree(table(points, *clocks), [Feature(N), Feature(M), Feature(N * M)])
    assert table(points, *clocks).slowdowns(tree).max() < WORTH


def test_the_least_of_formulas() -> None:
    tree = compare_times({5: N * 3, 7: as_size(30), 2: N * N})
    assert [follow_tree(tree, {"n": n}) for n in (1, 2, 20)] == [2, 2, 7]
    assert set(leaves(tree)) == {5, 7, 2}


# ---- placements whose times are not as estimated -------------------------------------------------

HOST = Device("", Speed(1e-6, dict.fromkeys(CLASSES, 5e-11), 1e-10))
ACCEL = Device("accel", Speed(1e-6, dict.fromkeys(CLASSES, 1e-12), 1e-12, 1e-6, 1e-11))


def truth(host: Speed, accel: Speed, call: float = 0.0, from_on: float = 1.0) -> Clocks:
    """Clocks of placements: their work at other speeds; on the device, a call takes `call` more,
    and from 1500 rows on all takes `from_on` times as long, which nobody has estimated."""
    devices = {"": replace(HOST, speed=host), "accel": replace(ACCEL, speed=accel)}

    def clock(placed: Graph) -> Clock:
        taken, there = PlacementTime.by(placed, devices), any(node.device for node in placed.nodes)

        def seconds(point: Point) -> float:
            plain = float(taken.at([point])[0])
            return (plain + call) * (from_on if point["n"] >= 1500 else 1) if there else plain

        return seconds

    return clock


SLOW_COPIES = Speed(1e-6, ACCEL.speed.flop, 1e-12, 2e-5, 3e-9)
SLOW_LAUNCHES = Speed(3e-4, ACCEL.speed.flop, 1e-12, 1e-6, 1e-11)
TRUTHS = {
    "slow copies": truth(HOST.speed, SLOW_COPIES, 1e-4),
    "slow launches": truth(HOST.speed, SLOW_LAUNCHES),
    "a slow device": truth(HOST.speed, Speed(1e-5, HOST.speed.flop, 1e-10, 1e-5, 1e-9)),
    "large sizes": truth(HOST.speed, ACCEL.speed, 2e-4, 60.0),
    "as estimated": truth(HOST.speed, ACCEL.speed),
}


class Kept(NullDevice):
    """A simulated device whose times are kept."""

    identity = "kept for a test"


def chosen(
    graph: Graph, clocks: Clocks, device: NullDevice | None = None, seconds: float = 60.0
) -> Placed:
    def trial(placed: Graph) -> Trial:
        return Trial(lambda point: point, clocks(placed), lambda point: 0)

    timing = Timing(trial, [device or NullDevice()], 1, seconds)
    return Choosing(graph, Place((HOST, ACCEL)), timing).run()


def served(graph: Graph, point: Point) -> Graph:
    """The placement that guards lead to."""
    while graph.nodes[0].region is not None:
        region = graph.nodes[0].region
        graph = region.then if holds(region.condition, point) else region.otherwise
    return graph


def on(device: str, graph: Graph) -> Graph:
    return graph.replace(nodes=tuple(replace(n, device=device) for n in graph.nodes))


@pytest.mark.parametrize("clocks", TRUTHS.values(), ids=TRUTHS)
def test_no_size_takes_more_than_the_best_device_alone(clocks: Clocks) -> None:
    """Within 3 % of the best device alone at every size of a grid."""
    graph = layers()
    placed = verify(chosen(graph, clocks).graph)
    alone = [clocks(on(name, graph)) for name in ("", "accel")]
    for point in GRID:
        best = min(clock(point) for clock in alone)
        assert clocks(served(placed, point))(point) <= 1.03 * best, point


def test_estimates_alone_would_be_slower() -> None:
    """What the tests above are about: the same devices, and nothing measured."""
    graph = layers()
    placed, clocks = chosen(graph, TRUTHS["large sizes"], seconds=0).graph, TRUTHS["large sizes"]
    alone = [clocks(on(name, graph)) for name in ("", "accel")]
    lost = [clocks(served(placed, p))(p) / min(clock(p) for clock in alone) for p in GRID]
    assert max(lost) > 2


@pytest.mark.parametrize("name", ["slow copies", "slow launches"])
def test_two_dims(name: str) -> None:
    graph, clocks = layers(second=True), TRUTHS[name]
    placed = verify(chosen(graph, clocks).graph)
    alone = [clocks(on(name, graph)) for name in ("", "accel")]
    for point in [{"n": n, "m": m} for n in (0, 1, 7, 40, 300, 1200) for m in (1, 3, 8, 30, 64)]:
        best = min(clock(point) for clock in alone)
        assert clocks(served(placed, point))(point) <= 1.03 * best, point


def test_what_was_measured_is_kept(tmp_path: Path) -> None:
    graph, clocks, calls = layers(), TRUTHS["large sizes"], []

    def counted(placed: Graph) -> Clock:
        calls.append(placed)
        return clocks(placed)

    with settings.override(cache_dir=tmp_path, use_cache=True):
        first = chosen(graph, counted, Kept())
        many = len(calls)
        again = chosen(graph, counted, Kept())
    assert many and len(calls) == many
    assert again.graph == first.graph
    assert "before" in again.notes[0]
    assert "times slower" in first.notes[-1]


def test_a_placement_that_cannot_run_is_left_out() -> None:
    def failing(placed: Graph) -> Clock:
        if any(node.device for node in placed.nodes):
            raise DeviceError("no such code")
        return lambda point: 1.0

    placed = chosen(layers(), failing)
    assert placed.notes[0].startswith("placements were not measured")


def test_the_devices_alone_are_compared_however_long_compiling_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(timed, "monotonic", lambda: now[0])

    def slowly(placed: Graph) -> Clock:
        now[0] += 100.0
        return TRUTHS["a slow device"](placed)

    placed = chosen(layers(), slowly, seconds=10.0)
    assert placed.notes[0].startswith("2 placements measured")
    assert not any(node.device for node in placed.graph.nodes)


def test_nothing_is_called_that_takes_longer_than_there_is() -> None:
    slow = [replace(device, speed=Speed(100.0)) for device in (HOST, ACCEL)]
    calls: list[Point] = []

    def trial(placed: Graph) -> Trial:
        return Trial(calls.append, lambda point: 1.0, lambda point: 0)

    timing = Timing(trial, [CpuDevice("cpu:1")], 1, 5.0)
    graph = layers()
    with settings.override(use_cache=False):
        placed = Choosing(graph, Place(slow), timing).run()
    assert not calls
    assert "were not measured" in placed.notes[0]

"""Measured times of placements: compiled, called at some sizes, within a budget of seconds.

Sizes that are powers of two in all dims come first, then midpoints between two sizes that no single
placement serves well: this bisects to the crossover. Measurements are stored in the cache folder,
per machine and program.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from time import monotonic, perf_counter
from typing import Any, TypeAlias

import numpy

from anydim.base.cache import DiskCache, code_version, key_of, user_cache
from anydim.base.errors import UserError
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.graph.text import print_graph
from anydim.compiler.passes.device_placement.trees import WORTH, Point, Table
from anydim.runtime.clocked import Clock
from anydim.runtime.devices.device import Device
from anydim.runtime.executable import Executable
from anydim.runtime.program.inputs import Ranges, draw
from anydim.runtime.program.memory import memory
from anydim.runtime.program.program import Program
from anydim.sizes import Box

_ROUNDS, _MAX_ROUNDS = 3, 15
_AT_A_SIZE = 0.03  # seconds of all rounds at a size, if the minimum number takes less
_SHARE = 0.25  # maximum share of the remaining seconds for one size
_MAX_BYTES = 1 << 30  # of a call with its inputs
_MAX_POINTS = 96
_FIRST = 16  # sizes before bisection


@dataclass(frozen=True)
class Trial:
    """A program that can be timed.

    `drawn` makes random inputs for sizes, `seconds` calls the program with them, and `bytes` is the
    memory of a call.
    """

    drawn: Callable[[Point], Any]
    seconds: Callable[[Any], float]
    bytes: Callable[[Point], int]


def trial_of(
    program: Program, executable: Executable[Any], indices: Ranges, devices: Sequence[Device]
) -> Trial:
    """A trial of a compiled program with random inputs; integers are in their `indices` ranges.

    With a simulated device, host time spent on simulation must not count: a call then takes the
    time of its launches on the host plus the devices' own clocks.
    """
    known, inputs = memory(program), program.signature.inputs
    taken = sum((spec.bytes for spec in (*inputs, *program.signature.outputs)), known.bytes)
    own = with_own_clock(devices)
    clock = Clock(executable) if own else None

    def drawn(point: Point) -> dict[str, numpy.ndarray]:
        chance = numpy.random.default_rng(0)
        return {
            spec.name: draw(spec, point, chance, indices.get(spec.name, (0, 1))) for spec in inputs
        }

    def seconds(given: Mapping[str, numpy.ndarray]) -> float:
        if clock is None:
            begin = perf_counter()
            executable(given)
            return perf_counter() - begin
        begins = [each.clock() for each in own]
        launches = clock.call(given).launches
        spent = sum(each.clock() - begin for each, begin in zip(own, begins))
        return spent + 1e-9 * sum(launch.nanoseconds for launch in launches)

    return Trial(drawn, seconds, taken.evaluate)


def with_own_clock(devices: Sequence[Device]) -> list[Device]:
    """The devices with their own clock."""
    return [each for each in devices if type(each).clock is not Device.clock]


Compiled: TypeAlias = Callable[[Graph], Trial]
Tell: TypeAlias = Callable[[str], None]
Estimated: TypeAlias = Callable[[Sequence[Point]], numpy.ndarray]  # [placements, points]


@dataclass(frozen=True)
class Measured:
    """Seconds of the placements of these numbers; `spent` is the duration of the measurement.

    `refused` has the reasons why others could not be compiled or called.
    """

    numbers: tuple[int, ...]
    table: Table
    spent: float
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Timing:
    """Measures placements; `tell` receives progress lines.

    Calls take at most `seconds` in total; if compilation took that long, only two placements are
    compiled. Stored measurements are keyed by `options`, too.
    """

    compiled: Compiled
    devices: Sequence[Device]
    threads: int
    seconds: float
    tell: Tell = field(default=lambda text: None)
    options: str = ""

    def run(
        self, placements: Sequence[Graph], points: Sequence[Point], estimated: Estimated
    ) -> Measured | None:
        """Return stored or new measurements; None if fewer than two could be compiled in time.

        `estimated` seconds limit the sizes tried: the table is empty if calls take too long or
        too much memory.
        """
        disk, key = self._cache_entry(placements)
        data = None if disk is None else disk.get(key)
        if data is not None:
            return _read(json.loads(data))
        found = _Bench(self, placements, estimated).run(points)
        if found is not None and disk is not None:
            disk.put(key, json.dumps(_to_json(found)).encode())
        return found

    def _cache_entry(self, placements: Sequence[Graph]) -> tuple[DiskCache | None, str]:
        names = [device.identity for device in self.devices]
        about = (code_version(), platform.node(), str(self.threads), self.options, *names)
        if not all(names):
            return None, ""
        return user_cache(), key_of("placements", *about, *map(print_graph, placements))


class _Bench:
    """One measurement run."""

    def __init__(self, timing: Timing, placements: Sequence[Graph], estimated: Estimated) -> None:
        self._timing, self._placements, self._estimated = timing, placements, estimated
        self._begin = monotonic()
        self._trials: dict[int, Trial] = {}
        self._refused: list[str] = []
        self._seconds: dict[tuple[tuple[str, int], ...], list[float]] = {}
        self._real = not with_own_clock(timing.devices)
        self._largest = 0.0, 0.0  # seconds of all placements, estimated and measured

    @property
    def _left(self) -> float:
        return self._timing.seconds - (monotonic() - self._begin)

    def run(self, points: Sequence[Point]) -> Measured | None:
        """Compile, then measure at the given sizes, then between them."""
        self._compile()
        if len(self._trials) < 2:
            return None
        compiled, self._begin = monotonic() - self._begin, monotonic()
        box = self._placements[0].box
        for some in (points[:_FIRST], points[_FIRST:]):
            for point in some:
                self._measure(point)
            self._narrow(box)
        table = Table([dict(key) for key in self._seconds], self._table)
        spent = compiled + monotonic() - self._begin
        return Measured(tuple(self._trials), table, spent, tuple(self._refused))

    @property
    def _table(self) -> numpy.ndarray:
        return numpy.array(list(self._seconds.values())).T

    def _compile(self) -> None:
        for number, placed in enumerate(self._placements):
            if self._left <= 0 and len(self._trials) >= 2:
                self._refused.append("there was no time to compile it")
                break
            self._timing.tell(f"trying placement {number + 1} of {len(self._placements)}")
            try:
                self._trials[number] = self._timing.compiled(placed)
            except UserError as error:
                self._refused.append(str(error).partition("\n")[0])

    def _measure(self, point: Point) -> None:
        """Measure all placements at a size, if time and memory permit."""
        key = tuple(sorted(point.items()))
        if key in self._seconds or len(self._seconds) >= _MAX_POINTS:
            return
        estimated = float(self._estimated([point])[list(self._trials)].sum())
        if self._left <= 0 or (
            self._real and self._expected_seconds(estimated) > _SHARE * self._left
        ):
            return
        if any(trial.bytes(point) > _MAX_BYTES for trial in self._trials.values()):
            return
        self._timing.tell(f"timing placements at {point_text(point)}")
        try:
            self._seconds[key] = self._timed(point)
        except UserError as error:
            self._refused.append(str(error).partition("\n")[0])
        else:
            self._largest = max(self._largest, (estimated, sum(self._seconds[key])))

    def _expected_seconds(self, estimated: float) -> float:
        """Seconds of all rounds: the largest measured so far, scaled by the estimates."""
        known, measured = self._largest
        one = max(measured, measured * estimated / known) if known else estimated
        return 2 * (1 + _ROUNDS) * one

    def _timed(self, point: Point) -> list[float]:
        """Minimum over rounds in which the placements alternate."""
        trial, *_ = self._trials.values()
        given = trial.drawn(point)
        runs = [partial(_turn, each.seconds, given) for each in self._trials.values()]
        best = [run() for run in runs]
        rounds = int(min(_MAX_ROUNDS, max(_ROUNDS, _AT_A_SIZE / max(sum(best), 1e-9))))
        for _ in range(rounds):
            best = [min(known, run()) for known, run in zip(best, runs)]
        return best

    def _narrow(self, box: Box) -> None:
        """Measure midpoints between sizes that no one placement serves well, until none remain."""
        tried: set[tuple[tuple[str, int], ...]] = set()
        while self._left > 0 and self._seconds:
            points = [dict(key) for key in self._seconds]
            middle = next(_between(points, Table(points, self._table).losses, box, tried), None)
            if middle is None:
                return
            tried.add(tuple(sorted(middle.items())))
            self._measure(middle)


def _turn(seconds: Callable[[Any], float], given: Any) -> float:
    """Minimum of two calls: the first runs with caches and threads of another program."""
    return min(seconds(given), seconds(given))


def _between(
    points: Sequence[Point], losses: numpy.ndarray, box: Box, tried: set[tuple[Any, ...]]
) -> Iterator[Point]:
    """Midpoints of neighbouring sizes that no one placement serves well, most distant pairs first.

    Two sizes are neighbours if no third one is nearer to both.
    """
    good = losses <= WORTH
    unserved = ~(good[:, :, None] & good[:, None, :]).any(axis=0)
    logs = numpy.log1p([[point[name] for name in box.names] for point in points])
    distance = abs(logs[:, None] - logs[None]).sum(axis=2)
    third = numpy.maximum(distance[:, None], distance[None]).min(axis=2)
    rows, columns = numpy.nonzero(numpy.triu(unserved & (third >= distance)))
    for pair in numpy.argsort(-distance[rows, columns], kind="stable"):
        ends = points[rows[pair]], points[columns[pair]]
        middle = {name: (ends[0][name] + ends[1][name]) // 2 for name in box.names}
        key = tuple(sorted(middle.items()))
        if key not in tried and middle not in points and box.contains(middle):
            yield middle


def point_text(point: Point) -> str:
    """A size as text for users."""
    return ", ".join(f"{name} = {value}" for name, value in point.items()) or "its only size"


def _to_json(found: Measured) -> dict[str, Any]:
    return {
        "numbers": found.numbers, "points": list(found.table.points),
        "seconds": found.table.seconds.tolist(), "refused": found.refused,
    }  # fmt: skip


def _read(data: Mapping[str, Any]) -> Measured:
    table = Table(data["points"], numpy.array(data["seconds"]))
    return Measured(tuple(data["numbers"]), table, 0.0, tuple(data["refused"]))

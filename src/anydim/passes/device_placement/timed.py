"""How long placements really take: compiled, called at some sizes, within seconds of a budget.

Sizes come first that are powers of two in all dims, then those in the middle between two that no
placement serves well both: the crossover is narrowed down until the two lie side by side. What was
measured is kept in the cache folder, for a machine and a program.
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
from anydim.devices.device import Device
from anydim.graph.nodes import Graph
from anydim.graph.text import print_graph
from anydim.passes.device_placement.trees import WORTH, Point, Table
from anydim.program.inputs import Ranges, draw
from anydim.program.memory import memory
from anydim.program.program import Program
from anydim.runtime.clocked import Clock
from anydim.runtime.executable import Executable
from anydim.sizes import Box

_ROUNDS, _MOST_ROUNDS = 3, 15
_AT_A_SIZE = 0.03  # seconds of all rounds at a size, where the least number of them takes less
_SHARE = 0.25  # of the seconds that are left, which one size may take at most
_MOST_BYTES = 1 << 30  # that a call may take, with its inputs
_MOST_POINTS = 96
_FIRST = 16  # sizes, before others between them


@dataclass(frozen=True)
class Trial:
    """A program that can be timed: inputs that are drawn for sizes, what a call with these takes in
    seconds, and in bytes."""

    drawn: Callable[[Point], Any]
    seconds: Callable[[Any], float]
    bytes: Callable[[Point], int]


def trial_of(
    program: Program, executable: Executable[Any], indices: Ranges, devices: Sequence[Device]
) -> Trial:
    """A compiled program, whose inputs are drawn by chance; integers by their `indices`.

    Where one of the devices simulates, what the host does for it takes time that it would not: a
    call then takes the time of its launches on the host and that of the devices' own clocks.
    """
    known, inputs = memory(program), program.signature.inputs
    taken = sum((spec.bytes for spec in (*inputs, *program.signature.outputs)), known.bytes)
    own = simulated(devices)
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


def simulated(devices: Sequence[Device]) -> list[Device]:
    """Those with a clock of their own."""
    return [each for each in devices if type(each).clock is not Device.clock]


Compiled: TypeAlias = Callable[[Graph], Trial]
Tell: TypeAlias = Callable[[str], None]
Estimated: TypeAlias = Callable[[Sequence[Point]], numpy.ndarray]  # [placements, points]


@dataclass(frozen=True)
class Measured:
    """Seconds of the placements of these numbers; `spent` are those that measuring took.

    `refused` says why others could not be made or called.
    """

    numbers: tuple[int, ...]
    table: Table
    spent: float
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Timing:
    """How placements are measured; `tell` is told what is done.

    Calls take at most so many `seconds`; when compiling has taken as long, no more than two are
    compiled.
    What is kept is found again for the same `options`.
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
        """What was kept, or is measured now; None where no two could be compiled in time.

        `estimated` seconds say what is tried at all: the table is empty where calls take too long,
        or too much memory.
        """
        disk, key = self._kept(placements)
        data = None if disk is None else disk.get(key)
        if data is not None:
            return _read(json.loads(data))
        found = _Bench(self, placements, estimated).run(points)
        if found is not None and disk is not None:
            disk.put(key, json.dumps(_written(found)).encode())
        return found

    def _kept(self, placements: Sequence[Graph]) -> tuple[DiskCache | None, str]:
        names = [device.identity for device in self.devices]
        about = (code_version(), platform.node(), str(self.threads), self.options, *names)
        if not all(names):
            return None, ""
        return user_cache(), key_of("placements", *about, *map(print_graph, placements))


class _Bench:
    """One measurement."""

    def __init__(self, asked: Timing, placements: Sequence[Graph], estimated: Estimated) -> None:
        self._asked, self._placements, self._estimated = asked, placements, estimated
        self._begin = monotonic()
        self._trials: dict[int, Trial] = {}
        self._refused: list[str] = []
        self._seconds: dict[tuple[tuple[str, int], ...], list[float]] = {}
        self._real = not simulated(asked.devices)
        self._largest = 0.0, 0.0  # seconds of all placements, estimated and measured

    @property
    def _left(self) -> float:
        return self._asked.seconds - (monotonic() - self._begin)

    def run(self, points: Sequence[Point]) -> Measured | None:
        """Compile, then measure at some sizes, then between them."""
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
            self._asked.tell(f"trying placement {number + 1} of {len(self._placements)}")
            try:
                self._trials[number] = self._asked.compiled(placed)
            except UserError as error:
                self._refused.append(str(error).partition("\n")[0])

    def _measure(self, point: Point) -> None:
        """The seconds of all placements at a size, if there is time and memory."""
        key = tuple(sorted(point.items()))
        if key in self._seconds or len(self._seconds) >= _MOST_POINTS:
            return
        estimated = float(self._estimated([point])[list(self._trials)].sum())
        if self._left <= 0 or (self._real and self._expected(estimated) > _SHARE * self._left):
            return
        if any(trial.bytes(point) > _MOST_BYTES for trial in self._trials.values()):
            return
        self._asked.tell(f"timing placements at {told_point(point)}")
        try:
            self._seconds[key] = self._timed(point)
        except UserError as error:
            self._refused.append(str(error).partition("\n")[0])
        else:
            self._largest = max(self._largest, (estimated, sum(self._seconds[key])))

    def _expected(self, estimated: float) -> float:
        """Seconds of all rounds: those of the largest size so far, as much more as is estimated."""
        known, measured = self._largest
        one = max(measured, measured * estimated / known) if known else estimated
        return 2 * (1 + _ROUNDS) * one

    def _timed(self, point: Point) -> list[float]:
        """The least of some rounds, in which all placements take turns."""
        trial, *_ = self._trials.values()
        given = trial.drawn(point)
        runs = [partial(_turn, each.seconds, given) for each in self._trials.values()]
        best = [run() for run in runs]
        rounds = int(min(_MOST_ROUNDS, max(_ROUNDS, _AT_A_SIZE / max(sum(best), 1e-9))))
        for _ in range(rounds):
            best = [min(known, run()) for known, run in zip(best, runs)]
        return best

    def _narrow(self, box: Box) -> None:
        """Sizes between two that no placement serves well both, until there are none."""
        tried: set[tuple[tuple[str, int], ...]] = set()
        while self._left > 0 and self._seconds:
            points = [dict(key) for key in self._seconds]
            middle = next(_between(points, Table(points, self._table).losses, box, tried), None)
            if middle is None:
                return
            tried.add(tuple(sorted(middle.items())))
            self._measure(middle)


def _turn(seconds: Callable[[Any], float], given: Any) -> float:
    """Of two calls: the first one finds the caches, and threads, that another program has left."""
    return min(seconds(given), seconds(given))


def _between(
    points: Sequence[Point], losses: numpy.ndarray, box: Box, tried: set[tuple[Any, ...]]
) -> Iterator[Point]:
    """The middles of pairs of neighbours that no placement serves well both, far ones first.

    Two are neighbours where no third one is nearer to both.
    """
    good = losses <= WORTH
    apart = ~(good[:, :, None] & good[:, None, :]).any(axis=0)
    places = numpy.log1p([[point[name] for name in box.names] for point in points])
    distance = abs(places[:, None] - places[None]).sum(axis=2)
    third = numpy.maximum(distance[:, None], distance[None]).min(axis=2)
    rows, columns = numpy.nonzero(numpy.triu(apart & (third >= distance)))
    for pair in numpy.argsort(-distance[rows, columns], kind="stable"):
        ends = points[rows[pair]], points[columns[pair]]
        middle = {name: (ends[0][name] + ends[1][name]) // 2 for name in box.names}
        key = tuple(sorted(middle.items()))
        if key not in tried and middle not in points and box.contains(middle):
            yield middle


def told_point(point: Point) -> str:
    """A size for people."""
    return ", ".join(f"{name} = {value}" for name, value in point.items()) or "its only size"


def _written(found: Measured) -> dict[str, Any]:
    return {
        "numbers": found.numbers, "points": list(found.table.points),
        "seconds": found.table.seconds.tolist(), "refused": found.refused,
    }  # fmt: skip


def _read(data: Mapping[str, Any]) -> Measured:
    table = Table(data["points"], numpy.array(data["seconds"]))
    return Measured(tuple(data["numbers"]), table, 0.0, tuple(data["refused"]))

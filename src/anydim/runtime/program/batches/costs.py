"""Costs of calls: bytes from memory formulas, seconds from the plan's work and measured calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log

import numpy

from anydim.runtime.program.batches.work import Rates, Work
from anydim.sizes import Factor

_KNOWN = 4096  # sizes whose costs are kept
_WEIGHT = 0.1  # of a call in the moving average of measured over predicted time
_FIRST = 8  # number of first calls, whose plain mean is taken
_MOST_RATIO = 16.0  # slower calls are outliers (the machine stalled) and are ignored


class Costs:
    """Bytes and seconds of the calls of one model at given sizes.

    `work` holds its formulas. Seconds are those of a reference machine, scaled by the average of
    measured over predicted time.
    """

    def __init__(self, work: Work, threads: int) -> None:
        self.work, self._threads = work, threads
        self._bytes: dict[tuple[int, ...], tuple[int, int, int]] = {}
        self._seconds: dict[tuple[int, ...], float] = {}
        self._ratio, self._calls = 0.0, 0  # the logarithm of measured over predicted seconds
        work.at({})  # its terms are collected now, not at the first request

    @property
    def ratio(self) -> float:
        """The average of measured over predicted seconds."""
        return exp(self._ratio)

    @property
    def is_known(self) -> bool:
        """Whether sizes bound the work of a call, and enough calls were measured."""
        return self.work.is_bounded and self._calls >= _FIRST

    def bytes_of_call(self, sizes: Mapping[str, int]) -> tuple[int, int, int]:
        """Return the bytes of the arena, the inputs and the outputs of a call."""
        key = tuple(sizes.values())
        found = self._bytes.get(key)
        if found is None:
            atoms: dict[Factor, int] = {}
            parts = (self.work.arena, self.work.inputs, self.work.outputs)
            arena, inputs, outputs = (max(0, part.evaluate(sizes, atoms)) for part in parts)
            if len(self._bytes) >= _KNOWN:
                self._bytes = {}
            found = self._bytes[key] = arena, inputs, outputs
        return found

    def predict_seconds(self, sizes: Mapping[str, int]) -> float:
        """Return the seconds of a call on the reference machine."""
        key = tuple(sizes.values())
        found = self._seconds.get(key)
        if found is None:
            columns = {name: numpy.array([size]) for name, size in sizes.items()}
            found = float(Rates().serial(self.work.at(columns), self._threads)[0])
            if len(self._seconds) >= _KNOWN:
                self._seconds = {}
            self._seconds[key] = found
        return found

    def predict_many(self, columns: Mapping[str, Sequence[int]]) -> None:
        """Predict and cache many calls at once; `columns` are their sizes by dim, in order."""
        sizes = {name: numpy.array(column) for name, column in columns.items()}
        seconds = Rates().serial(self.work.at(sizes), self._threads).tolist()
        self._seconds.update(zip(zip(*columns.values()), seconds))

    def learn(self, predicted: float, seconds: float) -> None:
        """Update the average with a call that was predicted to take `predicted` seconds."""
        if predicted <= 0 or seconds <= 0:
            return
        found = log(seconds / predicted)
        if self._calls and found - self._ratio > log(_MOST_RATIO):
            return
        self._calls += 1
        self._ratio += (found - self._ratio) * max(_WEIGHT, 1 / min(self._calls, _FIRST))

"""The order of requests by what they cost: steps of predicted time, and which requests are long.

A step is a factor of two of predicted time, at the rates of the reference machine: it does not
change while calls are measured. Requests are long if others of the last minutes are `LONG` steps
cheaper, however many the long ones are.
"""

from __future__ import annotations

from math import frexp

LEAST = 0.00025  # seconds of the first step
MOST_STEPS = 64
LONG = 3  # steps above the short requests: a factor of 4 to 16
LEAST_LONG = 5  # a step: from 4 ms on
HALF_LIFE = 120.0  # seconds, of the number of requests that were seen
KNOWN = 4  # requests of a step and of those below, before they are the short ones
_SHARE = 64  # they are at least one of so many requests


def step_of(seconds: float) -> int:
    """The step of a predicted time."""
    return min(max(0, frexp(seconds / LEAST)[1]), MOST_STEPS)


class Steps:
    """How many requests of each step arrived in the last minutes."""

    def __init__(self) -> None:
        self._counts: dict[int, tuple[float, float]] = {}  # by step: number, and when that was
        self.longest_short = MOST_STEPS  # the step above which requests are long

    def note(self, step: int, now: float) -> bool:
        """Count a request; whether other requests are long from now on."""
        self._counts[step] = self._count(step, now) + 1.0, now
        before, self.longest_short = self.longest_short, self._longest_short(now)
        return self.longest_short != before

    def is_long(self, step: int) -> bool:
        """Whether a request of a step is long."""
        return step > self.longest_short

    def _count(self, step: int, now: float) -> float:
        count, then = self._counts.get(step, (0.0, now))
        return count * 0.5 ** ((now - then) / HALF_LIFE)

    def _longest_short(self, now: float) -> int:
        counts = [(step, self._count(step, now)) for step in sorted(self._counts)]
        least, seen = max(KNOWN - 0.5, sum(count for _, count in counts) / _SHARE), 0.0
        for step, count in counts:
            seen += count
            if seen >= least:
                return max(step + LONG, LEAST_LONG) - 1
        return MOST_STEPS

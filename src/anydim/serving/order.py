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
_PENDING = 16  # requests that are counted before the steps are looked at again
_SHARE = 64  # they are at least one of that many requests


def step_of(seconds: float) -> int:
    """The step of a predicted time."""
    return min(max(0, frexp(seconds / LEAST)[1]), MOST_STEPS)


class Steps:
    """How many requests of each step arrived in the last minutes."""

    def __init__(self) -> None:
        self._counts: dict[int, float] = {}  # by step, halved in `HALF_LIFE`
        self._then, self._pending = 0.0, 0
        self._short = self.longest_short = MOST_STEPS  # above which requests are long

    def note(self, step: int, now: float) -> bool:
        """Count a request; whether other requests are long from now on."""
        self._counts[step] = self._counts.get(step, 0.0) + 1.0
        self._pending += 1
        if step >= self._short and self._pending < _PENDING:
            return False
        before = self.longest_short
        self._update(now)
        return self.longest_short != before

    def is_long(self, step: int) -> bool:
        """Whether a request of a step is long."""
        return step > self.longest_short

    def _update(self, now: float) -> None:
        share = 0.5 ** (max(0.0, now - self._then) / HALF_LIFE)
        self._counts = {step: self._counts[step] * share for step in sorted(self._counts)}
        self._then, self._pending, seen = now, 0, 0.0
        least = max(KNOWN - 0.5, sum(self._counts.values()) / _SHARE)
        self._short = MOST_STEPS
        for step, count in self._counts.items():
            seen += count
            if seen >= least:
                self._short = step
                break
        self.longest_short = max(self._short + LONG, LEAST_LONG) - 1

"""Knobs: the options of a template's schedules that a user or a search may set.

A template has one `Knob` for each of them (`Template.knobs`); an option without one follows from
the computation and the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from anydim.base.records import dataclass


@dataclass(frozen=True)
class Knob:
    """Valid values of an option, and those that searches try.

    `is_valid(value, schedule)` may depend on the schedule that the template proposes; `words`
    describes valid values in errors. `at_sizes`: values tried for the sizes of one call.
    `everywhere`: values tried for a schedule that serves all sizes; they change the partition of
    work for threads and caches only, because another summation order would change bits at sizes
    that the search does not measure.
    """

    is_valid: Callable[[Any, Any], bool]
    words: str
    at_sizes: tuple[int, ...] = ()
    everywhere: tuple[int, ...] = ()

    def with_tries(self, *at_sizes: int, everywhere: tuple[int, ...] = ()) -> Knob:
        """The knob with the values that searches try."""
        return replace(self, at_sizes=at_sizes, everywhere=everywhere)


def between(low: int, high: int) -> Knob:
    """A whole number in a range."""
    return Knob(lambda value, _: is_whole(value, low, high), f"a whole number from {low} to {high}")


def power_of_two(high: int, low: int = 1) -> Knob:
    """A power of two in a range."""
    return Knob(
        lambda value, _: is_whole(value, low, high) and value & (value - 1) == 0,
        f"a power of two from {low} to {high}",
    )


def multiple(of: int, low: int, high: int) -> Knob:
    """A multiple of a number in a range."""
    return Knob(
        lambda value, _: is_whole(value, low, high) and value % of == 0,
        f"a multiple of {of} from {low} to {high}",
    )


def is_whole(value: Any, low: int, high: int) -> bool:
    """Whether a value is an int in a range; True and False are not."""
    return type(value) is int and low <= value <= high


FLAG = Knob(lambda value, _: isinstance(value, bool), "true or false")
AXIS = Knob(lambda value, _: isinstance(value, str), "the name of an axis or a loop, or none")
VERSION = "version"  # the option of schedules whose kernels have versions
VERSIONS = Knob(lambda value, _: isinstance(value, str), "the name of a version, or any")

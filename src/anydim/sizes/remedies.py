"""Suggests valid sizes where a relation fails: `'h' must be a multiple of 32`.

Found by trying sizes around the given one. A rule is reported only if all sizes in a window obey
it; sizes that are suggested do fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise

from anydim.base.errors import AnydimError
from anydim.base.records import dataclass
from anydim.sizes.box import Box
from anydim.sizes.guard import Guard, holds

_AROUND = 256  # sizes tried on each side
_SEEN = 4  # minimum number of periods in a window to accept a rule


def remedy(guard: Guard, sizes: Mapping[str, int], box: Box) -> str:
    """Describe the valid values of one dim, the others fixed; empty if no size nearby fits.

    Selects the dim with the most valid sizes.
    """
    best = max(_windows(guard, sizes, box), key=lambda window: len(window.fitting), default=None)
    if best is None or not best.fitting:
        return _indivisible(guard, sizes, box)
    others = sorted(guard.symbols - {best.name})
    at = ", ".join(f"{other} = {sizes[other]}" for other in others if other in sizes)
    return f"'{best.name}' must be {_rule(best)}" + (f" at {at}" if at else "")


@dataclass(frozen=True)
class _Window:
    """The sizes of a dim from `low` to `high` that fit; `given` does not."""

    name: str
    low: int
    high: int
    given: int
    fitting: list[int]


def _windows(guard: Guard, sizes: Mapping[str, int], box: Box) -> Iterator[_Window]:
    for name in sorted(guard.symbols & set(box.names) & sizes.keys()):
        dim, given = box.dim(name), sizes[name]
        low = max(dim.lo, given - _AROUND)
        high = given + _AROUND if dim.hi is None else min(dim.hi, given + _AROUND)
        fitting = [value for value in range(low, high + 1) if is_met(guard, {**sizes, name: value})]
        yield _Window(name, low, high, given, fitting)


def _indivisible(guard: Guard, sizes: Mapping[str, int], box: Box) -> str:
    """Describe a product that no size of a dim makes equal to a number; empty for others."""
    left, number = guard.left, guard.right.constant
    if guard.relation != "==" or not number or len(guard.symbols) < 2:
        return ""
    for name in (name for name in box.names if name in guard.symbols and name in sizes):
        try:
            zero, step, two = (left.evaluate({**sizes, name: value}) for value in (0, 1, 2))
        except (AnydimError, ArithmeticError):
            continue
        if zero == 0 and step > 1 and two == 2 * step and number % step:
            at = ", ".join(f"{each} = {sizes[each]}" for each in sorted(guard.symbols - {name}))
            return f"no '{name}' fits at {at}: {number} is no multiple of {step}"
    return ""


def is_met(guard: Guard, sizes: Mapping[str, int]) -> bool:
    """Whether a guard holds; not where a divisor is 0."""
    try:
        return holds(guard, sizes)
    except (AnydimError, ArithmeticError):  # a divisor is 0 there
        return False


def _rule(window: _Window) -> str:
    """Text: what the sizes that fit have in common, and the nearest ones."""
    fitting, low, high, given = window.fitting, window.low, window.high, window.given
    if len(fitting) == 1:
        return str(fitting[0])
    if fitting == list(range(fitting[0], high + 1)):
        return f"at least {fitting[0]}"
    if fitting == list(range(low, fitting[-1] + 1)):
        return f"at most {fitting[-1]}"
    if fitting == [value for value in range(low, high + 1) if value != given]:
        return f"other than {given}"
    below = [value for value in fitting if value < given][-1:]
    nearest = " or ".join(map(str, [*below, *[value for value in fitting if value > given][:1]]))
    return f"{_period(window) or 'another size'}, such as {nearest}"


def _period(window: _Window) -> str:
    """'a multiple of 32', '1 or a multiple of 2', '1 more than a multiple of 4'; else empty."""
    regular = [value for value in window.fitting if value > 1]
    steps = {right - left for left, right in pairwise(regular)}
    step = math.gcd(*steps)
    if step < 2 or steps != {step} or window.high - window.low < _SEEN * step:
        return ""
    rest = regular[0] % step
    span = range(max(window.low, 2), window.high + 1)
    if regular != [value for value in span if value % step == rest]:
        return ""
    alone = "1 or " if 1 in window.fitting and 1 % step != rest else ""
    return f"{alone}{f'{rest} more than ' if rest else ''}a multiple of {step}"

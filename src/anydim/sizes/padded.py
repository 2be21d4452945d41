"""Sizes that a dim is padded to: a multiple, the next power of 2, its upper bound."""

from __future__ import annotations

from anydim.base.errors import OptionError
from anydim.sizes.box import Box
from anydim.sizes.derived import ceil_div
from anydim.sizes.expression import Size, as_constant
from anydim.sizes.extremes import maximum, minimum

BOUND, POWER = "bound", "pow2"
_MOST_DOUBLINGS = 40  # of a dim without upper bound: larger sizes are not padded


def padded_size(name: str, rule: int | str, box: Box) -> Size:
    """What a dim of a box is padded to; it is never below the dim, and 0 stays 0 but for the bound.

    Raises OptionError for the bound of a dim that has none.
    """
    size, high = Size.symbol(name), box.dim(name).hi
    if isinstance(rule, int):
        return ceil_div(size, rule) * rule
    if rule == BOUND:
        if high is None:
            hint = f"give one: dims={{'{name}': (0, 512)}}"
            raise OptionError(f"dim '{name}' has no upper bound to pad to", hint)
        return as_constant(high)
    steps, power = [minimum(size, 1), size], 1
    while power < (1 << _MOST_DOUBLINGS if high is None else high):
        steps.append(2 * power * minimum(maximum(size - power, 0), 1))  # 0, or all of it above
        power *= 2
    return maximum(*steps)

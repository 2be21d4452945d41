"""Padded sizes of a dim: a multiple, the next power of 2, or its upper bound."""

from __future__ import annotations

from anydim.base.errors import OptionError
from anydim.sizes.box import Box
from anydim.sizes.conditions import condition
from anydim.sizes.derived import ceil_div
from anydim.sizes.expression import Size, as_constant
from anydim.sizes.extremes import maximum, minimum

BOUND, POWER = "bound", "pow2"
_MAX_DOUBLINGS = 40  # for a dim without upper bound; larger sizes are not padded


def padded_size(name: str, rule: int | str, box: Box) -> Size:
    """The padded size of a dim of a box: at least the dim; 0 stays 0, except for `BOUND`.

    Raises OptionError for `BOUND` if the dim has no upper bound.
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
    while power < (1 << _MAX_DOUBLINGS if high is None else high):
        steps.append(condition(size, ">", power).where(2 * power, 0))
        power *= 2
    return maximum(*steps)

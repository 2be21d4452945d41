"""Guard against integer division by a size that is 0."""

from __future__ import annotations

from anydim.sizes.box import Box
from anydim.sizes.expression import Size
from anydim.sizes.extremes import maximum, minimum
from anydim.sizes.guard import Guard
from anydim.sizes.proofs import Truth, prove


def divisor_guard(divisor: Size, count: Size, box: Box, source: str) -> Guard | None:
    """Guard that rejects calls dividing `count` integers, at least 0, by a size of 0; None where
    the box rules it out."""
    if prove(divisor, "!=", 0, box) is Truth.PROVED:
        return None
    below = prove(divisor, ">=", 0, box) is not Truth.PROVED
    distance = maximum(divisor, 0 - divisor) if below else divisor
    by = "0" if divisor.constant == 0 else f"{divisor}, which is 0"
    message = f"{source}: integer division by {by}"
    return Guard(minimum(count, 1), "<=", distance, message)

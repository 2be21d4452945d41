"""Questions about sizes over a whole box, answered proved, refuted or unknown."""

from __future__ import annotations

from enum import Enum

from anydim.base.errors import InternalError
from anydim.sizes.box import Box
from anydim.sizes.expression import Size, as_constant
from anydim.sizes.interval import Interval


class Truth(Enum):
    """PROVED: holds at every point of the box. REFUTED: holds at none. UNKNOWN: neither is known.

    A point where an operand is not defined (a divisor is 0) counts for neither side. In a box that
    its constraints make empty, any answer may come.
    """

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


def bounds(size: Size | int, box: Box) -> Interval:
    """Where the values of a size lie over the box."""
    return box.interval(as_constant(size))


def prove(left: Size | int, relation: str, right: Size | int, box: Box) -> Truth:
    """Whether `left relation right` holds over the box; relation: '==' '!=' '<' '<=' '>' '>='."""
    left, right = as_constant(left), as_constant(right)
    if relation in (">", ">="):
        return prove(right, relation.replace(">", "<"), left, box)
    if relation == "!=":
        return _OPPOSITE[prove(left, "==", right, box)]
    difference = left - right
    where = box.interval(difference)
    if relation == "==":
        if where.value == 0:
            return Truth.PROVED
        return Truth.UNKNOWN if 0 in where else Truth.REFUTED
    if relation not in ("<", "<="):
        raise InternalError(f"prove does not know the relation {relation!r}")
    limit = -1 if relation == "<" else 0
    if where.high <= limit:
        return Truth.PROVED
    return Truth.REFUTED if where.low > limit else Truth.UNKNOWN


_OPPOSITE = {
    Truth.PROVED: Truth.REFUTED,
    Truth.REFUTED: Truth.PROVED,
    Truth.UNKNOWN: Truth.UNKNOWN,
}

"""Whether rows of a call depend on each other, by samples: results beside other rows and alone.

A dependence may not show beside the rows that happen to share a call: the largest of equal rows is
that of each alone. So the rows beside a checked one are changed, too. Changed rows are no inputs of
the user: a loop may not end for them. So their calls have a time limit, and failures
are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.errors import TimeLimitError, UserError
from anydim.runtime.program.batches.layout import Item, Layout
from anydim.runtime.stopping import Limit

EVERY = 256  # calls, after the first ones
LEAST_LIMIT = 0.25  # seconds of a call with changed rows, at least
OVERRUN = 4  # times the seconds of the call that is checked, such a call may take
FAR, NEAR, GIVEN, NONE = range(4)  # other values, values near given rows, given rows; no calls


class ChangedRows:
    """Calls with changed rows. Rows are far from the given ones where sizes bound the work of a
    call, else near them: data may decide how long a loop runs. A call that takes too long has no
    result, and later ones change rows less. Engines cannot be stopped: they get given rows.
    """

    def __init__(self, is_bounded: bool, has_engines: bool) -> None:
        self.how = FAR if is_bounded else GIVEN if has_engines else NEAR

    def result(
        self, call: Callable[[Mapping[str, numpy.ndarray]], dict[str, Any]], way: Layout,
        items: Sequence[Item], number: int, variant: int, seconds: float,
    ) -> Any:  # fmt: skip
        """The result of an item of a call that took some seconds, beside changed rows; None if
        such a call fails."""
        sizes = way.together(items)
        while self.how < NONE:
            given = with_others_changed(way, items, number, sizes, variant, self.how)
            try:
                with Limit(max(LEAST_LIMIT, OVERRUN * seconds)).ends():
                    outputs = call(given)
                return way.apart(outputs, items, sizes)[number]
            except TimeLimitError:
                self.how += 1
            except (UserError, MemoryError):  # the changed rows are no inputs
                return None
        return None


def is_due(calls: int) -> bool:
    """Whether this shared call, the first one being 1, is checked: some of the first, then one of
    `EVERY`."""
    return calls % EVERY == 0 if calls > EVERY else calls & (calls - 1) == 0


def rows_before(way: Layout, items: Sequence[Item], number: int) -> int:
    """How many rows stand before an item of a call."""
    return sum(item.sizes[way.batch or ""] for item in items[:number])


def with_others_changed(
    way: Layout, items: Sequence[Item], number: int, sizes: Mapping[str, int], variant: int,
    how: int = FAR,
) -> dict[str, numpy.ndarray]:  # fmt: skip
    """The inputs of a call with these items, the rows of all but one of which are changed."""
    found = way.stacked(items, sizes)
    begin = rows_before(way, items, number)
    end = begin + items[number].sizes[way.batch or ""]
    for spec, axis in zip(way.signature.inputs, way.axes):
        if axis is not None:
            rows = numpy.moveaxis(found[spec.name], axis, 0)
            if not rows.flags.writeable or len(items) == 1:
                continue
            others = rows if how == FAR else numpy.roll(rows, 1 + variant, 0)  # a copy
            for part in (slice(0, begin), slice(end, None)):
                if rows[part].size:
                    rows[part] = (
                        others[part] if how == GIVEN else changed(others[part], variant, how)
                    )
    return found


def changed(rows: numpy.ndarray, variant: int, how: int = FAR) -> numpy.ndarray:
    """Rows with other values: larger floats, or smaller ones where `variant` is odd; integers that
    are in the rows already, as others may be no index."""
    if rows.dtype.kind == "b":
        return ~rows
    if rows.dtype.kind in "iu":
        return _other_integers(rows, variant)
    half = -0.5 if variant % 2 else 0.5
    steps = half * (numpy.arange(rows.size).reshape(rows.shape) * 7 % 5 + 2)  # unequal ones
    with numpy.errstate(all="ignore"):
        finite = numpy.where(numpy.isfinite(rows), rows, rows.dtype.type(0))
        if how == NEAR:
            return (finite * (1 + steps / 8)).astype(rows.dtype)
        moved = finite + steps.astype(rows.dtype) * (1 + abs(finite))
    return moved.astype(rows.dtype)


def _other_integers(rows: numpy.ndarray, variant: int) -> numpy.ndarray:
    flat = rows.reshape(-1)
    moved = flat[::-1] if variant % 2 else numpy.roll(flat, 1 + flat.size // 2)
    if numpy.array_equal(moved, flat):
        moved = flat // 2 if variant % 2 else flat + 1
    return moved.reshape(rows.shape)


def is_same(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether results have the same bits."""
    arrays = [(numpy.asarray(one[name]), numpy.asarray(other[name])) for name in other]
    return all(a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in arrays)

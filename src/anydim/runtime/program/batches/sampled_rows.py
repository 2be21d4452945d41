"""Whether rows of a call depend on each other, by samples: results beside other rows and alone.

A dependence may not show beside the rows that happen to share a call: the largest of equal rows is
that of each alone. So the rows beside a checked one are changed, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy

from anydim.runtime.program.batches.layout import Item, Layout

EVERY = 256  # calls, after the first ones


def is_due(calls: int) -> bool:
    """Whether this shared call, the first one being 1, is checked: some of the first, then one of
    `EVERY`."""
    return calls % EVERY == 0 if calls > EVERY else calls & (calls - 1) == 0


def rows_before(way: Layout, items: Sequence[Item], number: int) -> int:
    """How many rows stand before an item of a call."""
    return sum(item.sizes[way.batch or ""] for item in items[:number])


def with_others_changed(
    way: Layout, items: Sequence[Item], number: int, sizes: Mapping[str, int], variant: int
) -> dict[str, numpy.ndarray]:
    """The inputs of a call with these items, the rows of all but one of which are changed."""
    found = way.stacked(items, sizes)
    begin = rows_before(way, items, number)
    end = begin + items[number].sizes[way.batch or ""]
    for spec, axis in zip(way.signature.inputs, way.axes):
        if axis is not None:
            rows = numpy.moveaxis(found[spec.name], axis, 0)
            if not rows.flags.writeable or len(items) == 1:
                continue
            for part in (rows[:begin], rows[end:]):
                if part.size:
                    part[...] = changed(part, variant)
    return found


def changed(rows: numpy.ndarray, variant: int) -> numpy.ndarray:
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

"""Sampled checks whether rows of a call depend on each other.

The result of a row is compared with that of the row alone. The rows that happen to share a call may
hide a dependence (the maximum of equal rows is that of each), so the other rows are changed as
well. A user never gave such rows: a loop may not end for them. So these calls have a time limit,
and failures are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.errors import TimeLimitError, UserError
from anydim.runtime.program.batches.layout import ItemArrays, Layout
from anydim.runtime.stopping import Limit

EVERY = 256  # calls, after the first ones
LEAST_LIMIT = 0.25  # seconds of a call with changed rows, at least
OVERRUN = 4  # times the seconds of the call that is checked, such a call may take
FAR, NEAR, GIVEN, NONE = range(4)  # other values, values near given rows, given rows; no calls

Call = Callable[[Mapping[str, numpy.ndarray]], dict[str, Any]]


class ChangedRows:
    """Makes calls in which all rows but one are changed.

    Changed values are far from the given ones if sizes bound the work of a call, else near them,
    since data may determine the trip count of a loop. After a call that takes too long, later ones
    change rows less. Engines cannot be interrupted: they get only given rows, in another order.
    """

    def __init__(self, is_bounded: bool, has_engines: bool) -> None:
        self.how = FAR if is_bounded else GIVEN if has_engines else NEAR

    def differing_result(
        self, call: Call, way: Layout, items: Sequence[ItemArrays], number: int, result: Any,
        compare: Callable[[Any, Any], str | None], variants: Iterable[int], seconds: float,
    ) -> str | None:  # fmt: skip
        """Return a result of an item that differs from that of the item alone; None if none does.

        `result` is that of its call, which took some seconds. It is computed again beside changed
        rows for each of `variants`. `compare` returns the name of a result that differs, or None.
        """
        item = items[number]
        (alone,) = way.split_results(call(way.join_inputs([item], item.sizes)), [item], item.sizes)
        name = compare(result, alone)
        for variant in variants if name is None else ():
            found = self.result(call, way, items, number, variant, seconds)
            name = None if found is None else compare(found, alone)
            if name is not None:
                break
        return name

    def result(
        self, call: Call, way: Layout,
        items: Sequence[ItemArrays], number: int, variant: int, seconds: float,
    ) -> Any:  # fmt: skip
        """The result of an item of a call that took some seconds, beside changed rows; None if
        such a call fails."""
        sizes = way.call_sizes(items)
        while self.how < NONE:
            given = inputs_with_changed_rows(way, items, number, sizes, variant, self.how)
            try:
                with Limit(max(LEAST_LIMIT, OVERRUN * seconds)).ends():
                    outputs = call(given)
                return way.split_results(outputs, items, sizes)[number]
            except TimeLimitError:
                self.how += 1
            except (UserError, MemoryError):  # the changed rows are no inputs
                return None
        return None


def is_due(calls: int) -> bool:
    """Whether the shared call with this number, from 1, is checked: powers of two up to `EVERY`,
    then every `EVERY`th."""
    return calls % EVERY == 0 if calls > EVERY else calls & (calls - 1) == 0


def rows_before(way: Layout, items: Sequence[ItemArrays], number: int) -> int:
    """Return the number of rows before an item in a call."""
    return sum(item.sizes[way.batch or ""] for item in items[:number])


def inputs_with_changed_rows(
    way: Layout, items: Sequence[ItemArrays], number: int, sizes: Mapping[str, int], variant: int,
    how: int = FAR,
) -> dict[str, numpy.ndarray]:  # fmt: skip
    """Return the inputs of a call with these items, where all rows but those of one are changed."""
    found = way.join_inputs(items, sizes)
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
                        others[part] if how == GIVEN else change_rows(others[part], variant, how)
                    )
    return found


def change_rows(rows: numpy.ndarray, variant: int, how: int = FAR) -> numpy.ndarray:
    """Return rows with other values: larger floats (smaller for odd variants), permuted integers,
    since other integers may be invalid indices."""
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


def differing_bits(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """Return the first result that differs in a bit, or None."""
    arrays = ((name, numpy.asarray(one[name]), numpy.asarray(other[name])) for name in other)
    return next((n for n, a, b in arrays if a.shape != b.shape or a.tobytes() != b.tobytes()), None)

"""Subscripts of graph values, `x[1:, ::2]`, `x[..., None]`, `x[-1]`, as operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from anydim.base.errors import GraphError
from anydim.base.user_values import short_repr
from anydim.sizes import Guard, Size, as_size, exactly

Applied = tuple[str, dict[str, Any]]  # an operator with one operand, and its attributes
_HINT = "give integers, slices, sizes, None, `...`, and an array or a mask"


def subscripts(
    name: str, shape: Sequence[Size], key: Any, need: Callable[[Guard], None]
) -> Iterator[Applied]:
    """The operators that make `value[key]`, in order. Raises GraphError.

    `need` receives the guards that the elements exist.
    """
    keys = _whole(name, len(shape), key if isinstance(key, tuple) else (key,))
    axes: list[int] = []
    starts: list[Any] = []
    ends: list[Any] = []
    steps: list[Any] = []
    dropped: list[int] = []
    new: list[int] = []
    axis = out_axis = 0
    for part in keys:
        if part is None:
            new.append(out_axis)
            out_axis += 1
            continue
        cut = part if isinstance(part, slice) else _one(name, axis, shape[axis], part, need)
        if cut is not part:
            dropped.append(axis)
        else:
            out_axis += 1
        if any(bound is not None for bound in (cut.start, cut.stop, cut.step)):
            step = _number(name, cut.step, 1)
            first = 0 if step > 0 else shape[axis] - 1
            last = shape[axis] if step > 0 else -shape[axis] - 1
            axes.append(axis)
            starts.append(first if cut.start is None else _as_bound(name, cut.start))
            ends.append(last if cut.stop is None else _as_bound(name, cut.stop))
            steps.append(step)
        axis += 1
    if axes:
        cuts = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
        yield "slice", {key: tuple(values) for key, values in cuts.items()}
    if dropped:
        yield "squeeze", {"axes": tuple(dropped)}
    if new:
        yield "unsqueeze", {"axes": tuple(new)}


def _whole(name: str, rank: int, keys: tuple[Any, ...]) -> list[Any]:
    """A key for every axis; `...` and omitted axes become whole slices."""
    ellipses = sum(part is Ellipsis for part in keys)
    taken = sum(part is not None and part is not Ellipsis for part in keys)
    if ellipses > 1:
        raise GraphError(f"'{name}' has two `...` in its subscript", "one stands for all the rest")
    if taken > rank:
        raise GraphError(f"'{name}' has {rank} axes, and {taken} subscripts were given")
    at = next((n for n, part in enumerate(keys) if part is Ellipsis), len(keys))
    return [*keys[:at], *[slice(None)] * (rank - taken), *keys[at + ellipses :]]


def _one(name: str, axis: int, extent: Size, part: Any, need: Callable[[Guard], None]) -> slice:
    """The slice of one element."""
    index = _as_bound(name, part)
    known, size = as_size(index).constant, extent.constant
    if known is not None and size is not None and not -size <= known < size:
        raise GraphError(f"'{name}' has {size} elements along axis {axis}, and no element {known}")
    if known is not None and size is None:
        minimum = as_size(known + 1 if known >= 0 else -known)
        message = f"element {known} along axis {axis} of '{name}' is read"
        need(Guard(minimum, "<=", extent, message))
    if known is None:
        return slice(index, exactly(index, -1).where(extent, index + 1), 1)
    return slice(index, extent if known == -1 else index + 1, 1)


def _number(name: str, step: Any, usual: int) -> int:
    given = usual if step is None else as_size(_as_bound(name, step)).constant
    if not given:
        raise GraphError(
            f"'{name}': the step of a slice is {short_repr(step)}", "give a number, not 0"
        )
    return given


def _as_bound(name: str, value: Any) -> Any:
    """Convert to an integer or a size."""
    if isinstance(value, Size):
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise GraphError(f"'{name}' has no element {short_repr(value)}", _HINT)
    return value.__index__()

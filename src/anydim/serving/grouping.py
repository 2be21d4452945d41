"""Which queued requests share a call: bounded by memory, rows and useful work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydim.base.amounts import exact_bytes_text
from anydim.base.errors import InputError, MemoryLimitError
from anydim.base.text import count_of
from anydim.runtime.program.batches.item import Form, Item
from anydim.serving.requests import Lines, Place, Request

SHARE = 0.1  # most of a group's time that the fixed cost of its call may be


def bytes_needed(form: Form, item: Item, limit: int, copies: int = 1) -> int:
    """Return the bytes of a call with one item.

    Raises MemoryLimitError if these, its inputs and `copies` of its results exceed the limit.
    """
    arena, inputs, outputs = form.costs.bytes_of_call(item.sizes)
    most = form.most_rows
    if most is not None and item.rows > most:
        raise InputError(f"{form.name}: {count_of(item.rows, 'row')}, at most {most} are taken")
    found = arena + inputs + outputs
    whole = found + item.input_bytes + copies * item.output_bytes
    if whole > limit:
        at = ", ".join(f"{name} = {size}" for name, size in item.sizes.items())
        raise MemoryLimitError(
            f"{form.name} at {at or 'its only size'} takes {exact_bytes_text(whole)}, above "
            f"the memory limit of {exact_bytes_text(limit)}",
            f"of the call: arena {exact_bytes_text(arena)}, inputs {exact_bytes_text(inputs)}, "
            f"outputs {exact_bytes_text(outputs)}; the request with its results: "
            f"{exact_bytes_text(whole - found)}; raise the limit, or use smaller sizes",
        )
    return found


def take_worthwhile(
    lines: Lines, place: Place, now: float, end_late: Callable[[Request, float], None]
) -> list[Request]:
    """Take requests from a line until the fixed cost of a call is under 10 % of their work.

    Requests that missed their deadline are passed to `end_late` with the time.
    """
    form, rows, done, most = place[0][0], 0, 0.0, 0.0
    found: list[Request] = []
    while (request := lines.pop(place)) is not None:
        if request.deadline is not None and request.deadline <= now:
            end_late(request, now)
            continue
        item = request.item
        rows, done = rows + item.rows, done + item.own
        if found:
            most = most or form.overhead(found[0].item) / SHARE
            if done > most or (form.most_rows is not None and rows > form.most_rows):
                lines.add(request)
                break
        found.append(request)
    return found


def count_fitting(
    form: Form, requests: Sequence[Request], has_room: Callable[[int, int], bool]
) -> tuple[int, int]:
    """Return how many of these requests fit in one call, and the bytes of that call.

    `has_room(bytes, count)` decides whether a call fits. If even the first request does not fit,
    the count is 0 and the bytes are those of its call.
    """
    count = len(requests)
    while True:
        items = [request.item for request in requests[:count]]
        sizes = items[0].sizes if count == 1 else form.sizes(items)
        arena, inputs, outputs = form.costs.bytes_of_call(sizes)
        bytes = arena + inputs + outputs * (1 + (count > 1))  # copies of their parts
        if has_room(bytes, count):
            return count, bytes
        if count == 1:
            return 0, bytes
        count //= 2

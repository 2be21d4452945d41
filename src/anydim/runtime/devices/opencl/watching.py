"""Times of commands: profiling queues and their events.

A device has its own clock. A command is enqueued before its function returns: the command with the
minimum delay between both determines the offset of the device's clock to the host's.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns

from anydim.runtime.devices.opencl.libopencl import ClError, Library

PROFILED = 1 << 1  # a queue property
_QUEUED, _BEGIN, _END = 0x1280, 0x1282, 0x1283


class Watched:
    """Events of commands, retained, with the host times after enqueueing."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._events: list[tuple[int, int]] = []

    def add(self, event: int) -> None:
        """Add a command; its event is retained."""
        self._library.do("clRetainEvent", event)
        self._events.append((event, perf_counter_ns()))

    def __len__(self) -> int:
        return len(self._events)

    def times(self) -> list[tuple[int, int]]:
        """Return begin and end of each command on the host's clock; all of them are done."""
        events = [event for event, _ in self._events]
        rows = [self._times_of(event) for event in events]
        for event in events:
            self._library.do("clReleaseEvent", event)
        offset = min((after - row[0] for row, (_, after) in zip(rows, self._events)), default=0)
        return [(begin + offset, end + offset) for _, begin, end in rows]

    def _times_of(self, event: int) -> Sequence[int]:
        try:
            query = self._library.number
            return [query("clGetEventProfilingInfo", event, w) for w in (_QUEUED, _BEGIN, _END)]
        except ClError:  # the command failed
            return (0, 0, 0)

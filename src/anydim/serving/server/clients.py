"""Limits on connections: their number, and the bytes of heads, pipelined requests and unsent
responses, which are not part of the memory of requests.

At the limit, the connection idle longest is closed, then one whose body arrives slowly, then the
one that holds the most bytes.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol

from anydim.base.records import dataclass
from anydim.serving.process_memory import spare_bytes

try:
    import resource
except ImportError:  # Windows: no such limits
    resource = None  # type: ignore[assignment]

CONSTANT = 16 << 20
"""Bytes that the process of a server may hold beyond its memory."""
CONNECTION = 12 << 10  # bytes of a connection over HTTP
RPC_CONNECTION = 16 << 10  # over gRPC
FIRST_SECONDS = 1.0  # for a first request, before a connection may be closed for another one
LEAST_RATE = 16 << 10  # bytes of a body in a second; a slower one gives way to others
PATIENCE = 2.0  # seconds in which nothing of it need arrive
MOST_REFUSED = 64  # connections that get 503 because there are too many
ACCEPTED = 64  # connections that are accepted at once
_FILES = 128  # descriptors for other things than connections
_KEPT_FILES = _FILES + MOST_REFUSED + 3 * ACCEPTED
_RPC_SHARE = 3  # connections over gRPC are at most this part of the descriptors


class Connection(Protocol):
    """A connection whose bytes are counted."""

    due: float
    """When the next bytes of a body have to arrive."""

    def held(self) -> int:
        """Return the bytes that it uses now."""

    def evict(self) -> None:
        """Close the connection."""


@dataclass(frozen=True)
class Limits:
    """The most connections over HTTP and gRPC, and the bytes for those over HTTP."""

    http: int
    rpc: int
    bytes: int

    @staticmethod
    def of(memory: int, queue: int, descriptors: int | None) -> Limits:
        """Return the limits for a memory limit, a queue length and a number of descriptors.

        Half of the spare bytes is for HTTP connections, a quarter for gRPC connections.
        """
        most, spare = 2 * queue + 64, spare_bytes(memory)
        http, rpc = min(most, spare // 2 // CONNECTION), min(most, spare // 4 // RPC_CONNECTION)
        if descriptors is not None:
            left = max(8, descriptors - _KEPT_FILES)
            rpc = min(rpc, left // _RPC_SHARE)
            http = min(http, left - rpc)
        return Limits(http, rpc, spare // 2)


def raised_descriptors() -> int | None:
    """Raise the soft limit of open files to the hard limit and return it; None if unlimited."""
    if resource is None:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return None if soft == resource.RLIM_INFINITY else soft


class Clients:
    """The open connections of a server: at most `most`, with at most `limit` bytes together."""

    def __init__(self, most: int, limit: int, now: Callable[[], float] = monotonic) -> None:
        self.most, self.limit, self._now = most, limit, now
        self.bytes = 0
        self._open: dict[Any, int] = {}  # what is counted for each
        self._waiting: OrderedDict[Any, float] = OrderedDict()
        """When each connection without a request may be closed, oldest first."""
        self._arriving: set[Any] = set()  # those with a body that is not complete
        self._refused: set[Any] = set()
        self._log = logging.getLogger("anydim.server")

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, each: Connection) -> bool:
        """Register a new connection; return False if there is no room for it."""
        if len(self._open) >= self.most and not (self._close_idle() or self.give_way()):
            self._log.warning("too many connections", extra={"facts": {"limit": self.most}})
            return False
        self._open[each] = 0
        self._waiting[each] = self._now() + FIRST_SECONDS
        self.count(each, CONNECTION)
        return True

    def refuse(self, each: Connection) -> bool:
        """Whether a connection without room gets a 503 response; otherwise it is closed at once."""
        if len(self._refused) >= MOST_REFUSED:
            return False
        self._refused.add(each)
        return True

    def leave(self, each: Connection) -> None:
        """Remove a connection."""
        self._refused.discard(each)
        self._arriving.discard(each)
        self._waiting.pop(each, None)
        self.bytes -= self._open.pop(each, 0)

    def count(self, each: Connection, bytes: int) -> None:
        """Set the bytes of a connection; above the limit, close connections."""
        before = self._open.get(each)
        if before is None:
            return
        self._open[each] = bytes
        self.bytes += bytes - before
        if self.bytes > self.limit:
            self._shrink()

    def wait(self, each: Connection) -> None:
        """Mark a connection as idle, without a request."""
        if each in self._open:
            self._waiting[each] = self._now()

    def work(self, each: Connection) -> None:
        """Mark a connection as busy with a request."""
        self._waiting.pop(each, None)

    def arrive(self, each: Connection) -> None:
        """Mark the body of a connection's request as arriving."""
        if each in self._open:
            each.due = self._now() + PATIENCE
            self._arriving.add(each)

    def count_arrived(self, each: Connection, bytes: int) -> None:
        """Extend the deadline of a body by the bytes that arrived."""
        each.due = min(each.due + bytes / LEAST_RATE, self._now() + PATIENCE)

    def rest(self, each: Connection) -> None:
        """Mark the body of a connection's request as complete."""
        self._arriving.discard(each)

    def give_way(self) -> bool:
        """Close the connection whose body is most overdue; return whether there was one."""
        slowest = min(self._arriving, key=lambda each: each.due, default=None)
        if slowest is None or slowest.due > self._now():
            return False
        self._close(slowest, "a body that arrives slowly gave way")
        return True

    def _close_idle(self) -> bool:
        """Close the connection idle longest; return whether there was one.

        New connections are spared for `FIRST_SECONDS`: their request may be on its way.
        """
        now = self._now()
        idle = next((each for each, end in self._waiting.items() if end <= now), None)
        if idle is not None:
            self._close(idle)
        return idle is not None

    def _shrink(self) -> None:
        """Close connections until the rest is below the limit of bytes."""
        for each in self._open:
            self._open[each] = each.held()
        self.bytes = sum(self._open.values())
        if self.bytes <= self.limit:
            return
        most = self.limit - self.limit // 8  # so that the next one closes none
        while self.bytes > most and self._open:
            if not (self._close_idle() or self.give_way()):
                largest = max(self._open, key=self._open.__getitem__)
                self._close(largest, "connections hold too many bytes")

    def _close(self, each: Connection, why: str = "") -> None:
        if why:
            self._log.warning("closed", extra={"facts": {"reason": why}})
        self.leave(each)
        each.evict()

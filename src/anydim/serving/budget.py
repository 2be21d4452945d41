"""The bytes of an engine against its limit."""

from __future__ import annotations

from anydim.base.amounts import exact_bytes_text
from anydim.base.errors import BusyError


class Budget:
    """What requests hold, what calls take, and what the largest waiting call needs.

    Held bytes and those of the running calls, or of the largest waiting call alone, are below the
    limit: the first request can always run. The engine's lock guards it.

    Attributes:
        limit: Most bytes.
        held: Bytes of requests, bodies and results that are not delivered.
        running: Bytes of the calls that run.
        most: The most of both so far.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.most = limit, 0
        self.clear()

    def clear(self) -> None:
        """Start without requests."""
        self.held = self.running = 0
        self._alone: dict[int, int] = {}  # bytes of waiting calls alone: how many
        self._largest = 0

    @property
    def is_clear(self) -> bool:
        """Whether nothing counts."""
        return not self.held + self.running and not self._alone

    @property
    def largest(self) -> int:
        """Bytes of the largest waiting call."""
        return self._largest

    def hold(self, bytes: int, what: str, alone: int = 0) -> None:
        """Count bytes, if a call of `alone` bytes can run beside them; else raise BusyError."""
        if self.held + bytes + max(self._largest, self.running, alone) > self.limit:
            raise BusyError(
                f"{what} takes {exact_bytes_text(bytes + alone)}, and "
                f"{exact_bytes_text(self.held)} of {exact_bytes_text(self.limit)} are in use",
                "send it later, or raise the limit of memory",
            )
        self.held += bytes
        if alone:
            self._alone[alone] = self._alone.get(alone, 0) + 1
            self._largest = max(self._largest, alone)

    def waits_no_more(self, alone: int) -> None:
        """A waiting call was taken or cancelled."""
        count = self._alone.pop(alone, 0) - 1
        if count > 0:
            self._alone[alone] = count
        elif alone == self._largest:
            self._largest = max(self._alone, default=0)

    def fits(self, bytes: int) -> bool:
        """Whether a call of these bytes can run beside what is counted."""
        return self.held + self.running + bytes <= self.limit

    def begin(self, bytes: int) -> None:
        """A call runs."""
        self.running += bytes
        self.most = max(self.most, self.held + self.running)

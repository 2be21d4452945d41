"""Memory accounting of an engine: bytes held and running against its limit."""

from __future__ import annotations

from anydim.base.amounts import exact_bytes_text
from anydim.base.errors import BusyError


class Budget:
    """Counts the bytes that requests hold, that calls use, and that the largest queued call needs.

    Invariant: held bytes plus the running calls, or plus the largest queued call alone, stay below
    the limit, so the first request can always run. The engine's lock guards it.

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
        """Reset to no requests."""
        self.held = self.running = 0
        self._alone: dict[int, int] = {}  # bytes of waiting calls alone: how many
        self._largest = 0

    @property
    def is_clear(self) -> bool:
        """Whether nothing is held, running or queued."""
        return not self.held + self.running and not self._alone

    @property
    def largest(self) -> int:
        """Bytes of the largest waiting call."""
        return self._largest

    def hold(self, bytes: int, what: str, alone: int = 0) -> None:
        """Charge bytes; raises BusyError unless a call of `alone` bytes can run beside them."""
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
        """Remove a queued call of `alone` bytes, which was started or cancelled."""
        count = self._alone.pop(alone, 0) - 1
        if count > 0:
            self._alone[alone] = count
        elif alone == self._largest:
            self._largest = max(self._alone, default=0)

    def fits(self, bytes: int) -> bool:
        """Whether a call of these bytes fits beside everything held and running."""
        return self.held + self.running + bytes <= self.limit

    def begin(self, bytes: int) -> None:
        """Charge the bytes of a call that starts."""
        self.running += bytes
        self.most = max(self.most, self.held + self.running)

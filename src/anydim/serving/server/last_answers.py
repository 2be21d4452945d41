"""Graceful close of HTTP connections after a last response.

Closing a socket with unread received data makes the system send a reset, and the client loses the
part of the response that it has not read (RFC 9112, 9.6). So the server shuts down writing only,
and discards received data until the client sends EOF.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

CLIENT_SECONDS = 5.0  # for a client to send EOF after the response was handed to the system


class Ending:
    """A transport whose `close` shuts down writing only; `cut` or the client's EOF closes it.

    `close` calls `ended`. Other attributes are those of `transport`.
    """

    def __init__(
        self, transport: Any, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]
    ) -> None:
        self._transport, self._loop, self._ended = transport, loop, ended
        self._is_ended = False
        self.write: Callable[[Any], None] = transport.write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Whether writing was shut down or the connection closed."""
        return self._is_ended or self._transport.is_closing()

    def close(self) -> None:
        """Shut down writing after the data that was written (half-close)."""
        if self.is_closing():
            return
        self._is_ended, self.write = True, _discard
        try:
            self._transport.write_eof()
        except OSError:  # the client has reset the connection
            self.cut()
            return
        self._ended()

    def cut(self) -> None:
        """Close the connection after the data that was written."""
        self._transport.close()

    def forget(self) -> None:
        """Drop the callback: the connection is lost."""
        self._is_ended, self._ended = True, _nothing

    def wait_for_the_client(self) -> asyncio.TimerHandle:
        """Close the connection unless the client sends EOF within `CLIENT_SECONDS`."""
        return self._loop.call_later(CLIENT_SECONDS, self.cut)


def _nothing() -> None:
    """Do nothing: replaces the callback of a lost connection."""


def _discard(data: Any) -> None:
    """Discard data written after the half-close."""

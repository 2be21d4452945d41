"""Connections that end behind an answer.

If a socket is closed while bytes that its client sent are unread, or before more of them arrive,
the system resets the connection, and what the client has not read is lost (RFC 9112, 9.6). So the
server ends its half, and discards what arrives until the client ends the other one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

CLIENT_SECONDS = 5.0  # for a client to end its half, once the system has all of the answer


class Ending:
    """A transport whose `close` ends the server's half; `cut` closes it, and so does the client's
    end. `ended` is called by `close`."""

    def __init__(
        self, transport: Any, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]
    ) -> None:
        self._transport, self._loop, self._ended = transport, loop, ended
        self._is_ended = False
        self.write: Callable[[Any], None] = transport.write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Whether nothing more is written."""
        return self._is_ended or self._transport.is_closing()

    def close(self) -> None:
        """End the server's half behind what was written."""
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
        """Close both halves behind what was written."""
        self._transport.close()

    def forget(self) -> None:
        """Call nothing any more: the connection is lost."""
        self._is_ended, self._ended = True, _nothing

    def wait_for_the_client(self) -> asyncio.TimerHandle:
        """Close both halves unless the client ends its own in time."""
        return self._loop.call_later(CLIENT_SECONDS, self.cut)


def _nothing() -> None:
    """What an end calls once its connection is lost."""


def _discard(data: Any) -> None:
    """What a transport does with bytes behind its end."""

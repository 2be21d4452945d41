"""Connections that are bounded: heads in bytes and in time, bodies and answers in time."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from anydim.server.asgi import CLIENT, Client

MOST_HEAD = 1 << 16  # bytes of a request's line and headers
HEAD_SECONDS = 20.0  # for them to arrive
BODY_SECONDS = 60.0  # for the body to arrive
SEND_SECONDS = 60.0  # for a client to take what was written last
_HEAD, _BODY, _NOTHING = "head", "body", "nothing"


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which closes connections whose heads are too long, or whose clients are
    too slow. Writing waits until the system has all that was written before."""

    _head = 0
    _part = _HEAD  # of a request that is expected
    _timed: str | None = None  # the part that the timer is for
    _timer: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first head."""
        super().connection_made(transport)
        self._peer = Client()
        transport.set_write_buffer_limits(0)
        self._time()

    def pause_writing(self) -> None:
        """The client has to take what was written."""
        super().pause_writing()
        self._sending = self.loop.call_later(SEND_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has it."""
        self._sent()
        super().resume_writing()

    def on_message_begin(self) -> None:
        """Wait for the rest of a head."""
        super().on_message_begin()
        self.scope[CLIENT] = self._peer  # type: ignore[literal-required]
        self._part, self._timed = _HEAD, None

    def on_headers_complete(self) -> None:
        """Wait for the body."""
        self._part = _BODY
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._part = _NOTHING
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Close the connection if a head that is not complete has too many bytes. A request that
        is complete needs no timer."""
        super().data_received(data)
        if self._part == _NOTHING and self._is_idle():
            self._part = _HEAD  # empty lines before one
        if self._part != self._timed:
            self._time()
        if self._part == _HEAD:
            self._head += len(data)
            if self._head > MOST_HEAD:
                self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers, and call the disconnect callbacks."""
        self._stop()
        self._sent()
        super().connection_lost(exc)
        self._peer.leave()

    def _is_idle(self) -> bool:
        """Whether nothing is left to answer, and no timer ends the connection."""
        is_answered = self.cycle is None or self.cycle.response_complete
        return is_answered and self.timeout_keep_alive_task is None

    def _time(self) -> None:
        """Close the connection if the part that is expected does not arrive."""
        self._stop()
        self._head, self._timed = 0, self._part
        if self._part != _NOTHING:
            seconds = HEAD_SECONDS if self._part == _HEAD else BODY_SECONDS
            self._timer = self.loop.call_later(seconds, self.transport.close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sent(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

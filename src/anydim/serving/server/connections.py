"""Connections that are bounded: their number, what they hold, heads in bytes and in time, bodies
and answers in time."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from anydim.serving.server.asgi import CLIENT, Client
from anydim.serving.server.clients import CONNECTION, MOST_REFUSED, Clients
from anydim.serving.server.last_answers import Ending
from anydim.serving.server.upgrades import PlainParser

MOST_HEAD = 1 << 16  # bytes of a request's line and headers
MOST_HEADERS = 256  # of a request
HEAD_SECONDS = 20.0  # for them to arrive
BODY_SECONDS = 60.0  # for the body to arrive
SEND_SECONDS = 60.0  # for a client to take what was written last
_END = b"\r\n\r\n"  # of a head
_MOST_UNREAD = 1 << 14  # bytes that are kept while more are read, so that an end is seen
_PIECE = 512  # bytes of a body that are parsed with what follows it, if heads follow
_HEAD, _BODY, _NOTHING = "head", "body", "nothing"
_HEADER = 160  # bytes of objects of a header
_URL_COPIES, _HEAD_COPIES = 8, 2  # of a path as text, in pieces and with other characters; of heads
_SHORT_HEAD = 1 << 12  # bytes as objects, which are not freed behind the answer
_BYTES = "anydim.bytes"  # of a scope: what its head takes
_UNLIMITED = 1 << 60
_FULL = b"the server has too many connections; send the request later"
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(_FULL), _FULL)
)


class _Flow(FlowControl):
    """uvicorn's flow control, which reads nothing while many requests are kept. Otherwise each
    request that waits for its body would read more of them."""

    is_held = False

    def resume_reading(self) -> None:
        """Read again, unless many requests are kept."""
        if not self.is_held:
            super().resume_reading()


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which closes connections whose heads are too long, or whose clients are
    too slow. Writing waits until the system has all that was written before."""

    is_offer = False  # the head that was read last offers another protocol
    due = 0.0  # when more of the body has to be there
    _head = 0
    _taken = 0  # bytes of the head that is read, as objects
    _beside = 0  # bytes of a body's trailers, and of what else is no part of it
    _unread = b""  # requests that arrived behind another one
    _invalid = ""  # what is wrong with what arrived behind them
    _part = _HEAD  # of a request that is expected
    _timed: str | None = None  # the part that the timer is for
    _timer: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.parser = PlainParser(self)  # type: ignore[assignment]
        made = vars(self.server_state).get("clients")
        if made is None:
            made = Clients(self.limit_concurrency or _UNLIMITED, _UNLIMITED)
            vars(self.server_state)["clients"] = made
        self._clients: Clients = made  # of the server
        self.limit_concurrency = 2 * made.most + MOST_REFUSED  # for requests whose clients left

    def connection_made(self, transport: Any) -> None:
        """Wait for the first head, if there is room for the connection."""
        self._ending = Ending(transport, self.loop, self._discard_rest)
        super().connection_made(self._ending)  # type: ignore[arg-type]
        self._peer = Client()
        self._earlier: list[Any] = []  # cycles before the last one of a pipeline
        self.flow = self._flow = _Flow(transport)
        transport.set_write_buffer_limits(0)
        transport.max_size = MOST_HEAD  # bytes that asyncio reads at once
        if self._clients.enter(self):
            self._time()
        elif self._clients.refuse(self):
            transport.write(_REFUSAL)
            self._ending.close()
        else:
            transport.abort()

    def held(self) -> int:
        """Bytes that the connection takes: heads as objects, and what is not parsed, not read and
        not sent. An answer that is not sent is there once more."""
        found = CONNECTION + self._head + self._taken + self._beside + len(self._unread)
        if self.transport is not None:
            found += 2 * self.transport.get_write_buffer_size()
        for each in (*self._earlier, self.cycle) if self._earlier else (self.cycle,):
            if each is not None and not each.response_complete:
                found += len(each.body) + each.scope[_BYTES]
        return found

    def evict(self) -> None:
        """Close the connection for others, whatever is under way."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self._ending.cut()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if self._unread and not self.transport.is_closing():
            self._parse_next()
        if self.transport.is_closing():
            return
        self._start()
        if self.cycle.response_complete:
            if self._invalid:
                super().send_400_response(self._invalid)
            else:
                self._forget_head()
                self._clients.wait(self)
        self._clients.count(self, self.held())

    def _forget_head(self) -> None:
        """Keep no long head behind its answer."""
        scope: Any = self.cycle.scope
        if scope.get(_BYTES, 0) > _SHORT_HEAD:
            self.cycle.scope = {}  # type: ignore[typeddict-item]
            if self._part != _HEAD:
                self.headers, self.url, self.scope = [], b"", {}  # type: ignore[typeddict-item]

    def send_400_response(self, msg: str) -> None:
        """Refuse what arrived, behind the answers to the requests before it."""
        if self._part == _BODY and self.pipeline:  # a request that waits for its turn is broken
            self.pipeline.popleft()
            self.cycle = self._earlier.pop()
        elif self._part == _BODY or self.cycle is None or self.cycle.response_complete:
            super().send_400_response(msg)
            return
        self._part, self._unread, self._invalid = _NOTHING, b"", msg

    def shutdown(self) -> None:
        """End the connection behind the answer under way; requests behind it are not begun."""
        self._unread = b""
        self.pipeline.clear()
        cycles = [*self._earlier, *([] if self.cycle is None else [self.cycle])]
        under_way = next((each for each in cycles if not each.response_complete), None)
        if under_way is None:
            self._ending.cut()
        else:
            under_way.keep_alive = False

    def _discard_rest(self) -> None:
        """Discard what the client sends behind the last answer, until it ends its half."""
        self._stop()
        self._unread, self._part = b"", _NOTHING
        self.pipeline.clear()
        self._flow.is_held = False
        self._flow.resume_reading()
        self._clients.wait(self)
        if self._sending is None:
            self._timer = self._ending.wait_for_the_client()

    def pause_writing(self) -> None:
        """The client has to take what was written."""
        super().pause_writing()
        self._sending = self.loop.call_later(SEND_SECONDS, self.transport.abort)
        self._clients.count(self, self.held())

    def resume_writing(self) -> None:
        """The client has it."""
        self._after_answer()
        super().resume_writing()
        self._clients.count(self, self.held())
        if self.transport.is_closing() and self._timer is None:
            self._timer = self._ending.wait_for_the_client()

    def on_message_begin(self) -> None:
        """Wait for the rest of a head."""
        super().on_message_begin()
        self.scope[CLIENT] = self._peer  # type: ignore[literal-required]
        self._part, self._timed, self._taken, self._beside = _HEAD, None, 0, 0

    def on_url(self, url: bytes) -> None:
        """Count a part of the path."""
        super().on_url(url)
        self._taken += _URL_COPIES * len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header. Trailers are not kept. Raises ValueError for too many headers."""
        if self._part != _HEAD:
            return
        super().on_header(name, value)
        self._taken += _HEADER + _HEAD_COPIES * (len(name) + len(value))
        if len(self.headers) > MOST_HEADERS:
            raise ValueError(f"more than {MOST_HEADERS} headers")

    def on_headers_complete(self) -> None:
        """Wait for the body. A head that offers another protocol comes again without the offer."""
        self.is_offer = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self.is_offer:
            return
        self._clients.work(self)
        before = self.cycle
        self.scope[_BYTES], self._taken = self._taken, 0  # type: ignore[literal-required]
        super().on_headers_complete()
        self._part = _BODY
        if before is not None and not before.response_complete:
            self._earlier = [each for each in self._earlier if not each.response_complete]
            self._earlier.append(before)

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        super().on_body(body)
        self._beside = 0
        if self._timed == _BODY:
            self._clients.count_arrived(self, len(body))

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self.is_offer:
            return
        self._part, self._beside = _NOTHING, 0
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, or keep it: of several requests, only the next one is parsed before
        its turn. One of 18 bytes becomes objects of 3 KB."""
        if self.transport.is_closing():
            return
        if self._unread or data.count(_END) > 1:
            self._unread += data
            self._parse_next()
        else:
            self._parse(data)
        self._clients.count(self, self.held())

    def _parse_next(self) -> None:
        """Parse what was kept, until a request waits for its turn."""
        while self._unread and not self.pipeline and not self.transport.is_closing():
            begin = _PIECE if self._part == _BODY else 0
            end = self._unread.find(_END, begin) + len(_END)
            piece = self._unread[:end] if end >= len(_END) else self._unread
            self._unread = self._unread[len(piece) :]
            self._parse(piece)
        was_held, self._flow.is_held = self._flow.is_held, len(self._unread) > _MOST_UNREAD
        if self._flow.is_held:
            self._flow.pause_reading()
        elif was_held and not self.pipeline:
            self._flow.resume_reading()

    def _parse(self, data: bytes) -> None:
        """Close the connection if a head that is not complete has too many bytes, or trailers. A
        request that is complete needs no timer."""
        if self._part == _BODY:
            self._beside += len(data)
        super().data_received(data)
        if self._part == _NOTHING and self._is_idle():
            self._part = _HEAD  # empty lines before one
        if self._part != self._timed:
            self._time()
        if self._part == _HEAD:
            self._head += len(data)
            if self._head > MOST_HEAD:
                self._ending.cut()
        elif self._beside > MOST_HEAD:
            self._ending.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers, and call the disconnect callbacks."""
        self._stop()
        self._after_answer()
        self._clients.leave(self)
        super().connection_lost(exc)
        for each in self._earlier:  # uvicorn tells the last one only
            each.disconnected = True
            each.message_event.set()
        self._peer.leave()
        self._ending.forget()  # what refers to itself would stay until the collector runs
        self.cycle, self.scope, self.headers = None, {}, []  # type: ignore[assignment,typeddict-item]
        self._earlier, self._unread = [], b""
        self.pipeline.clear()

    def _is_idle(self) -> bool:
        """Whether nothing is left to answer, and no timer ends the connection."""
        is_answered = self.cycle is None or self.cycle.response_complete
        return is_answered and self.timeout_keep_alive_task is None

    def _time(self) -> None:
        """Close the connection if the part that is expected does not arrive."""
        self._stop()
        self._head, self._timed = 0, self._part
        self._start()

    def _start(self) -> None:
        """Start the timer, unless a request waits for its turn: its body need not be read yet."""
        if self._part != _NOTHING and self._timer is None and not self.pipeline:
            seconds = HEAD_SECONDS if self._part == _HEAD else BODY_SECONDS
            self._timer = self.loop.call_later(seconds, self._ending.cut)
            if self._part == _BODY:
                self._clients.arrive(self)

    def _stop(self) -> None:
        self._clients.rest(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _after_answer(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

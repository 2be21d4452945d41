"""Messages over gRPC count against the limit before they arrive.

grpcio takes a message into memory before the server knows its size, but only once the server reads
it: until then, clients wait with all but the first `LOOKAHEAD` bytes. So a message is read when
there is room for the longest one. While others wait for room, one that arrives slowly gives way:
the system says how much a connection has received. Messages that are short by definition wait for
none: one of them is read at a time, and a long one is in the memory that the server keeps free
until it is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from anydim.base.errors import BusyError, InputError, TimeLimitError
from anydim.serving.process_memory import return_free_memory
from anydim.serving.server.clients import LEAST_RATE, PATIENCE
from anydim.serving.server.connections import BODY_SECONDS
from anydim.serving.server.rpc_connections import RpcConnections, peer_of
from anydim.serving.server.state import State

LOOKAHEAD = 1 << 16  # bytes of a message that arrive before it is read
STREAM = 1 << 20  # bytes of the next message of a stream that arrive, by measurement
LEAST_MESSAGE = 4 << 20  # bytes: the longest message, or more where memory allows
MESSAGE_SHARE = 8  # the longest message is at most this part of the longest body
_COPIES = 3  # of a message while it is read: what arrived, its bytes, and the message
_OVERHEAD = 1 << 16  # bytes of a message beside its tensors
_POLL = 0.002  # seconds
_LOOK = 0.05  # seconds between two looks for messages that arrive slowly
_LEAST_PATIENCE = 0.25  # seconds for a message whose call has waited for room
_UNSEEN = 5.0  # seconds for one where the system does not say what has arrived
_AGAIN = "send it later"
_SHORT_SECONDS = 2.0  # of a short message, which is there before it is read


def longest_message(most_body: int) -> int:
    """Return the limit of a gRPC message for a limit of HTTP bodies."""
    return min(most_body, max(LEAST_MESSAGE, most_body // MESSAGE_SHARE)) + _OVERHEAD


Parse = Callable[[bytes], Any]
"""Makes a message of its bytes; raises DecodeError for others."""


class _Reader:
    """A call whose message is being received; more of it must arrive before `due`."""

    def __init__(self, connections: RpcConnections | None, context: Any, patience: float) -> None:
        self._connections, self._peer = connections, peer_of(context.peer())
        self._received = self._total()
        self.due = monotonic() + (patience if self._received is not None else _UNSEEN)
        self.reading: asyncio.Future[Any] | None = None
        self.is_given_way = False

    def _total(self) -> int | None:
        return None if self._connections is None else self._connections.bytes_received(self._peer)

    def is_slow(self) -> bool:
        """Whether the message arrives too slowly."""
        now, total = monotonic(), self._total()
        if total is not None and self._received is not None and total > self._received:
            self.due = min(self.due + (total - self._received) / LEAST_RATE, now + PATIENCE)
            self._received = total
        return now > self.due

    def give_way(self) -> None:
        """Abort the call to free memory for others."""
        self.is_given_way = True
        if self.reading is not None:
            self.reading.cancel()


class Arrivals:
    """Reads the messages of calls, each when there is room for it."""

    def __init__(self, state: State) -> None:
        self._state, self._engine = state, state.batcher.engine
        self._bytes = _COPIES * longest_message(state.most_body)
        self._turn = asyncio.Lock()  # calls wait in the order of their arrival
        self._short_turn = asyncio.Lock()
        self._arrived = 0  # bytes in the small parts that grpcio takes, freed but not returned
        self._readers: set[_Reader] = set()
        self.connections: RpcConnections | None = None  # once the port is known
        state.slow.append(self._give_way)

    @contextmanager
    def call(self, bytes: int, context: Any = None) -> Iterator[None]:
        """A call from its arrival to its answer, which takes bytes besides its messages. Raises
        BusyError without room for it."""
        self._engine.hold(bytes, "a call over gRPC")
        self._state.rpc_calls += 1
        calls = None if self.connections is None else self.connections.calls
        peer = ("", 0) if calls is None else peer_of(context.peer())
        if calls is not None:
            calls[peer] += 1
        try:
            yield
        finally:
            if calls is not None:
                calls[peer] -= 1
                if not calls[peer]:
                    del calls[peer]
            self._state.rpc_calls -= 1
            self._engine.unhold(bytes)

    async def only(self, context: Any, parse: Parse) -> Any:
        """The message of a call that has one. Raises InputError if it has none, or a malformed one,
        TimeLimitError if it does not arrive, BusyError if there is no room for it, or if it arrives
        slowly while others wait."""
        async with self._room(context) as reader:
            found = await _read(context, BODY_SECONDS, reader)
            self._arrived += len(found)
            return _parse_message(found, parse)

    async def short(self, context: Any, parse: Parse) -> Any:
        """As `only`, for messages of at most `LOOKAHEAD` bytes, without waiting for room."""
        async with self._short_turn:
            found = await _read(context, _SHORT_SECONDS)
            if len(found) > LOOKAHEAD:
                raise InputError(f"the message has {len(found)} bytes, at most {LOOKAHEAD} of such "
                                 "a call are taken")  # fmt: skip
            return _parse_message(found, parse)

    async def following(self, context: Any, parse: Parse) -> Any:
        """The next message of a stream, whose room it takes while it waits; None at its end. Raises
        InputError for a malformed one, BusyError once the server stops, or if others wait for its
        room."""
        async with self._room(context, is_stream=True) as reader:
            found = await self._unless_stopping(context, reader)
            if found is grpc.aio.EOF:
                return None
            self._arrived += len(found)
            return _parse_message(found, parse)

    async def _unless_stopping(self, context: Any, reader: _Reader) -> Any:
        """Receive the next message of a stream; raises BusyError once the server stops."""
        self._check_that_it_goes_on()
        reading = reader.reading = asyncio.ensure_future(context.read())
        stopping = asyncio.ensure_future(self._state.stopping.wait())
        try:
            await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                self._check_that_it_goes_on()
            if reader.is_given_way and reading.cancelled():
                raise BusyError("the stream is idle, and others wait for its room", _AGAIN)
            return reading.result()
        finally:
            reading.cancel()
            stopping.cancel()

    @asynccontextmanager
    async def _room(self, context: Any, is_stream: bool = False) -> AsyncIterator[_Reader]:
        begin = monotonic()
        async with self._turn:
            end, look = monotonic() + BODY_SECONDS, monotonic()
            while not self._is_held():
                if is_stream:
                    self._check_that_it_goes_on()
                if monotonic() >= look:
                    self._state.give_way()
                    look = monotonic() + _LOOK
                await asyncio.sleep(_POLL)
                if monotonic() > end:
                    self._engine.hold(self._bytes, "a message over gRPC")
                    break
            reader = _Reader(
                self.connections, context, max(_LEAST_PATIENCE, PATIENCE - monotonic() + begin)
            )
            self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)
            if self._arrived >= LEAST_MESSAGE:
                self._arrived = 0
                return_free_memory()
            self._engine.unhold(self._bytes)

    def _give_way(self) -> bool:
        """Abort the call whose message is most overdue; return whether there was one."""
        slow = [each for each in self._readers if each.is_slow()]
        if slow:
            slowest = min(slow, key=lambda each: each.due)
            self._readers.discard(slowest)
            slowest.give_way()
        return bool(slow)

    def _check_that_it_goes_on(self) -> None:
        if self._state.stopping.is_set():
            raise BusyError("the server stops", "open the stream again")

    def _is_held(self) -> bool:
        try:
            self._engine.hold(self._bytes, "a message over gRPC")
        except BusyError:
            return False
        return True


async def _read(context: Any, seconds: float, reader: _Reader | None = None) -> bytes:
    """The message of a call that has one."""
    reading = asyncio.ensure_future(context.read())
    if reader is not None:
        reader.reading = reading
    try:
        found = await asyncio.wait_for(reading, seconds)
    except asyncio.TimeoutError:
        raise TimeLimitError("the message did not arrive in time") from None
    except asyncio.CancelledError:
        if reader is not None and reader.is_given_way:
            raise BusyError("the message arrives slowly, and others wait for its room",
                            _AGAIN) from None  # fmt: skip
        raise
    if found is grpc.aio.EOF:
        raise InputError("the call has no message, or one above the limit")
    return found


def _parse_message(given: bytes, parse: Parse) -> Any:
    try:
        return parse(given)
    except DecodeError:
        raise InputError(f"the message of {len(given)} bytes is malformed") from None

"""Messages over gRPC count against the limit before they arrive.

grpcio takes a message into memory before the server knows its size, but only once the server reads
it: until then, clients wait with all but the first `LOOKAHEAD` bytes. So a message is read when
there is room for the longest one. Messages that are short by definition wait for none: one of them
is read at a time, and a long one is in the memory that the server keeps free until it is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from anydim.base.errors import BusyError, InputError, TimeLimitError
from anydim.server.connections import BODY_SECONDS
from anydim.server.state import State
from anydim.serving.process_memory import return_free_memory

LOOKAHEAD = 1 << 16  # bytes of a message that arrive before it is read
STREAM = 1 << 20  # bytes of the next message of a stream that arrive, by measurement
LEAST_MESSAGE = 4 << 20  # bytes: the longest message, or more where memory allows
MESSAGE_SHARE = 8  # the longest message is at most this part of the longest body
_COPIES = 3  # of a message while it is read: what arrived, its bytes, and the message
_OVERHEAD = 1 << 16  # bytes of a message beside its tensors
_POLL = 0.002  # seconds
_SHORT_SECONDS = 2.0  # of a short message, which is there before it is read


def longest_message(most_body: int) -> int:
    """The most bytes of a message, by the limit of bodies over HTTP."""
    return min(most_body, max(LEAST_MESSAGE, most_body // MESSAGE_SHARE)) + _OVERHEAD


Parse = Callable[[bytes], Any]
"""Makes a message of its bytes; raises DecodeError for others."""


class Arrivals:
    """Reads the messages of calls, each when there is room for it."""

    def __init__(self, state: State) -> None:
        self._state, self._engine = state, state.batcher.engine
        self._bytes = _COPIES * longest_message(state.most_body)
        self._turn = asyncio.Lock()  # calls wait in the order of their arrival
        self._short_turn = asyncio.Lock()
        self._arrived = 0  # bytes in the small parts that grpcio takes, freed but not returned

    @contextmanager
    def call(self, bytes: int) -> Iterator[None]:
        """A call from its arrival to its answer, which takes bytes besides its messages. Raises
        BusyError without room for it."""
        self._engine.hold(bytes, "a call over gRPC")
        self._state.rpc_calls += 1
        try:
            yield
        finally:
            self._state.rpc_calls -= 1
            self._engine.unhold(bytes)

    async def only(self, context: Any, parse: Parse) -> Any:
        """The message of a call that has one. Raises InputError if it has none, or a malformed one,
        TimeLimitError if it does not arrive, BusyError if there is no room for it."""
        async with self._room():
            found = await _read(context, BODY_SECONDS)
            self._arrived += len(found)
            return _parsed(found, parse)

    async def short(self, context: Any, parse: Parse) -> Any:
        """As `only`, for messages of at most `LOOKAHEAD` bytes, without waiting for room."""
        async with self._short_turn:
            found = await _read(context, _SHORT_SECONDS)
            if len(found) > LOOKAHEAD:
                raise InputError(f"the message has {len(found)} bytes, at most {LOOKAHEAD} of such "
                                 "a call are taken")  # fmt: skip
            return _parsed(found, parse)

    async def following(self, context: Any, parse: Parse) -> Any:
        """The next message of a stream, whose room it takes while it waits; None at its end. Raises
        InputError for a malformed one, BusyError once the server stops."""
        async with self._room(is_stream=True):
            found = await self._unless_stopping(context)
            if found is grpc.aio.EOF:
                return None
            self._arrived += len(found)
            return _parsed(found, parse)

    async def _unless_stopping(self, context: Any) -> Any:
        """The next message of a stream. Raises BusyError once the server stops."""
        self._check_that_it_goes_on()
        reading = asyncio.ensure_future(context.read())
        stopping = asyncio.ensure_future(self._state.stopping.wait())
        try:
            await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                self._check_that_it_goes_on()
            return reading.result()
        finally:
            reading.cancel()
            stopping.cancel()

    @asynccontextmanager
    async def _room(self, is_stream: bool = False) -> AsyncIterator[None]:
        async with self._turn:
            end = asyncio.get_running_loop().time() + BODY_SECONDS
            while not self._is_held():
                if is_stream:
                    self._check_that_it_goes_on()
                await asyncio.sleep(_POLL)
                if asyncio.get_running_loop().time() > end:
                    self._engine.hold(self._bytes, "a message over gRPC")
                    break
        try:
            yield
        finally:
            if self._arrived >= LEAST_MESSAGE:
                self._arrived = 0
                return_free_memory()
            self._engine.unhold(self._bytes)

    def _check_that_it_goes_on(self) -> None:
        if self._state.stopping.is_set():
            raise BusyError("the server stops", "open the stream again")

    def _is_held(self) -> bool:
        try:
            self._engine.hold(self._bytes, "a message over gRPC")
        except BusyError:
            return False
        return True


async def _read(context: Any, seconds: float) -> bytes:
    """The message of a call that has one."""
    try:
        found = await asyncio.wait_for(context.read(), seconds)
    except asyncio.TimeoutError:
        raise TimeLimitError("the message did not arrive in time") from None
    if found is grpc.aio.EOF:
        raise InputError("the call has no message, or one above the limit")
    return found


def _parsed(given: bytes, parse: Parse) -> Any:
    try:
        return parse(given)
    except DecodeError:
        raise InputError(f"the message of {len(given)} bytes is malformed") from None

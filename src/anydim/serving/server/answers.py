"""HTTP responses. A long body is streamed in pieces with flow control, so the server holds the
result arrays and no second copy of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy

from anydim.base.records import dataclass
from anydim.serving.server.asgi import Message, Scope, Send, is_gone

Headers = list[tuple[bytes, bytes]]

PIECE = 1 << 16  # bytes of a body that are written at once
NUMBERS = 1 << 11  # elements that are written as JSON at once: a millisecond
JSON = (b"content-type", b"application/json")
_ENCODER = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True)
class Parts:
    """A body in parts; each call of `parts` yields the same ones.

    `size` is its length in bytes, or None if only producing all parts tells it.
    """

    size: int | None
    parts: Callable[[], Iterable[bytes | memoryview]]

    def whole(self) -> bytes:
        """Return the whole body."""
        return b"".join(self.parts())


Answer = tuple[int, bytes | Parts, Headers]
"""Status, body and headers."""


def json_of(value: Any) -> bytes:
    """Encode a value as JSON."""
    return _ENCODER.encode(value).encode()


def json_answer(value: Any, status: int = 200) -> Answer:
    """Return a response with a JSON body."""
    return status, json_of(value), [JSON]


def json_elements(array: numpy.ndarray) -> numpy.ndarray:
    """Return the flat elements of an array in a type that JSON can represent."""
    flat = array.reshape(-1)
    if array.dtype.isbuiltin != 2:
        return flat
    return flat.astype(numpy.int8 if "int" in array.dtype.name else numpy.float32)


def elements(array: numpy.ndarray) -> Iterator[bytes]:
    """Yield the elements of an array as JSON text without brackets."""
    flat = json_elements(array)
    for begin in range(0, flat.size, NUMBERS):
        piece = json_of(flat[begin : begin + NUMBERS].tolist())[1:-1]
        yield b"," + piece if begin else piece


async def answer(send: Send, given: Answer, scope: Scope) -> None:
    """Send a response; returns when a long body was sent completely or the client disconnected.

    The event loop runs other requests between pieces. The length of a body of unknown size is
    computed if it is short, or if the client cannot read chunked encoding; its parts are then
    produced twice.
    """
    status, body, headers = given
    if isinstance(body, Parts):
        size, parts = await _size_of_body(body, is_old(scope))
    else:
        size, parts = len(body), (body,)
    if size is not None:
        headers = [*headers, (b"content-length", b"%d" % size)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if size is not None and size <= PIECE:
        await send({"type": "http.response.body", "body": b"".join(parts)})
        return
    for part in parts:
        for begin in range(0, len(part), PIECE):
            piece = part[begin : begin + PIECE]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
            if is_gone(scope):
                return
    await send({"type": "http.response.body", "body": b""})


async def _size_of_body(
    body: Parts, is_whole: bool
) -> tuple[int | None, Iterable[bytes | memoryview]]:
    """Return the length of a body and its parts; the length is None for chunked encoding.

    Bodies of unknown length above `PIECE` are chunked unless `is_whole`.
    """
    if body.size is not None:
        return body.size, body.parts()
    rest, first, size = iter(body.parts()), list[bytes | memoryview](), 0
    for part in rest:
        first.append(part)
        size += len(part)
        if size > PIECE:
            break
    else:
        return size, first
    if is_whole:
        return size + await asyncio.to_thread(lambda: sum(map(len, rest))), body.parts()
    return None, chain(first, rest)


def is_old(scope: Scope) -> bool:
    """Whether a client cannot read chunked encoding (RFC 9112, 6.1)."""
    return scope.get("http_version") == "1.0"


def without_chunks(send: Send) -> Send:
    """Wrap `send` for clients that cannot read chunked encoding: event streams, whose length is
    unknown, are collected and sent as a whole."""
    start: list[Message] = []
    parts: list[bytes | memoryview] = []

    async def joined(message: Message) -> None:
        if message["type"] == "http.response.start":
            if all(name.lower() != b"content-length" for name, _ in message["headers"]):
                start.append(message)
                return
        elif start:
            parts.append(message.get("body", b""))
            if message.get("more_body"):
                return
            (begun,), body = start, b"".join(parts)
            start.clear()
            length = (b"content-length", b"%d" % len(body))
            await send({**begun, "headers": [*begun["headers"], length]})
            message = {"type": "http.response.body", "body": body}
        await send(message)

    return joined

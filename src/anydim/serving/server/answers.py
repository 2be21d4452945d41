"""Answers over HTTP. A long one leaves in pieces, each once the client has taken those before, so
that the server holds the arrays of a result and no other copy of it."""

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
    """A body in parts, the same at each call. `size` are its bytes; None: known only with its last
    part."""

    size: int | None
    parts: Callable[[], Iterable[bytes | memoryview]]

    def whole(self) -> bytes:
        """All of it."""
        return b"".join(self.parts())


Answer = tuple[int, bytes | Parts, Headers]
"""Status, body and headers."""


def json_of(value: Any) -> bytes:
    """A value as JSON."""
    return _ENCODER.encode(value).encode()


def json_answer(value: Any, status: int = 200) -> Answer:
    """An answer of JSON."""
    return status, json_of(value), [JSON]


def plain(array: numpy.ndarray) -> numpy.ndarray:
    """The elements of an array, of a type that JSON has."""
    flat = array.reshape(-1)
    if array.dtype.isbuiltin != 2:
        return flat
    return flat.astype(numpy.int8 if "int" in array.dtype.name else numpy.float32)


def elements(array: numpy.ndarray) -> Iterator[bytes]:
    """The elements of an array as JSON, without brackets, in pieces."""
    flat = plain(array)
    for begin in range(0, flat.size, NUMBERS):
        piece = json_of(flat[begin : begin + NUMBERS].tolist())[1:-1]
        yield b"," + piece if begin else piece


async def answer(send: Send, given: Answer, scope: Scope) -> None:
    """Send an answer; a long one has left when this returns, or its client has gone.

    Other requests have a turn after each piece. A body of unknown size is measured if it is short,
    or if the client reads no chunks; its parts are then made twice.
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
    """The size of a body, None if that is unknown, above `PIECE` and not `is_whole`; its parts."""
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
    """Whether a client reads no chunks (RFC 9112, 6.1)."""
    return scope.get("http_version") == "1.0"


def without_chunks(send: Send) -> Send:
    """Send for a client that reads no chunks: an answer without a length, which is a stream of
    events, is sent when all of it is there, with its length."""
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

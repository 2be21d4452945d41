"""Answers over HTTP. A long one leaves in pieces, each once the client has taken those before, so
that the server holds the arrays of a result and no other copy of it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any

import numpy

from anydim.base.records import dataclass

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

PIECE = 1 << 16  # bytes of a body that are written at once
NUMBERS = 1 << 13  # elements that are written as JSON at once
JSON = (b"content-type", b"application/json")
_ENCODER = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True)
class Parts:
    """A body in parts. `size` are its bytes; None: known only with its last part."""

    size: int | None
    parts: Iterable[bytes | memoryview]

    def whole(self) -> bytes:
        """All of it."""
        return b"".join(self.parts)


Answer = tuple[int, bytes | Parts, Headers]
"""Status, body and headers."""


def written(value: Any) -> bytes:
    """A value as JSON."""
    return _ENCODER.encode(value).encode()


def json_answer(value: Any, status: int = 200) -> Answer:
    """An answer of JSON."""
    return status, written(value), [JSON]


def plain(array: numpy.ndarray) -> numpy.ndarray:
    """The elements of an array, of a type that JSON has."""
    flat = array.reshape(-1)
    return flat.astype(numpy.float32) if array.dtype.name == "bfloat16" else flat


def elements(array: numpy.ndarray) -> Iterator[bytes]:
    """The elements of an array as JSON, without brackets, in pieces."""
    flat = plain(array)
    for begin in range(0, flat.size, NUMBERS):
        piece = written(flat[begin : begin + NUMBERS].tolist())[1:-1]
        yield b"," + piece if begin else piece


async def answer(send: Send, given: Answer) -> None:
    """Send an answer; a long one has left when this returns."""
    status, body, headers = given
    parts = body if isinstance(body, Parts) else Parts(len(body), (body,))
    size = parts.size
    if size is not None:
        headers = [*headers, (b"content-length", b"%d" % size)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if size is not None and size <= PIECE:
        await send({"type": "http.response.body", "body": parts.whole()})
        return
    for part in parts.parts:
        for begin in range(0, len(part), PIECE):
            piece = part[begin : begin + PIECE]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})

"""Promise: answers have a length where it is known or short, and chunks only for HTTP/1.1."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anydim.serving.server.answers import PIECE, Parts, answer, without_chunks
from anydim.serving.server.state import error_text, status_of


def sent(body: bytes | Parts, version: str = "1.1") -> tuple[bytes | None, list[bytes]]:
    """The declared length of an answer, and the pieces in which it leaves."""
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    asyncio.run(answer(send, (200, body, [(b"a", b"b")]), {"http_version": version}))
    return read(messages)


def read(messages: list[Any]) -> tuple[bytes | None, list[bytes]]:
    """The declared length of an answer, and its pieces."""
    start, *rest = messages
    assert start["type"] == "http.response.start" and (b"a", b"b") in start["headers"]
    assert [each.get("more_body", False) for each in rest] == [True] * (len(rest) - 1) + [False]
    return dict(start["headers"]).get(b"content-length"), [bytes(each["body"]) for each in rest]


@pytest.mark.parametrize("count", (0, 1, 3))
@pytest.mark.parametrize("size", (0, 1, PIECE - 1, PIECE, PIECE + 1))
@pytest.mark.parametrize("version", ("1.0", "1.1"))
def test_what_is_short_or_for_old_clients_has_a_length(count: int, size: int, version: str) -> None:
    parts = [bytes([number]) * size for number in range(count)]
    length, pieces = sent(Parts(None, lambda: iter(parts)), version)
    assert b"".join(pieces) == b"".join(parts) and all(len(each) <= PIECE for each in pieces)
    is_long = version == "1.1" and count * size > PIECE
    assert length == (None if is_long else b"%d" % (count * size))


@pytest.mark.parametrize("size", (0, 1, PIECE, PIECE + 1, 3 * PIECE))
@pytest.mark.parametrize("version", ("1.0", "1.1"))
def test_what_has_a_length_leaves_in_pieces(size: int, version: str) -> None:
    length, pieces = sent(Parts(size, lambda: iter([bytes(size)])), version)
    assert length == b"%d" % size and b"".join(pieces) == bytes(size)
    assert max(map(len, pieces)) <= PIECE


@pytest.mark.parametrize("headers", ([], [(b"Content-Length", b"2")]))
@pytest.mark.parametrize("bodies", ([b"ab"], [b"a", b"b"], [b"ab", b""]))
def test_events_for_old_clients_have_a_length(headers: list[Any], bodies: list[bytes]) -> None:
    messages: list[Any] = []

    async def run() -> None:
        send = without_chunks(keep)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number, body in enumerate(bodies, 1):
            is_more = number < len(bodies)
            await send({"type": "http.response.body", "body": body, "more_body": is_more})

    async def keep(message: Any) -> None:
        messages.append(message)

    asyncio.run(run())
    length, pieces = read([{**messages[0], "headers": [*messages[0]["headers"], (b"a", b"b")]},
                           *messages[1:]])  # fmt: skip
    assert length == (None if headers else b"2") and pieces == (bodies if headers else [b"ab"])


def test_no_memory_is_no_fault_of_the_server() -> None:
    assert status_of(MemoryError("secret")) == 503 and status_of(ValueError("secret")) == 500
    for error in (MemoryError("secret"), ValueError("secret")):
        assert "secret" not in error_text(error)

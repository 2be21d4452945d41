"""Promise: a load counts a request as unanswered only if a fresh connection does not answer it."""

from __future__ import annotations

import asyncio

import pytest

from anydim.base.errors import OptionError
from anydim.cli import main
from anydim.serving.server.arrivals import (
    FAILED,
    Connections,
    SentRequest,
    Target,
    request_bytes,
    send_all,
    target_of,
)
from anydim.serving.server.loading import LoadPlan, summary


async def answered(rounds: int, count: int) -> tuple[list[int], int]:
    """Statuses of requests to a server that closes its idle connections between rounds."""
    open_ones, taken = list[asyncio.StreamWriter](), 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        open_ones.append(writer)
        while await reader.readline():
            while (await reader.readline()).strip():
                pass
            taken += 1
            await asyncio.sleep(0.02)  # so that each request of a round has a connection
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connections, found = Connections(Target("127.0.0.1", port, "x")), list[int]()
    for _ in range(rounds):
        sent = [connections.send(b"GET / HTTP/1.1\r\n\r\n") for _ in range(count)]
        found += [status for status, _ in await asyncio.gather(*sent)]
        for writer in open_ones:
            writer.close()
        open_ones.clear()
        await asyncio.sleep(0.05)
    server.close()
    await server.wait_closed()
    status, _ = await connections.send(b"GET / HTTP/1.1\r\n\r\n")
    connections.close()
    return [*found, status], taken


async def read(data: bytes) -> tuple[int, bytes]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connections = Connections(Target("127.0.0.1", port, "x"))
        found = await connections.send(b"GET / HTTP/1.1\r\n\r\n")
        connections.close()
        return found


@pytest.mark.parametrize("data, expected", [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", (200, b"abc")),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x\r\nc\r\n0\r\n\r\n",
     (200, b"abc")),
    (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"")),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", (FAILED, b"the connection was closed")),
    (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
     (FAILED, b"what arrived is no HTTP")),
    (b"nothing\r\n\r\n", (FAILED, b"what arrived is no HTTP")),
    (b"", (FAILED, b"the connection was closed")),
])  # fmt: skip
def test_bodies_of_answers(data: bytes, expected: tuple[int, bytes]) -> None:
    assert asyncio.run(read(data)) == expected


def test_connections_that_the_server_closed_are_replaced() -> None:
    statuses, taken = asyncio.run(answered(3, 6))
    assert statuses == [200] * 18 + [FAILED] and taken == 18


def test_a_summary_has_the_first_error_of_each_status() -> None:
    plan = LoadPlan("x", None, 1.0, 1.0, [], None, {}, (), 0, 1.0)
    found = [
        SentRequest(0.0, 9, 0.1, 200, b"{}"),
        SentRequest(0.1, 7, 0.1, 400, b'{"error":"too short"}'),
        SentRequest(0.2, 8, 0.1, 400, b'{"error":"too long"}'),
        SentRequest(0.3, 3, 0.1, 503, b"full"),
        SentRequest(0.4, 3, 0.1, FAILED, b"Connection refused"),
    ]  # fmt: skip
    first, *others = summary(plan, found)
    assert first.startswith("1 of 5 answered")
    assert others == [
        "2 with status 400, such as of length 7: too short",
        "1 with status 503, such as of length 3: full",
        "1 with no answer, such as of length 3: Connection refused",
    ]  # fmt: skip


def test_errors_of_requests_are_kept() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            writer.write(b"HTTP/1.1 400 Bad\r\ncontent-length: 3\r\n\r\nbad")

    async def run() -> list[SentRequest]:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            target = Target("127.0.0.1", server.sockets[0].getsockname()[1], "x")
            return await send_all(target, [(3, b"x\r\n")], 1000, 0)

    assert [(each.status, each.body) for each in asyncio.run(run())] == [(400, b"bad")]


def test_addresses_of_ipv6_stand_in_brackets() -> None:
    assert target_of("http://[::1]:80", "x").authority == "[::1]:80"
    assert target_of("localhost:8000", "x").authority == "localhost:8000"
    data = request_bytes(target_of("http://[::1]:80", "x"), {}, {})
    assert b"\r\nhost: [::1]:80\r\n" in data


@pytest.mark.parametrize("url", (
    "localhost:99999", "localhost:x", "http://[::1", "ftp://x", "http://", "", "https://x:1",
))  # fmt: skip
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(OptionError, match="is no address of a server"):
        target_of(url, "x")


ABOUT = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}]}'
RESULT, ERROR, SLOW, NOTHING = b"200 OK", b"404 Not Found", b"slow", b"nothing"


@pytest.mark.parametrize("kind, code, said", [
    (RESULT, 0, "3 of 3 answered"), (ERROR, 1, "3 with status 404, such as of length 2: there is"),
    (SLOW, 1, "3 with no answer, such as of length 2: nothing arrived in 0.2 s"),
    (NOTHING, 1, "3 with no answer, such as of length 2: the connection was closed"),
], ids=lambda each: each.decode() if isinstance(each, bytes) else "")  # fmt: skip
@pytest.mark.parametrize("quiet", ((), ("--quiet",)), ids=("", "quiet"))
def test_a_load_without_results_fails(
    kind: bytes, code: int, said: str, quiet: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """As users of hey, wrk and oha expect in scripts, it tells why."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            size = [line for line in head.split(b"\r\n") if line.startswith(b"content-length")]
            await reader.readexactly(int(size[0].split(b":")[1]) if size else 0)
            status, body = b"200 OK", ABOUT
            if head.startswith(b"POST"):
                status, body = kind, b'{"error":"there is none"}'
            if status == NOTHING:
                writer.close()
                return
            if status != SLOW:
                length = b"content-length: %d" % len(body)
                writer.write(b"\r\n".join((b"HTTP/1.1 " + status, length, b"", body)))

    async def run() -> int:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            url = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            words = ["load", url, "--model", "m", "--lengths", "2", "--rate", "300",
                     "--seconds", "0.01", "--timeout", "0.2" if code else "9", *quiet]  # fmt: skip
            with pytest.raises(SystemExit) as caught:
                await asyncio.to_thread(main, words)
            return int(str(caught.value.code))

    assert asyncio.run(run()) == code
    out, err = capsys.readouterr()
    assert (said in " ".join(err.split())) is (code == 1 or not quiet)
    assert bool(out) is (code == 0)

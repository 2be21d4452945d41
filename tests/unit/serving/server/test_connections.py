"""Promise: a client that is slow, with its head, its body or its answer, is disconnected; a long
answer holds up no other request, and ends when its client goes away; requests behind each other
are answered in order, and refused in order; a body is read as the application takes it; idle
connections keep nobody out; the last answer of a connection arrives whole."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("httptools")

from anydim.serving.server import connections, last_answers  # noqa: E402
from anydim.serving.server.answers import PIECE, Parts, answer  # noqa: E402

LONG = 64 << 20  # bytes of an answer, above what systems buffer
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
PARTS = GET.replace(b"/ ", b"/parts ")
POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n"
Seen = list[str]
COUNT = 1500  # parts of an answer, each of a millisecond


def parts(seen: Seen) -> Iterator[bytes]:
    """An answer that is made while it is sent."""
    for _ in range(COUNT):
        time.sleep(0.001)
        seen.append("part")
        yield bytes(PIECE)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, Seen]]:
    """The port of a server with short limits, and what its application saw."""
    for name in ("HEAD_SECONDS", "BODY_SECONDS", "SEND_SECONDS"):
        monkeypatch.setattr(connections, name, 0.2)
    seen: Seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            seen.append("left")
            return
        body: Any = bytes(LONG if scope["method"] == "GET" else 5)
        if scope["path"] == "/parts":
            body = Parts(None, partial(parts, seen))
        await answer(send, (200, body, []), scope)
        seen.append("answered")

    with running(app) as port:
        yield port, seen


@contextmanager
def running(app: Any, **options: Any) -> Iterator[int]:
    """The port of a server of an application."""
    with started(app, **options) as (port, _):
        yield port


@contextmanager
def started(app: Any, **options: Any) -> Iterator[tuple[int, Any]]:
    """The port of a server of an application, and the server."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = uvicorn.Server(uvicorn.Config(
            app, http=connections.BoundedProtocol, ws="none", lifespan="off", log_config=None,
            **options,
        ))  # fmt: skip
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        yield bound.getsockname()[1], server
        server.should_exit = True
        thread.join(30)


def closed(client: socket.socket) -> bool:
    """Whether the server closes a connection; what it sends before is read."""
    client.settimeout(30)
    try:
        while client.recv(1 << 20):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("sent", (b"", b"\r\n", b"GET / HT", GET[:-2], POST, POST + b"a" * 99))
def test_heads_and_bodies_that_do_not_come(served: tuple[int, Seen], sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served[0])) as client:
        client.sendall(sent)
        assert closed(client)
    assert served[1] in ([], ["left"])


@pytest.mark.parametrize("sent", (b"\r\n", b"GET / HT", POST, POST + b"a" * 99))
def test_what_does_not_come_after_an_answer(served: tuple[int, Seen], sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served[0])) as client:
        client.sendall(POST + b"a" * 100)
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        client.sendall(sent)
        assert closed(client)
    assert served[1] in (["answered"], ["answered", "left"])


def test_answers_that_are_not_taken(served: tuple[int, Seen]) -> None:
    with socket.create_connection(("127.0.0.1", served[0])) as client:
        client.sendall(GET)
        end = time.monotonic() + 30
        while not served[1] and time.monotonic() < end:
            time.sleep(0.01)
        assert served[1]  # the request has ended though nothing was read
        client.settimeout(30)
        taken = 0
        with pytest.raises(ConnectionError):
            while part := client.recv(1 << 20):
                taken += len(part)
            raise ConnectionError
        assert taken < LONG


def test_a_client_that_takes_its_answer_slowly_gets_it(served: tuple[int, Seen]) -> None:
    with socket.create_connection(("127.0.0.1", served[0])) as client:
        client.settimeout(30)
        client.sendall(POST + b"a" * 100)
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        client.sendall(GET)
        taken = 0
        while taken < LONG:
            taken += len(client.recv(1 << 20))
            if taken % 16 == 0:
                time.sleep(0.001)
    answered(served[1], 2)


def answered(seen: Seen, count: int) -> None:
    """Wait until so many requests are answered: the client has the bytes a moment before."""
    end = time.monotonic() + 30
    while seen.count("answered") < count and time.monotonic() < end:
        time.sleep(0.01)
    assert seen.count("answered") == count


def seconds(port: int) -> float:
    """How long a short request takes."""
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(POST + b"a" * 100)
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
    return time.monotonic() - begin


@pytest.mark.parametrize("sent", (PARTS, PARTS + GET), ids=("alone", "pipelined"))
def test_an_answer_ends_when_its_client_goes_away(
    served: tuple[int, Seen], caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    port, seen = served
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(sent)
        assert client.recv(1000)
    assert seconds(port) < 0.5
    answered(seen, 2)
    assert seen.count("part") < COUNT // 2
    assert "raised exception" not in caplog.text


def test_an_answer_that_is_taken_at_once_holds_up_no_other(served: tuple[int, Seen]) -> None:
    port, seen = served
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(PARTS)
        reader = threading.Thread(target=closed, args=(client,))
        reader.start()
        while "part" not in seen:
            time.sleep(0.001)
        assert seconds(port) < 0.5 and seen.count("part") < COUNT
        client.shutdown(socket.SHUT_RDWR)
        reader.join(30)


@pytest.mark.parametrize("size", (1, 700, 5000))
def test_requests_behind_each_other_are_answered_in_order(size: int) -> None:
    """Whatever their pieces are, and with ends of heads in their bodies."""
    seen: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive()).get("more_body") or message["type"] != "http.request":
            body += message["body"]
        body += message["body"]
        seen.append(body)
        await answer(send, (200, body, []), scope)

    bodies = [b"%d\r\n\r\n" % number * (number % 40) for number in range(300)]
    sent = b"".join(POST.replace(b"100", b"%d" % len(body)) + body for body in bodies)
    with running(app) as port, socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(30)
        writer = threading.Thread(target=in_pieces, args=(client, sent, size))
        writer.start()
        found = b""
        while found.count(b"HTTP/1.1 200") < len(bodies):
            found += client.recv(1 << 16)
        writer.join()
    assert seen == bodies


def in_pieces(client: socket.socket, data: bytes, size: int) -> None:
    for begin in range(0, len(data), size):
        client.sendall(data[begin : begin + size])


def asked(client: socket.socket) -> bool:
    """Whether a request is answered with yes."""
    client.sendall(GET)
    found = b""
    while not found.endswith(b"yes") and (part := client.recv(1000)):
        found += part
    return found.startswith(b"HTTP/1.1 200")


def test_idle_connections_keep_nobody_out() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answer(send, (200, b"yes", []), scope)

    with running(app, limit_concurrency=8) as port:
        clients = []
        for _ in range(30):
            client = socket.create_connection(("127.0.0.1", port))
            clients.append(client)
            client.settimeout(30)
            assert asked(client)
        assert all(map(closed, clients[:22]))  # the oldest ones
        assert all(map(asked, clients[-5:]))
        for client in clients:
            client.close()


def test_connections_that_have_just_come_are_not_closed_for_others() -> None:
    """Above the limit, requests are refused with 503."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.05)
        await answer(send, (200, b"yes", []), scope)

    with running(app, limit_concurrency=8) as port:
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        for client in clients:
            client.settimeout(30)
            client.sendall(GET)
        found = [client.recv(1 << 16)[:12] for client in clients]
        for client in clients:
            client.close()
    assert set(found) <= {b"HTTP/1.1 200", b"HTTP/1.1 503"} and b"HTTP/1.1 503" in found


def test_requests_whose_client_left_end_quietly(caplog: pytest.LogCaptureFixture) -> None:
    left = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    with running(app) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(GET * 3)
            time.sleep(0.2)
        assert left.wait(10)
        time.sleep(0.2)
    assert not caplog.messages


SLOW = GET.replace(b"/ ", b"/slow ")
CHUNKS = GET[:-2] + b"transfer-encoding: chunked\r\n\r\n"


async def slowly(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the size of the body, some paths after a time."""
    size, more = 0, True
    if scope["path"] == "/slow":
        await asyncio.sleep(0.6)
    while more:
        message = await receive()
        more = message.get("more_body", False)
        size += len(message.get("body", b""))
    await answer(send, (200, b"yes%d" % size, []), scope)


def answers(port: int, sent: bytes) -> list[bytes]:
    """Statuses and bodies of the answers until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(sent)
        found = b""
        while part := client.recv(1 << 16):
            found += part
    return re.findall(rb"HTTP/1.1 (...)|(yes\d+)", found)


@pytest.mark.parametrize("count", (1, 3))
@pytest.mark.parametrize(
    "sent", (b"no request\r\n\r\n", b"GET http://[ HTTP/1.1\r\n\r\n", CHUNKS + b"z\r\n"),
    ids=("word", "address", "chunk"),
)  # fmt: skip
def test_what_is_no_request_is_refused_behind_the_answers(count: int, sent: bytes) -> None:
    with running(slowly) as port:
        found = answers(port, SLOW + GET * (count - 1) + sent)
    assert found == [(b"200", b""), (b"", b"yes0")] * count + [(b"400", b"")]


OFFERS = (
    b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQA\r\n",
    b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
    b"connection: keep-alive, Upgrade\r\nupgrade: h2c\r\nexpect: 100-continue\r\n",
)


@pytest.mark.parametrize("size", (1, 7, 4096))
@pytest.mark.parametrize("offer", OFFERS, ids=("h2c", "websocket", "keep-alive"))
def test_offers_of_other_protocols_are_ignored(offer: bytes, size: int) -> None:
    """The body of a request is read, and the requests behind it are answered."""
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        names = {name for name, _ in scope["headers"]}
        seen.append((scope["method"], scope["path"], body + message["body"], b"upgrade" in names))
        await answer(send, (200, b"fine", []), scope)

    with running(app) as port, socket.create_connection(("127.0.0.1", port)) as client:
        plain = b"POST /%s HTTP/1.1\r\nhost: x\r\n%scontent-length: 3\r\n\r\n%s"
        chunked = b"POST /c HTTP/1.1\r\nhost: x\r\n%stransfer-encoding: chunked\r\n\r\n"
        sent = plain % (b"a", offer, b"abc") + plain % (b"b", b"", b"def")
        sent += chunked % offer + b"3\r\nghi\r\n0\r\n\r\n" + GET.replace(b"host", offer + b"host")
        in_pieces(client, sent + plain % (b"e", b"connection: close\r\n", b"jkl"), size)
        client.settimeout(30)
        found = b""
        while data := client.recv(1 << 16):
            found += data
    assert found.count(b"HTTP/1.1 200") == found.count(b"fine") == 5
    paths = [("POST", "/a", b"abc"), ("POST", "/b", b"def"), ("POST", "/c", b"ghi"),
             ("GET", "/", b""), ("POST", "/e", b"jkl")]  # fmt: skip
    assert seen == [(*each, False) for each in paths]


def test_a_body_behind_a_long_request_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.2)
    size = 300_000
    late = POST.replace(b"length: 100", b"length: %d\r\nconnection: close" % size)
    with running(slowly) as port:
        found = answers(port, SLOW + late + bytes(size))
    assert found[-1] == (b"", b"yes%d" % size) and found[1] == (b"", b"yes0")


@pytest.mark.parametrize("fill", (b"abcd", b"\r\n\r\n"), ids=("plain", "ends"))
def test_a_body_is_read_as_it_is_taken(fill: bytes) -> None:
    """The buffers of the system hold some MiB."""
    taken = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal taken
        await asyncio.sleep(0.6)
        taken = len((await receive())["body"])
        await answer(send, (200, b"yes", []), scope)

    with running(app) as port, socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(0.3)
        client.sendall(POST.replace(b"100", b"%d" % LONG))
        with pytest.raises(TimeoutError):
            client.sendall(fill * (LONG // len(fill)))
        client.settimeout(30)
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
    assert taken < 1 << 19


LAST = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize("is_stopped", (True, False), ids=("server stops", "client asks"))
@pytest.mark.parametrize("is_begun", (True, False), ids=("begun", "not begun"))
def test_the_last_answer_of_a_connection_arrives_whole(is_begun: bool, is_stopped: bool) -> None:
    """Requests behind it are not begun, whenever they arrive, and reset no connection."""
    begun, go, size, seen = threading.Event(), threading.Event(), 8 << 20, []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["path"])
        begun.set()
        while not is_begun and not go.is_set():
            await asyncio.sleep(0.01)
        await answer(send, (200, bytes(size), []), scope)

    with started(app) as (port, server), socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.settimeout(30)
        client.connect(("127.0.0.1", port))
        client.sendall((GET if is_stopped else LAST) + GET * 1500)
        assert begun.wait(30)
        time.sleep(0.05)
        server.should_exit = is_stopped
        time.sleep(0.15 if is_stopped else 0)
        client.sendall(GET * 1500)
        go.set()
        found = b""
        while part := client.recv(1 << 16):
            client.sendall(GET)
            found += part
    head, _, body = found.partition(b"\r\n\r\n")
    assert (head.count(b"connection: close"), len(body)) == (not is_begun or not is_stopped, size)
    assert seen == ["/"]


def test_a_client_that_keeps_its_half_open_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_answers, "CLIENT_SECONDS", 0.2)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answer(send, (200, b"yes", []), scope)

    with running(app) as port, socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(30)
        client.sendall(LAST)
        assert closed(client)
        with pytest.raises(ConnectionError):
            for _ in range(300):
                client.sendall(GET)
                time.sleep(0.01)

"""Promise: the process stays below --memory, whatever clients send, however slowly they read."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from anydim.serving import AsyncBatcher
from tests.unit.serving.models import scaled
from tests.unit.serving.server.running import running
from tests.unit.serving.server.test_protocol import HEAD

for _package in ("starlette", "uvicorn", "httptools", "grpc"):
    pytest.importorskip(_package)
import grpc  # noqa: E402

from anydim.serving.server.repository import Loaded  # noqa: E402
from anydim.serving.server.rest import Infer  # noqa: E402

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc")

LIMIT = 160 << 20
PATH = "/v2/models/scaled/infer"
WIDE = 90_000  # elements of a row


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    scaled().save(tmp_path / "scaled.anydim")
    with running(str(tmp_path), "--memory", f"{LIMIT >> 20}MiB") as made:
        yield made


def highest(server: Any) -> int:
    """The most bytes that the server's process had."""
    text = Path(f"/proc/{server.process.pid}/status").read_text("utf-8")
    return int(text.split("VmHWM:")[1].split()[0]) << 10


def request(
    rows: int, is_binary: bool, spaces: int = 0, width: int = WIDE, more: tuple[str, ...] = ()
) -> bytes:
    """A request for y of some rows, and for `more` as bytes, as it goes over a connection."""
    data = np.full((rows, width), 0.1, np.float32)
    row = {"name": "x", "datatype": "FP32", "shape": list(data.shape),
           "parameters": {"binary_data_size": data.nbytes}}  # fmt: skip
    names: list[Any] = [{"name": "y", "parameters": {"binary_data": is_binary}}]
    names += [{"name": name, "parameters": {"binary_data": True}} for name in more]
    head = json.dumps({"inputs": [row], "outputs": names}).encode() + b" " * spaces
    lines = (f"POST {PATH} HTTP/1.1", "host: x", f"content-length: {len(head) + data.nbytes}",
             f"{HEAD}: {len(head)}", "", "")  # fmt: skip
    return "\r\n".join(lines).encode() + head + data.tobytes()


def connected(server: Any) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    made.settimeout(30)
    made.connect(("127.0.0.1", server.port))
    return made


def read(client: socket.socket) -> tuple[int, bytes]:
    """Status and body of an answer."""
    with client.makefile("rb") as file:
        status, headers = int(file.readline().split()[1]), {}
        while line := file.readline().strip().lower():
            name, _, value = line.partition(b":")
            headers[name] = value.strip()
        if b"content-length" in headers:
            return status, file.read(int(headers[b"content-length"]))
        parts = []
        while size := int(file.readline(), 16):
            parts.append(file.read(size))
            file.readline()
        return status, b"".join(parts)


@pytest.mark.parametrize("is_binary", (True, False), ids=("binary", "JSON"))
def test_clients_that_do_not_read(server: Any, is_binary: bool) -> None:
    rows, count = (24, 24) if is_binary else (6, 4)
    data, expected = request(rows, is_binary), np.full((rows, WIDE), 0.2, np.float32)
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(server)) for _ in range(count)]
        for client in clients:
            client.sendall(data)
            time.sleep(0.05)
        threading.Event().wait(0.5)
        answers = [read(client) for client in clients]
    assert highest(server) < LIMIT
    assert {status for status, _ in answers} == {200, 503} if is_binary else {200}
    for status, body in answers:
        if status == 503:
            assert b"are in use" in body
        elif is_binary:
            assert body.endswith(expected.tobytes())
        else:
            (output,) = json.loads(body)["outputs"]
            assert output["data"] == expected.reshape(-1).tolist()
    found = server.json("GET", "/status")[1]["memory"]
    assert found["requests"] == 0 and found["calls"] == 0


@pytest.mark.parametrize(
    ("version", "more"), [(b"HTTP/1.0", ("total",)), (b"HTTP/1.1", ())],
    ids=["1.0, JSON and binary", "1.1, JSON"],
)  # fmt: skip
def test_long_answers_hold_up_no_other(server: Any, version: bytes, more: tuple[str, ...]) -> None:
    head, body = request(12, False, more=more).split(b"\r\n\r\n", 1)
    took, answers = list[float](), list[tuple[int, bytes]]()
    with connected(server) as client:
        client.sendall(head.replace(b"HTTP/1.1", version) + b"\r\n\r\n" + body)
        reader = threading.Thread(target=lambda: answers.append(read(client)))
        reader.start()
        while reader.is_alive():
            begin = time.monotonic()
            assert server.json("GET", "/v2/health/live") == (200, {"live": True})
            took.append(time.monotonic() - begin)
        reader.join()
    ((status, text),) = answers
    assert status == 200 and len(text) > 20 * 12 * WIDE
    assert max(took) < max(0.5, sum(took) / 2), took


@pytest.mark.parametrize("path", (PATH, "/v1/embeddings", "/v1/completions"))
def test_json_counts_as_such_whatever_a_header_says(server: Any, path: str) -> None:
    row = {"name": "x", "datatype": "FP32", "shape": [1, 1_000_000], "data": [0] * 1_000_000}
    body = json.dumps({"inputs": [row], "input": row["data"], "prompt": row["data"]}).encode()
    status, _, text = server.request("POST", path, body, {HEAD: str(len(body))})
    assert status == 413 and b"the body has" in text
    assert highest(server) < LIMIT
    assert server.json("GET", "/status")[1]["memory"]["requests"] == 0


def test_a_long_head_is_not_kept_with_the_tensors_behind_it() -> None:
    data = request(1, True, 1 << 19, 10)
    head, body = data.split(b"\r\n\r\n", 1)
    pairs = [line.lower().split(b": ") for line in head.split(b"\r\n")[1:]]
    messages = [{"type": "http.request", "body": body}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(message)

    async def at_once(take: Any) -> Any:
        return take()

    async def run() -> None:
        async with AsyncBatcher({"scaled": scaled()}) as batcher:
            form = batcher.engine.models["scaled"].form
            kept, own = list[int](), form.run

            def look(items: Any) -> Any:
                row = items[0].content.rows["x"][0]
                while isinstance(row.base, np.ndarray):
                    row = row.base
                held: Any = memoryview(row.base).obj
                kept.append(len(held))
                return own(items)

            form.run = look  # type: ignore[method-assign]
            loaded = Loaded("scaled", 1, Path("scaled"), scaled())
            state: Any = SimpleNamespace(
                batcher=batcher, most_body=1 << 30, seconds_on_the_loop=lambda: 0.0,
                repository=SimpleNamespace(find=lambda *_: loaded), make_room=at_once,
            )  # fmt: skip
            await Infer(state)({"path": PATH, "headers": pairs}, receive, send)
            assert kept == [40]

    asyncio.run(run())
    assert sent[0]["status"] == 200


def test_bodies_without_a_declared_length(server: Any) -> None:
    data = request(24, True)
    head, body = data.split(b"\r\n\r\n", 1)
    lines = [line for line in head.split(b"\r\n") if b"content-length: " not in line.lower()
             or line.startswith(HEAD.encode())]  # fmt: skip
    head = b"\r\n".join([*lines, b"transfer-encoding: chunked", b"", b""])
    pieces = [body[begin : begin + (1 << 20)] for begin in range(0, len(body), 1 << 20)]
    whole = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    with connected(server) as client:
        client.sendall(head + whole)
        status, answer = read(client)
    assert status == 200 and answer.endswith(np.full((24, WIDE), 0.2, np.float32).tobytes())
    assert highest(server) < LIMIT


class Caller:
    """Clients over gRPC, each with a connection of its own, that send a large message each."""

    def __init__(self, server: Any) -> None:
        from anydim.serving.server.messages import SERVICE, message

        self.data = np.full((11, WIDE), 0.1, np.float32)
        row = {"name": "x", "datatype": "FP32", "shape": self.data.shape}
        self.given = message("ModelInferRequest")(
            model_name="scaled", inputs=[row], outputs=[{"name": "y"}],
            raw_input_contents=[self.data.tobytes()],
        )  # fmt: skip
        self._address, self._service = f"127.0.0.1:{server.grpc_port}", SERVICE
        self._found = message("ModelInferResponse").FromString
        self._parts = message("ModelStreamInferResponse").FromString
        self.statuses: list[str] = []

    def channel(self) -> Any:
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        return grpc.aio.insecure_channel(self._address, options)

    async def unary(self) -> None:
        async with self.channel() as channel:
            call = channel.unary_unary(
                f"/{self._service}/ModelInfer", lambda made: made.SerializeToString(), self._found
            )
            try:
                self._check(await call(self.given, timeout=60))
            except grpc.RpcError as error:
                assert "are in use" in error.details(), error.details()
                self.statuses.append(error.code().name)

    async def stream(self) -> None:
        async with self.channel() as channel:
            call = channel.stream_stream(
                f"/{self._service}/ModelStreamInfer", lambda made: made.SerializeToString(),
                self._parts,
            )(iter([self.given] * 3), timeout=60)  # fmt: skip
            reason = ""
            try:
                async for part in call:
                    reason = part.error_message
                    if reason:
                        assert "are in use" in reason
                        self.statuses.append("UNAVAILABLE")
                    else:
                        self._check(part.infer_response)
            except grpc.RpcError as error:
                # what grpcio's client makes of an end that arrives while it sends a message
                assert error.details() == "Internal error from Core", error.details()
                assert reason  # it has arrived before

    def _check(self, found: Any) -> None:
        assert found.raw_output_contents[0] == np.full_like(self.data, 0.2).tobytes()
        self.statuses.append("OK")


@pytest.mark.parametrize("kind", ("unary", "stream"))
def test_many_large_messages_over_grpc(server: Any, kind: str) -> None:
    """Messages count before they arrive, and answers until they have left."""
    caller = Caller(server)

    async def run() -> None:
        await asyncio.gather(*(getattr(caller, kind)() for _ in range(40)))

    asyncio.run(run())
    assert highest(server) < LIMIT
    assert len(caller.statuses) >= 40
    assert "OK" in caller.statuses and set(caller.statuses) <= {"OK", "UNAVAILABLE"}
    assert server.json("GET", "/status")[1]["memory"]["requests"] == 0


def test_a_message_above_the_limit_and_none(server: Any) -> None:
    caller = Caller(server)
    caller.given.raw_input_contents[0] *= 2

    async def run() -> None:
        async with caller.channel() as channel:
            for path, given, status in (
                ("ModelInfer", caller.given, grpc.StatusCode.RESOURCE_EXHAUSTED),
                ("ModelInfer", None, grpc.StatusCode.INVALID_ARGUMENT),
                ("ServerLive", None, None),
            ):  # fmt: skip
                kind = channel.stream_unary if given is None else channel.unary_unary
                call = kind(
                    f"/inference.GRPCInferenceService/{path}",
                    lambda made: made.SerializeToString(), bytes,
                )(iter([]) if given is None else given, timeout=30)  # fmt: skip
                try:
                    await call
                    assert status is None
                except grpc.RpcError as error:
                    assert error.code() is status, error.details()

    asyncio.run(run())
    assert server.json("GET", "/status")[1]["memory"]["requests"] == 0


def test_calls_that_are_cancelled_while_they_wait_for_a_message_leave_nothing(server: Any) -> None:
    async def never() -> Any:
        await asyncio.sleep(60)
        yield b""

    async def run() -> None:
        async with Caller(server).channel() as channel:
            calls = [
                channel.stream_stream(f"/inference.GRPCInferenceService/{path}", bytes, bytes)(
                    never(), timeout=60
                )
                for path in ("ModelInfer", "ModelStreamInfer") * 2
            ]
            await asyncio.sleep(0.3)
            assert server.json("GET", "/status")[1]["memory"]["requests"] > 4 << 20
            for call in calls:
                call.cancel()
            await asyncio.sleep(0.3)

    asyncio.run(run())
    assert server.json("GET", "/status")[1]["memory"]["requests"] == 0


@pytest.mark.parametrize("kind", ("short", "with bodies"))
def test_many_requests_that_arrive_at_once_and_answers_that_nobody_reads(
    server: Any, kind: str
) -> None:
    """Requests behind another one are bytes until their turn."""
    sent = b"GET /v2 HTTP/1.1\r\n\r\n" if kind == "short" else request(1, False, width=4)
    with ExitStack() as stack:
        for _ in range(60):
            client = stack.enter_context(connected(server))
            client.setblocking(False)
            try:
                for _ in range(40):
                    client.send(sent * (8192 // len(sent)))
            except BlockingIOError:
                pass
        for _ in range(4):
            time.sleep(0.5)
            assert server.json("GET", "/v2/health/live")[0] == 200
    assert highest(server) < LIMIT

"""Hostile connections to a server: what the process holds stays below its memory and a constant.

    python -m tests.errors.hostile_connections

Clients send trailers, heads, pipelines and bodies that do not end, open connections of both
protocols and leave them idle, and read nothing. Meanwhile health is asked for, and a request is
sent; memory and open files are read from `/proc`. Exits with 1 if the law does not hold.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

from anydim.base.records import dataclass
from anydim.serving.server.clients import CONSTANT
from tests.unit.serving.models import scaled
from tests.unit.serving.server.running import Running, running

MEMORY = 160 << 20  # bytes of the server
PATH = "/v2/models/scaled/infer"
_DATA, _HEADERS, _SETTINGS, _CONTINUATION, _ENDS = 0, 1, 4, 9, 4  # of frames of HTTP/2
_NO_WINDOW = bytes((0, 4, 0, 0, 0, 0))  # a setting: nothing may be sent to this client
ROW = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
LINE = b"a:b\r\n"
_HEAD = (1 << 16) - 200  # bytes of a head that is nearly too long
_PAUSE = 0.05  # seconds between questions for health


@dataclass(frozen=True)
class Seen:
    """What a server did beside hostile clients: bytes and files of its process, the seconds of
    answers to health and to a request, and the requests that were refused."""

    bytes: int
    files: int
    health: float
    answer: float
    refused: int
    lines: int

    def __str__(self) -> str:
        return (f"{self.bytes / (1 << 20):.0f} MiB, {self.files} files, health in "
                f"{self.health:.2f} s, a request in {self.answer:.2f} s after {self.refused} "
                f"refusals, {self.lines} lines logged")  # fmt: skip


def frame(kind: int, stream: int, data: bytes, flags: int = 0) -> bytes:
    """A frame of HTTP/2."""
    return len(data).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + data


def literal(name: bytes, value: bytes) -> bytes:
    """A header of HTTP/2 as it is, of fewer than 127 bytes each."""
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


def call_head(method: str) -> bytes:
    """The headers of a call."""
    return b"".join(literal(*pair) for pair in (
        (b":method", b"POST"), (b":scheme", b"http"),
        (b":path", f"/inference.GRPCInferenceService/{method}".encode()),
        (b":authority", b"x"), (b"te", b"trailers"), (b"content-type", b"application/grpc"),
    ))  # fmt: skip


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(_SETTINGS, 0, b"")
Attack = Callable[[Running, int, ExitStack], None]
"""Sends what hostile clients send, by their number; sockets stay open in the stack."""


def connected(stack: ExitStack, port: int) -> socket.socket:
    """A client that reads nothing."""
    made = stack.enter_context(socket.socket())
    made.settimeout(5)
    with suppress(OSError):
        made.connect(("127.0.0.1", port))
    return made


def sent(client: socket.socket, data: bytes) -> bool:
    """Whether a client could send some bytes; the server may close its connection."""
    try:
        client.sendall(data)
    except OSError:
        return False
    return True


def trailers(server: Running, count: int, stack: ExitStack) -> None:
    """`count` MB of trailers behind a body in chunks, as short lines and as one long one."""
    for lines in (LINE * 200_000, b"a" * 1_000_000):
        client = connected(stack, server.port)
        head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        sent(client, head.encode() + b"1\r\na\r\n0\r\n" + (b"" if lines[:2] == b"a:" else b"x: "))
        for _ in range(count):
            if not sent(client, lines):
                break


def heads(server: Running, count: int, stack: ExitStack) -> None:
    """Connections with heads of nearly 64 KiB that do not end."""
    line = b"GET / HTTP/1.1\r\nhost: x\r\n"
    for _ in range(count):
        sent(connected(stack, server.port), line + LINE * ((_HEAD - len(line)) // len(LINE)))


def long_heads(server: Running, count: int, stack: ExitStack) -> None:
    """Connections with complete heads of nearly 64 KiB, and bodies that do not come."""
    fill = b"x: " + b"a" * 8000 + b"\r\n"
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n".encode() + fill * 7
    for _ in range(count):
        sent(connected(stack, server.port), head + b"\r\n")


def pipelines(server: Running, count: int, stack: ExitStack) -> None:
    """Requests behind each other on connections that read no answer."""
    data = b"GET /v2 HTTP/1.1\r\nhost: x\r\n\r\n" * 3000
    for _ in range(count):
        client = connected(stack, server.port)
        client.setblocking(False)
        for _ in range(30):
            try:
                client.send(data)
            except OSError:
                break


def idle(server: Running, count: int, stack: ExitStack) -> None:
    """Connections that send nothing."""
    for _ in range(count):
        connected(stack, server.port)


def bodies(server: Running, count: int, stack: ExitStack) -> None:
    """Connections with a part of a short body."""
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n1234".encode()
    for _ in range(count):
        sent(connected(stack, server.port), head)


def silent(server: Running, count: int, stack: ExitStack) -> None:
    """Clients that each declare a body as long as bodies may be, and send nothing of it."""
    size = server.json("GET", "/status")[1]["memory"]["limit"] // 8
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n"
    head += "inference-header-content-length: 100\r\n\r\n"
    for _ in range(count):
        sent(connected(stack, server.port), head.encode())


def slow(server: Running, count: int, stack: ExitStack) -> None:
    """Clients that each send all but the end of a body as long as bodies may be."""
    size = server.json("GET", "/status")[1]["memory"]["limit"] // 8
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n"
    head += "inference-header-content-length: 100\r\n\r\n"
    for _ in range(count):
        sent(connected(stack, server.port), head.encode() + bytes(size - 9))


def rpc_idle(server: Running, count: int, stack: ExitStack) -> None:
    """Connections over gRPC without a call."""
    for _ in range(count):
        sent(connected(stack, server.grpc_port), PREFACE)


def rpc_heads(server: Running, count: int, stack: ExitStack) -> None:
    """Connections over gRPC with a head of 1 MB that does not end, in short headers."""
    rest = frame(_CONTINUATION, 1, literal(b"a", b"b") * 2700)
    for _ in range(count):
        client = connected(stack, server.grpc_port)
        sent(client, PREFACE + frame(_HEADERS, 1, call_head("ServerLive")) + rest * 60)


def rpc_calls(server: Running, count: int, stack: ExitStack) -> None:
    """Connections over gRPC with 250 calls each, with as much of a message as is taken, whose
    client takes no answer."""
    begin = PREFACE + frame(_SETTINGS, 0, _NO_WINDOW)
    message = frame(_DATA, 1, bytes((0, 0, 255, 255, 255)) + bytes(16_000))[9:]
    methods = ("ServerLive", "ModelReady", "ModelInfer", "ModelStreamInfer", "Nothing")
    for number in range(count):
        client = connected(stack, server.grpc_port)
        client.settimeout(0.2)
        sent(client, begin)
        head = call_head(methods[number % len(methods)])
        for each in range(1, 501, 2):
            frames = frame(_HEADERS, each, head, _ENDS) + frame(_DATA, each, message)
            if not sent(client, frames):
                break


def rpc_silent(server: Running, count: int, stack: ExitStack) -> None:
    """Calls over gRPC whose message does not come."""
    import grpc

    end, calls = threading.Event(), list[Any]()
    stack.callback(calls.clear)
    stack.callback(end.set)

    def never() -> Iterator[bytes]:
        end.wait(120)
        yield b""

    for _ in range(count):
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options)
        stack.callback(channel.close)
        call = channel.stream_unary("/inference.GRPCInferenceService/ModelInfer", bytes, bytes)
        calls.append(call.future(never(), timeout=120))
    time.sleep(1.0)  # calls arrive in threads


ATTACKS: dict[str, tuple[Attack, int, int]] = {
    "trailers": (trailers, 8, 52), "heads": (heads, 400, 2000),
    "long heads": (long_heads, 400, 2000), "pipelines": (pipelines, 300, 2000),
    "idle": (idle, 1200, 6000), "bodies": (bodies, 600, 4200), "silent": (silent, 8, 24),
    "slow": (slow, 8, 24), "idle over gRPC": (rpc_idle, 1500, 6000),
    "silent over gRPC": (rpc_silent, 8, 24),
}  # fmt: skip
"""Each with its number of clients in a short and in a long run."""
BEYOND: dict[str, tuple[Attack, int, int]] = {
    "heads over gRPC": (rpc_heads, 40, 200), "calls over gRPC": (rpc_calls, 40, 600),
}  # fmt: skip
"""What grpcio keeps before the server is called: memory is printed and not compared."""


def process_bytes(server: Running) -> int:
    """The most bytes that the server's process had."""
    text = Path(f"/proc/{server.process.pid}/status").read_text("utf-8")
    return int(text.split("VmHWM:")[1].split()[0]) << 10


def open_files(server: Running) -> int:
    """Files that the server's process has open."""
    return sum(1 for _ in Path(f"/proc/{server.process.pid}/fd").iterdir())


class _Watch:
    """Asks for health and reads the open files until it ends."""

    def __init__(self, server: Running) -> None:
        self._server, self._end = server, threading.Event()
        self.files, self.health = 0, 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(_PAUSE):
            begin = time.monotonic()
            with suppress(OSError, HTTPException):
                self._server.request("GET", "/v2/health/live")
            self.health = max(self.health, time.monotonic() - begin)
            self.files = max(self.files, open_files(self._server))

    def end(self) -> None:
        """Stop."""
        self._end.set()
        self._thread.join(60)


def asked(server: Running, seconds: float) -> tuple[float, int]:
    """How long a short request takes that is sent until it is answered, and its refusals."""
    begin, refused = time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        with suppress(OSError, HTTPException):
            if server.request("POST", PATH, {"inputs": [ROW]})[0] == 200:
                return time.monotonic() - begin, refused
        refused += 1
        time.sleep(0.05)
    return float("inf"), refused


def asked_by_rpc(server: Running, seconds: float) -> tuple[float, int]:
    """The same over gRPC."""
    import grpc

    from anydim.serving.server.messages import SERVICE, message

    given = message("ModelInferRequest")(model_name="scaled", inputs=[
        {"name": "x", "datatype": "FP32", "shape": [1, 3],
         "contents": {"fp32_contents": [1, 2, 3]}},
    ]).SerializeToString()  # fmt: skip
    begin, refused = time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options) as channel:
            try:
                channel.unary_unary(f"/{SERVICE}/ModelInfer", bytes, bytes)(given, timeout=30)
                return time.monotonic() - begin, refused
            except grpc.RpcError:
                refused += 1
                time.sleep(0.05)
    return float("inf"), refused


def seen(server: Running, name: str, count: int, seconds: float = 60.0) -> Seen:
    """What a server does beside so many clients of an attack."""
    watch, lines = _Watch(server), len(server.lines)
    ask = asked_by_rpc if "gRPC" in name else asked
    with ExitStack() as stack:
        (ATTACKS | BEYOND)[name][0](server, count, stack)
        answer, refused = ask(server, seconds)
        time.sleep(0.3)
        watch.end()
        most = process_bytes(server)
    return Seen(most, watch.files, watch.health, answer, refused, len(server.lines) - lines)


@contextmanager
def served(*more: str, descriptors: int | None = None) -> Iterator[Running]:
    """A server of a small model."""
    with tempfile.TemporaryDirectory() as name:
        scaled().save(Path(name) / "scaled.anydim")
        words = (name, "--memory", f"{MEMORY >> 20}MiB", *more)
        with running(*words, descriptors=descriptors) as server:
            yield server


def held(found: Seen) -> bool:
    """Whether the law holds: memory, and answers to others."""
    return found.bytes <= MEMORY + CONSTANT and found.answer < float("inf")


def main() -> int:
    """Attack a server in each way; 1 if the law does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=ATTACKS | BEYOND)
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    failed = 0
    for name, (_, few, many) in (ATTACKS | BEYOND).items():
        if options.only not in (None, name):
            continue
        with served() as server:
            found = seen(server, name, few if options.short else many)
            alive = server.process.poll() is None
        failed += not (alive and (held(found) or name in BEYOND))
        print(f"{name}: {found}", flush=True)
    if options.only in (None, "idle"):
        with served(descriptors=1024) as server:
            found = seen(server, "idle", 1200)
        failed += not held(found) or found.lines > 2
        print(f"idle at 1024 descriptors: {found}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

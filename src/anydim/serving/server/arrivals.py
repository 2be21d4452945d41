"""Requests in an open loop: they leave at the times of a Poisson process, whatever the server does.

Latency counts from the time at which a request was to leave, so that a server that stalls delays
what it is sent meanwhile, too (no coordinated omission).
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections import deque
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any
from urllib.parse import quote, urlsplit

import numpy

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.serving.server.tensors import raw

MOST_CONNECTIONS = 1024
_NO_ANSWER = (
    OSError, EOFError, ValueError, LookupError, asyncio.LimitOverrunError,
)  # fmt: skip
_WORDS = ("yes", "no", "one word more")  # of random inputs
_MOST_ERROR = 1 << 12  # bytes of an answer with an error that are kept
FAILED = 0  # the status of a request without an answer


@dataclass(frozen=True)
class Target:
    """A model of a server."""

    host: str
    port: int
    model: str

    @property
    def authority(self) -> str:
        """Host and port; addresses of IPv6 stand in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def path(self) -> str:
        """The path of inference requests."""
        return f"/v2/models/{quote(self.model)}/infer"


@dataclass(frozen=True)
class SentRequest:
    """A request: when it was to leave (seconds from the start), its length, its latency in seconds,
    and the status of its answer. `body` is kept on request, and of short answers with errors;
    without an answer, it is the reason."""

    at: float
    length: int
    latency: float
    status: int
    body: bytes = b""


class Connections:
    """Connections to a server, used one request at a time. An answer that takes longer than
    `timeout` seconds is none."""

    def __init__(self, target: Target, timeout: float = math.inf) -> None:
        self._target, self._timeout = target, timeout
        self._idle: deque[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = deque()
        self._limit = asyncio.Semaphore(MOST_CONNECTIONS)

    async def send(self, data: bytes) -> tuple[int, bytes]:
        """Status and body of the answer; without one, 0 and the reason."""
        loop = asyncio.get_running_loop()
        async with self._limit:
            while True:  # idle connections may have been closed, a fresh one counts
                fresh, pair, timer = not self._idle, None, None
                end = loop.time() + self._timeout
                try:
                    pair = self._idle.pop() if self._idle else await self._open()
                    if self._timeout < math.inf:
                        timer = loop.call_at(end, pair[1].transport.abort)
                    pair[1].write(data)
                    status, body = await _answer(pair[0])
                except _NO_ANSWER as error:
                    if pair is not None:
                        pair[1].close()
                    if loop.time() >= end:
                        return FAILED, b"nothing arrived in %g s" % self._timeout
                    if fresh:
                        return FAILED, _reason(error).encode()
                    continue
                finally:
                    if timer is not None:
                        timer.cancel()
                self._idle.append(pair)
                return status, body

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._target.host, self._target.port, limit=1 << 20)

    def close(self) -> None:
        """Close all connections."""
        while self._idle:
            self._idle.pop()[1].close()


def _reason(error: Exception) -> str:
    """Return the reason why a request failed."""
    if isinstance(error, EOFError):
        return "the connection was closed"
    if isinstance(error, OSError):
        number = error.errno or 0  # below 0 for a name without an address
        return os.strerror(number) if number > 0 else error.strerror or str(error)
    return "what arrived is no HTTP"


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.lower().split(b"\r\n")
    headers = dict(line.split(b":", 1) for line in lines if b":" in line)
    status = int(first.split(b" ")[1])
    if headers.get(b"transfer-encoding", b"").strip() == b"chunked":
        return status, await _chunks(reader)
    return status, await reader.readexactly(int(headers.get(b"content-length", b"0")))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    """A body in chunks, each behind its size."""
    parts = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return b"".join(parts)


async def fetch(target: Target, path: str) -> dict[str, Any]:
    """Return the JSON response of a GET request; raises OptionError unless its status is 200."""
    connections = Connections(target)
    head = f"GET {path} HTTP/1.1\r\nhost: {target.authority}\r\n\r\n"
    status, body = await connections.send(head.encode())
    connections.close()
    if status != 200:
        text = body.decode(errors="replace")
        said = f"status {status}: {text}" if status else f"no answer: {text}"
        raise OptionError(f"http://{target.authority}{path}: {said}")
    found: dict[str, Any] = json.loads(body)
    return found


def target_of(url: str, model: str) -> Target:
    """Parse a URL; raises OptionError if it is invalid."""
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        host, port = parts.hostname, parts.port or 80
    except ValueError:  # of a port, or of brackets
        host = None
    if not host or parts.scheme != "http":
        raise OptionError(f"{url} is no address of a server", "such as http://localhost:8000")
    return Target(host, port, model)


def request_bytes(
    target: Target, inputs: Mapping[str, numpy.ndarray], datatypes: Mapping[str, str],
    outputs: Sequence[str] = (),
) -> bytes:  # fmt: skip
    """Return the bytes of an HTTP request of protocol v2 with binary tensors."""
    parts = {name: raw(array) for name, array in inputs.items()}
    rows = [
        {"name": name, "datatype": datatypes[name], "shape": list(array.shape),
         "parameters": {"binary_data_size": len(parts[name])}}
        for name, array in inputs.items()
    ]  # fmt: skip
    head: dict[str, Any] = {"inputs": rows, "parameters": {"binary_data_output": True}}
    if outputs:
        head["outputs"] = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
    text = json.dumps(head).encode()
    data = b"".join([text, *parts.values()])
    lines = (
        f"POST {target.path} HTTP/1.1", f"host: {target.authority}",
        f"inference-header-content-length: {len(text)}", f"content-length: {len(data)}", "", "",
    )  # fmt: skip
    return "\r\n".join(lines).encode() + data


async def send_all(
    target: Target, requests: Sequence[tuple[int, bytes]], rate: float, seed: int,
    keep: bool = False, timeout: float = math.inf,
) -> list[SentRequest]:  # fmt: skip
    """Send requests, each a length and bytes, at a mean rate per second; wait for all answers, for
    each at most `timeout` seconds."""
    gaps = numpy.random.default_rng(seed).exponential(1 / rate, len(requests))
    times = numpy.cumsum(gaps).tolist()
    connections, sent, start = Connections(target, timeout), list[SentRequest](), perf_counter()

    async def one(at: float, length: int, data: bytes) -> None:
        status, body = await connections.send(data)
        latency = perf_counter() - start - at
        is_kept = keep or (status != 200 and len(body) <= _MOST_ERROR)
        sent.append(SentRequest(at, length, latency, status, body if is_kept else b""))

    tasks = set[asyncio.Task[None]]()
    for at, (length, data) in zip(times, requests):
        wait = start + at - perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        task = asyncio.ensure_future(one(at, length, data))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    connections.close()
    return sent


def lengths_with(lengths: Sequence[int], share: float, outlier: int, seed: int) -> list[int]:
    """Return the lengths with a share of them replaced by an outlier."""
    chance = numpy.random.default_rng(seed + 1).random(len(lengths))
    return [outlier if each < share else length for length, each in zip(lengths, chance)]


def draw(
    inputs: Sequence[Mapping[str, Any]], length: int, chance: numpy.random.Generator,
    integers: Mapping[str, tuple[int, int]], dtypes: Mapping[str, numpy.dtype],
) -> dict[str, numpy.ndarray]:  # fmt: skip
    """Random inputs of a row by a model's metadata; free sizes are the length, masks are ones."""
    found = {}
    for row in inputs:
        name, dtype = row["name"], dtypes[row["name"]]
        shape = [1 if not axis and size < 0 else length if size < 0 else size
                 for axis, size in enumerate(row["shape"])]  # fmt: skip
        if dtype.kind == "O":
            found[name] = chance.choice(_WORDS, shape).astype(object)
        elif "mask" in name:
            found[name] = numpy.ones(shape, dtype)
        elif dtype.kind in "iub":
            low, high = integers.get(name, (0, 1))
            found[name] = chance.integers(low, high, shape, endpoint=True).astype(dtype)
        else:
            found[name] = chance.standard_normal(shape).astype(dtype)
    return found

"""Promise: no request brings the server down: errors are 4xx with a reason, memory stays flat."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import numpy as np
import pytest

from tests.unit.serving.models import tokens
from tests.unit.serving.server.test_protocol import HEAD, INFER, binary

ROW = {"name": "input_ids", "datatype": "INT64", "shape": [1, 3], "data": [1, 2, 3]}
HUGE = 2**63 - 1
BODIES: dict[str, Any] = {
    "no JSON": b"{", "no object": [1], "nothing": b"", "deep": b"[" * 100_000,
    "no inputs": {}, "inputs are a text": {"inputs": "abc"},
    "an input is a number": {"inputs": [3]},
    "no name": {"inputs": [{"datatype": "INT64"}]},
    "an unknown input": {"inputs": [{**ROW, "name": "inputs_id"}]},
    "an input twice": {"inputs": [ROW, ROW]},
    "an unknown type": {"inputs": [{**ROW, "datatype": "INT128"}]},
    "a type that is a list": {"inputs": [{**ROW, "datatype": []}]},
    "another type": {"inputs": [{**ROW, "datatype": "FP32"}]},
    "texts": {"inputs": [{**ROW, "datatype": "BYTES", "data": ["a", "b", "c"]}]},
    "a shape of 2^63": {"inputs": [{**ROW, "shape": [1, HUGE]}]},
    "a shape of 2^63 without elements": {"inputs": [{**ROW, "shape": [HUGE, 0], "data": []}]},
    "a million rows without elements": {"inputs": [{**ROW, "shape": [10**6, 0], "data": []}]},
    "an overflowing shape": {"inputs": [{**ROW, "shape": [2**31 - 1] * 32}]},
    "a negative size": {"inputs": [{**ROW, "shape": [-1, 3]}]},
    "a fraction": {"inputs": [{**ROW, "shape": [1, 3.0]}]},
    "a truth": {"inputs": [{**ROW, "shape": [True, 3]}]},
    "many axes": {"inputs": [{**ROW, "shape": [1] * 1000}]},
    "no shape": {"inputs": [{**ROW, "shape": None}]},
    "too few elements": {"inputs": [{**ROW, "data": [1, 2]}]},
    "a ragged list": {"inputs": [{**ROW, "data": [[1, 2], [3]]}]},
    "a number too large": {"inputs": [{**ROW, "data": [1, 2, 2**64]}]},
    "a fraction as a token": {"inputs": [{**ROW, "data": [1, 2, 2.5]}]},
    "null as a token": {"inputs": [{**ROW, "data": [1, None, 3]}]},
    "no data": {"inputs": [{k: v for k, v in ROW.items() if k != "data"}]},
    "a word that is none": {"inputs": [{**ROW, "data": [1, 2, 10**6]}]},
    "a negative word": {"inputs": [{**ROW, "data": [1, 2, -(10**6)]}]},
    "too long": {"inputs": [{**ROW, "shape": [1, 21], "data": [1] * 21}]},
    "no token": {"inputs": [{**ROW, "shape": [1, 0], "data": []}]},
    "wrong rank": {"inputs": [{**ROW, "shape": [1, 1, 3]}]},
    "an unknown result": {"inputs": [ROW], "outputs": [{"name": "nothing"}]},
    "a result without a name": {"inputs": [ROW], "outputs": [{}]},
    "parameters": {"inputs": [ROW], "parameters": 3},
    "a size of bytes": {"inputs": [{**ROW, "parameters": {"binary_data_size": 24}}]},
    "a negative size of bytes": {"inputs": [{**ROW, "parameters": {"binary_data_size": -1}}]},
    "a priority": {"inputs": [ROW], "parameters": {"priority": "high"}},
    "a timeout": {"inputs": [ROW], "parameters": {"timeout": -1}},
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_a_malformed_request_is_refused_with_a_reason(server: Any, name: str) -> None:
    status, _, text = server.request("POST", INFER, BODIES[name])
    assert 400 <= status < 500, (status, text)
    assert len(json.loads(text)["error"]) > 5


@pytest.mark.parametrize("head", ("-1", "abc", "10000000", str(2**64), "1" * 5000, "0"))
def test_a_wrong_length_of_the_head(server: Any, head: str) -> None:
    body, _ = binary(tokens(3))
    status, _, text = server.request("POST", INFER, body, {HEAD: head})
    assert status == 400 and json.loads(text)["error"]


def test_a_body_above_the_limit_is_refused_before_it_is_read(server: Any) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(f"POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: {10**15}\r\n\r\n"
                       .encode())  # fmt: skip
        assert client.recv(100).startswith(b"HTTP/1.1 413")


def mutated(random: np.random.Generator) -> tuple[bytes, dict[str, str]]:
    """A request with some bytes changed, removed or repeated."""
    body, headers = binary(tokens(int(random.integers(1, 20))))
    data = changed(body, random)
    if random.random() < 0.2:
        headers = {HEAD: str(int(random.integers(-5, 500)))}
    return data, headers


def changed(body: bytes, random: np.random.Generator) -> bytes:
    """Bytes of which some are changed, removed or repeated."""
    data = bytearray(body)
    for _ in range(random.integers(1, 4)):
        place = int(random.integers(0, len(data)))
        kind = random.integers(0, 3)
        if kind == 0:
            data[place] = int(random.integers(0, 256))
        elif kind == 1:
            del data[place : place + int(random.integers(1, 9))]
        else:
            data[place:place] = data[place : place + 9]
    return bytes(data)


def test_mutated_requests_leave_the_server_up_and_its_memory_flat(server: Any) -> None:
    random, statuses = np.random.default_rng(0), set[int]()

    def resident() -> int:
        time.sleep(1.1)  # the next sample
        return int(server.json("GET", "/status")[1]["samples"][-1]["resident"])

    def send(count: int) -> None:
        for _ in range(count):
            status, _, text = server.request("POST", INFER, *mutated(random))
            statuses.add(status)
            assert status == 200 or (400 <= status < 500 and json.loads(text)["error"]), text

    send(60)
    before = resident()
    send(200)
    assert resident() - before < 8 << 20
    assert {200, 400} <= statuses
    assert server.json("GET", "/v2/health/ready")[0] == 200


def test_clients_that_go_away_leave_nothing_behind(server: Any) -> None:
    body, headers = binary(tokens(9))
    lines = f"POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
    head = f"{lines}{HEAD}: {headers[HEAD]}\r\n\r\n".encode()
    for sent in (head, head + body[:20], head + body, lines.encode(), b"GET / HT"):
        for _ in range(8):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
                client.sendall(sent)
    time.sleep(0.3)
    found = server.json("GET", "/status")[1]
    assert found["queue"]["waiting"] == 0 and found["memory"]["requests"] == 0


def test_a_flood_of_headers_is_cut_off(server: Any) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises(OSError):
            for number in range(20_000):
                client.sendall(b"x-%d: %s\r\n" % (number, b"a" * 1000))
    assert server.json("GET", "/v2/health/live")[0] == 200

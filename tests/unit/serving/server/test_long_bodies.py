"""Promise: long bodies and answers of JSON hold up no other request."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.unit.serving.models import encoder, scaled
from tests.unit.serving.server.running import running

for _package in ("starlette", "uvicorn", "httptools", "grpc"):
    pytest.importorskip(_package)

WIDE = 90_000  # elements of a row


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("models")
    scaled().save(folder / "scaled.anydim")
    encoder().save(folder / "encoder.anydim")
    with running(str(folder), "--memory", "2GiB", "--no-grpc") as made:
        yield made


def meanwhile(server: Any, path: str, body: bytes) -> tuple[int, bytes, list[float]]:
    """Status and body of an answer, and the seconds of health checks until it comes."""
    answers: list[tuple[int, bytes]] = []

    def send() -> None:
        status, _, text = server.request("POST", path, body)
        answers.append((status, text))

    thread, took = threading.Thread(target=send), list[float]()
    thread.start()
    while thread.is_alive():
        begin = time.monotonic()
        assert server.json("GET", "/v2/health/live") == (200, {"live": True})
        took.append(time.monotonic() - begin)
        time.sleep(0.001)
    ((status, text),) = answers
    return status, text, took


@pytest.mark.parametrize("is_nested", (False, True), ids=("flat", "nested"))
def test_a_long_body_holds_up_no_other_request(server: Any, is_nested: bool) -> None:
    data = np.random.default_rng(0).standard_normal((6, WIDE))
    values = data.tolist() if is_nested else data.reshape(-1).tolist()
    row = {"name": "x", "datatype": "FP32", "shape": data.shape, "data": values}
    body = json.dumps({"inputs": [row], "outputs": [{"name": "total"}, {"name": "y"}]}).encode()
    assert len(body) > 10 << 20  # json.loads takes half a second
    status, text, took = meanwhile(server, "/v2/models/scaled/infer", body)
    assert status == 200 and max(took) < max(0.5, sum(took) / 2), (status, text[:200], max(took))
    _, y = json.loads(text)["outputs"]
    assert y["data"] == (data.astype(np.float32) * np.float32(2)).reshape(-1).tolist()


def test_wrong_long_bodies_are_refused_with_a_reason(server: Any) -> None:
    row = {"name": "x", "datatype": "FP32", "shape": [1, WIDE], "data": [0.5] * WIDE}
    for change, why in (
        ({"data": [0.5] * WIDE + [None]}, "null"), ({"shape": [2, WIDE]}, "got 90000"),
        ({"datatype": "BYTES"}, "list of strings"), ({"data": [{}] * WIDE}, "an object"),
        ({"data": {"a": [0.5] * WIDE}}, "list of numbers"), ({"shape": [0.5] * WIDE}, "shape"),
    ):  # fmt: skip
        body = json.dumps({"inputs": [{**row, **change}]}).encode()
        status, _, text = server.request("POST", "/v2/models/scaled/infer", body)
        assert status == 400 and why in json.loads(text)["error"], (change.keys(), text[:300])
    assert server.json("GET", "/status")[1]["memory"]["requests"] == 0


def test_a_long_request_for_embeddings_holds_up_no_other(server: Any) -> None:
    texts = [[number % 7 + 1] * 20 for number in range(2048)]
    body = json.dumps({"model": "encoder", "input": texts}).encode()
    status, text, took = meanwhile(server, "/v1/embeddings", body)
    assert status == 200 and max(took) < max(0.5, sum(took) / 2), (text[:200], max(took))
    found = json.loads(text)["data"]
    assert [row["index"] for row in found] == list(range(2048))
    assert all(row["embedding"] == found[n % 7]["embedding"] for n, row in enumerate(found))
    status, _, text = server.request("POST", "/v1/embeddings", b"[" + b" " * (3 << 20) + b"]")
    assert status == 413 and b"above the limit of 2097152 bytes" in text

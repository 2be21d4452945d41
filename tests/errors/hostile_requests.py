"""Malformed and mutated requests to a server with an encoder, a model of strings and a decoder.

    python -m tests.errors.hostile_requests --requests 10000

Each has to be answered, with 200 or a status that says what is wrong, and the memory of the server
has to stay flat. Over gRPC, messages are mutated. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import anydim as ad
from anydim.serving.server.messages import SERVICE, message
from bench.networks.sequences import decoder
from tests.unit.serving.models import encoder, tokens
from tests.unit.serving.server.running import Running, running
from tests.unit.serving.server.test_hostile import BODIES, changed, mutated
from tests.unit.serving.server.test_protocol import HEAD
from tests.unit.serving.server.test_strings import MODELS, TEXTS, framed

SETTLED = 5  # the part of the requests after which memory is flat
GROWTH = 16 << 20  # bytes
HTTP = (200, 400, 404, 413, 503)
RPC = ("OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNAVAILABLE", "RESOURCE_EXHAUSTED")
Answer = tuple[str, int | str, bytes]
Random = np.random.Generator
ENCODER, STRINGS = "/v2/models/minilm/infer", "/v2/models/classifier/infer"


class Hostile:
    """Sends requests to a server; each method sends one and returns its kind, status and text."""

    def __init__(self, server: Running, call: Callable[..., Any]) -> None:
        self._server, self._call = server, call
        self._bodies = list(BODIES.values())

    def _sent(self, kind: str, path: str, body: Any, headers: Any = None) -> Answer:
        status, _, text = self._server.request("POST", path, body, headers or {})
        return kind, status, text

    def malformed(self, random: Random) -> Answer:
        """A request of the list of the tests."""
        return self._sent("malformed", ENCODER, self._bodies[random.integers(len(self._bodies))])

    def binary(self, random: Random) -> Answer:
        """Tensors as bytes, mutated."""
        return self._sent("binary", ENCODER, *mutated(random))

    def strings(self, random: Random) -> Answer:
        """Strings as bytes, mutated."""
        data = framed([each.encode() for each in TEXTS])
        row = {"name": "flat", "datatype": "BYTES", "shape": [5],
               "parameters": {"binary_data_size": len(data)}}  # fmt: skip
        head = json.dumps({"inputs": [row]}).encode()
        body = (
            head + changed(data, random) if random.random() < 0.5 else changed(head + data, random)
        )
        return self._sent("strings", STRINGS, body, {HEAD: str(len(head))})

    def long(self, random: Random) -> Answer:
        """Long JSON, mutated."""
        ids = tokens(20).tolist() * 3000
        row = {"name": "input_ids", "datatype": "INT64", "shape": [3000, 20], "data": ids}
        return self._sent(
            "long JSON", ENCODER, changed(json.dumps({"inputs": [row]}).encode(), random)
        )

    def embeddings(self, random: Random) -> Answer:
        """Tokens for embeddings, mutated."""
        given = {"model": "minilm", "input": [tokens(5).tolist()[0], [1, 2, 3]]}
        return self._sent(
            "embeddings", "/v1/embeddings", changed(json.dumps(given).encode(), random)
        )

    def completions(self, random: Random) -> Answer:
        """A prompt of a decoder, mutated."""
        given = {"prompt": [1, 2, 3], "max_tokens": 3, "stream": random.random() < 0.5}
        return self._sent(
            "completions", "/v1/completions", changed(json.dumps(given).encode(), random)
        )

    def chat(self, random: Random) -> Answer:
        """Messages for a decoder, which takes none, mutated."""
        message = {"role": "user", "content": "a"}
        given = {"messages": [message], "max_tokens": 3, "stream": random.random() < 0.5}
        return self._sent(
            "chat", "/v1/chat/completions", changed(json.dumps(given).encode(), random)
        )

    def rpc(self, random: Random) -> Answer:
        """A message over gRPC, mutated."""
        import grpc

        ids = tokens(int(random.integers(1, 20)))
        row = {"name": "input_ids", "datatype": "INT64", "shape": ids.shape}
        given = message("ModelInferRequest")(
            model_name="minilm", inputs=[row], raw_input_contents=[ids.tobytes()]
        )
        try:
            self._call(changed(given.SerializeToString(), random), timeout=30)
        except grpc.RpcError as error:
            return "gRPC", error.code().name, error.details().encode()
        return "gRPC", "OK", b""


def sent(server: Running, count: int, seed: int) -> bool:
    """Send so many requests; whether all were answered and memory stayed flat."""
    import grpc

    random, answers, faults = np.random.default_rng(seed), Counter[tuple[str, Any]](), list[Any]()
    settled = 0
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        hostile = Hostile(server, channel.unary_unary(f"/{SERVICE}/ModelInfer", bytes, bytes))
        kinds = [hostile.malformed, hostile.binary, hostile.strings, hostile.embeddings,
                 hostile.completions, hostile.chat, hostile.rpc]  # fmt: skip
        for number in range(count):
            send = hostile.long if number % 50 == 0 else kinds[number % len(kinds)]
            kind, status, text = send(random)
            answers[kind, status] += 1
            if status not in (*HTTP, *RPC) or (status not in (200, "OK") and len(text) < 6):
                faults.append((kind, status, text[:200]))
            if number == count // SETTLED:
                settled = resident(server)
    for (kind, status), times in sorted(answers.items(), key=str):
        print(f"{times:7} {kind}: {status}")
    end = resident(server)
    memory = f"resident {settled >> 20} MiB after {count // SETTLED} requests"
    print(f"{memory}, {end >> 20} MiB at the end")
    for fault in faults[:10]:
        print("fault:", *fault)
    held = server.json("GET", "/status")[1]["memory"]["requests"]
    return not faults and end - settled < GROWTH and not held and server.process.poll() is None


def resident(server: Running) -> int:
    """Bytes of memory of the server's process."""
    text = Path(f"/proc/{server.process.pid}/status").read_text("utf-8")
    return int(text.split("VmRSS:")[1].split()[0]) << 10


def main() -> int:
    """Serve and send; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "models").mkdir()
        encoder().save(folder / "models" / "minilm.anydim")
        ad.compile(MODELS["classifier"][0]()).save(folder / "models" / "classifier.anydim")
        (folder / "writer.onnx").write_bytes(decoder(2, 2, 8, 60, places=600).SerializeToString())
        with running(
            str(folder / "models"), "--decoder", f"writer={folder / 'writer.onnx'}",
            "--memory", "600MiB", "--cache-memory", "1MiB", "--threads", "1",
        ) as server:  # fmt: skip
            return 0 if sent(server, options.requests, options.seed) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Every answer of `anydim serve` under mixed load, compared with a call of its request alone.

    python -m bench.served_bits --requests 100000 --rate 500

Requests of a small encoder (2 layers, width 48) of natural lengths, some of 512 tokens, leave on
many connections in a Poisson process with bursts: single rows, several rows, rows with padding,
results as JSON and as bytes, embeddings, wrong tokens, and clients that leave in the middle of a
request or before its answer. Each request has an id, which its answer must name. What is not
answered is printed with its cause.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

import anydim as ad
from anydim.base.records import dataclass
from anydim.runtime.program.padding import natural
from anydim.serving.server.arrivals import lengths_with
from anydim.sizes import Dim
from examples.minilm.model import Config, build_model, random_weights

WORDS = 3000
CONFIG = Config(layers=2, hidden=48, heads=4, intermediate=96, vocabulary=WORDS, positions=512)
KINDS = {"row": 50, "rows": 12, "padded": 12, "json": 8, "whole": 6, "embeddings": 5, "base64": 3,
         "wrong": 2, "cut": 1, "left": 1}  # fmt: skip
"""Kinds of requests and how often each comes, of 100."""
LEAVING = ("cut", "left")
PATH, EMBEDDINGS = "/v2/models/encoder/infer", "/v1/embeddings"
RESULT, WHOLE = "sentence_embedding", "last_hidden_state"
BURST = 200  # requests that leave at once
_PATIENCE = 120.0  # seconds for an answer


@dataclass(frozen=True)
class Sample:
    """A request: its kind, and the tokens of its rows."""

    number: int
    kind: str
    rows: tuple[numpy.ndarray, ...]

    @property
    def result(self) -> str:
        """The result that it asks for."""
        return WHOLE if self.kind == "whole" else RESULT

    def data(self) -> bytes:
        """It as it goes over a connection."""
        if self.kind in ("embeddings", "base64"):
            form = "float" if self.kind == "embeddings" else "base64"
            body = json.dumps({"input": [row.tolist() for row in self.rows], "model": "encoder",
                               "encoding_format": form}).encode()  # fmt: skip
            return _head(EMBEDDINGS, len(body)) + body
        tensors = self.tensors()
        inputs = [
            {"name": name, "datatype": "INT64", "shape": list(array.shape),
             "parameters": {"binary_data_size": array.nbytes}}
            for name, array in tensors.items()
        ]  # fmt: skip
        output = {"name": self.result, "parameters": {"binary_data": self.kind != "json"}}
        text = json.dumps({"id": str(self.number), "inputs": inputs, "outputs": [output]}).encode()
        body = b"".join([text, *(array.tobytes() for array in tensors.values())])
        return _head(PATH, len(body), f"inference-header-content-length: {len(text)}\r\n") + body

    def tensors(self) -> dict[str, numpy.ndarray]:
        """Its inputs."""
        if self.kind != "padded":
            return {"input_ids": numpy.stack(self.rows)}
        longest = max(map(len, self.rows))
        ids = numpy.full((len(self.rows), longest), 7)
        mask = numpy.zeros_like(ids)
        for number, row in enumerate(self.rows):
            ids[number, : len(row)], mask[number, : len(row)] = row, 1
        return {"input_ids": ids, "attention_mask": mask}


def _head(path: str, size: int, more: str = "") -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n{more}\r\n".encode()


def samples(count: int, outliers: float, seed: int) -> list[Sample]:
    """Requests; those of several rows are short."""
    random = numpy.random.default_rng(seed)
    drawn = natural([Dim("seq", 1, 512)], count, seed)["seq"]
    lengths = lengths_with(drawn, outliers, 512, seed)
    kinds = random.choice(list(KINDS), count, p=[share / 100 for share in KINDS.values()])
    return [
        Sample(number, str(kind), _rows(str(kind), length, random))
        for number, (kind, length) in enumerate(zip(kinds, lengths))
    ]


def _rows(kind: str, length: int, random: numpy.random.Generator) -> tuple[numpy.ndarray, ...]:
    several = kind in ("rows", "padded", "embeddings", "base64")
    count = int(random.integers(1, 6)) if several else 1
    lengths = [min(length, 64)] * count if several or kind == "whole" else [length]
    if kind in ("padded", "embeddings", "base64"):
        lengths = [int(random.integers(1, lengths[0] + 1)) for _ in lengths]
    rows = [random.integers(0, WORDS, size) for size in lengths]
    if kind == "wrong":
        rows[0][-1] = WORDS + 5
    return tuple(rows)


# ---- clients -------------------------------------------------------------------------------------


class Client:
    """A connection, opened anew after a request that ends it."""

    def __init__(self, port: int) -> None:
        self._port, self._pair = port, None
        self._used = 0

    async def send(self, sample: Sample) -> tuple[int, dict[bytes, bytes], bytes] | str:
        """Status, headers and body of the answer; a text without one."""
        fresh = self._pair is None
        try:
            if self._pair is None:
                self._pair, self._used = await asyncio.open_connection("127.0.0.1", self._port), 0
            reader, writer = self._pair
            self._used += 1
            data = sample.data()
            if sample.kind in LEAVING:
                writer.write(data[: len(data) // 2] if sample.kind == "cut" else data)
                await asyncio.sleep(0.002)
                self.close()
                return "left"
            writer.write(data)
            return await asyncio.wait_for(self._answer(reader), _PATIENCE)
        except Exception as error:
            self.close()
            return f"{type(error).__name__} {error} after {self._used} requests, fresh: {fresh}"

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, dict[bytes, bytes], bytes]:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines if line)
        if b"content-length" in headers:
            body = await reader.readexactly(int(headers[b"content-length"]))
            return int(first.split(b" ")[1]), headers, body
        parts = []
        while size := int(await reader.readuntil(b"\r\n"), 16):
            parts.append(await reader.readexactly(size))
            await reader.readexactly(2)
        await reader.readexactly(2)
        return int(first.split(b" ")[1]), headers, b"".join(parts)

    def close(self) -> None:
        """Close the connection at once."""
        if self._pair is not None:
            self._pair[1].transport.abort()
            self._pair = None


async def sent(
    port: int, given: list[Sample], rate: float, connections: int, seed: int,
    take: Callable[[Sample, Any], None],
) -> None:  # fmt: skip
    """Send requests on connections at a mean rate; a tenth of them leave in bursts. `take` is
    called with each request and what came of it."""
    queue: asyncio.Queue[Sample | None] = asyncio.Queue()

    async def work() -> None:
        client = Client(port)
        while (sample := await queue.get()) is not None:
            take(sample, await client.send(sample))
        client.close()

    workers = [asyncio.ensure_future(work()) for _ in range(connections)]
    random, number, start, at = numpy.random.default_rng(seed), 0, time.perf_counter(), 0.0
    while number < len(given):
        burst = BURST if random.random() < 0.1 / BURST else 1
        for sample in given[number : number + burst]:
            queue.put_nowait(sample)
        number += burst
        at += burst * random.exponential(1 / rate)
        wait = start + at - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
    for _ in workers:
        queue.put_nowait(None)
    await asyncio.gather(*workers)


# ---- comparison ----------------------------------------------------------------------------------


class Compared:
    """Answers against calls alone."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.counts: Counter[str] = Counter()
        self.answered: Counter[int] = Counter()

    def take(self, sample: Sample, found: Any) -> None:
        """Compare what came of a request."""
        self.answered[sample.number] += 1
        outcome = self._outcome(sample, found)
        self.counts[f"{sample.kind}: {outcome}"] += 1
        if outcome not in ("equal", "refused", "left"):
            print(
                sample.number, sample.kind, [len(row) for row in sample.rows], outcome, flush=True
            )

    def _outcome(self, sample: Sample, found: Any) -> str:
        if isinstance(found, str):
            return "left" if sample.kind in LEAVING else f"no answer: {found}"
        status, headers, body = found
        if status != 200 or sample.kind == "wrong":
            right = status == 400 and sample.kind == "wrong"
            return "refused" if right else f"status {status}: {body[:200]!r}"
        size = int(headers.get(b"inference-header-content-length", len(body)))
        head = json.loads(body[:size])
        if "data" in head:
            return self._embeddings(sample, head)
        if head["id"] != str(sample.number):
            return f"the answer to request {head['id']}"
        (output,) = head["outputs"]
        given = numpy.frombuffer(body[size:], numpy.float32) if size < len(body) else (
            numpy.float32(output["data"]))  # fmt: skip
        alone = [self._alone(row)[sample.result] for row in sample.rows]
        expected = alone[0].values if sample.kind == "whole" else numpy.concatenate(alone)
        return "equal" if given.tobytes() == expected.tobytes() else "other bits"

    def _embeddings(self, sample: Sample, head: Any) -> str:
        for row, each in zip(sample.rows, head["data"], strict=True):
            given = each["embedding"]
            if isinstance(given, str):
                given = numpy.frombuffer(base64.b64decode(given), numpy.float32)
            if numpy.float32(given).tobytes() != self._alone(row)[RESULT].tobytes():
                return "other bits"
        return "equal"

    def _alone(self, row: numpy.ndarray) -> Any:
        return self._model(input_ids=[row])


def main() -> None:
    """Serve the encoder, send, compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--connections", type=int, default=48)
    parser.add_argument("--outliers", type=float, default=0.01, help="share of 512 tokens")
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model = ad.compile(
        build_model(CONFIG, random_weights(CONFIG)), ragged={"seq": "batch"}, threads=1
    )
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "encoder.anydim")
        command = [sys.executable, "-m", "anydim", "serve", folder, "--memory", options.memory,
                   "--port", "0", "--no-grpc", "--queue", "4096"]  # fmt: skip
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert server.stderr is not None
        port = next(int(json.loads(line)["url"].rstrip("/").rpartition(":")[2])
                    for line in server.stderr if '"ready"' in line)  # fmt: skip
        given, compared = samples(options.requests, options.outliers, options.seed), Compared(model)
        start = time.monotonic()
        asyncio.run(sent(port, given, options.rate, options.connections, options.seed,
                         compared.take))  # fmt: skip
        seconds = time.monotonic() - start
        status = Path(f"/proc/{server.pid}/status").read_text("utf-8")
        most = status.split("VmHWM:")[1].split("\n")[0]
        server.terminate()
        server.wait(40)
    for outcome, count in sorted(compared.counts.items()):
        print(f"{count:7} {outcome}")
    once = sum(count == 1 for count in compared.answered.values())
    print(f"{once} of {options.requests} requests with one outcome, in {seconds:.0f} s; "
          f"resident at most {most.strip()}")  # fmt: skip


if __name__ == "__main__":
    main()

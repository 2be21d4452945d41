"""Latency and throughput of `anydim serve` beside LitServe, kserve and Ray Serve with onnxruntime.

    python -m bench.serving encoder.onnx --python peers/bin/python --rates 40,80,120
    python -m bench.serving encoder.onnx --only anydim --bits 2000
    python -m bench.serving encoder.onnx --only anydim --burst 60 --memory 600MiB
    python -m bench.serving encoder.onnx --cost
    python -m bench.serving encoder.onnx --only anydim --idle 300
    python -m bench.serving encoder.onnx --giants 0,20,40,80
    python -m bench.serving ch_PP-OCRv4_rec_infer.onnx --crops --python peers/bin/python

Requests of natural lengths, of which a share are outliers of 512 tokens, leave in an open loop at
the rates. Servers run in turn on the last core with one thread, the client on the first one.
With `--crops`, requests are images [3, 48, width] for a recogniser of text, of lognormal widths
from 48 to 424; padded groups then have other results. `--python` is an interpreter with litserve,
kserve, ray[serve] and onnxruntime, or with those that `--only` names. LitServe and Ray Serve have
batches of 1, 8 and 32; kserve has none.

`--bits` compares every answer with a call of its request alone. `--burst` sends bursts above the
capacity and samples the memory of the server. `--cost` is the time that the batcher itself takes
for a request. `--idle` compares, in turn, requests of 22 tokens without load, answers without a
call, and calls of the model in another process on the same core, which a pipe asks for. Each of
them follows a call in the other process, so that all find the caches of the processor alike.
`--giants` are requests of 16 x 512 tokens to a batcher in this process, at once, beside 30 requests
of natural lengths a second.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy
import onnx

import anydim as ad
from anydim.base.amounts import bytes_of, bytes_text
from anydim.base.records import dataclass
from anydim.runtime.program.padding import natural
from anydim.serving import Batcher
from anydim.serving.measures import percentiles
from anydim.serving.server.arrivals import (
    Connections,
    SentRequest,
    Target,
    fetch,
    lengths_with,
    request_bytes,
    send_all,
)
from anydim.sizes import Dim

RESULT = "sentence_embedding"
HEIGHT, WIDEST = 48, 424  # of crops
BATCHES = (1, 8, 32)
_START_SECONDS = 90.0
_SERVERS = Path(__file__).parent / "servers"
Request = tuple[int, bytes]


@dataclass(frozen=True)
class Server:
    """A server to measure: its command, and the bytes of a request of one row."""

    name: str
    command: Sequence[str]
    port: int
    request: Callable[[Target, numpy.ndarray], bytes]


@dataclass(frozen=True)
class Crops:
    """Images for a recogniser with this input and this result."""

    input: str
    result: str

    def protocol(self, target: Target, row: numpy.ndarray) -> bytes:
        """A request of protocol v2."""
        return request_bytes(target, {self.input: row[None]}, {self.input: "FP32"}, (self.result,))

    def json(self, target: Target, row: numpy.ndarray) -> bytes:
        """A request to LitServe."""
        data = {"pixels": base64.b64encode(row.tobytes()).decode(), "shape": row.shape}
        return _post(json.dumps(data).encode())


def main() -> None:
    """Measure what the arguments name."""
    options = _options()
    random = numpy.random.default_rng(1)
    if options.cost:
        _cost(options.model)
        return
    if options.giants:
        _giants(options.model, list(map(int, options.giants.split(","))))
        return
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "minilm.anydim"
        crops = _crops(options.model) if options.crops else None
        ragged = "auto" if crops else {"seq": "batch"}
        ad.compile(options.model, ragged=ragged, threads=1).save(saved)
        servers = [s for s in _servers(options, saved, crops) if s.name.startswith(options.only)]
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0) | {0})})
        for server in servers:
            with _running(server):
                if options.idle:
                    _idle(server, saved, options.idle)
                elif options.bits:
                    _bits(server, saved, options, random)
                elif options.burst:
                    _burst(server, options, random)
                else:
                    _rates(server, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="an encoder with input_ids [batch, seq], as an ONNX file")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rates", default="20,40,60,80,100")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--outliers", type=float, default=0.01, help="share of 512 tokens")
    parser.add_argument("--only", default="", help="servers whose names begin so")
    parser.add_argument("--bits", type=int, default=0, metavar="REQUESTS")
    parser.add_argument("--burst", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--memory", default="1GiB")
    parser.add_argument("--idle", type=int, default=0, metavar="REQUESTS")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--giants", default="", metavar="NUMBERS")
    parser.add_argument("--crops", action="store_true", help="a recogniser of text on crops")
    return parser.parse_args()


# ---- servers -------------------------------------------------------------------------------------


def _crops(path: str) -> Crops:
    graph = onnx.load(path).graph
    return Crops(graph.input[0].name, graph.output[0].name)


def _servers(options: argparse.Namespace, saved: Path, crops: Crops | None) -> list[Server]:
    port = _free_port()
    ours = [sys.executable, "-m", "anydim", "serve", f"minilm={saved}", "--memory", options.memory,
            "--port", str(port), "--no-grpc", "--quiet"]  # fmt: skip
    protocol, plain = (crops.protocol, crops.json) if crops else (_protocol, _json)
    result = crops.result if crops else RESULT
    made = [Server("anydim", ours, port, protocol)]
    peers = (("kserve", (1,), protocol), ("litserve", BATCHES, plain), ("ray", BATCHES, plain))
    for name, batches, request in peers:
        script = str(_SERVERS / f"with_{name}.py")
        made += [
            Server(f"{name}-{size}", [options.python, script, options.model, str(port), str(size),
                                        result], port, request)
            for size in batches
        ]  # fmt: skip
    return made


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _protocol(target: Target, row: numpy.ndarray) -> bytes:
    inputs = {"input_ids": row[None], "attention_mask": numpy.ones((1, len(row)), numpy.int64)}
    return request_bytes(target, inputs, dict.fromkeys(inputs, "INT64"), (RESULT,))


def _json(target: Target, row: numpy.ndarray) -> bytes:
    return _post(json.dumps({"input_ids": row.tolist()}).encode())


def _post(data: bytes) -> bytes:
    head = (f"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\n\r\n")  # fmt: skip
    return head.encode() + data


def _last_core() -> str:
    return str((os.cpu_count() or 1) - 1)


@contextmanager
def _running(server: Server) -> Iterator[None]:
    """A server on the last core, once it answers."""
    own = server.name == "anydim"
    variables = {n: v for n, v in os.environ.items() if own or not n.startswith("PYTHON")}
    process = subprocess.Popen(
        ["taskset", "-c", _last_core(), *server.command], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env=variables, preexec_fn=os.setpgrp,
    )  # fmt: skip
    try:
        _wait(server, process)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _wait(server: Server, process: subprocess.Popen[bytes]) -> None:
    target = Target("127.0.0.1", server.port, "minilm")
    random = numpy.random.default_rng(0)
    probe = _requests(server, [64], random)
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        (sent,) = asyncio.run(send_all(target, probe, 1000, 0))
        if sent.status == 200:
            warm = _requests(server, range(48, 130, 2), random)
            asyncio.run(send_all(target, warm, 50, 0))
            return
        time.sleep(0.3)
    raise SystemExit(f"{server.name} does not start")


def _requests(
    server: Server, lengths: Sequence[int], random: numpy.random.Generator
) -> list[Request]:
    target = Target("127.0.0.1", server.port, "minilm")
    return [(n, server.request(target, _row_of(server, n, random))) for n in lengths]


def _row_of(server: Server, size: int, random: numpy.random.Generator) -> numpy.ndarray:
    if isinstance(getattr(server.request, "__self__", None), Crops):
        return random.standard_normal((3, HEIGHT, size), numpy.float32)
    return random.integers(0, 30000, size)


def _lengths(count: int, share: float, seed: int) -> list[int]:
    return lengths_with(natural([Dim("seq", 1, 512)], count, seed)["seq"], share, 512, seed)


def _widths(count: int) -> list[int]:
    drawn = numpy.random.default_rng(7).lognormal(numpy.log(160), 0.6, count)
    return [int(width) for width in (numpy.round(drawn / 8) * 8).clip(HEIGHT, WIDEST)]


# ---- measurements --------------------------------------------------------------------------------


def _rates(server: Server, options: argparse.Namespace) -> None:
    target = Target("127.0.0.1", server.port, "minilm")
    for rate in map(float, options.rates.split(",")):
        count = round(rate * options.seconds)
        lengths = _widths(count) if options.crops else _lengths(count, options.outliers, 7)
        requests = _requests(server, lengths, numpy.random.default_rng(3))
        sent = asyncio.run(send_all(target, requests, rate, 5))
        print(_row(server.name, rate, sent), flush=True)
        late = percentiles([each.latency for each in sent]).get("p50", 0)
        if late > 1:
            break  # far above the capacity


def _row(name: str, rate: float, sent: Sequence[SentRequest]) -> str:
    done = [each for each in sent if each.status == 200]
    last = max((each.at + each.latency for each in sent), default=1.0)
    parts = [f"{name:12} {rate:6.0f}/s, {len(done) / last:6.1f}/s answered of {len(sent)}"]
    for label, part in (("all", done), ("up to 128", [e for e in done if e.length <= 128])):
        found = percentiles([each.latency for each in part])
        text = " ".join(f"{key} {1e3 * value:.1f}" for key, value in found.items())
        parts.append(f"{label}: {text} ms")
    return "; ".join(parts)


def _bits(
    server: Server, saved: Path, options: argparse.Namespace, random: numpy.random.Generator
) -> None:
    """Compare every answer with a call of its request alone."""
    target, model = Target("127.0.0.1", server.port, "minilm"), ad.load(saved)
    lengths = _lengths(options.bits, options.outliers, 11)
    rows = [random.integers(0, 30000, n) for n in lengths]
    requests = [(n, server.request(target, row)) for n, row in enumerate(rows)]
    rate = float(options.rates.split(",")[0])
    sent = asyncio.run(send_all(target, requests, rate, 5, keep=True))
    wrong = 0
    for each in sent:
        if each.status == 200:
            alone = model(input_ids=[rows[each.length]])[RESULT].tobytes()
            wrong += not each.body.endswith(alone)
        else:
            print(f"status {each.status}: {each.body.decode(errors='replace')}")
    answered = sum(each.status == 200 for each in sent)
    print(f"{answered} answers to {len({each.length for each in sent})} requests, {wrong} differ "
          "from a call alone")  # fmt: skip


def _burst(server: Server, options: argparse.Namespace, random: numpy.random.Generator) -> None:
    """Bursts above the capacity, with requests that can never fit among them."""
    target, limit = Target("127.0.0.1", server.port, "minilm"), bytes_of(options.memory)
    end, statuses, most, number = time.monotonic() + options.burst, dict[int, int](), 0, 0
    while time.monotonic() < end:
        lengths = _lengths(400, 0.05, number)
        lengths[::97] = [20_000] * len(lengths[::97])
        requests = _requests(server, lengths, random)
        sent = asyncio.run(send_all(target, requests, 2000, number))
        for each in sent:
            statuses[each.status] = statuses.get(each.status, 0) + 1
        most = max(most, _resident(server))
        number += 1
    found = asyncio.run(fetch(target, "/status"))
    most = max(most, *(int(each["resident"]) for each in found["samples"]))
    formula = bytes_text(found["memory"]["most"])
    print(f"{number} bursts; answers by status {statuses}")
    print(f"resident at most {bytes_text(most)} of {bytes_text(limit)}; by formula {formula}")


def _resident(server: Server) -> int:
    found = asyncio.run(fetch(Target("127.0.0.1", server.port, ""), "/status"))
    return int(found["samples"][-1]["resident"])


_CALLER = """
import sys, numpy, anydim as ad
model, row = ad.load(sys.argv[1]), numpy.arange(22)
for _ in sys.stdin:
    model(input_ids=[row])
    print(flush=True)
"""


_IDLE = ("request", "answer without a call", "call")  # what `--idle` reports


def _idle(server: Server, saved: Path, count: int) -> None:
    target = Target("127.0.0.1", server.port, "minilm")
    request = server.request(target, numpy.arange(22))
    get = b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n"
    taken: dict[str, list[float]] = {name: [] for name in _IDLE}

    async def send(name: str, data: bytes) -> None:
        start = time.perf_counter()
        await connections.send(data)
        taken[name].append(time.perf_counter() - start)

    async def run() -> None:
        for _ in range(count):
            await send("request", request)
            taken["call"].append(_called(caller))
            await send("answer without a call", get)
            _called(caller)

    connections = Connections(target)
    command = ["taskset", "-c", _last_core(), sys.executable, "-c", _CALLER, str(saved)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as caller:
        asyncio.run(run())
    found = {name: numpy.quantile(taken[name], (0.1, 0.5)) for name in _IDLE}
    for name, (tenth, half) in found.items():
        print(f"{name:22} p10 {1e3 * tenth:.2f}, p50 {1e3 * half:.2f} ms")
    tenth, half = 100 * (found["request"] / (found["call"] + found["answer without a call"]) - 1)
    print(f"{'above the other two':22} p10 {tenth:.1f}, p50 {half:.1f} %")


def _called(caller: subprocess.Popen[bytes]) -> float:
    """Seconds of a call in another process."""
    assert caller.stdin is not None and caller.stdout is not None
    start = time.perf_counter()
    caller.stdin.write(b"\n")
    caller.stdin.flush()
    caller.stdout.readline()
    return time.perf_counter() - start


def _cost(model: str) -> None:
    """Time of the batcher for a request, with a model that computes nothing."""
    made = ad.compile(model, ragged={"seq": "batch"}, threads=1)
    gc.collect()
    gc.freeze()  # as the server does
    ids = numpy.arange(22)[None]
    inputs = {"input_ids": ids, "attention_mask": numpy.ones_like(ids)}
    with Batcher(made) as batcher:
        real = batcher(inputs)  # what follows makes no calls
        form = next(iter(batcher.engine.models.values())).form
        form.run = lambda items: [real for _ in items]  # type: ignore[method-assign]
        best = min(_lone(batcher, inputs) for _ in range(7))
        print(f"a call when no other waits: {1e6 * best:.1f} us")
        for count in (1, 8, 64, 512):
            best = min(_round(batcher, inputs, count) for _ in range(7))
            print(f"{count:4} requests at once: {1e6 * best:.1f} us each")


def _lone(batcher: Batcher, inputs: dict[str, numpy.ndarray]) -> float:
    """Processor seconds for a call in the thread of its caller."""
    start = time.process_time()
    for _ in range(1024):
        batcher(inputs, outputs=(RESULT,))
    return (time.process_time() - start) / 1024


def _round(batcher: Batcher, inputs: dict[str, numpy.ndarray], count: int) -> float:
    """Processor seconds for a request."""
    times = max(1, 1024 // count)
    start = time.process_time()
    for _ in range(times):
        for future in [batcher.submit(inputs, outputs=(RESULT,)) for _ in range(count)]:
            future.result()
    return (time.process_time() - start) / (times * count)


_BESIDE = 30.0  # requests a second


def _giants(model: str, numbers: Sequence[int]) -> None:
    """Latency of short requests beside some of 16 x 512 tokens, on one core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    made = ad.compile(model, ragged={"seq": "batch"}, threads=1)
    giant = {"input_ids": numpy.ones((16, 512), numpy.int64)}
    alone = min(_seconds(lambda: made(input_ids=list(giant["input_ids"]))) for _ in range(3))
    print(f"a call of 16 x 512 tokens: {1e3 * alone:.0f} ms")
    for number in numbers:
        with Batcher(made, memory="4GiB", queue=1 << 16) as batcher:
            short, long = _beside(batcher, giant, number, max(10.0, 1.5 * number * alone))
        found = {name: f"{1e3 * each:.0f}" for name, each in percentiles(short).items()}
        print(f"{number} giants: short ones {found} ms; giants ended after {max(long):.1f} s")


def _beside(
    batcher: Batcher, giant: dict[str, numpy.ndarray], number: int, seconds: float
) -> tuple[list[float], list[float]]:  # fmt: skip
    """Seconds of short requests, and of giants that come at once after a second."""
    rows = natural([Dim("seq", 1, 512)], int(_BESIDE * seconds), 0)["seq"]
    short, long, futures = list[float](), [0.0], []
    begin = time.perf_counter()
    for count, length in enumerate(rows):
        time.sleep(max(0.0, begin + count / _BESIDE - time.perf_counter()))
        if count == _BESIDE:
            futures += [_noted(batcher, giant, long) for _ in range(number)]
        futures.append(_noted(batcher, {"input_ids": numpy.ones((1, length), int)}, short))
    for future in futures:
        future.result()
    return short, long


def _noted(batcher: Batcher, inputs: dict[str, numpy.ndarray], to: list[float]) -> Future:
    """A request whose seconds are noted when it ends."""
    start = time.perf_counter()
    future = batcher.submit(inputs, outputs=(RESULT,))
    future.add_done_callback(lambda _: to.append(time.perf_counter() - start))
    return future


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()

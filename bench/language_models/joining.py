"""Requests that join at random, to anydim's server, llama.cpp's and vLLM's.

    python -m bench.language_models.joining MODEL.gguf --peer llama-server --precision int8
    python -m bench.language_models.joining BF16.gguf --precision bfloat16 --vllm PYTHON@FOLDER

Requests of 5 to 1,500 tokens, which want 64 to 256, leave at random; servers run with one thread on
the first processor, the client on another one, one server after the other. Tokens a second count
those that arrived, by the clock and by the processor time of the server. Then each request is sent
to anydim alone: texts and log-probabilities must be equal. Memory is the most that the process
had resident, beside `anydim_decoder_bytes` of its metrics when all run.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy

from anydim.base.records import dataclass

_PATIENCE = 600.0  # seconds for a server's start
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Request:
    """A prompt, how many tokens it wants, and when it leaves."""

    prompt: list[int]
    most: int
    start: float


@dataclass(frozen=True)
class Answer:
    """Times of pieces since the request left, the text, and log-probabilities."""

    times: list[float]
    text: str
    shares: list[Any]


def requests_of(count: int, seconds: float, seed: int) -> list[Request]:
    """Random requests, over `seconds`."""
    chance = numpy.random.default_rng(seed)
    return [
        Request(chance.integers(100, 40000, int(chance.integers(5, 1501))).tolist(),
                int(chance.integers(64, 257)), float(chance.uniform(0, seconds)))
        for _ in range(count)
    ]  # fmt: skip


def send(port: int, model: str, request: Request, shares: bool) -> Answer:
    """Send a request and read its stream."""
    body: dict[str, Any] = {"model": model, "prompt": request.prompt, "max_tokens": request.most,
                            "temperature": 0, "stream": True}  # fmt: skip
    body |= {"logprobs": 1} if shares else {}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3600)
    start, times, texts, found = time.perf_counter(), [], [], []
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json"})  # fmt: skip
    for line in connection.getresponse():
        if line.startswith(b"data: {"):
            (choice,) = json.loads(line[6:]).get("choices") or [{}]
            times.append(time.perf_counter() - start)
            texts.append(choice.get("text", ""))
            found.append(choice.get("logprobs"))
    connection.close()
    return Answer(times, "".join(texts), found)


def send_all(port: int, model: str, requests: Sequence[Request], shares: bool) -> list[Answer]:
    """Send requests at their times, a thread each."""
    answers: dict[int, Answer] = {}

    def one(number: int, request: Request) -> None:
        time.sleep(request.start)
        answers[number] = send(port, model, request, shares)

    threads = [threading.Thread(target=one, args=each) for each in enumerate(requests)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answers[number] for number in range(len(requests))]


def processes(first: int) -> list[list[str]]:
    """The fields of /proc/PID/stat, from the state on, of the processes of a server's session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended
            fields = path.read_text("utf-8").rsplit(")", 1)[1].split()
            if int(fields[3]) == first:
                found.append([path.parent.name, *fields])
    return found


def cpu_seconds(first: int) -> float:
    """Processor time of a server."""
    return sum(int(fields[12]) + int(fields[13]) for fields in processes(first)) / _TICK


def memory(first: int) -> int:
    """The most bytes that the processes of a server had resident."""
    total = 0
    for process, *_ in processes(first):
        with open(f"/proc/{process}/status", encoding="utf-8") as file:
            total += sum(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))
    return total


def begin(command: Sequence[str], port: int) -> subprocess.Popen[bytes]:
    """Start a server on the first processor, in a session of its own; wait until it answers."""
    pinned = ["taskset", "-c", "0", *command]
    process = subprocess.Popen(pinned, stdout=-3, stderr=-3, start_new_session=True)
    end = time.perf_counter() + _PATIENCE
    while time.perf_counter() < end and process.poll() is None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/v1/models")
            if connection.getresponse().status == 200:
                return process
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"{command} did not start")


def metrics(port: int) -> dict[str, float]:
    """The bytes among the metrics of anydim's server."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if "bytes" in line and line[0] != "#")
    return {name: float(value) for name, value in pairs}


def report(name: str, process: int, port: int, model: str, requests: Sequence[Request]) -> None:
    """Print a line for a server."""
    begun, used = time.perf_counter(), cpu_seconds(process)
    answers = send_all(port, model, requests, False)
    wall, cpu = time.perf_counter() - begun, cpu_seconds(process) - used
    count = sum(len(each.times) for each in answers)
    first = [each.times[0] for each in answers]
    gaps = numpy.concatenate([numpy.diff(each.times) for each in answers])
    print(f"{name}: {count} tokens, {count / wall:.1f} a second, {count / cpu:.1f} a second of "
          f"the processor; first token {numpy.median(first):.2f} s; between tokens median "
          f"{numpy.median(gaps):.3f}, p99 {numpy.quantile(gaps, 0.99):.3f}, most {gaps.max():.3f}; "
          f"{memory(process) / 1e6:.0f} MB", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--peer", default="", help="llama.cpp's server")
    parser.add_argument("--vllm", default="", metavar="PYTHON@FOLDER")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--memory", default="2GiB")
    parser.add_argument("--alone", type=int, default=16, help="requests that are sent alone too")
    given = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    requests = requests_of(given.requests, given.seconds, 0)
    name = os.path.basename(given.model).removesuffix(".gguf")
    own = [sys.executable, "-m", "anydim", "serve", given.model, "--port", "8091", "--no-grpc",
           "--threads", "1", "--precision", given.precision, "--memory", given.memory]  # fmt: skip
    process = begin(own, 8091)
    report("anydim", process.pid, 8091, name, requests)
    print({key: round(value / 1e6, 1) for key, value in metrics(8091).items()})
    together = send_all(8091, name, requests[: given.alone], True)
    alone = [send(8091, name, each, True) for each in requests[: given.alone]]
    equal = sum((a.text, a.shares) == (b.text, b.shares) for a, b in zip(together, alone))
    print(f"equal alone, texts and log-probabilities: {equal} of {len(alone)}", flush=True)
    process.terminate()
    if given.peer:
        process = begin([given.peer, "-m", given.model, "--port", "8092", "-t", "1", "-tb", "1",
                         "-np", "16", "-c", "32768", "-kvu"], 8092)  # fmt: skip
        report("llama.cpp", process.pid, 8092, name, requests)
        process.terminate()
    if given.vllm:
        python, _, folder = given.vllm.partition("@")
        os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "0"}
        process = begin([python, "-m", "vllm.entrypoints.openai.api_server", "--model", folder,
                         "--port", "8093", "--dtype", "bfloat16", "--max-model-len", "2048",
                         "--max-num-seqs", "16"], 8093)  # fmt: skip
        report("vLLM", process.pid, 8093, folder, requests)
        os.killpg(process.pid, signal.SIGTERM)


if __name__ == "__main__":
    main()

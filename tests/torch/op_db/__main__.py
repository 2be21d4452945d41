"""Run torch's operator database.

python -m tests.torch.op_db out.json                     all entries, float32
python -m tests.torch.op_db out.json --dtype int64       another element type
python -m tests.torch.op_db out.json --match conv        entries whose names hold a text
python -m tests.torch.op_db out.json --again wrong       those of out.json with this outcome
"""

from __future__ import annotations

import argparse
import json
import queue
import selectors
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

_SECONDS = 90.0  # for one entry


class Worker:
    """A process that runs entries, replaced when one takes too long or ends it."""

    def __init__(self, backend: str, count: int) -> None:
        self.command = [sys.executable, "-m", "tests.torch.op_db.worker", backend, str(count)]
        self.process: subprocess.Popen[str] | None = None

    def run(self, entry: str, dtype: str) -> dict[str, Any]:
        process = self.process or self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(f"{entry} {dtype}\n")
            process.stdin.flush()
            line = self._line(_SECONDS)
        except BrokenPipeError:
            line = ""
        if line:
            made: dict[str, Any] = json.loads(line)
            return made
        self.stop()
        return {"entry": entry, "dtype": dtype, "outcome": "failed", "why": "no answer in time",
                "seconds": _SECONDS}  # fmt: skip

    def _started(self) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._line(300.0)
        return self.process

    def _line(self, seconds: float) -> str:
        assert self.process is not None and self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            return self.process.stdout.readline() if selector.select(seconds) else ""

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def run_all(wanted: list[str], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The outcomes of entries, by a few processes."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in wanted:
        waiting.put(name)
    found: list[dict[str, Any]] = []

    def serve() -> None:
        worker = Worker(arguments.backend, arguments.samples)
        while not waiting.empty():
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                break
            found.append(worker.run(name, arguments.dtype))
            if len(found) % 50 == 0:
                print(len(found), "of", len(wanted), file=sys.stderr, flush=True)
        worker.stop()

    threads = [threading.Thread(target=serve) for _ in range(arguments.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _key(each: dict[str, Any]) -> tuple[str, str]:
    return each["entry"], each["dtype"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--backend", default="anydim")
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--match", default="")
    parser.add_argument("--again", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--every", type=int, default=1)
    arguments = parser.parse_args()
    before = {}
    if arguments.out.exists():
        before = {_key(each): each for each in json.loads(arguments.out.read_text("utf-8"))}
    if arguments.again:
        outcomes = arguments.again.split(",")
        wanted = [
            name for (name, dtype), each in before.items()
            if dtype == arguments.dtype and each["outcome"] in outcomes
        ]  # fmt: skip
    else:
        from tests.torch.op_db import cases

        wanted = list(cases.entries())
    wanted = [name for name in wanted if arguments.match in name][:: arguments.every]
    made = {_key(each): each for each in run_all(wanted, arguments)}
    results = sorted({**before, **made}.values(), key=_key)
    arguments.out.write_text("[\n" + ",\n".join(map(json.dumps, results)) + "\n]\n", "utf-8")
    print(dict(Counter(each["outcome"] for each in results if each["dtype"] == arguments.dtype)))
    for each in results:
        if each["outcome"] in ("wrong", "failed", "refused") and _key(each) in made:
            print(each["outcome"], each["entry"], each["why"][:220])


if __name__ == "__main__":
    main()

"""Run torch's operator database.

python -m tests.torch.op_db out.json                     all entries, float32
python -m tests.torch.op_db out.json --dtype int64       another element type
python -m tests.torch.op_db out.json --match conv        entries whose names hold a text
python -m tests.torch.op_db out.json --again wrong       those of out.json with this outcome
python -m tests.torch.op_db out.json --backend anydim --backend openvino --backend tvm

With several backends, each entry runs with all of them before the next entry.
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.torch.answers import Answers

SECONDS = 90.0  # for one entry


class Worker:
    """A process that runs entries, replaced when a backend takes too long or ends it."""

    def __init__(self, backends: Sequence[str], count: int) -> None:
        self.backends = backends
        self.answers = Answers("tests.torch.op_db.worker", str(count))

    def run(self, entry: str, dtype: str) -> Iterator[dict[str, Any]]:
        """The outcome of an entry with each backend."""
        left = list(self.backends)
        while left:
            for line in self.answers.lines(f"{entry} {dtype} {','.join(left)}", len(left), SECONDS):
                left.pop(0)
                yield json.loads(line)
            if left:
                key = {"backend": left.pop(0), "entry": entry, "dtype": dtype}
                late = {"outcome": "failed", "why": "no answer in time", "seconds": SECONDS}
                yield key | late

    def stop(self) -> None:
        self.answers.stop()


def run_all(
    wanted: list[str], arguments: argparse.Namespace, keep: Callable[[list[dict[str, Any]]], None]
) -> list[dict[str, Any]]:
    """The outcomes of entries with each backend, by a few processes; `keep` gets some early."""
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
            found.extend(worker.run(name, arguments.dtype))
            if waiting.qsize() % 20 == 0:
                print(waiting.qsize(), "entries left", file=sys.stderr, flush=True)
                keep(found)
        worker.stop()

    threads = [threading.Thread(target=serve) for _ in range(arguments.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _key(each: dict[str, Any]) -> tuple[str, str, str]:
    return each["backend"], each["entry"], each["dtype"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--backend", action="append")
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--match", default="")
    parser.add_argument("--again", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--every", type=int, default=1)
    arguments = parser.parse_args()
    arguments.backend = arguments.backend or ["anydim"]
    before = {}
    if arguments.out.exists():
        before = {_key(each): each for each in json.loads(arguments.out.read_text("utf-8"))}
    if arguments.again:
        outcomes = arguments.again.split(",")
        wanted = [
            name for (backend, name, dtype), each in before.items()
            if backend == arguments.backend[0] and dtype == arguments.dtype
            and each["outcome"] in outcomes
        ]  # fmt: skip
    else:
        from tests.torch.op_db import cases

        wanted = list(cases.entries())
    wanted = [name for name in wanted if arguments.match in name][:: arguments.every]

    def keep(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        whole = {**before, **{_key(each): each for each in list(found)}}
        results = [whole[key] for key in sorted(whole)]
        arguments.out.write_text("[\n" + ",\n".join(map(json.dumps, results)) + "\n]\n", "utf-8")
        return results

    found = run_all(wanted, arguments, keep)
    made, results = {_key(each) for each in found}, keep(found)
    for backend in arguments.backend:
        own = (each["outcome"] for each in results
               if (each["backend"], each["dtype"]) == (backend, arguments.dtype))  # fmt: skip
        print(backend, dict(Counter(own)))
    for each in results:
        if each["outcome"] in ("wrong", "failed", "refused") and _key(each) in made:
            print(each["backend"], each["outcome"], each["entry"], each["why"][:220])


if __name__ == "__main__":
    main()

"""Language models beside others: python -m bench.language_models MODEL.gguf --peer NAME=PYTHON ...

    python -m bench.language_models smollm2-Q8_0.gguf --precisions exact,int8 \\
        --peer llama_cpp=llama/bin/python --peer openvino=openvino/bin/python
    python -m bench.language_models smollm2-BF16.gguf --precisions bfloat16 \\
        --peer vllm:bfloat16=vllm/bin/python@smollm2 \\
        --peer transformers:float32=.venv/bin/python@smollm2 --peer genai=genai/bin/python@int4

Each engine has a process (`with_NAME.py`), whose start is timed to the first token; then all read
the same prompts and step the same rows in turns, so that a busy machine slows all alike. Prefill is
a prompt of 512 tokens; rows have caches of 512, of 10 to 1,000 and of 10 to 400 tokens. Figures are
tokens a second, medians of rounds: with one thread of processor time, else of the clock. vLLM and
transformers read a folder of safetensors, onnxruntime-genai one of its own, given behind `@`.
Copies of a file with other weights, and random ones of 0.5B parameters, come from `files.py`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy

from anydim.base.records import dataclass
from anydim.base.text import table

CASES = {
    "1 row": [512],
    "4 rows": [10, 340, 670, 1000],
    "16 rows": [10 + 26 * n for n in range(16)],
}
PREFILL, STEPS = 512, 8
_REST = 0.2  # seconds


@dataclass(frozen=True)
class Engine:
    """The process of an engine, and what it answered when it had its first token."""

    name: str
    process: Any
    first: dict[str, float]

    def ask(self, **command: Any) -> dict[str, float]:
        """Send a command, when threads of other engines spin no more, and wait for its answer."""
        time.sleep(_REST)
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return _answer(self.process)


def _answer(process: Any) -> dict[str, float]:
    for line in process.stdout:
        if line.startswith("{"):  # libraries print as well
            return dict(json.loads(line))
    raise SystemExit(f"{process.args} ended")


def begin(name: str, python: str, path: str, given: argparse.Namespace) -> Engine:
    """Start an engine on the first processors."""
    own, _, option = name.partition(":")
    python, _, folder = python.partition("@")
    script = Path(__file__).parent / f"with_{own}.py"
    cores = ",".join(map(str, range(given.threads)))
    command = ["taskset", "-c", cores, python, script, folder or path, str(given.threads), option]
    process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True)
    return Engine(name, process, _answer(process))


def measure(
    engines: list[Engine], given: argparse.Namespace
) -> tuple[dict[str, list[list[float]]], list[dict[str, float]]]:
    """Tokens a second by case, a list for each engine; and what each said with 16 rows."""
    chance, clock = numpy.random.default_rng(0), "cpu" if given.threads == 1 else "wall"
    found: dict[str, list[list[float]]] = {"prefill": [[] for _ in engines]}
    for _ in range(given.rounds):
        prompt = chance.integers(100, 40000, PREFILL).tolist()
        for engine, rates in zip(engines, found["prefill"]):
            rates.append(PREFILL / engine.ask(read=prompt)[clock])
    for case, lengths in CASES.items():
        found[case] = [[] for _ in engines]
        prompts = [chance.integers(100, 40000, length).tolist() for length in lengths]
        for engine in engines:
            engine.ask(join=prompts)
            engine.ask(steps=2)  # arrays grow
        for _ in range(given.rounds):
            for engine, rates in zip(engines, found[case]):
                rates.append(len(lengths) * STEPS / engine.ask(steps=STEPS)[clock])
        ends = [engine.ask(leave=True) for engine in engines]
    return found, ends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME[:OPTION]=PYTHON[@FOLDER]"
    )
    parser.add_argument("--precisions", default="exact,int8")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    chosen = [(f"anydim:{each}", sys.executable) for each in given.precisions.split(",") if each]
    chosen += [tuple(each.split("=", 1)) for each in given.peer]
    for name, python in chosen[: len(given.precisions.split(","))]:
        begin(name, python, given.model, given).process.communicate()  # its program is stored
    engines = [begin(name, python, given.model, given) for name, python in chosen]
    found, ends = measure(engines, given)
    rows = []
    for number, (engine, end) in enumerate(zip(engines, ends)):
        rates = [f"{median(found[case][number]):.0f}" for case in found]
        rows.append((engine.name, f"{engine.first['cpu']:.2f}", *rates, f"{end['rss']:.0f}",
                     f"{end['anon']:.0f}", f"{end['most']:.0f}"))  # fmt: skip
    print(table(("engine", "start, s", *found, "MB", "without files", "most"), rows))
    for engine in engines:
        engine.process.communicate()


if __name__ == "__main__":
    main()

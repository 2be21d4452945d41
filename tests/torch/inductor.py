"""Run torch's tests of Inductor's dynamic shapes with the backend of anydim in Inductor's place.

    python -m tests.torch.inductor PATH out.json        all tests; PATH: `test` of torch's source
    python -m tests.torch.inductor PATH out.json --match conv
    python -m tests.torch.inductor PATH out.json --again failed

The tests are those of `inductor/test_torchinductor_dynamic_shapes.py` for CPUs, of the version of
torch that is installed. torch's packages do not contain them. An outcome is one of

    passed      and all graphs are compiled
    in torch    passed, but a graph ran in torch, as the backend does not support an operator
    failed
    skipped     by torch, or expected to fail with Inductor
    other       the test reads code, counters or settings of Inductor; not run
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import logging
import re
import sys
import unittest
import warnings
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

from tests.torch.answers import Answers

_SECONDS = 120.0  # for one test
_MODULE = "inductor.test_torchinductor_dynamic_shapes"
_ABOUT_INDUCTOR = re.compile(
    r"and_get_\w*code|run_and_get_kernels|metrics\.|FileCheck|aoti|torch\._inductor|lowering|"
    r"compile_fx|add_scheduler_init_hook|counters\["
)


def tests_of(path: str) -> dict[str, tuple[type[unittest.TestCase], str]]:
    """The tests by name: their class and method."""
    sys.path.insert(0, path)
    with mock.patch("torch._inductor.compile_fx.compile_fx", _compiled):
        module = importlib.import_module(_MODULE)
    classes = [
        each for name, each in vars(module).items()
        if isinstance(each, type) and issubclass(each, unittest.TestCase)
        and re.search("cpu", name, re.IGNORECASE)
    ]  # fmt: skip
    return {
        f"{each.__name__}.{name}": (each, name)
        for each in classes for name in unittest.defaultTestLoader.getTestCaseNames(each)
    }  # fmt: skip


def _compiled(module: Any, inputs: Any, *_: Any, **__: Any) -> Any:
    """What Inductor's entry is replaced by."""
    from anydim.torch.backend import backend

    return backend(module, inputs)


class _Lines(logging.Handler):
    """The lines of the backend about graphs that run in torch."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def outcome_of(case: type[unittest.TestCase], name: str) -> dict[str, str]:
    """The outcome of one test, and why."""
    if _ABOUT_INDUCTOR.search(inspect.getsource(inspect.unwrap(getattr(case, name)))):
        return {"outcome": "other", "why": ""}
    lines = _Lines()
    log = logging.getLogger("torch._dynamo.backends.anydim")
    log.addHandler(lines)
    result = unittest.TestResult()
    try:
        with mock.patch("torch._inductor.compile_fx.compile_fx", _compiled):
            unittest.TestSuite([case(name)]).run(result)
    finally:
        log.removeHandler(lines)
    for _, text in (*result.errors, *result.failures):
        return {"outcome": "failed", "why": _last(text)}
    if result.skipped or result.expectedFailures or result.unexpectedSuccesses:
        return {"outcome": "skipped", "why": result.skipped[0][1] if result.skipped else ""}
    return {"outcome": "in torch" if lines.texts else "passed", "why": " | ".join(lines.texts)}


def _last(text: str) -> str:
    """The error of a traceback, without the notes that torch adds."""
    found = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception|Failure|Unsupported)\b.*", text, re.M)
    return (found[-1] if found else text.strip())[:400]


def serve(path: str) -> None:
    """Answer names of tests by lines of their outcomes."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    answers, sys.stdout = sys.stdout, sys.stderr  # tests print, too
    found = tests_of(path)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        case, name = found[line.strip()]
        print(json.dumps(outcome_of(case, name)), file=answers, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--match", default="")
    parser.add_argument("--again", default="")
    parser.add_argument("--every", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.out is None:
        serve(arguments.path)
        return
    results: dict[str, Any] = {}
    if arguments.out.exists():
        results = json.loads(arguments.out.read_text("utf-8"))
    wanted = [name for name in tests_of(arguments.path) if arguments.match in name]
    if arguments.again:
        kept = {name for name, each in results.items() if each["outcome"] == arguments.again}
        wanted = [name for name in wanted if name in kept]
    wanted = wanted[:: arguments.every]
    answers = Answers("tests.torch.inductor", arguments.path)
    for number, name in enumerate(wanted):
        lines = list(answers.lines(name, 1, _SECONDS))
        late = {"outcome": "failed", "why": "no answer in time"}
        results[name] = json.loads(lines[0]) if lines else late
        if number % 20 == 0 or number == len(wanted) - 1:
            arguments.out.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
            print(len(wanted) - 1 - number, "tests left", file=sys.stderr, flush=True)
    answers.stop()
    print(dict(Counter(each["outcome"] for each in results.values())))
    for name, each in results.items():
        if each["outcome"] in ("failed", "in torch") and name in wanted:
            print(each["outcome"], name, each["why"][:200])


if __name__ == "__main__":
    main()

"""What handing a part to another engine costs beyond its work: microseconds of a call.

python -m bench.handing

One element of work on a row, compiled, and as a part of each engine that is installed; beside it a
session of onnxruntime on the same model that a program calls itself, by `run` and by a binding made
before; and a result whose size the engine finds. Medians of calls, the least of three rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy
from onnx import helper

import anydim as ad
from anydim.runtime.devices.engines.table import ENGINES, open_engine
from bench.arguments import no_words

CALLS = 2000


def program(engine: str) -> ad.Builder:
    """An addition of a row of 16 numbers."""
    g = ad.Builder("row")
    n = g.dim("n", 0, 64)
    x = g.input("x", ad.float32, (n, 16))
    with g.on(engine):
        y = x + 1.0
    g.output("y", y)
    return g


def found() -> Any:
    """An operator that only onnxruntime has, whose result is as long as data say."""
    x = helper.make_tensor_value_info("x", 1, ["n", "m"])
    y = helper.make_empty_tensor_value_info("y")
    node = helper.make_node("DynamicTimeWarping", ["x"], ["y"], domain="com.microsoft")
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "warped", [x], [y])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def microseconds(call: Callable[[], Any]) -> float:
    """The median of calls, by the least of three rounds."""
    rounds = []
    for _ in range(3):
        times = []
        for _ in range(CALLS):
            start = time.perf_counter_ns()
            call()
            times.append(time.perf_counter_ns() - start)
        rounds.append(median(times) / 1000)
    return min(rounds)


def rows() -> dict[str, Callable[[], Any]]:
    """What is measured, by what it is called."""
    x = numpy.ones((1, 16), numpy.float32)
    calls: dict[str, Callable[[], Any]] = {}
    models = {name: ad.compile(program(name), threads=1) for name in ("", *ENGINES) if here(name)}
    for name, model in models.items():
        calls[f"a part on {name}" if name else "compiled"] = lambda model=model: model(x=x)
    if here("onnxruntime"):
        step = models["onnxruntime"].program.regions[-1].handed[0]
        constant = models["onnxruntime"].executable.handed.model(step.model)
        session = open_engine("onnxruntime").session(constant, 1)  # type: ignore[attr-defined]
        name = session.get_inputs()[0].name
        calls["onnxruntime's own run"] = lambda: session.run(None, {name: x})
        bound = session.io_binding()
        bound.bind_cpu_input(name, x)
        bound.bind_output(session.get_outputs()[0].name)
        calls["onnxruntime, bound before"] = lambda: session.run_with_iobinding(bound)
        warped = ad.compile(found(), threads=1, fallback="onnxruntime")
        calls["a size that onnxruntime finds"] = lambda: warped(x=x)
    return calls


def here(engine: str) -> bool:
    """Whether an engine is installed; '' is anydim itself."""
    return not engine or find_spec(engine) is not None


def main() -> None:
    """Print a table."""
    for name, call in rows().items():
        print(f"{name:<32} {microseconds(call):8.1f} us a call")


if __name__ == "__main__":
    no_words(__doc__)
    main()

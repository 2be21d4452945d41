"""Quotients rounded correctly beside products with reciprocals (precision="fast").

    python -m bench.kernels.division [--seconds 1] [--model FILE --sizes batch=1,seq=128]

Kernels are called directly, in turn, on one core and the same aligned arrays; time is the core's
own (`thread_time`). A line has the least time of the products, and of the quotients for one of
that: the ratio of the least times and the median of the ratios of neighbours. With a model: calls
of it, compiled both ways.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np

import anydim as ad
from anydim.base.dtypes import float32
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.kernels.rows import pointwise
from anydim.compiler.kernels.rows import row_template as rows
from anydim.compiler.kernels.template import Template
from anydim.compiler.targets.llvm.host import machine
from anydim.compiler.targets.run import ENTRY, build
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from bench.isolated import pinned
from bench.kernels import attention
from bench.kernels.rows import aligned

Call = Callable[[], None]
CHUNK_SECONDS = 0.002
SIZES = (
    (1000, 384), (64, 128), (64, 4096), (1000, 512), (200, 1000), (1000, 77), (4000, 128),
    (4000, 1), (4000, 3), (4000, 8), (4000, 17), (4000, 33),
)  # fmt: skip
POWERS = """
  top(r) max=! x(r,c)
  e(r,c) = exp(x(r,c) - top(r))
  total(r) +=! e(r,c)
  y(r,c) = e(r,c) {by[total(r)]} }}"""
TEXTS = {
    "softmax": "def f(float(R,C) x) -> (y) {{" + POWERS,
    "length": """def f(float(R,C) x) -> (y) {{
  square(r) +=! x(r,c) * x(r,c)
  length(r) = sqrt(square(r))
  y(r,c) = x(r,c) {by[length(r)]} }}""",
    "by 41": "def f(float(R,C) x) -> (y) {{ y(r,c) = x(r,c) {by[41]} }}",
}
VALUES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "usual": lambda x: x,
    "a tenth -inf": lambda x: np.where(np.arange(x.shape[1]) % 10 == 9, -np.inf, x),
    "times 30": lambda x: 30 * x,
}


class _Written(dict[str, str]):
    """How something is divided by what the text names."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def __missing__(self, by: str) -> str:
        return self.form.format(by)


WAYS = {"fast": _Written("* (1 / {})"), "exact": _Written("/ {}")}


def launch_of(text: str) -> Launch:
    """The kernel of a text for x [R, C] on this machine."""
    box = Box.of(Dim("R", 0, 65536), Dim("C", 0, 65536))
    kind = TensorType(float32, (as_size("R"), as_size("C")))
    group = instantiate(parse_definition(text), [kind], box=box)
    templates: tuple[Template, ...] = (rows.TEMPLATE, pointwise.TEMPLATE)
    for template in templates:
        schedule = template.match(group, box, machine(), frozenset())
        if schedule is not None:
            return template.lower(group, schedule, box, machine(), frozenset())
    raise AssertionError("no template takes it")


def call_of(launch: Launch, tensors: Mapping[str, np.ndarray], sizes: dict[str, int]) -> Call:
    """A function that runs a kernel once on these tensors."""
    loaded = build(launch.kernel, machine().vector_bytes)
    slots = [tensors[argument.tensor].ctypes.data for argument in launch.arguments]
    slots += [size.evaluate(sizes) for size in launch.sizes]
    block = (ctypes.c_int64 * len(slots))(*slots)
    scratch = aligned(np.zeros(launch.scratch.evaluate(sizes) + 1, np.uint8))
    entry, stop = ENTRY(loaded.address(launch.kernel.name)), launch.parallel.evaluate(sizes)

    def once(keep: object = (loaded, tensors)) -> None:
        entry(ctypes.addressof(block), 0, stop, scratch.ctypes.data)

    return once


def seconds_of(call: Call, count: int) -> float:
    """The core's time of one call, over `count` of them."""
    start = time.thread_time()
    for _ in range(count):
        call()
    return (time.thread_time() - start) / count


def compare(name: str, calls: dict[str, Call], seconds: float) -> None:
    """Print a line for 'exact' beside 'fast'."""
    counts = {
        way: max(1, round(CHUNK_SECONDS / max(min(seconds_of(call, 1) for _ in range(5)), 1e-7)))
        for way, call in calls.items()
    }
    times: dict[str, list[float]] = {way: [] for way in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["fast"]) < 5:
        for way in list(calls)[:: -1 if len(times["fast"]) % 2 else 1]:
            times[way].append(seconds_of(calls[way], counts[way]))
    least = {way: min(found) for way, found in times.items()}
    middle = statistics.median(a / b for a, b in zip(times["exact"], times["fast"]))
    ratio = least["exact"] / least["fast"]
    print(f"{name:34}{1e6 * least['fast']:10.1f}{ratio:8.3f}{middle:8.3f}", flush=True)


def rows_of(seconds: float) -> None:
    """Definitions over rows."""
    for name, text in TEXTS.items():
        made = {way: launch_of(text.format(by=by)) for way, by in WAYS.items()}
        for kind, change in VALUES.items() if name == "softmax" else [("usual", VALUES["usual"])]:
            for height, width in SIZES if kind == "usual" else SIZES[4:7]:
                x = np.random.default_rng(0).standard_normal((height, width), np.float32)
                tensors = {"x": aligned(change(x).astype(np.float32)), "y": aligned(0 * x)}
                sizes = {"R": height, "C": width}
                calls = {way: call_of(launch, tensors, sizes) for way, launch in made.items()}
                compare(f"{name}, {kind}, {height}x{width}", calls, seconds)


def attention_of(seconds: float) -> None:
    """Scores divided by a scale, of 12 heads of 32."""
    made = {"fast": attention.make_launch(12, 32, "* (1 / scale)")}
    made["exact"] = attention.make_launch(12, 32)
    for batch, seq in ((1, 22), (1, 128), (8, 128)):
        inputs = attention.make_inputs(batch, seq, 12, 32)
        calls = {way: call_of(k, inputs.arrays, inputs.sizes) for way, k in made.items()}
        compare(f"attention, {batch}x{seq}", calls, seconds)


def model_of(path: str, sizes: dict[str, int], seconds: float) -> None:
    """A model of token numbers, compiled both ways."""
    made = {way: ad.compile(path, precision=way, threads=1) for way in WAYS}
    shape = tuple(sizes.values())
    feeds = {value.name: np.ones(shape, np.int64) for value in made["fast"].inputs}
    calls = {way: (lambda model=model: model(**feeds)) for way, model in made.items()}
    compare(f"model, {'x'.join(map(str, shape))}", calls, seconds)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="per line")
    parser.add_argument("--model")
    parser.add_argument("--sizes", default="batch=1,seq=128")
    options = parser.parse_args()
    pinned(1)
    print(f"{'':34}{'fast us':>10}{'exact / fast: least, median':>30}")
    if options.model:
        pairs = (pair.split("=") for pair in options.sizes.split(","))
        model_of(options.model, {name: int(size) for name, size in pairs}, options.seconds)
        return
    rows_of(options.seconds)
    attention_of(options.seconds)


if __name__ == "__main__":
    main()

"""How compile time grows with a model: python -m bench.compiling [--family NAME] [--largest N]

Each family is a model that grows: chains, wide graphs, convolutions of free height and width, sizes
that nest. Every compile runs in a process of its own, without a cache on disk. `seconds` are of the
clock and `cpu` those of all cores, from when the model is given until the program is there; `MB` is
the most memory that the process had. `growth` is `cpu` against the row above, per doubling.
`--stages` prints where the last row of a family spent it. `--grow` doubles some families up to
100,000 nodes, which takes long: add `--family NAME`. `--file MODEL.onnx`: a file, five times.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import Any

import click
import numpy
from onnx import ModelProto, TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from bench.isolated import ROOT, pinned

ROUNDS = 5


class Written:
    """A model that is being written: every node reads names and gives one."""

    def __init__(self, *shape: str | int) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.functions: list[Any] = []
        self.x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], f"n{name}", **attributes))
        return name

    def constant(self, value: Any, dtype: type = numpy.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(numpy.asarray(value, dtype), name))
        return name

    def model(self, *outputs: str) -> ModelProto:
        given = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self.nodes, "g", [self.x], given, self.constants)
        opsets = [helper.make_opsetid("", 20)]
        if self.functions:
            opsets.append(helper.make_opsetid("own", 1))
        return helper.make_model(
            graph, opset_imports=opsets, ir_version=10, functions=self.functions
        )


def chain(count: int) -> ModelProto:
    """Element work, each node on the one before."""
    made, value = Written("batch", 8), "x"
    one = made.constant(numpy.linspace(0.5, 1.5, 8))
    for number in range(count):
        value = made.node(("Relu", "Neg", "Abs", "Sigmoid")[number % 4], value)
        if number % 4 == 3:
            made.nodes.pop()
            value = made.node("Add", made.nodes[-1].output[0], one)
    return made.model(value)


def unlike(count: int) -> ModelProto:
    """Element work with a constant of its own in each node."""
    made, value = Written("batch", 8), "x"
    for number in range(count):
        operator = ("Mul", "Add")[number % 2]
        value = made.node(operator, value, made.constant(1 + number % 7 / 64))
    return made.model(value)


def wide(count: int) -> ModelProto:
    """Branches side by side from one input, added up two by two."""
    made = Written("batch", 8)
    level = [made.node("Mul", "x", made.constant(numpy.full(8, n + 1))) for n in range(count // 2)]
    while len(level) > 1:
        pairs = [made.node("Add", a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(level) - len(level) % 2 :]
    return made.model(level[0])


def outputs(count: int) -> ModelProto:
    """As many results as nodes."""
    made = Written("batch", 8)
    return made.model(*(made.node("Mul", "x", made.constant(n + 2.0)) for n in range(count)))


def residual(count: int) -> ModelProto:
    """x + f(x), again and again."""
    made, value = Written("batch", 8), "x"
    for _ in range(count // 2):
        value = made.node("Add", value, made.node("Sigmoid", value))
    return made.model(value)


def softmax(count: int) -> ModelProto:
    """Softmax of softmax."""
    made, value = Written("batch", 8), "x"
    for _ in range(count):
        value = made.node("Softmax", value, axis=-1)
    return made.model(value)


def convolutions(count: int) -> ModelProto:
    """Convolutions 3 x 3 that keep height and width, which are free."""
    made, value = Written("batch", 4, "height", "width"), "x"
    random = numpy.random.default_rng(0)
    for _ in range(count):
        weights = made.constant(random.standard_normal((4, 4, 3, 3)) / 6)
        value = made.node("Conv", value, weights, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    return made.model(value)


def shrinking(count: int) -> ModelProto:
    """Convolutions 3 x 3 without padding: height and width fall by 2 each time."""
    made, value = Written("batch", 4, "height", "width"), "x"
    random = numpy.random.default_rng(0)
    for _ in range(count):
        weights = made.constant(random.standard_normal((4, 4, 3, 3)) / 6)
        value = made.node("Conv", value, weights, kernel_shape=[3, 3])
    return made.model(value)


def products(count: int) -> ModelProto:
    """Matrix products with a constant each, and Relu."""
    made, value = Written("batch", 8), "x"
    random = numpy.random.default_rng(0)
    for number in range(count):
        if number % 2:
            value = made.node("Relu", value)
        else:
            value = made.node("MatMul", value, made.constant(random.standard_normal((8, 8)) / 3))
    return made.model(value)


def joined(count: int) -> ModelProto:
    """Concat of two, then a Slice of half of it."""
    made, value = Written("batch", "n"), "x"
    one = made.constant([1], numpy.int64)
    minus = made.constant([-1], numpy.int64)
    for _ in range(count // 2):
        twice = made.node("Concat", value, "x", axis=1)
        value = made.node("Slice", twice, one, minus, one)
    return made.model(value)


def pools(count: int) -> ModelProto:
    """Pools of windows of 3 at every second place."""
    made, value = Written("batch", 2, "height", "width"), "x"
    for _ in range(count):
        value = made.node("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    return made.model(value)


def ceilings(count: int) -> ModelProto:
    """Pools whose sizes are rounded up, after pads of different widths: their sizes nest."""
    made, value = Written("batch", 2, "height", "width"), "x"
    for number in range(count):
        value = made.node(
            "MaxPool", value, kernel_shape=[3, 2], strides=[2, 3], ceil_mode=number % 2,
            pads=[number % 2, 1, 1, 0],
        )  # fmt: skip
    return made.model(value)


def deep(count: int) -> ModelProto:
    """Sizes that grow and are halved again, so that no normal form flattens them."""
    made, value = Written("batch", "n"), "x"
    one = made.constant([0, 1, 0, 2], numpy.int64)
    zero, step = made.constant([1], numpy.int64), made.constant([3], numpy.int64)
    end = made.constant([2**31 - 1], numpy.int64)
    for _ in range(count // 3):
        value = made.node("Concat", value, value, axis=1)
        value = made.node("Pad", value, one)
        value = made.node("Slice", value, zero, end, zero, step)
    return made.model(value)


def shapes(count: int) -> ModelProto:
    """Reshapes to what Shape, Gather and Concat make of the value before."""
    made, value = Written("batch", "n", 4), "x"
    zero, minus = made.constant(0, numpy.int64), made.constant([-1], numpy.int64)
    axes, four = made.constant([0], numpy.int64), made.constant([4], numpy.int64)
    for number in range(count // 6):
        size = made.node("Gather", made.node("Shape", value), zero)
        size = made.node("Unsqueeze", size, axes)
        target = made.node("Concat", size, *((minus, four) if number % 2 else (minus,)), axis=0)
        value = made.node("Relu", made.node("Reshape", value, target))
    return made.model(value)


def blocks(count: int) -> ModelProto:
    """What encoders are made of: product, layer normalisation, Gelu, residual."""
    made, value = Written("batch", "seq", 16), "x"
    random = numpy.random.default_rng(0)
    for _ in range(count // 4):
        inner = made.node("MatMul", value, made.constant(random.standard_normal((16, 16)) / 4))
        inner = made.node("Gelu", inner)
        total = made.node("Add", value, inner)
        value = made.node("LayerNormalization", total, made.constant(numpy.ones(16)))
    return made.model(value)


@dataclass(frozen=True)
class Family:
    """A model that grows by doubling from `first` to `last` nodes."""

    write: Callable[[int], ModelProto]
    first: int
    last: int

    def counts(self, largest: int) -> Iterator[int]:
        yield from doubled(self.first, min(self.last, largest))


def doubled(first: int, last: int) -> Iterator[int]:
    """first, 2 * first, ... up to last."""
    while first <= last:
        yield first
        first *= 2


FAMILIES = {
    write.__name__: Family(write, first, last)
    for write, first, last in (
        (chain, 1250, 80000), (unlike, 1250, 80000), (wide, 1250, 80000), (outputs, 250, 4000),
        (residual, 1250, 20000), (softmax, 500, 16000), (convolutions, 250, 8000),
        (shrinking, 125, 1000), (products, 1250, 20000), (blocks, 1250, 20000),
        (joined, 100, 1600), (pools, 60, 960), (ceilings, 60, 960), (deep, 60, 960),
        (shapes, 1250, 20000),
    )
}  # fmt: skip
GROWN = {
    "chain": (12_500, 100_000), "wide": (12_500, 100_000), "outputs": (12_500, 100_000),
    "softmax": (12_500, 100_000), "convolutions": (12_500, 100_000), "pools": (125, 1_000),
    "ceilings": (125, 1_000),
}  # fmt: skip


def here(name: str, count: int) -> dict[str, float]:
    """Seconds of the stages of one compile in this process, and what it took of the machine.

    Without a count, `name` is a file.
    """
    import anydim as ad

    model = FAMILIES[name].write(count) if count else name
    start, processor = time.perf_counter(), time.process_time()
    report = ad.compile(model, threads=2).report
    return {
        "total": time.perf_counter() - start,
        "cpu": time.process_time() - processor,
        "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **report.seconds,
    }


def apart(name: str, count: int, limit: float) -> dict[str, float] | str:
    """The same in a process of its own without a cache, or why it gave none."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.compiling", "--here", name, str(count)]
        environment = {**os.environ, "ANYDIM_CACHE_DIR": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return f"above {limit:.0f} s"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:200]
    return json.loads(done.stdout.splitlines()[-1])


@click.command(help=__doc__)
@click.option("--family", "names", multiple=True, type=click.Choice(list(FAMILIES)))
@click.option("--file", "files", multiple=True, help="A model's file, compiled five times.")
@click.option("--largest", default=100_000, show_default=True, help="No models above this size.")
@click.option("--limit", default=120.0, show_default=True, help="Seconds that a compile may take.")
@click.option("--stages", is_flag=True, help="The stages of the largest model of each family.")
@click.option("--grow", is_flag=True, help="The largest models of the families that must grow.")
@click.option("--here", "alone", nargs=2, type=str, default=None, hidden=True)
def main(
    names: tuple[str, ...], files: tuple[str, ...], largest: int, limit: float, stages: bool,
    grow: bool, alone: tuple[str, str] | None,
) -> None:  # fmt: skip
    if alone is not None:
        print(json.dumps(here(alone[0], int(alone[1]))))
        return
    pinned(2)
    console = Console()
    for file in files:
        _several(str(Path(file).resolve()), limit, console)
    if files:
        return
    table = Table(title="to compile from nothing, two cores")
    for column in ("family", "nodes", "seconds", "cpu", "growth", "MB", "costliest stages"):
        table.add_column(column, justify="left" if column == "family" else "right")
    for name in names or (GROWN if grow else FAMILIES):
        rows: list[tuple[int, dict[str, float]]] = []
        first, last = GROWN.get(name, (0, -1))
        counts = doubled(first, min(last, largest)) if grow else FAMILIES[name].counts(largest)
        for count in counts:
            found = apart(name, count, limit)
            if isinstance(found, str):
                table.add_row(name, str(count), found)
                console.print(name, count, found)
                break
            rows.append((count, found))
            console.print(name, count, _costliest(found, 99 if stages else 4), highlight=False)
        for number, (count, row) in enumerate(rows):
            table.add_row(
                name, str(count), f"{row['total']:.2f}", f"{row['cpu']:.2f}",
                _growth(rows, number), f"{row['MB']:.0f}", _costliest(row, 3),
            )  # fmt: skip
    console.print(table)


def _several(file: str, limit: float, console: Console) -> None:
    """The fastest of five compiles of a file by stages, and the times of all five."""
    rows = [apart(file, 0, limit) for _ in range(ROUNDS)]
    times = [row for row in rows if not isinstance(row, str)]
    if len(times) < ROUNDS:
        console.print(Path(file).name, *(row for row in rows if isinstance(row, str)))
        return
    best = min(times, key=lambda row: row["total"])
    every = " ".join(f"{row['total']:.2f}" for row in times)
    console.print(Path(file).name, _costliest(best, 8), f"({every})", highlight=False)


def _growth(rows: list[tuple[int, dict[str, float]]], number: int) -> str:
    """Times the processor's time for twice the nodes."""
    if not number:
        return ""
    (few, before), (many, after) = list(pairwise(rows))[number - 1]
    return f"{(after['cpu'] / before['cpu']) ** (1 / log2(many / few)):.2f}"


def _costliest(row: dict[str, float], most: int) -> str:
    stages = ((name, seconds) for name, seconds in row.items() if name not in ("cpu", "MB"))
    parts = sorted(stages, key=lambda item: -item[1])[:most]
    return " ".join(f"{name} {seconds:.2f}" for name, seconds in parts)


if __name__ == "__main__":
    main()

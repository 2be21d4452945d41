"""Arena bytes beside the lower bound, and the time of planning: python -m bench.memory [MODEL...]

Models are names of `bench/networks` or ONNX files, all of those networks where none is given. Their
dims stay open, so one plan serves every size. The lower bound is the most bytes that any launch
finds alive, its own scratch included; ratios are at 50 random sizes at which the guards hold,
every other one of multiples of 32. Where steps stand between segments, memory is the arena and the
values between them, and the bound is that of values between steps or of one segment alone. Times
are of the processor; what compiling finds on disk it does not make again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import geometric_mean
from typing import ClassVar

import click
import onnx
from rich.console import Console
from rich.table import Table

import anydim as ad
from anydim.compiler.passes.memory import STACKED, ArenaPlan, Lifetime
from anydim.compiler.passes.options import KernelOptions
from anydim.runtime.program.memory_map import arena
from anydim.runtime.program.program import Program
from anydim.sizes import Box, Dim, Guard, as_size, holds
from bench.networks import NETWORKS

POINTS = 50
LARGEST = {"b": 16}  # sizes that are drawn, by the first letter of a dim; others
OTHERS = 640
_TRIES = 200_000


@dataclass
class Timed:
    """The usual planner, which says how long it took and how many values it placed."""

    in_place: ClassVar[bool] = STACKED.in_place
    seconds: float = 0.0
    values: int = 0

    def run(
        self, lifetimes: Sequence[Lifetime], box: Box, guards: Sequence[Guard] = ()
    ) -> ArenaPlan:
        start = time.process_time()
        plan = STACKED.run(lifetimes, box, guards)
        self.seconds += time.process_time() - start
        self.values += len(lifetimes)
        return plan


@click.command(help=__doc__)
@click.argument("models", nargs=-1)
@click.option("--threads", default=1, show_default=True)
def main(models: tuple[str, ...], threads: int) -> None:
    table = Table()
    for column in ("", "values", "planned in", "of compile", "ratio", "worst", "characters"):
        table.add_column(column, justify="left" if not column else "right")
    for name in models or NETWORKS:
        table.add_row(name.rsplit("/", 1)[-1], *measured(name, threads))
    table.add_row("1000 unlike values", "1000", f"{many():.3f} s")
    Console().print(table)


def measured(name: str, threads: int) -> Iterator[str]:
    """The cells of a model."""
    source = NETWORKS[name]() if name in NETWORKS else onnx.load(name)
    planner, start = Timed(), time.process_time()
    model = ad.compile(source, options=KernelOptions(memory=planner), threads=threads)
    compiled = time.process_time() - start
    program = model.program
    signature = program.signature
    found = [ratio(program, point) for point in drawn(signature.box, signature.guards)]
    yield str(planner.values)
    yield f"{planner.seconds:.3f} s"
    yield f"{compiled:.2f} s, {planner.seconds / compiled:.1%}"
    yield f"{geometric_mean(found):.3f}"
    yield f"{max(found):.3f}"
    yield str(len(str(model.memory.bytes)))


def ratio(program: Program, point: dict[str, int]) -> float:
    """The bytes of a call's memory over the lower bound."""
    placed = arena(program, point)
    return (placed.bytes + placed.between) / max(placed.lower_bound, placed.between, 1)


def drawn(box: Box, guards: Sequence[Guard]) -> list[dict[str, int]]:
    """Random sizes at which the guards hold."""
    random, points = Random(7), []
    for number in range(_TRIES):
        step = 32 if number % 2 else 1
        point = {
            name: random.randint(1, LARGEST[name[0]]) if name[0] in LARGEST
            else random.randint(1, OTHERS // step) * step
            for name in box.names
        }  # fmt: skip
        if box.contains(point) and all(holds(guard, point) for guard in guards):
            points.append(point)
        if len(points) == POINTS:
            break
    return points


def many() -> float:
    """Seconds of planning a thousand values of different sizes: the median of five."""
    n, m = (as_size(Dim(name).size) for name in "nm")
    kinds = (
        64 * n, 256 * n * m, 64 * ((n + 15) // 16), 64 * ((m + 15) // 16), 64 * n + 128, 640 * m,
        64 * ((n + 1) // 2) * m, 256 * ((n + 3) // 4) * ((m + 3) // 4),
        64 * ((3 * n * m + 15) // 16),
    )  # fmt: skip
    values = [
        Lifetime(f"v{i}", kinds[i % len(kinds)], i, i + (30 if i % 10 == 0 else 1 + i % 3))
        for i in range(1000)
    ]
    taken = []
    for _ in range(5):
        start = time.process_time()
        STACKED.run(values, Box.of(Dim("n"), Dim("m")))
        taken.append(time.process_time() - start)
    return sorted(taken)[2]


if __name__ == "__main__":
    main()

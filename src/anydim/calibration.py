"""Measures limits between versions on this machine: where one version becomes faster than another.

A probe forces two versions of a kernel with the same bits at growing sizes, timed alternately. The
limit is the size up to which the first version takes less time in total over all sizes. Others keep
their defaults (`kernels/limits.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy

from anydim.base import settings
from anydim.base.cache_folder import cache_folder, keep, limits_path
from anydim.base.dtypes import float32, int8, uint8
from anydim.base.errors import OptionError
from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.entry import compile
from anydim.frontends.builder import Builder
from anydim.kernels.launch import Machine
from anydim.kernels.limits import DEFAULTS, Limits
from anydim.kernels.work_estimate import COSTS
from anydim.passes.options import WHOLE, KernelOptions
from anydim.program.callable_program import CallableProgram
from anydim.targets.targets import target

_ROUNDS = 12  # timings of each version at each size, of which the least counts
_WORTH = 0.05  # share of time that a limit other than the default must save
_CALL_SECONDS = 2e-4  # of repeated calls, for each timing
_CLIP = 1 << 15, 1 << 21  # of `part_work`: other threads may be busy while it is measured

Arrays = dict[str, numpy.ndarray]


@dataclass(frozen=True)
class Probe:
    """Two versions of a kernel at growing sizes; `limit` is `value(n)` of the last size n.

    n is the largest size of `sizes` at which the first version pays, 0 if none.
    """

    limit: str
    schedule: str
    versions: tuple[str, str]
    graph: Callable[[], Builder]
    arrays: Callable[[int], Arrays]
    sizes: tuple[int, ...]
    value: Callable[[int], int]

    def models(self) -> Iterator[CallableProgram]:
        for version in self.versions:
            text = f"{self.schedule}(version={version})"
            options = KernelOptions(FrozenMapping({WHOLE: text}))
            yield compile(self.graph(), schedules=options, threads=1, strategy="generic()")


@dataclass(frozen=True)
class Measured:
    """A limit, its default, and the share of time over the probe's sizes that it saves."""

    name: str
    usual: int
    found: int
    saved: float


def calibrated(tell: Callable[[int, int, str], object] | None = None) -> tuple[Measured, ...]:
    """Measure the limits of this machine, and keep them in the cache folder.

    Later compilations use them. Raises OptionError if the cache is off.
    """
    path, folder = limits_path(), cache_folder()
    if path is None or folder is None:
        raise OptionError("calibrate keeps limits in the cache folder, and the cache is off")
    machine = target().machine
    probes, found = _probes(machine), list[Measured]()
    for number, probe in enumerate(probes):
        if tell is not None:
            tell(number, len(probes) + 1, probe.limit)
        found.append(_measured(probe))
    found.append(_part_work())
    limits = Limits(**{each.name: each.found for each in found})
    keep(folder, path, lambda name: _write(name, limits))
    return tuple(found)


def _write(path: str, limits: Limits) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(str(limits))


def _measured(probe: Probe) -> Measured:
    times = _times(tuple(probe.models()), probe.arrays, probe.sizes)
    best = [min(pair) for pair in times]

    def total(count: int) -> float:
        """Relative time if the first version is used at the first `count` sizes."""
        pairs = enumerate(zip(times, best))
        return sum(pair[number >= count] / least for number, (pair, least) in pairs)

    def value(count: int) -> int:
        return max(1, probe.value(probe.sizes[count - 1] if count else 0))

    counts = range(len(probe.sizes) + 1)
    usual = int(getattr(DEFAULTS, probe.limit))
    now = max((n for n in counts if value(n) == usual), default=None)
    chosen = min(counts, key=total)
    before = total(chosen if now is None else now)
    saved = 1 - total(chosen) / before
    if saved < _WORTH:
        return Measured(probe.limit, usual, usual, 0.0)
    return Measured(probe.limit, usual, value(chosen), saved)


def _times(
    models: Sequence[CallableProgram], arrays: Callable[[int], Arrays], sizes: Sequence[int]
) -> list[tuple[float, ...]]:
    """The least seconds of a call of each model at each size, timed alternately."""
    found: list[tuple[float, ...]] = []
    for size in sizes:
        given = arrays(size)
        once = min(_seconds(models[0], given, 1) for _ in range(3))
        often = max(1, min(200, round(_CALL_SECONDS / max(once, 1e-7))))
        rounds = [[_seconds(model, given, often) for model in models] for _ in range(_ROUNDS)]
        found.append(tuple(map(min, zip(*rounds))))
    return found


def _seconds(model: CallableProgram, given: Arrays, often: int) -> float:
    begin = time.perf_counter()
    for _ in range(often):
        model(**given)
    return (time.perf_counter() - begin) / often


# ---- probes ------------------------------------------------------------------------------------


def _random(*shape: int) -> numpy.ndarray:
    return numpy.random.default_rng(0).standard_normal(shape).astype("f4")


def _probes(machine: Machine) -> tuple[Probe, ...]:
    lanes = machine.lanes_of(4)

    def of_vector(size: int) -> int:
        """The rows that a vector holds."""
        return lanes // size if size else 2 * lanes

    return (
        Probe(
            "few_column_rows", "rows", ("few_columns", "vectors"), _columns,
            lambda size: {"x": _random(4096, size)}, tuple(range(1, lanes // 2 + 1)), of_vector,
        ),
        Probe(
            "merged_window_rows", "sliding", ("merged_rows", "rows"), _images,
            lambda size: {"x": _random(1, 64, 48, size)}, tuple(range(2, lanes // 2 + 1)),
            of_vector,
        ),
        Probe(
            "single_window_rows", "sliding", ("single_rows", "rows"), _images,
            lambda size: {"x": _random(1, 64, size, 200)}, (1, 2, 3, 4), lambda size: size,
        ),
        Probe(
            "few_byte_rows", "bytes", ("few_rows", "panels"), _bytes,
            lambda size: {
                "a": _random(size, 256).view("u1")[:, :256], "b": _random(256, 256).view("i1"),
            },
            (1, 2, 3, 4), lambda size: size,
        ),
    )  # fmt: skip


def _columns() -> Builder:
    g = Builder("columns")
    x = g.input("x", float32, (g.dim("r", 0, 1 << 20), g.dim("c", 1, 1 << 10)))
    g.output("y", g.reduce_max(x, axes=(0,)))
    return g


def _images() -> Builder:
    g = Builder("images")
    x = g.input("x", float32, (1, 64, g.dim("h", 1, 1 << 10), g.dim("w", 1, 1 << 10)))
    g.output("y", g.max_pool(x, kernel=(3, 3), pads=(1, 1, 1, 1)))
    return g


def _bytes() -> Builder:
    g = Builder("bytes")
    a = g.input("a", uint8, (g.dim("m", 0, 64), 256))
    b = g.input("b", int8, (256, g.dim("n", 1, 1 << 12)))
    zeros = (g.constant(numpy.uint8(0)), g.constant(numpy.int8(0)))
    g.output("y", g.matmul_integer(a, b, *zeros))
    return g


def _part_work() -> Measured:
    """The operations worth a thread: where two threads become as fast as one."""
    usual = DEFAULTS.part_work
    each = COSTS["exp"] + 2  # a read, and an element
    sizes = tuple(1 << bits for bits in range(12, 19))

    def graph() -> Builder:
        g = Builder("parts")
        g.output("y", g.exp(g.input("x", float32, (g.dim("n", 0, 1 << 24),))))
        return g

    one = compile(graph(), threads=1, strategy="generic()")
    with settings.override(limits="part_work=1024"):
        two = compile(graph(), threads=2, strategy="generic()")
    times = _times((one, two), lambda size: {"x": _random(size)}, sizes)
    equal = next((n for n, (alone, shared) in zip(sizes, times) if shared < alone), None)
    if equal is None:
        return Measured("part_work", usual, usual, 0.0)
    found = max(_CLIP[0], min(_CLIP[1], round(equal * each / 2)))
    parts = [2 if size * each >= 2 * usual else 1 for size in sizes]
    before = sum(pair[count - 1] / min(pair) for pair, count in zip(times, parts))
    after = sum(pair[n >= equal] / min(pair) for n, pair in zip(sizes, times))
    saved = 1 - after / before
    return Measured("part_work", usual, *((found, saved) if saved >= _WORTH else (usual, 0.0)))

"""Probes: two versions of a kernel with the same bits, at sizes on both sides of a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy

from anydim.api.entry import compile
from anydim.base import settings
from anydim.base.dtypes import float32, int8, uint8
from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.compiler.frontends.builder import Builder
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.limits import DEFAULTS, RANGES
from anydim.compiler.kernels.work_estimate import COSTS
from anydim.compiler.passes.options import WHOLE, KernelOptions
from anydim.runtime.program.callable_program import CallableProgram

Arrays = dict[str, numpy.ndarray]
_ELEMENT = COSTS["exp"] + 2  # operations of an element of `_elements`: a read, and the element


@dataclass(frozen=True)
class Probe:
    """Two ways to compute `graph` at growing sizes; `first(limit, size)` takes the first one.

    The ways are versions of a `schedule`, or without one the same kernel on one and two threads.
    """

    limit: str
    schedule: str
    versions: tuple[str, str]
    graph: Callable[[], Builder]
    arrays: Callable[[int], Arrays]
    sizes: tuple[int, ...]
    first: Callable[[int, int], bool]
    threads: int = 1

    def models(self) -> Iterator[CallableProgram]:
        """The program in the first and in the second way."""
        if not self.schedule:
            yield compile(self.graph(), threads=1, strategy="generic()")
            least = RANGES[self.limit][0]
            with settings.override(limits=f"{self.limit}={least}"):
                yield compile(self.graph(), threads=2, strategy="generic()")
            return
        for version in self.versions:
            text = f"{self.schedule}(version={version})"
            options = KernelOptions(FrozenMapping({WHOLE: text}))
            yield compile(
                self.graph(), schedules=options, threads=self.threads, strategy="generic()"
            )

    def cost(self, times: Sequence[tuple[float, ...]], limit: int) -> float:
        """The time over all sizes with a limit, each relative to the faster way."""
        pairs = zip(self.sizes, times)
        return sum(pair[not self.first(limit, size)] / min(pair) for size, pair in pairs)

    def worst(self, times: Sequence[tuple[float, ...]], limit: int) -> float:
        """The largest time at a size with a limit, relative to that with the default limit."""
        usual = int(getattr(DEFAULTS, self.limit))
        return max(
            pair[not self.first(limit, size)] / pair[not self.first(usual, size)]
            for size, pair in zip(self.sizes, times)
        )


def probes(machine: Machine) -> tuple[Probe, ...]:
    """The probes for a machine, in the order of the limits."""
    lanes = machine.lanes_of(4)

    def held(limit: int, size: int) -> bool:
        """Whether a vector holds at least `limit` rows of `size`."""
        return size <= lanes // limit

    def up_to(limit: int, size: int) -> bool:
        return size <= limit

    def image(height: int, width: int) -> Arrays:
        return {"x": _random(1, 16, height, width)}

    return (
        Probe(
            "part_work", "", ("one thread", "two threads"), _elements,
            lambda size: {"x": _random(size)}, tuple(1 << bits for bits in range(13, 19)),
            lambda limit, size: size * _ELEMENT < 2 * limit,
        ),
        Probe(
            "shared_row", "rows", ("vectors", "shared"), _long_rows,
            lambda size: {"x": _random(1, size)}, tuple(1 << bits for bits in range(13, 20)),
            lambda limit, size: size < limit, 2,
        ),
        Probe(
            "merged_window_rows", "window_reduction", ("merged_rows", "rows"), lambda: _images(1),
            lambda size: image(48, size), tuple(range(2, lanes // 2 + 1)), held,
        ),
        Probe(
            "merged_window_gathers", "window_reduction", ("merged_rows", "rows"),
            lambda: _images(2), lambda size: image(96, 2 * size), tuple(range(1, lanes // 2 + 1)),
            held,
        ),
        Probe(
            "single_window_rows", "window_reduction", ("single_rows", "rows"), lambda: _images(1),
            lambda size: image(size, 200), (1, 2, 3, 4, 6, 8), up_to,
        ),
        Probe(
            "merged_panel_rows", "convolution", ("merged_rows", "panels"), lambda: _convolution(2),
            lambda size: image(256, 2 * size), tuple(range(1, lanes // 2 + 1)), held,
        ),
        Probe(
            "merged_panel_gathers", "convolution", ("merged_rows", "panels"),
            lambda: _convolution(5),
            lambda size: image(500, 5 * size), tuple(range(1, lanes // 2 + 1)), held,
        ),
        Probe(
            "few_byte_rows", "int8", ("few_rows", "panels"), _bytes,
            lambda size: _factors(size, 256), (1, 2, 3, 4), up_to,
        ),
        Probe(
            "few_byte_vectors", "int8", ("panels", "few_rows"), _bytes,
            lambda size: _factors(2, size), tuple(lanes * n for n in (1, 2, 3, 4, 6, 8)),
            lambda limit, size: size < lanes * limit,
        ),
        Probe(
            "position_images", "contraction", ("panels", "by_position"), _channels,
            lambda size: {"x": _random(size, 7, 7, 64)}, (2, 3, 4, 6, 8, 12),
            lambda limit, size: size < limit,
        ),
        Probe(
            "position_count", "contraction", ("by_position", "panels"), _channels,
            lambda size: {"x": _random(8, size, 7, 64)}, (3, 5, 7, 9, 12, 14),
            lambda limit, size: size * 7 <= limit,
        ),
        Probe(
            "position_line", "contraction", ("by_position", "panels"), _channels,
            lambda size: {"x": _random(8, 3, size, 64)}, (5, 7, 9, 11, 13, 16, 20), up_to,
        ),
    )  # fmt: skip


def _random(*shape: int) -> numpy.ndarray:
    return numpy.random.default_rng(0).standard_normal(shape).astype("f4")


def _factors(rows: int, columns: int) -> Arrays:
    a, b = _random(rows, 256).view("u1")[:, :256], _random(256, columns).view("i1")[:, :columns]
    return {"a": numpy.ascontiguousarray(a), "b": numpy.ascontiguousarray(b)}


def _elements() -> Builder:
    g = Builder("parts")
    g.output("y", g.exp(g.input("x", float32, (g.dim("n", 0, 1 << 24),))))
    return g


def _long_rows() -> Builder:
    g = Builder("rows")
    x = g.input("x", float32, (g.dim("r", 0, 64), g.dim("c", 1, 1 << 24)))
    g.output("y", g.softmax(x, axis=1))
    return g


def _images(stride: int) -> Builder:
    g = Builder("images")
    x = g.input("x", float32, (1, 16, g.dim("h", 1, 1 << 10), g.dim("w", 1, 1 << 10)))
    g.output("y", g.max_pool(x, kernel=(3, 3), pads=(1, 1, 1, 1), strides=(stride, stride)))
    return g


def _convolution(stride: int) -> Builder:
    g = Builder("convolution")
    x = g.input("x", float32, (1, 16, g.dim("h", 1, 1 << 10), g.dim("w", 1, 1 << 10)))
    weights = g.constant(_random(24, 16, 3, 3))
    g.output("y", g.conv(x, weights, pads=(1, 1, 1, 1), strides=(stride, stride)))
    return g


def _channels() -> Builder:
    g = Builder("channels")
    n, h, w = g.dim("n", 0, 64), g.dim("h", 1, 64), g.dim("w", 1, 64)
    x = g.transpose(g.input("x", float32, (n, h, w, 64)), perm=(0, 3, 1, 2))
    y = g.conv(x, g.constant(_random(64, 64, 5, 5)), pads=(2, 2, 2, 2))
    g.output("y", g.transpose(y, perm=(0, 2, 3, 1)))
    return g


def _bytes() -> Builder:
    g = Builder("bytes")
    a = g.input("a", uint8, (g.dim("m", 0, 64), 256))
    b = g.input("b", int8, (256, g.dim("n", 1, 1 << 12)))
    zeros = (g.constant(numpy.uint8(0)), g.constant(numpy.int8(0)))
    g.output("y", g.matmul_integer(a, b, *zeros))
    return g

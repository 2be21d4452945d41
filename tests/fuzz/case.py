"""A case: a graph with everything that is needed to run it, and the data of its inputs."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy

from anydim.compiler.graph.nodes import Graph
from anydim.compiler.graph.text import print_graph
from anydim.lang.tree import TensorType
from tests.fuzz.maker import Domain

Arrays = dict[str, numpy.ndarray]
NOT_FINITE = (math.inf, -math.inf, math.nan)


def specials_of(dtype: numpy.dtype) -> numpy.ndarray:
    """Numbers at the edges of a type of floats: those that are not finite as often as others."""
    kind = ml_dtypes.finfo(dtype)
    beside = [numpy.nextafter(dtype.type(n), dtype.type(to)) for n, to in BESIDE]
    edges = (
        0.0, -0.0, kind.smallest_subnormal, -kind.smallest_normal, kind.smallest_normal / 2,
        kind.max, -kind.max, *beside,
    )  # fmt: skip
    return numpy.array([*NOT_FINITE * 2, *edges]).astype(dtype)


BESIDE = ((1, 0), (1, 2), (2, 0), (-1, -2), (3, 4), (0.5, 0))  # numbers, and where neighbours lie


@dataclass(frozen=True)
class Case:
    """A graph, what its inputs hold, the sizes it is called at in order, and threads.

    With `specials` inputs hold some of SPECIALS; with `eager` all launches are parallel; with
    `crowd` calls come from several threads at once.
    """

    graph: Graph
    domains: Mapping[str, Domain]
    points: tuple[dict[str, int], ...]
    threads: int
    seed: int
    specials: bool = False
    eager: bool = False
    crowd: bool = False

    def inputs(self, sizes: Mapping[str, int]) -> Arrays | None:
        """Data for a call; None where an index has no axis to point into."""
        arrays = {}
        for name in self.graph.inputs:
            key = (self.seed, zlib.crc32(name.encode()), *sizes.values())
            numbers = numpy.random.default_rng(key)
            domain = self.domains.get(name, Domain())
            array = draw(self.graph.types[name], domain, sizes, numbers, self.specials)
            if array is None:
                return None
            arrays[name] = array
        return arrays

    def text(self) -> str:
        """The graph and how it is called."""
        lines = [print_graph(self.graph).rstrip()]
        held = {n: d for n, d in self.domains.items() if n in self.graph.inputs}
        lines += [f"# {n} holds: {d}" for n, d in held.items() if d.kind != "normal"]
        flags = f"{', specials' * self.specials}{', eager' * self.eager}{', crowd' * self.crowd}"
        lines.append(f"# threads {self.threads}, seed {self.seed}{flags}")
        lines += [f"# called at {point}" for point in self.points]
        return "\n".join(lines)


def draw(
    kind: TensorType, domain: Domain, sizes: Mapping[str, int], numbers: numpy.random.Generator,
    specials: bool,
) -> numpy.ndarray | None:  # fmt: skip
    """Random data of a type; None where an index has no axis to point into."""
    shape = tuple(size.evaluate(sizes) for size in kind.shape)
    dtype = kind.dtype.numpy
    if kind.dtype.is_float:
        return normal(shape, numpy.dtype(dtype), numbers, specials)
    if domain.kind == "index":
        extent = domain.extent.evaluate(sizes)
        if extent == 0:
            return numpy.zeros(shape, dtype) if math.prod(shape) == 0 else None
        low = -extent if domain.negative else 0
        return numpy.asarray(numbers.integers(low, extent, shape)).astype(dtype)
    if kind.dtype.kind == "bool":
        return numpy.asarray(numbers.random(shape) < 0.5)
    if domain.kind == "any":
        edge = numpy.iinfo(dtype)
        marks = [edge.min, edge.max, max(-1, edge.min), 0, 1]
        values = numbers.integers(edge.min, edge.max, shape, dtype, endpoint=True)
        ends = numbers.choice(numpy.array(marks, dtype), shape)
        return numpy.where(numbers.random(shape) < 0.3, ends, values)
    low = 0 if kind.dtype.kind == "uint" else -4
    return numpy.asarray(numbers.integers(low, 5, shape)).astype(dtype)


def normal(
    shape: tuple[int, ...], dtype: numpy.dtype, numbers: numpy.random.Generator, specials: bool
) -> numpy.ndarray:
    """Normal numbers, a few of them small and round, with `specials` a few at the type's edges."""
    values = numpy.asarray(numbers.standard_normal(shape))
    chosen = numpy.asarray(numbers.random(shape))
    values = numpy.where(chosen < 0.06, numpy.rint(values * 2) / 2, values).astype(dtype)
    if specials:
        values = numpy.where(chosen > 0.97, numbers.choice(specials_of(dtype), shape), values)
    return numpy.asarray(values)

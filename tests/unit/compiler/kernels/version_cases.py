"""Small programs that have every version of every kernel, with sizes around their limits.

`python -m tests.unit.compiler.kernels.version_cases` prints the versions and their conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy

import anydim as ad
from anydim.base.frozen import FrozenMapping
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.passes.options import WHOLE, KernelOptions
from anydim.runtime.program.plan import version_at
from anydim.runtime.program.segment import Site
from tests.golden.numbers import drawn
from tests.golden.record import MACHINE, OF_PAIRS, fixed_machine

Sizes = dict[str, int]
ANY = "any"
AROUND = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33)  # a vector of 8, its half, its double, primes
OTHER_ORDER = {
    ("contraction", "one_column"): "lanes are terms of one sum",
    ("contraction", "one_short_column"): "lanes are terms of one sum",
    ("contraction", "few_rows"): "four sums take turns",
    ("contraction", "interleaved"): "four sums take turns",
    ("attention_bfloat16", "exact"): "factors are not rounded",
    ("winograd", "transformed"): "Winograd's arithmetic",
    ("winograd_across", "transformed"): "Winograd's arithmetic",
}
"""Versions that have other bits than the others of their kernel, and why."""
WIDE = replace(MACHINE, vector_bytes=64, registers=32)
_EDGES, _MOST = 4, 1 << 20  # calls for each version; elements of a call


@dataclass(frozen=True)
class VersionCase:
    """A program whose last kernel of a kind has versions; `sizes` are tried for each dim."""

    name: str
    kind: str
    graph: Callable[[], ad.Builder]
    sizes: Mapping[str, Sequence[int]]
    machine: Machine = MACHINE
    forced: tuple[str, ...] = ()  # versions that no size takes by itself

    def model(self, version: str) -> ad.Model:
        """The program with a version forced, as templates make it for the machine."""
        texts = {} if version == ANY else {WHOLE: f"{self.kind}(version={version})"}
        with fixed_machine(machine=self.machine):
            return ad.compile(
                self.graph(), schedules=KernelOptions(FrozenMapping(texts)), threads=1,
                strategy="generic()", precision="bfloat16" if "bfloat16" in self.kind else "exact",
            )  # fmt: skip

    def site(self, model: ad.Model) -> Site:
        return [s for s in model.program.sites if s.schedule.startswith(f"{self.kind}(")][-1]

    @cached_property
    def plain(self) -> ad.Model:
        return self.model(ANY)

    @cached_property
    def versions(self) -> tuple[str, ...]:
        """The versions that some size takes, and those that are only forced."""
        names = (name for name, _ in self.site(self.plain).versions)
        return tuple(dict.fromkeys((*names, *self.forced)))

    def taken(self, model: ad.Model, sizes: Sizes) -> str:
        site = self.site(model)
        return version_at(site, sizes)[0] or site.versions[0][0]

    def edges(self, *models: ad.Model) -> list[Sizes]:
        """Sizes of which a neighbour takes another version in one of the models."""
        names, found = list(self.sizes), dict[tuple[int, ...], None]()
        points = list(product(*self.sizes.values()))
        for model in models:
            taken = {point: self.taken(model, dict(zip(names, point))) for point in points}
            borders: dict[str, list[tuple[int, ...]]] = {}
            for point in points:
                near = {taken[each] for each in (*self._next(point), point)}
                if len(near) > 1 or len(set(taken.values())) == 1:
                    borders.setdefault(taken[point], []).append(point)
            for some in borders.values():
                found.update(dict.fromkeys(_spread(some)))
        return [dict(zip(names, point)) for point in found]

    def _next(self, point: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        for axis, values in enumerate(self.sizes.values()):
            for other in values[values.index(point[axis]) + 1 :][:1]:
                yield (*point[:axis], other, *point[axis + 1 :])
            for other in values[: values.index(point[axis])][-1:]:
                yield (*point[:axis], other, *point[axis + 1 :])

    def outputs(self, model: ad.Model, sizes: Sizes) -> list[numpy.ndarray]:
        given = {}
        for spec in model.inputs:
            shape = [size.evaluate(sizes) for size in spec.shape]
            given[spec.name] = drawn(spec.dtype, shape, f"{self.name} {spec.name} {shape}", None)
        return list(model(**given).values())


def _spread(points: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Some of many points, of all amounts of work."""
    some = sorted((p for p in points if numpy.prod(p) <= _MOST), key=lambda p: (numpy.prod(p), p))
    if len(some) <= _EDGES:
        return some
    return [some[number * (len(some) - 1) // (_EDGES - 1)] for number in range(_EDGES)]


Fill = Callable[[ad.Builder], None]
CASES: list[VersionCase] = []


def case(
    kind: str, machine: Machine = MACHINE, forced: tuple[str, ...] = (), **sizes: Sequence[int]
) -> Callable[[Fill], Fill]:
    """Enter a function that fills a builder as a case of its name."""

    def entered(fill: Fill) -> Fill:
        def graph() -> ad.Builder:
            g = ad.Builder(fill.__name__)
            fill(g)
            return g

        name = fill.__name__ if machine == MACHINE else f"{fill.__name__}, wide"
        CASES.append(VersionCase(name, kind, graph, sizes, machine, forced))
        return fill

    return entered


def _weights(g: ad.Builder, *shape: int, dtype: str = "f4") -> ad.Value:
    return g.constant(numpy.random.default_rng(0).integers(-9, 9, shape).astype(dtype))


# ---- rows and elements ---------------------------------------------------------------------------


@case("rows", r=(0, 1, 7, 16), c=(*AROUND, 65, 300))
def largest(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("r", 0, 99), g.dim("c", 1, 999)))
    g.output("y", g.reduce_max(x, axes=(1,)))


@case("rows", r=(1, 7, 16), c=(0, *AROUND))
def largest_of_columns(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("r", 1, 99), g.dim("c", 0, 999)))
    g.output("y", g.reduce_max(x, axes=(0,)))


@case("rows", r=(1, 2, 15, 16), c=(1, 2, 64, 65535, 65536, 65537, 131072))
def long_rows(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("r", 1, 99), g.dim("c", 1, 200_000)))
    g.output("y", g.softmax(x, axis=1))


@case("rows", n=(1, 5), m=AROUND)
def resized_rows(g: ad.Builder) -> None:
    n, m = g.dim("n", 1, 99), g.dim("m", 1, 99)
    x = g.input("x", ad.float32, (n, 2, m))
    g.output("y", g.resize(x, sizes=(n, 2, 2 * m), scales=(1.0, 1.0, 2.0), mode="linear"))


@case("pointwise", forced=("nontemporal",), r=(0, 1, 7, 8, 9), c=(0, *AROUND, 300))
def scaled(g: ad.Builder) -> None:
    r, c = g.dim("r", 0, 99), g.dim("c", 0, 999)
    g.output("y", g.input("x", ad.float32, (r, c)) * g.input("s", ad.float32, (r, 1)))


# ---- data movement -------------------------------------------------------------------------------


@case("concat", forced=("nontemporal",), r=(0, 1, 5), n=(0, *AROUND, 100), m=(0, 1, 2, 8, 9, 40))
def joined_columns(g: ad.Builder) -> None:
    r, n, m = g.dim("r", 0, 99), g.dim("n", 0, 9999), g.dim("m", 0, 999)
    x, other = g.input("x", ad.float32, (r, n)), g.input("other", ad.float32, (r, m))
    g.output("y", g.concat(x, other * 2.0, axis=1))


@case("transpose", b=(0, 2), n=(0, *AROUND, 40, 300), m=(*AROUND, 65, 300))
def transposed(g: ad.Builder) -> None:
    b, n, m = g.dim("b", 0, 9), g.dim("n", 0, 999), g.dim("m", 0, 999)
    g.output("y", g.transpose(g.input("x", ad.float32, (b, n, m)), perm=(0, 2, 1)))


@case("transpose", WIDE, n=AROUND, m=AROUND)
def transposed_bytes(g: ad.Builder) -> None:
    n, m = g.dim("n", 0, 999), g.dim("m", 0, 999)
    g.output("y", g.transpose(g.input("x", ad.uint8, (n, m)), perm=(1, 0)))


@case("attention", forced=("blocks",), q=(1, 5, 7, 13), k=(1, 2, 8, 9, 64))
def short_attention(g: ad.Builder) -> None:
    q, k = g.dim("q", 1, 64), g.dim("k", 1, 64)
    query = g.input("query", ad.float32, (2, q, 16))
    key, value = (g.input(name, ad.float32, (2, k, 16)) for name in ("key", "value"))
    scores = g.matmul(query, g.transpose(key, perm=(0, 2, 1))) * 0.25
    g.output("y", g.matmul(g.softmax(scores, axis=-1), value))


@case("attention_bfloat16", OF_PAIRS, n=(1, 23, 24, 40))
def rounded_attention(g: ad.Builder) -> None:
    n = g.dim("n", 1, 64)
    query, key, value = (g.input(name, ad.float32, (2, n, 16)) for name in ("q", "k", "v"))
    scores = g.matmul(query, g.transpose(key, perm=(0, 2, 1))) * 0.25
    g.output("y", g.matmul(g.softmax(scores, axis=-1), value))


@case("attention_bfloat16", OF_PAIRS, forced=("blocks",), n=(1, 2, 8, 9, 40))
def attention_of_products(g: ad.Builder) -> None:
    """The products store queries, keys and values in bfloat16."""
    x = g.input("x", ad.float32, (g.dim("n", 1, 64), 32))
    query, key, value = (g.reshape(g.matmul(x, _weights(g, 32, 32)), shape=(-1, 2, 16))
                         for _ in range(3))  # fmt: skip
    query, value = (g.transpose(each, perm=(1, 0, 2)) for each in (query, value))
    scores = g.matmul(query, g.transpose(key, perm=(1, 2, 0))) * 0.01
    mixed = g.matmul(g.softmax(scores, axis=-1), value)
    y = g.reshape(g.transpose(mixed, perm=(1, 0, 2)), shape=(-1, 32))
    g.output("y", g.matmul(y, _weights(g, 32, 32)))


# ---- windows -------------------------------------------------------------------------------------


@case("window_reduction", n=(0, 3), h=(1, 2, 3, 8), w=(1, 2, 3, 5, 9, 171, 512, 513))
def pooled(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("n", 0, 9), 17, g.dim("h", 1, 99), g.dim("w", 1, 600)))
    g.output("y", g.max_pool(x, kernel=(3, 3), pads=(1, 1, 1, 1)))


@case("window_reduction", n=(0, 1, 3), h=(1, 2, 9), w=(1, 5, 8))
def filtered_channels(g: ad.Builder) -> None:
    n, h, w = g.dim("n", 0, 9), g.dim("h", 1, 99), g.dim("w", 1, 99)
    x = g.transpose(g.input("x", ad.float32, (n, h, w, 17)), perm=(0, 3, 1, 2))
    y = g.conv(x, _weights(g, 17, 1, 3, 3), groups=17, pads=(1,) * 4)
    g.output("y", g.transpose(y, perm=(0, 2, 3, 1)))


# ---- products ------------------------------------------------------------------------------------


@case("contraction", WIDE, s=(1, 2), m=(1, 12, 13, 14, 15), k=(1, 16, 40), n=(1, 16, 47, 50))
@case("contraction", s=(0, 1, 5), m=(1, 2, 6, 7, 9, 10), k=(0, 3, 16, 17, 80), n=(1, 8, 9, 50))
def matrices(g: ad.Builder) -> None:
    s, m, k, n = (g.dim(name, 0, 999) for name in "smkn")
    a, b = g.input("a", ad.float32, (s, m, k)), g.input("b", ad.float32, (s, k, n))
    g.output("y", g.matmul(a, b))


@case("contraction", m=(1, 2, 3, 9), k=(1, 24, 25, 287, 288, 300), n=(1, 2, 127, 128, 200))
def transposed_right(g: ad.Builder) -> None:
    m, k, n = (g.dim(name, 0, 999) for name in "mkn")
    a, b = g.input("a", ad.float32, (m, k)), g.input("b", ad.float32, (n, k))
    g.output("y", g.matmul(a, g.transpose(b, perm=(1, 0))))


@case("contraction", m=(0, 1, 2, 7, 33, 513), k=(0, 1, 30, 200), n=(1, 2, 9))
def transposed_left(g: ad.Builder) -> None:
    m, k, n = (g.dim(name, 0, 999) for name in "mkn")
    a, b = g.input("a", ad.float32, (k, m)), g.input("b", ad.float32, (k, n))
    g.output("y", g.matmul(g.transpose(a, perm=(1, 0)), b))


@case(
    "contraction", forced=("all_taps",), n=(0, 1, 3, 4, 9), h=(1, 2, 4, 5, 7), w=(1, 3, 7, 11, 12)
)
def convolved_channels(g: ad.Builder) -> None:
    n, h, w = g.dim("n", 0, 64), g.dim("h", 1, 64), g.dim("w", 1, 64)
    x = g.transpose(g.input("x", ad.float32, (n, h, w, 64)), perm=(0, 3, 1, 2))
    y = g.conv(x, _weights(g, 24, 64, 5, 5), pads=(2,) * 4)
    g.output("y", g.transpose(y, perm=(0, 2, 3, 1)))


@case(
    "convolution",
    forced=("all_taps",),
    n=(0, 1, 6, 16, 40),
    h=(1, 3, 4, 7, 33),
    w=(1, 2, 3, 4, 5, 9, 40),
)
def convolved(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 16, g.dim("h", 1, 64), g.dim("w", 1, 64)))
    g.output("y", g.conv(x, _weights(g, 24, 16, 5, 5), pads=(2,) * 4))


@case("convolution", n=(0, 1, 2, 3, 9), w=(1, 5, 8, 9, 16, 17, 40))
def convolved_points(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 8, g.dim("w", 1, 64)))
    g.output("y", g.conv(x, _weights(g, 24, 8, 1)))


@case("winograd", n=(0, 1, 2), side=(10, 13, 16, 17, 20, 32))
def convolved_planes(g: ad.Builder) -> None:
    side = g.dim("side", 10, 32)
    x = g.input("x", ad.float32, (g.dim("n", 0, 4), 16, side, side))
    g.output("y", g.relu(g.conv(x, _weights(g, 16, 16, 3, 3), pads=(1,) * 4) + x))


@case("winograd_across", n=(1, 2), h=(1, 4, 5, 12, 30), w=(1, 4, 9, 31))
def convolved_tiles(g: ad.Builder) -> None:
    n, h, w = g.dim("n", 0, 4), g.dim("h", 1, 64), g.dim("w", 1, 64)
    x = g.transpose(g.input("x", ad.float32, (n, h, w, 16)), perm=(0, 3, 1, 2))
    y = g.conv(x, _weights(g, 16, 16, 3, 3), pads=(1,) * 4)
    g.output("y", g.transpose(y, perm=(0, 2, 3, 1)))


@case("int8", m=(0, 1, 2, 4, 5, 9), k=(1, 3, 66), n=(1, 15, 16, 17, 300))
def integers(g: ad.Builder) -> None:
    m, k, n = g.dim("m", 0, 64), g.dim("k", 1, 99), g.dim("n", 1, 999)
    a, b = g.input("a", ad.uint8, (m, k)), g.input("b", ad.int8, (k, n))
    g.output("y", g.matmul_integer(a, b, *(g.constant(z) for z in (numpy.uint8(0), numpy.int8(0)))))


@case("int8", n=(0, 1, 2, 3, 9), w=(1, 2, 5, 8, 9, 17, 40))
def convolved_integers(g: ad.Builder) -> None:
    x = g.input("x", ad.uint8, (g.dim("n", 0, 64), 8, g.dim("w", 1, 64)))
    zeros = g.constant(numpy.uint8(7)), g.constant(numpy.int8(0))
    g.output("y", g.conv_integer(x, _weights(g, 6, 8, 3, dtype="i1"), *zeros, pads=(1, 1)))


@case("bfloat16", OF_PAIRS, n=(0, 1, 2, 3, 9), h=(1, 2, 5, 8, 9, 17, 40))
def convolved_pairs(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 16, g.dim("h", 1, 64), 5))
    g.output("y", g.conv(x, _weights(g, 33, 16, 3, 3), strides=(2, 2), pads=(1,) * 4))


def main() -> None:
    """Print each case with its versions, their conditions, and what bits they have."""
    for each in CASES:
        print(f"{each.name}: {each.kind}")
        for name, when in each.site(each.plain).versions:
            other = OTHER_ORDER.get((each.kind, name), "")
            print(f"  {name}{f' (other bits: {other})' if other else ''}: {str(when)[:120]}")


if __name__ == "__main__":
    main()

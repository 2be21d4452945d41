"""Small models of every kind that can be saved, with inputs at the sizes that matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

import anydim as ad
from examples.detector import detector

Inputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class Kind:
    """A model and how to draw its inputs at a size."""

    build: Callable[[], ad.Builder]
    draw: Callable[[np.random.Generator, int], Inputs]
    sizes: tuple[int, ...] = (0, 1, 7, 16, 17, 50)

    def inputs(self) -> Iterator[Inputs]:
        random = np.random.default_rng(3)
        yield from (self.draw(random, size) for size in self.sizes)


def floats(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def encoder() -> ad.Builder:
    """Embedding, a product with a packed constant, softmax: straight through, indices checked."""
    g = ad.Builder("encoder")
    random = np.random.default_rng(5)
    ids = g.input("ids", ad.int64, (g.dim("n", 0, 100),))
    table, weight = floats(random, 31, 24), floats(random, 24, 33)
    g.output("y", g.softmax(g.matmul(g.gather(table, ids, axis=0), weight)))
    return g


def looped() -> ad.Builder:
    """A loop whose state grows, a branch on data, a size that data decides, constants."""
    g = ad.Builder("looped")
    n = g.dim("n", 0, 60)
    x = g.input("x", ad.float32, (n,))
    flag = g.input("flag", ad.boolean, ())
    state = g.neg(x)

    def body(b, t, held):  # type: ignore[no-untyped-def]
        b.stack(b.reduce_sum(held, axes=(0,)))
        return b.concat(held, b.mul(x, np.float32(0.5)), axis=0)

    end, sums = g.loop(body, state, trips=3)
    g.output("y", g.branch(flag, lambda b: b.neg(end), lambda b: b.exp(end)))
    g.output("sums", sums)
    g.output("places", g.nonzero(g.relu(x)))
    return g


def halves() -> ad.Builder:
    """Sums of float16, whose conversions some processors lack."""
    g = ad.Builder("halves")
    x = g.input("x", ad.float16, (g.dim("n", 0, 100), 5))
    g.output("y", g.softmax(g.mul(x, x)))
    return g


def wide() -> ad.Builder:
    """Constants that are large enough for a checksum: floats of 200 KiB and indices of 80."""
    g = ad.Builder("wide")
    random = np.random.default_rng(7)
    x = g.input("x", ad.float32, (g.dim("n", 0, 100), 40))
    wider = g.gather(x, random.integers(0, 40, 10_000), axis=1)
    g.output("y", g.matmul(x, floats(random, 40, 1280)))
    g.output("largest", g.reduce_max(wider, axes=(1,)))
    return g


def _boxes(random: np.random.Generator, n: int) -> Inputs:
    corners = random.uniform(0, 40, (n, 2))
    boxes = np.hstack([corners, corners + random.uniform(2, 20, (n, 2))])
    return {"boxes": boxes.astype(np.float32), "scores": random.random(n, np.float32)}


KINDS: Mapping[str, Kind] = {
    "encoder": Kind(encoder, lambda r, n: {"ids": r.integers(0, 31, n)}),
    "looped": Kind(looped, lambda r, n: {"x": floats(r, n), "flag": np.array(bool(r.integers(2)))}),
    "halves": Kind(halves, lambda r, n: {"x": floats(r, n, 5).astype(np.float16)}),
    "wide": Kind(wide, lambda r, n: {"x": floats(r, n, 40)}),
    "detector": Kind(detector, _boxes),
}

"""What has numbers of its own: n-grams, windows of signals, random numbers, steps of training."""

from __future__ import annotations

from collections.abc import Iterator

from bench.cliffs.family import Family, at

FLAT = at("n", (1,), (100,), (10000,), (1000000,))


def drawn() -> Iterator[Family]:
    for name in ("RandomNormalLike", "RandomUniformLike"):
        yield Family(name, f"y = {name} <dtype=1, seed=1.0> (x)", ("float[n] x",), FLAT[:3])
    yield Family("Bernoulli", "y = Bernoulli <seed=1.0> (x)", ("float[n] x",), FLAT[:3])


def signals() -> Iterator[Family]:
    for name in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        yield Family(name, f"s = Size (l) y = {name} (s)", ("bool[n] l",), FLAT[:3])


FAMILIES = (*drawn(), *signals())

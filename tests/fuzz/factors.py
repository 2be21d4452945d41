"""Random reductions over windows with factors of any axes of the result, beside numpy in float64.

    y(a,c,b) +=! x(b,a,c * 2 + r) * g(a,r) * h(c)     where ... r in 0:3

Axes have fixed or free sizes and lie in any order in each tensor, so that lanes run along any of
them, and factors are equal in all lanes, or differ at each.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

import anydim as ad
from tests.fuzz.runner import Outcome, run_texts

TYPES = {"int8": np.int8, "float": np.float32, "double": np.float64}
FIXED = (1, 2, 3, 4, 5, 8, 12, 16, 17, 20, 33)
FREE = (0, 1, 2, 5, 8, 17, 40)
CALLS = 5


@dataclass(frozen=True)
class Window:
    """Taps of a result axis: `count` of them, `dilation` apart, moving by `stride`."""

    count: int = 1
    stride: int = 1
    dilation: int = 1

    @property
    def reach(self) -> int:
        return (self.count - 1) * self.dilation + 1

    def read(self, size: int) -> int:
        """Elements that a result of a size reads."""
        return (size - 1) * self.stride + self.reach if size else self.reach - 1


@dataclass(frozen=True)
class Program:
    """`axes` of the result, in order, with their windows; None are free sizes.

    `x` and `factors` name the axes of the operands, taps of an axis by its capital.
    """

    kind: str
    combine: str
    axes: Mapping[str, tuple[int | None, Window]]
    x: str
    factors: tuple[str, ...]

    @property
    def taps(self) -> list[str]:
        return [a.upper() for a, (_, window) in self.axes.items() if window.count > 1]

    @property
    def text(self) -> str:
        """The definition."""
        places, ranges, sizes = {}, [], {}
        for a, (size, window) in self.axes.items():
            tap = f" + t{a} * {window.dilation}" if window.count > 1 else ""
            places[a] = f"{a} * {window.stride}{tap}"
            read = f"N{a}" if size is None else str(window.read(size))
            room = f"({read} - {window.reach}) // {window.stride} + 1"
            ranges.append(f"{a} in 0:max({room}, 0)" if size is None else f"{a} in 0:{size}")
            sizes[a] = read
            if window.count > 1:
                ranges.append(f"t{a} in 0:{window.count}")
        wide = "int32({})" if self.kind == "int8" else "{}"
        parts = [wide.format(f"x({','.join(places[a] for a in self.x)})")]
        heads = [f"{self.kind}({','.join(sizes[a] for a in self.x)}) x"]
        for number, own in enumerate(self.factors):
            index = ",".join(a if a.islower() else f"t{a.lower()}" for a in own)
            held = [f"F{number}{a}" if a.islower() and self.axes[a][0] is None else self._size(a)
                    for a in own]  # fmt: skip
            heads.append(f"{self.kind}({','.join(held)}) f{number}")
            parts.append(wide.format(f"f{number}({index})"))
        body = " * ".join(parts)
        return (
            f"def f({', '.join(heads)}) -> (y) {{\n"
            f"  y({','.join(self.axes)}) {self.combine}=! {body} where {', '.join(ranges)}\n}}"
        )

    def _size(self, a: str) -> str:
        size, window = self.axes[a.lower()]
        return str(size if a.islower() else window.count)

    def arrays(self, sizes: Mapping[str, int], numbers: np.random.Generator) -> list[np.ndarray]:
        """Operands for sizes of the result's axes."""
        shapes = [[self.axes[a][1].read(sizes[a]) for a in self.x]]
        for own in self.factors:
            shapes.append([sizes[a] if a.islower() else self.axes[a.lower()][1].count for a in own])
        dtype = TYPES[self.kind]
        return [
            numbers.integers(-9, 10, shape).astype(dtype) if self.kind == "int8"
            else numbers.standard_normal(shape).astype(dtype)
            for shape in shapes
        ]  # fmt: skip

    def expected(self, sizes: Mapping[str, int], arrays: list[np.ndarray]) -> np.ndarray:
        """The result by numpy, tap by tap."""
        order = list(self.axes)
        x, *factors = (array.astype(float) for array in arrays)
        x = x.transpose([self.x.index(a) for a in order])
        start = {"+": 0.0, "max": -np.inf, "min": np.inf}[self.combine]
        total = np.full([sizes[a] for a in order], start)
        for at in product(*(range(self.axes[a][1].count) for a in order)):
            taps = dict(zip(order, at))
            spans = []
            for a in order:
                window = self.axes[a][1]
                first = taps[a] * window.dilation
                spans.append(slice(first, first + sizes[a] * window.stride, window.stride))
            term = x[tuple(spans)][tuple(slice(sizes[a]) for a in order)]
            for own, factor in zip(self.factors, factors):
                picked = factor[tuple(slice(None) if a.islower() else taps[a.lower()] for a in own)]
                left = [a for a in own if a.islower()]
                picked = picked.transpose([left.index(a) for a in order if a in left])
                term = term * picked[tuple(slice(None) if a in left else None for a in order)]
            total = (
                total + term if self.combine == "+"
                else getattr(np, f"{self.combine}imum")(total, term)
            )  # fmt: skip
        return total


def program(seed: int) -> Program:
    """The program of a seed."""
    draw = random.Random(seed)
    names = "abcd"[: draw.choice((1, 2, 3, 3, 4, 4))]
    axes = {}
    for a in names:
        size = draw.choice((None, *FIXED)) if draw.random() < 0.7 else None
        is_moved = a == names[-1] or draw.random() < 0.2
        window = Window(*(draw.choice(each) for each in ((1, 2, 2, 3), (1, 1, 1, 2), (1, 1, 2))))
        axes[a] = (size, window if is_moved else Window())
    factors = []
    for _ in range(draw.choice((1, 1, 2))):
        own = [a for a in names if draw.random() < 0.5]
        own += [a.upper() for a in names if axes[a][1].count > 1 and draw.random() < 0.6]
        factors.append("".join(draw.sample(own, len(own)) if draw.random() < 0.4 else own))
    x = "".join(draw.sample(names, len(names))) if draw.random() < 0.4 else names
    order = draw.sample(names, len(names)) if draw.random() < 0.4 else names
    return Program(
        draw.choice(tuple(TYPES)), draw.choice(("+", "+", "max", "min")),
        {a: axes[a] for a in order}, x, tuple(own for own in factors if own),
    )  # fmt: skip


def fault(seed: int) -> str:
    """How a call of the program differs from numpy; '' if none does."""
    made, draw = program(seed), random.Random(seed)
    function = ad.define(made.text).f
    for _ in range(CALLS):
        sizes = {a: draw.choice(FREE) if size is None else size
                 for a, (size, _) in made.axes.items()}  # fmt: skip
        arrays = made.arrays(sizes, np.random.default_rng(seed))
        found, expected = function(*arrays), made.expected(sizes, arrays)
        limit = 1e-5 if made.kind == "float" else 1e-12  # of sums of at most 81 products
        scale = 1 + np.abs(expected[np.isfinite(expected)]).max(initial=0)
        if found.shape != expected.shape:
            return f"shape {found.shape}, expected {expected.shape} at {sizes}"
        if not np.allclose(found, expected, rtol=0, atol=limit * scale):
            wrong = int((~np.isclose(found, expected, rtol=0, atol=limit * scale)).sum())
            return f"{wrong} of {expected.size} elements differ at {sizes}"
    return ""


def run(seeds: Sequence[int], small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the programs of these seeds, in order; they are small as they are."""
    return run_texts(seeds, small, fault, lambda seed: program(seed).text)

"""Makes random values through a `Builder`: the pool of values, new inputs, constants, mates.

Functions of sibling modules take a `Maker` and give it one more value (or None where nothing in
the pool fits). Discontinuous functions (floor, comparisons, casts to integers) are only applied to
`exact` values: those that rounding cannot move.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

import anydim as ad
from anydim.base.dtypes import DType, bfloat16, boolean, uint16, uint32, uint64
from anydim.base.errors import GraphError
from anydim.compiler.frontends.builder import Value
from anydim.sizes import Size, as_size

BOUNDS = (
    (0, 9), (1, 17), (0, None), (1, None), (0, 40), (2, 33), (0, 200), (16, 16), (1, 1), (0, 1),
    (0, None), (1, None), (0, 600),
)  # fmt: skip
CONSTANT_SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 32, 33, 1, 2, 3, 4, 8, 64, 130, 0)
NUMBERS = (0.0, 1.0, -1.0, 2.0, 0.5, -0.5, 3.0, 0.125, 1e-5, 10.0)
# Names that texts of operators, passes and kernels use for something of their own.
DIM_NAMES = (
    "S0", "S1", "N0", "N1", "i0", "i1", "k", "K", "M", "N", "T", "C0", "F0", "D", "A0", "B0", "p0",
    "p", "n", "m", "o0", "W0", "H0", "x", "y", "t", "size", "start", "stop",
)  # fmt: skip
NAMES = (
    "x", "y", "a", "b", "t", "t0", "t1", "e", "top", "total", "scratch", "status", "start", "stop",
    "0", "a b", '"', "n", "mean", "w", "_", "none", "float32", "x0", "i0", "v0", "p0", "x'",
    "\u00e9", "%0", "main", "zeros", "c", "init", "unit axis", "x raw",
)  # fmt: skip
MOST_RANK = 5
SPECIALS = 0.2  # of the graphs have inputs with infinities, NaN and other numbers at the edges
Shape = tuple[Size, ...]


@dataclass(frozen=True)
class Domain:
    """What an input holds: 'normal' numbers, 'small' or 'any' integers, 'bool', or an 'index'
    into an axis of size `extent`, which may count from the end when `negative`."""

    kind: str = "normal"
    extent: Size = field(default_factory=lambda: as_size(1))
    negative: bool = False

    def __str__(self) -> str:
        if self.kind != "index":
            return self.kind
        return f"index into {self.extent}" + (", negative too" if self.negative else "")


class Maker:
    """One random graph under construction."""

    first_bounds = BOUNDS  # of the first dim

    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, random.Random(seed)
        self.builder = ad.Builder(f"fuzz_{seed}")
        count = self.random.randint(1, 3)
        bounds = [self.random.choice(BOUNDS if i else self.first_bounds) for i in range(count)]
        self.odd_names = self.random.random() < 0.25
        names = [f"n{i}" for i in range(len(bounds))]
        if self.odd_names:
            names = self.random.sample(DIM_NAMES, len(bounds))
        self.dims = [self.builder.dim(name, *ends) for name, ends in zip(names, bounds)]
        self.values: list[Value] = []
        self.domains: dict[str, Domain] = {}
        self.exact: set[str] = set()
        self.specials = self.random.random() < SPECIALS

    # ---- choices -------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def one(self, options: Sequence[Any]) -> Any:
        return self.random.choice(options)

    def some(self, options: Sequence[Any], least: int = 1) -> list[Any]:
        """A random part of `options`, in random order."""
        count = self.random.randint(min(least, len(options)), len(options))
        return self.random.sample(list(options), count)

    def pick(
        self, wanted: Callable[[Value], bool] = lambda value: True, fresh: float = 0.08
    ) -> Value | None:
        """A value of the pool, recent ones rather than old ones; now and then a new input."""
        if self.chance(fresh):
            made = self.input()
            if wanted(made):
                return made
        fitting = [value for value in self.values if wanted(value)]
        if not fitting:
            return None
        recent = fitting[-1:] if self.chance(0.45) else fitting[-3:]
        return self.random.choice(recent if self.chance(0.75) else fitting)

    def float(self, low: int = 0, high: int = MOST_RANK) -> Value:
        """A value of floats with `low` to `high` axes; a new input where there is none."""
        found = self.pick(lambda v: v.dtype.is_float and low <= len(v.shape) <= high)
        if found is not None:
            return found
        return self.input(shape=self.shape(low, min(high, 4)), dtype=self.float_type())

    def float_type(self) -> DType:
        return self.one((ad.float32,) * 30 + (ad.float64, ad.float64, bfloat16, ad.float16))

    def is_exact(self, *values: Value) -> bool:
        """Whether rounding cannot have moved these values."""
        return all(v.name in self.exact for v in values)

    def keep_exact(self, made: Value, *sources: Value) -> Value:
        """Say that `made` is as exact as what it came from."""
        if self.is_exact(*sources):
            self.exact.add(made.name)
        return made

    # ---- new values ----------------------------------------------------------------------------

    def size(self) -> Size:
        """A dim, or a constant."""
        if self.chance(0.6):
            return self.random.choice(self.dims)
        return self.fixed_size()

    def fixed_size(self) -> Size:
        return as_size(self.random.choice(CONSTANT_SIZES))

    def shape(self, low: int = 0, high: int = 4) -> Shape:
        rank = self.random.randint(low, high)
        sizes = [self.size() for _ in range(rank)]
        if sizes and self.chance(0.05):
            dim = self.random.choice(self.dims)
            sizes[0] = self.random.choice((dim + 1, dim * 2, dim * 3 + 2))
        return tuple(sizes)

    def input(
        self, shape: Shape | None = None, dtype: DType | None = None, domain: Domain | None = None
    ) -> Value:
        """A new input."""
        kinds = (ad.float32,) * 26 + (ad.float64, ad.int64, ad.int32, boolean) * 2 + (
            ad.float16, bfloat16, ad.int8, ad.uint8, ad.int16, uint16, uint32, uint64
        )  # fmt: skip
        dtype = dtype or self.random.choice(kinds)
        shape = self.shape(0 if self.chance(0.1) else 1) if shape is None else shape
        own = {str(dim) for dim in self.dims}
        if any(not size.symbols <= own for size in shape):
            raise GraphError("inputs have no sizes that data decides")
        value = self.builder.input(self.input_name(), dtype, shape)
        if domain is None:
            whole = "any" if self.chance(0.1) else "small"
            kind = {"bool": "bool", "float": "normal"}.get(dtype.kind, whole)
            domain = Domain(kind)
        self.domains[value.name] = domain
        self.exact.add(value.name)
        if domain.kind != "index":
            self.values.append(value)
        return value

    def input_name(self) -> str:
        """A name for the next input."""
        taken = {*self.builder._types, *self.builder._outputs}
        free = [name for name in NAMES if name not in taken]
        if self.odd_names and free and self.chance(0.7):
            return self.random.choice(free)
        return f"input{len(self.domains)}"

    def constant(self, shape: Sequence[int], dtype: DType, scale: float = 1.0) -> Value:
        """A new constant of random numbers; `scale` is for those of floats."""
        numbers = numpy.random.default_rng(self.random.getrandbits(32))
        if dtype == boolean:
            array = numbers.random(tuple(shape)) < 0.5
        elif dtype.is_integer:
            array = numbers.integers(0 if dtype.kind == "uint" else -4, 5, tuple(shape))
        else:
            array = numbers.standard_normal(tuple(shape)) * self.random.choice((0.25, 1.0))
            array = array * scale
        value = self.builder.constant(numpy.asarray(array).astype(dtype.numpy))
        self.exact.add(value.name)
        return value

    def number(self, dtype: DType, number: float | None = None) -> Value:
        """A constant of rank 0 (or rank 1 and size 1)."""
        if number is None:
            number = self.random.choice(NUMBERS)
        if not self.chance(0.2):
            return self.scalar(dtype, number)
        if dtype.kind == "uint":
            number = abs(number)
        value = self.builder.constant(numpy.full((1,), number, dtype.numpy))
        self.exact.add(value.name)
        return value

    def scalar(self, dtype: DType, number: float) -> Value:
        """A constant of rank 0."""
        if dtype.kind == "uint":
            number = abs(number)
        value = self.builder.constant(numpy.full((), number, dtype.numpy))
        self.exact.add(value.name)
        return value

    def make(self, shape: Sequence[Size | int], dtype: DType) -> Value:
        """An input or, where all sizes are constants, perhaps a constant."""
        sizes = tuple(map(as_size, shape))
        fixed = [size.constant for size in sizes]
        if all(size is not None for size in fixed) and self.chance(0.75):
            return self.constant(fixed, dtype)
        return self.input(sizes, dtype)

    def mate(self, value: Value, dtype: DType | None = None, narrow: bool = False) -> Value:
        """An operand that broadcasts with `value`; with `narrow` it leaves its shape as it is."""
        dtype = dtype or value.dtype
        if self.chance(0.45):
            found = self.pick(
                lambda v: v.dtype == dtype and broadcasts(v.shape, value.shape, narrow), 0.0
            )
            if found is not None:
                return found
        if self.chance(0.25):
            return self.number(dtype)
        shape = list(value.shape)
        if self.chance(0.35):
            shape = shape[self.random.randint(0, len(shape)) :]
        shape = [as_size(1) if self.chance(0.2) else size for size in shape]
        if not narrow:
            shape = [
                self.size() if size.constant == 1 and self.chance(0.25) else size for size in shape
            ]
            shape = [self.grown(s, w) for s, w in zip(shape, value.shape[-len(shape) :])]
            if self.chance(0.08) and len(shape) == len(value.shape) < 4:
                shape = [self.size(), *shape]
            if self.chance(0.03) and shape:  # broadcasts only at some sizes
                shape[self.random.randrange(len(shape))] = self.random.choice(self.dims)
        return self.make(shape, dtype)

    def grown(self, size: Size, across: Size) -> Size:
        """`size`, unless it meets neither 1 nor the same size."""
        return size if size.constant == 1 or across.constant == 1 or size == across else across


def broadcasts(shape: Shape, onto: Shape, narrow: bool) -> bool:
    """Whether shapes broadcast for sure; with `narrow`, to the shape of `onto`."""
    if narrow and len(shape) > len(onto):
        return False
    for a, b in zip(reversed(shape), reversed(onto)):
        if a != b and a.constant != 1 and (narrow or b.constant != 1):
            return False
    return max(len(shape), len(onto)) <= MOST_RANK

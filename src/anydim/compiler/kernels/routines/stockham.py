"""Fourier transforms of short columns, one per lane: a shape-independent library, compiled once.

Stockham's passes (Swarztrauber, FFT algorithms for vector computers, 1984): a pass by a factor f of
the length does f-point transforms of elements length / f apart and multiplies by twiddle factors;
after the last pass results are in order. Factors 2, 3, 4 and 5 are unrolled, other odd ones up to
`LARGEST` cost f products per element.

Element i is two vectors in the work space, its real and its imaginary part, starting at the offset
of i = 0. Each pass reads one half of the work space and writes the other one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial

from anydim.base.dtypes import DType, int64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import Name
from anydim.compiler.kernels.codegen.writer import Buffer, Writer
from anydim.compiler.kernels.ir import constant, fma, variable

LARGEST = 31  # the largest factor
WRITTEN_OUT = (4, 2, 3, 5)

Complex = tuple[ir.Value, ir.Value]


def library(dtype: DType, lanes: int) -> ir.Library:
    """The library with the function `passes`."""
    name = passes(dtype, lanes)
    return ir.Library(name, partial(_functions, dtype, lanes), identity=name)


def passes(dtype: DType, lanes: int) -> str:
    """The name of a function (work, roots, factors, half, length, count).

    It transforms `length` elements by `count` factors; `roots` holds cos and -sin of the powers of
    the primitive root of unity. Input is in the first half of `work` if `count` is even, else in
    the second one, `half` elements after it; the result is in the first.
    """
    return f"fourier_{dtype}_{lanes}"


def product(a: Complex, b: Complex) -> Complex:
    """Product of two complex numbers."""
    return fma(a[0], b[0], -(a[1] * b[1])), fma(a[0], b[1], a[1] * b[0])


@lru_cache(maxsize=16)
def _functions(dtype: DType, lanes: int) -> tuple[ir.Function, ...]:
    parameters: tuple[ir.Pointer | ir.Scalar, ...] = (
        ir.Pointer("work", dtype),
        ir.Pointer("roots", dtype),
        ir.Pointer("factors", int64),
        *(ir.Scalar(name) for name in ("half", "length", "count")),
    )
    body = _Passes(dtype, lanes).body()
    return (ir.Function(passes(dtype, lanes), parameters, body, public=True),)


class _Passes(Writer):
    def __init__(self, dtype: DType, lanes: int) -> None:
        super().__init__()
        self.dtype = dtype
        self.lanes = lanes

    def body(self) -> tuple[ir.Step, ...]:
        """All passes. `done` is the product of the previous factors, `apart` the remaining one."""
        half, length, count = map(variable, ("half", "length", "count"))
        # Passes alternate between the halves; the last one writes the first half.
        source = self.variable(half * (count & 1))
        done, apart = self.variable(1), self.variable(length)
        with self.range(0, count) as number:
            factor = Buffer(self, "factors", int64)[number]
            apart.set(apart() // factor)
            begin = source()
            source.set(half - begin)
            space = _Space(self, begin, source(), done(), apart(), length)
            for known in WRITTEN_OUT:
                with self.when(factor.equals(known)):
                    self._pass(space, known)
            with self.when(factor > max(WRITTEN_OUT)):
                self._odd_pass(space, factor)
            done.set(done() * factor)
        return self.written

    def _pass(self, space: _Space, factor: int) -> None:
        """A pass whose transform is unrolled."""
        with self.range(0, space.apart) as i:
            # The transforms of the inner loop share them.
            twiddles = [space.root(i * space.done * u) for u in range(1, factor)]
            with self.range(0, space.done) as k:
                first = self.let(i + space.apart * factor * k)
                taken = [space.load(first + space.apart * b) for b in range(factor)]
                made = _SHORT[factor](self.let, taken)
                index = self.let(i + space.apart * k)
                space.store(index, made[0])
                for u, (value, twiddle) in enumerate(zip(made[1:], twiddles), 1):
                    space.store(index + space.apart * space.done * u, product(value, twiddle))

    def _odd_pass(self, space: _Space, factor: ir.Value) -> None:
        """A pass by any odd factor: sums over pairs of elements from both ends."""
        zero = constant(0.0, self.dtype, self.lanes)
        apart, done = space.apart, space.done
        pairs = self.let(factor // 2)
        share = self.let(space.length // factor)
        with self.range(0, apart) as i, self.range(0, done) as k:
            first = self.let(i + apart * factor * k)
            index = self.let(i + apart * k)
            start = space.load(first)
            whole = [self.variable(part) for part in start]
            with self.range(1, factor) as b:
                for total, part in zip(whole, space.load(first + apart * b)):
                    total += part
            space.store(index, (whole[0](), whole[1]()))
            with self.range(1, pairs + 1) as u:
                even = [self.variable(part) for part in start]
                odd = [self.variable(zero) for _ in range(2)]
                power = self.variable(0)
                with self.range(1, pairs + 1) as b:
                    power.set((power() + u) % factor)
                    cosine, sine = space.root(power() * share)
                    left, right = (space.load(first + apart * n) for n in (b, factor - b))
                    for n in range(2):
                        even[n].set(fma(left[n] + right[n], cosine, even[n]()))
                        odd[n].set(fma(left[n] - right[n], sine, odd[n]()))
                for number, sign in ((u, 1), (factor - u, -1)):
                    value = _add_rotated((even[0](), even[1]()), (odd[0](), odd[1]()), sign)
                    twiddle = space.root(self.let(i * done * number))
                    space.store(index + apart * done * number, product(value, twiddle))


@dataclass(frozen=True, eq=False)
class _Space:
    """The two halves of the work space in a pass."""

    code: _Passes
    source: ir.Value
    target: ir.Value
    done: ir.Value
    apart: ir.Value
    length: ir.Value

    @property
    def work(self) -> Buffer:
        return Buffer(self.code, "work", self.code.dtype)

    def _vectors(self, begin: ir.Value, index: ir.Value) -> list[ir.Value]:
        lanes = self.code.lanes
        offset = self.code.let(begin + index * (2 * lanes))
        return [offset, offset + lanes]

    def load(self, index: ir.Value) -> Complex:
        real, imaginary = self._vectors(self.source, index)
        return self.work.load(real, self.code.lanes), self.work.load(imaginary, self.code.lanes)

    def store(self, index: ir.Value, value: Complex) -> None:
        for offset, part in zip(self._vectors(self.target, index), value):
            self.work.store(offset, part)

    def root(self, power: ir.Value) -> Complex:
        """A power of the primitive root of unity, in every lane."""
        code, offset = self.code, self.code.let(power * 2)
        roots = Buffer(code, "roots", code.dtype)
        real, imaginary = (code.let(roots[offset + n].spread(code.lanes)) for n in range(2))
        return real, imaginary


# ---- unrolled transforms -------------------------------------------------------------------------


def _sum(name: Name, a: Complex, b: Complex) -> Complex:
    return name(a[0] + b[0]), name(a[1] + b[1])


def _difference(name: Name, a: Complex, b: Complex) -> Complex:
    return name(a[0] - b[0]), name(a[1] - b[1])


def _add_rotated(a: Complex, b: Complex, sign: int) -> Complex:
    """a + sign i b."""
    if sign > 0:
        return a[0] - b[1], a[1] + b[0]
    return a[0] + b[1], a[1] - b[0]


def _weighted_sum(name: Name, start: Complex | None, *terms: tuple[float, Complex]) -> Complex:
    """The sum of some numbers times real factors."""
    found = []
    for part in range(2):
        total = None if start is None else start[part]
        for factor, value in terms:
            weight = value[part].like(factor)
            if total is None:
                total = value[part] * weight
            else:
                total = fma(value[part], weight.spread(value[part].type.lanes), total)
        assert total is not None
        found.append(name(total))
    return found[0], found[1]


def _two(name: Name, x: Sequence[Complex]) -> list[Complex]:
    return [_sum(name, x[0], x[1]), _difference(name, x[0], x[1])]


def _three(name: Name, x: Sequence[Complex]) -> list[Complex]:
    both = _sum(name, x[1], x[2])
    even = _weighted_sum(name, x[0], (-0.5, both))
    odd = _weighted_sum(name, None, (math.sqrt(0.75), _difference(name, x[1], x[2])))
    return [_sum(name, x[0], both), _add_rotated(even, odd, -1), _add_rotated(even, odd, 1)]


def _four(name: Name, x: Sequence[Complex]) -> list[Complex]:
    even, first = _sum(name, x[0], x[2]), _difference(name, x[0], x[2])
    odd, second = _sum(name, x[1], x[3]), _difference(name, x[1], x[3])
    return [
        _sum(name, even, odd), _add_rotated(first, second, -1),
        _difference(name, even, odd), _add_rotated(first, second, 1),
    ]  # fmt: skip


def _five(name: Name, x: Sequence[Complex]) -> list[Complex]:
    angles = 2 * math.pi / 5, 4 * math.pi / 5
    (c1, c2), (s1, s2) = map(math.cos, angles), map(math.sin, angles)
    outer, inner = _sum(name, x[1], x[4]), _sum(name, x[2], x[3])
    left, right = _difference(name, x[1], x[4]), _difference(name, x[2], x[3])
    first = _weighted_sum(name, x[0], (c1, outer), (c2, inner))
    second = _weighted_sum(name, x[0], (c2, outer), (c1, inner))
    odd = _weighted_sum(name, None, (s1, left), (s2, right))
    other = _weighted_sum(name, None, (s2, left), (-s1, right))
    return [
        _sum(name, x[0], _sum(name, outer, inner)),
        _add_rotated(first, odd, -1), _add_rotated(second, other, -1),
        _add_rotated(second, other, 1), _add_rotated(first, odd, 1),
    ]  # fmt: skip


_SHORT = {2: _two, 3: _three, 4: _four, 5: _five}

"""The plan of a Fourier transform of any length, made at run time when the length is known.

A length whose prime factors are at most `LARGEST` is transformed directly. Any other length becomes
a convolution with a chirp (Bluestein, A linear filtering approach to the computation of the DFT,
1970), by transforms of a length at least twice as large, c 2^a with c one of `ROUND`. The working
length, W, is A * B, with A its largest divisor up to its square root: transforms of A elements in
columns, twiddle factors, then transforms of B elements in rows.

The plan is a tensor of integers (`PLAN`), the tables a tensor of floats (`TABLES`) with pairs of
cos and -sin: the powers of the roots of unity of order A and B; powers of the root of order W, from
which any other one is a single product (the first ones, and every `step`-th); the chirp; and the
transform of the chirp's convolution kernel.
"""

from __future__ import annotations

import math
from functools import partial

from anydim.base.dtypes import DType, float64, int64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer, Variable
from anydim.compiler.kernels.ir import apply, constant, fma, iota, select, shuffle
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.stockham import LARGEST, WRITTEN_OUT, Complex, product
from anydim.lang.tree import Tensor, TensorType
from anydim.sizes import Box, Size, as_size, ceil_div, maximum, minimum, simplify

PLAN, TABLES = "plan", "tables"
PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31)
ROUND = (1, 3, 5, 9, 15)
MOST = 1 << 30  # elements: squares of indices are int64
_FACTORS = 64  # slots for the factors of one part
_WORKED, _FIRST, _SECOND, _CHIRPED, _STEP, _COUNTS, _LISTS = 0, 1, 2, 3, 4, 5, 8
_CHUNK = 1024  # elements of the chirp per parallel item


def plain(length: int) -> bool:
    """Whether all prime factors are at most `LARGEST`."""
    for prime in (2, *PRIMES):
        while length > 1 and length % prime == 0:
            length //= prime
    return length <= 1


def worked_on(length: int) -> int:
    """The working length."""
    if plain(length):
        return max(1, length)
    wanted = 2 * length - 1
    return min(c << max(0, (-(-wanted // c) - 1).bit_length()) for c in ROUND)


@dataclass(frozen=True)
class Sizes:
    """Size formulas for a length: upper bounds if it is not known before the call."""

    length: Size
    worked: Size
    part: Size  # elements of a column or a row
    chirped: bool  # whether it may need a chirp

    @staticmethod
    def of(length: Size, box: Box) -> Sizes:
        """Numbers c 2^a are spaced by at most a quarter; B is at most sqrt(LARGEST * W)."""
        known = length.constant
        if known is None:
            worked, chirped = maximum(1, length * 5 // 2 + 16), True
        else:
            worked, chirped = as_size(worked_on(known)), not plain(known)
        part = minimum(worked, worked // 64 + (16 * LARGEST + 1))
        return Sizes(length, simplify(worked, box), simplify(part, box), chirped)

    @property
    def starts(self) -> tuple[Size, ...]:
        """The start of each table, in pairs; the last entry is the total."""
        chirp, kernel = (self.length, self.worked) if self.chirped else (as_size(0), as_size(0))
        found = [as_size(0)]
        for count in (self.part, self.part, self.part, self.part, chirp, kernel):
            found.append(found[-1] + count)
        return tuple(found)

    def temporaries(self, dtype: DType, box: Box) -> tuple[Tensor, ...]:
        pairs = simplify(self.starts[-1] * 2, box)
        return (
            Tensor(PLAN, TensorType(int64, (as_size(_LISTS + 2 * _FACTORS),))),
            Tensor(TABLES, TensorType(dtype, (pairs,))),
        )


class Plan:
    """Access to the plan and the tables in a kernel."""

    def __init__(self, code: Code, sizes: Sizes, dtype: DType) -> None:
        self.code, self.sizes, self.dtype = code, sizes, dtype
        self.numbers = code.output(PLAN, int64)
        self.tables = code.output(TABLES, dtype)
        *self.roots, low, high, chirp, kernel = (code.size(s * 2) for s in sizes.starts[:-1])
        self.low, self.high = self.tables.part(low), self.tables.part(high)
        self.chirp, self.kernel = self.tables.part(chirp), self.tables.part(kernel)

    def read(self) -> None:
        """Load the numbers of the plan; they are available from here on."""
        numbers = self.numbers
        self.worked, self.first, self.second = numbers[_WORKED], numbers[_FIRST], numbers[_SECOND]
        self.chirped = numbers[_CHIRPED].differs(0)
        self.step = numbers[_STEP]
        self.counts = [numbers[_COUNTS + part] for part in range(2)]

    def factors(self, part: int) -> int:
        """Position in the plan of the factors of the first or second part."""
        return _LISTS + part * _FACTORS

    def twiddle(self, power: ir.Value) -> Complex:
        """Powers of the root of unity of order W (twiddle factors), for a scalar or per lane."""
        mask = self.code.let((constant(1) << self.step) - 1)
        low, high = self.pair(self.low, power & mask), self.pair(self.high, power >> self.step)
        return product(low, high)

    def pair(self, table: Buffer, index: ir.Value) -> Complex:
        """Real and imaginary part of one number, or of one per lane."""
        start = self.code.let(index * 2)
        if start.type.lanes > 1:
            return table.gather(start), table.gather(start + 1)
        return table[start], table[start + 1]


def plan_launches(sizes: Sizes, dtype: DType, box: Box, machine: Machine) -> tuple[Launch, ...]:
    """The launches that write the plan and the tables, except for the chirp's transform."""
    launches = [_plan_launch(Code("fourier_plan", machine, box), sizes, dtype)]
    if sizes.chirped:
        launches.append(_chirp(Code("fourier_chirp", machine, box), sizes, dtype))
    return tuple(launches)


def _plan_launch(code: Code, sizes: Sizes, dtype: DType) -> Launch:
    plan = Plan(code, sizes, dtype)
    with code.range(code.start, code.stop):
        _choose(code, plan, code.size(sizes.length))
        plan.read()
        for part, length in enumerate((plan.first, plan.second)):
            _factorise(code, plan, part, length)
            _roots(code, plan.tables.part(plan.roots[part]), length, constant(1), length)
        distance = code.let(constant(1) << plan.step)
        _roots(code, plan.low, distance, constant(1), plan.worked)
        count = code.let((plan.worked + (distance - 1)) >> plan.step)
        _roots(code, plan.high, count, distance, plan.worked)
    return code.launch(1, sizes.part * 64, 1, "factors of the length, and roots of unity")


def _choose(code: Code, plan: Plan, length: ir.Value) -> None:
    """Choose the working length, its two parts, and the spacing of the stored roots."""
    rest = code.variable(length)
    for prime in (2, *PRIMES):
        with code.loop(partial(_divides, rest, prime)):
            rest.set(rest() // prime)
    worked = code.variable(select(length > 1, length, 1))
    with code.when(rest() > 1):
        worked.set(1 << 62)
        for factor in ROUND:
            tried = code.variable(factor)
            with code.loop(partial(_below, tried, length * 2 - 1)):
                tried.set(tried() * 2)
            worked.set(select(tried() < worked(), tried(), worked()))
    first, step = code.variable(1), code.variable(0)
    with code.loop(lambda: first() * first() < worked()):
        first += 1
    with (
        code.when(first() * first() > worked()),
        code.loop(lambda: (worked() % first()).differs(0) | (first() * first() > worked())),
    ):
        first.set(first() - 1)
    with code.loop(lambda: (constant(1) << (step() * 2)) < worked()):
        step += 1
    numbers = plan.numbers
    numbers[_WORKED], numbers[_FIRST], numbers[_SECOND] = worked(), first(), worked() // first()
    numbers[_CHIRPED] = (rest() > 1).as_(int64)
    numbers[_STEP] = step()


def _divides(rest: Variable, factor: int) -> ir.Value:
    return (rest() > 1) & (rest() % factor).equals(0)


def _below(number: Variable, limit: ir.Value) -> ir.Value:
    return number() < limit


def _factorise(code: Code, plan: Plan, part: int, length: ir.Value) -> None:
    rest, count = code.variable(length), code.variable(0)
    list_ = plan.numbers.part(plan.factors(part))
    for factor in dict.fromkeys((*WRITTEN_OUT, *PRIMES)):
        with code.loop(partial(_divides, rest, factor)):
            list_[count()] = constant(factor)
            rest.set(rest() // factor)
            count += 1
    plan.numbers[_COUNTS + part] = count()


def _roots(code: Code, table: Buffer, count: ir.Value, distance: ir.Value, order: ir.Value) -> None:
    """Powers 0, distance, 2 distance, ... of the root of unity of an order."""
    lanes = code.machine.lanes(float64)
    whole = order.as_(float64)

    def put(i: ir.Value, where: ir.Value | None) -> None:
        power_index = (iota(lanes) + i) * distance
        _store_pairs(table, i, root_of_unity(code, power_index.as_(float64), whole), where, count)

    code.sweep(0, count, lanes, put)


def root_of_unity(code: Code, power: ir.Value, order: ir.Value) -> Complex:
    """cos and -sin of 2 pi power / order, both exact floats; reduced to angles of at most an eighth
    turn."""
    quarters = code.let(apply("floor", power * 4.0 / order + 0.5))
    rest = fma(power, 4.0, -(quarters * order))
    angle = code.let(rest / order * (math.pi / 2))
    sine, cosine = code.let(apply("sin", angle)), code.let(apply("cos", angle))
    quarter = code.let(quarters - apply("floor", quarters * 0.25) * 4.0)
    odd = code.let(quarter.equals(1.0) | quarter.equals(3.0))
    real, imaginary = select(odd, sine, cosine), select(odd, cosine, sine)
    left, below = quarter.equals(1.0) | quarter.equals(2.0), quarter >= 2.0
    real = select(left, -real, real)
    return real, select(below, imaginary, -imaginary)


def _store_pairs(
    table: Buffer, first: ir.Value, value: Complex, where: ir.Value | None, count: ir.Value
) -> None:
    """Store interleaved pairs; with `where`, lanes at `count` and above are masked."""
    real, imaginary = (part.as_(table.dtype) for part in value)
    for start, vector in zip((0, real.type.lanes), interleave(real, imaginary)):
        position = first * 2 + start
        mask = None if where is None else iota(real.type.lanes) < count * 2 - position
        table.store(position, vector, mask)


def interleave(left: ir.Value, right: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Two vectors, interleaved lane by lane."""
    lanes = left.type.lanes
    order = [lane // 2 + lanes * (lane % 2) for lane in range(2 * lanes)]
    return shuffle(left, right, tuple(order[:lanes])), shuffle(left, right, tuple(order[lanes:]))


def deinterleave(low: ir.Value, high: ir.Value) -> Complex:
    """The inverse of `interleave`."""
    lanes = low.type.lanes
    even = tuple(range(0, 2 * lanes, 2))
    return shuffle(low, high, even), shuffle(low, high, tuple(lane + 1 for lane in even))


def _chirp(code: Code, sizes: Sizes, dtype: DType) -> Launch:
    """exp(-i pi k k / length): the power k k of a root of order 2 length."""
    plan = Plan(code, sizes, dtype)
    plan.read()
    length, lanes = code.size(sizes.length), code.machine.lanes(float64)
    order = code.let(length * 2)
    whole = order.as_(float64)

    def put(k: ir.Value, where: ir.Value | None, stop: ir.Value) -> None:
        index = iota(lanes) + k
        power = (index * index) % order
        _store_pairs(plan.chirp, k, root_of_unity(code, power.as_(float64), whole), where, stop)

    with code.range(code.start, code.stop) as chunk, code.when(plan.chirped):
        low = code.let(chunk * _CHUNK)
        high = code.let(select(low + _CHUNK < length, low + _CHUNK, length))
        code.sweep(low, high, lanes, lambda k, where: put(k, where, high))
    parts = ceil_div(sizes.length, _CHUNK)
    return code.launch(parts, sizes.length * 16, 1, "a chirp")

"""Differential test: a compiled program against a reference, at many sizes of its box.

The ends of every dim, 0 and 1 come first; then random sizes. A size that would cost too much is
brought down until it does not: an end of one dim may cost most, every eighth sample much, the
others little, so that many sizes are seen in short time.

How large an error may be depends on the computation: where numbers nearly cancel, nobody's last
digits are right. So an error above a few units of the last place is compared with that of numpy,
which does the same in the program's own types. The factor between them allows for other orders of
sums and for Winograd's way (docs/numerics.md).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import cached_property
from itertools import cycle, islice, product
from typing import Any

import numpy

from anydim.base.dtypes import DType
from anydim.base.errors import DeviceError, InputError, OptionError, OutOfMemoryError
from anydim.base.given import shown, whole
from anydim.base.records import dataclass
from anydim.program.binding import told
from anydim.program.plan import estimate
from anydim.program.program import Program
from anydim.runtime.signature import TensorSpec
from anydim.sizes import LARGEST, Box, Size, as_size

Arrays = Mapping[str, numpy.ndarray]
Function = Callable[[Arrays], Arrays]
Progress = Callable[[int, int], None]
Ranges = Mapping[str, tuple[int, int | Size]]

TOLERANCES = {"float16": 2e-2, "float32": 1e-3, "float64": 1e-9}  # where numpy is not asked
FEW_UNITS = 64  # of the last place: an error that is always allowed
_MANTISSA = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}
FACTOR = 64  # how many times numpy's error is allowed
MOST_FLOPS = 16_000_000_000  # of one sample
MOST_BYTES = 512 * 1024 * 1024
_LIMITS = (1 / 8, *7 * (1 / 64,))  # parts of them, for samples after the ends of each dim
_MOST_CORNERS = 32
_FIXED_SAMPLES = 3  # of a program without dims


@dataclass(frozen=True)
class Failure:
    """A size at which program and reference differ."""

    sizes: Mapping[str, int]
    output: str
    reason: str

    def __str__(self) -> str:
        at = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        return f"output '{self.output}' at {at}: {self.reason}"


@dataclass(frozen=True)
class CheckReport:
    """How a check went; `rejected` samples are those that program and reference refuse.

    `plain_error` is that of numpy in the types of the program at `worst_sizes`, None where nobody
    asked: errors were of a few units of the last place.
    """

    samples: int
    rejected: int
    worst_error: float
    worst_sizes: Mapping[str, int]
    failures: tuple[Failure, ...] = field(default=())
    plain_error: float | None = None

    @property
    def ok(self) -> bool:
        """Whether all samples agreed."""
        return not self.failures

    def __str__(self) -> str:
        at = ", ".join(f"{name} = {value}" for name, value in self.worst_sizes.items())
        verdict = "agree" if self.ok else f"{len(self.failures)} differ"
        plain = self.plain_error
        beside = "" if plain is None else f" (numpy's in the same types {plain:.3g})"
        worst = f"worst error {self.worst_error:.3g}{beside}" + f" at {at}" * bool(at)
        lines = [f"{self.samples} samples: {verdict}; {worst}"]
        if self.rejected:
            lines.append(f"  {self.rejected} more samples were refused by both")
        return "\n".join(lines + [f"  {failure}" for failure in self.failures[:10]])


def check(
    program: Program,
    call: Function,
    reference: Function,
    samples: int = 100,
    seed: int = 0,
    progress: Progress | None = None,
    integers: Ranges | None = None,
    plain: Function | None = None,
) -> CheckReport:
    """Compare `call` with `reference`, which computes in float64, at `samples` sizes.

    Integer inputs are drawn from `integers[name]` (low, high; both included), else from 0 and 1.
    What the reference refuses, the program has to refuse. `plain` is the reference in the types of
    the program; without it errors are compared with constants.
    """
    signature = program.signature
    chance, data = random.Random(seed), numpy.random.default_rng(seed)
    worst, worst_sizes, rejected = _Difference(0.0), {}, 0
    failures: list[Failure] = []
    done = 0
    for done, sizes in enumerate(islice(_sizes(program, chance), samples), start=1):
        inputs = {
            spec.name: draw(spec, sizes, data, (integers or {}).get(spec.name, (0, 1)))
            for spec in signature.inputs
        }
        try:
            expected = reference(inputs)
        except (InputError, DeviceError):  # an engine that is its own reference fails in both
            rejected += _refused(call, inputs, sizes, failures)
            continue
        again = None if plain is None else _Once(plain, inputs)
        error, found = _compare(program, call(inputs), expected, sizes, again)
        failures += found
        if error.error >= worst.error:
            worst, worst_sizes = error, sizes
        if progress is not None:
            progress(done, samples)
    return CheckReport(
        done - rejected, rejected, worst.error, worst_sizes, tuple(failures), worst.plain
    )


def _refused(
    call: Function, inputs: Arrays, sizes: Mapping[str, int], failures: list[Failure]
) -> int:
    """The program must refuse what the reference refuses."""
    try:
        call(inputs)
    except (InputError, DeviceError):
        return 1
    failures.append(Failure(sizes, "all", "the reference refuses this size, the program does not"))
    return 0


def known_ranges(given: Mapping[str, Any]) -> Ranges:
    """Pairs (low, high) of integers; raises OptionError for anything else."""
    for name, ends in given.items():
        pair = isinstance(ends, (tuple, list)) and len(ends) == 2
        try:
            low, high = map(whole, ends) if pair else (1, 0)
        except TypeError:
            low, high = 1, 0
        if not -LARGEST <= low <= high <= LARGEST:
            raise OptionError(
                f"integers of '{name}' are {shown(ends)}", "give (low, high), both included"
            )
    return dict(given)


def draw(
    spec: TensorSpec,
    sizes: Mapping[str, int],
    data: numpy.random.Generator,
    integers: tuple[int, int | Size] = (0, 1),
) -> numpy.ndarray:
    """A random array for an input at given sizes; of an empty range, its low end."""
    shape = tuple(size.evaluate(sizes) for size in spec.shape)
    low, high = integers[0], as_size(integers[1]).evaluate(sizes)
    try:
        if spec.dtype.is_float:
            return data.standard_normal(shape).astype(spec.dtype.numpy)
        return data.integers(low, max(low, high) + 1, shape).astype(spec.dtype.numpy)
    except (MemoryError, ValueError):  # numpy's word for more than an array can have
        problem = f"there is no memory for an input '{spec.name}' of shape {shape}"
        raise OutOfMemoryError(problem, "draw smaller sizes") from None


def _box(program: Program) -> Box:
    """The dims to choose sizes for: those that data decides are not among them."""
    box = program.signature.box
    if program.straight is not None:
        return box
    chosen = told(box, program.signature.inputs, frozenset())
    return box.without(set(box.names) - chosen)


def _sizes(program: Program, chance: random.Random) -> Iterator[dict[str, int]]:
    box = _box(program)
    seen = set()
    if not box.dims:
        yield from ({} for _ in range(_FIXED_SAMPLES))
        return
    for sizes, limit in zip(islice(edges(box), _MOST_CORNERS), _limits(box)):
        sizes = _affordable(program, sizes, limit)
        point = tuple(sizes.values())
        if point not in seen and box.contains(sizes):
            seen.add(point)
            yield sizes
    for limit in cycle(_LIMITS):
        yield _affordable(program, box.sample(chance), limit)


def edges(box: Box) -> Iterator[dict[str, int]]:
    """Every dim at each of its ends, 0 and 1 where they lie inside.

    First one dim at a time, the others at their least size above 0; then all of them.
    """
    ends = _ends(box)
    least = {name: min(values, key=lambda v: (v == 0, v)) for name, values in ends.items()}
    for name, values in ends.items():
        for value in values:
            yield {**least, name: value}
    for point in product(*ends.values()):
        yield dict(zip(ends, point))


def _ends(box: Box) -> dict[str, list[int]]:
    ends = {}
    for dim in box.dims:
        wanted = [dim.lo, 1, dim.lo + 64 if dim.hi is None else dim.hi]
        ends[dim.name] = list(dict.fromkeys(value for value in wanted if value in dim))
    return ends


def _limits(box: Box) -> Iterator[float]:
    """How much each of the `edges` may cost."""
    yield from (1.0 for values in _ends(box).values() for _ in values)
    yield from cycle(_LIMITS)


def _affordable(program: Program, sizes: dict[str, int], limit: float) -> dict[str, int]:
    """The sizes, or smaller ones at which the program and its reference cost at most `limit`."""
    box = _box(program)
    while _cost(program, sizes) > limit:
        largest = max(box.dims, key=lambda dim: sizes[dim.name] - dim.lo)
        if sizes[largest.name] == largest.lo:
            break
        half = largest.lo + (sizes[largest.name] - largest.lo) // 2
        smaller = {**sizes, largest.name: half}
        if not box.contains(smaller):
            break
        sizes = smaller
    return sizes


def _cost(program: Program, sizes: Mapping[str, int]) -> float:
    planned = estimate(program, sizes)
    size = planned.bytes + planned.input_bytes + planned.output_bytes
    return max(planned.flops / MOST_FLOPS, size / MOST_BYTES)


class _Once:
    """What numpy makes of inputs in the types of the program: computed when it is asked for."""

    def __init__(self, plain: Function, inputs: Arrays) -> None:
        self._plain, self._inputs = plain, inputs

    @cached_property
    def results(self) -> Arrays:
        """By name; nothing where it refuses them."""
        try:
            return self._plain(self._inputs)
        except InputError:
            return {}


@dataclass(frozen=True)
class _Difference:
    """An error, what is wrong ('' for nothing), and numpy's error where it was asked."""

    error: float
    reason: str = ""
    plain: float | None = None


def _compare(
    program: Program, came: Arrays, expected: Arrays, sizes: Mapping[str, int], again: _Once | None
) -> tuple[_Difference, list[Failure]]:
    worst, failures = _Difference(0.0), []
    for spec in program.signature.outputs:
        found = _judged(spec, came[spec.key], expected[spec.name], again)
        worst = max(worst, found, key=lambda each: each.error)
        if found.reason:
            failures.append(Failure(sizes, spec.name, found.reason))
    return worst, failures


def _judged(
    spec: TensorSpec, came: numpy.ndarray, expected: numpy.ndarray, again: _Once | None
) -> _Difference:
    """The difference of a result, judged by that of numpy where it is more than a few units."""
    error, reason = difference(spec, came, expected)
    alike = came.shape == expected.shape and came.dtype == spec.dtype.numpy
    if again is None or not alike or not error:
        return _Difference(error, reason)
    floats = spec.dtype.is_float
    if floats and error <= FEW_UNITS * _unit(spec.dtype):
        return _Difference(error)
    other = again.results.get(spec.name)
    if other is None or other.shape != expected.shape:
        return _Difference(error, reason)
    if not floats:  # rounded or compared numbers: some elements may fall to the other side
        wrong, others = (numpy.count_nonzero(each != expected) for each in (came, other))
        fine = wrong <= FACTOR * others
        return _Difference(error, "" if fine else reason, float(others > 0))
    plain, _ = difference(spec, other.astype(spec.dtype.numpy), expected)
    allowed = max(FACTOR * plain, FEW_UNITS * _unit(spec.dtype))
    beside = f"error {error:.3g}, and numpy's in the same types is {plain:.3g}"
    return _Difference(error, "" if error <= allowed else beside, plain)


def _unit(dtype: DType) -> float:
    """A unit of the last place of 1."""
    return float(2.0 ** -_MANTISSA.get(dtype.name, 2))


def difference(spec: TensorSpec, came: numpy.ndarray, expected: numpy.ndarray) -> tuple[float, str]:
    """The largest error, relative above 1 and absolute below, and what is wrong ('' for nothing).

    NaN agrees with NaN, an infinity with itself. Integers must be equal. What is expected may be
    of a wider float type.
    """
    if came.shape != expected.shape or came.dtype != spec.dtype.numpy:
        wanted, got = f"{spec.dtype}{list(expected.shape)}", f"{came.dtype}{list(came.shape)}"
        return numpy.inf, f"expected {wanted}, got {got}"
    if not spec.dtype.is_float:
        wrong = int(numpy.count_nonzero(came != expected))
        return float(wrong > 0), f"{wrong} elements differ" if wrong else ""
    wide, target = came.astype(numpy.float64), expected.astype(numpy.float64)
    with numpy.errstate(invalid="ignore"):
        error = numpy.abs(wide - target) / numpy.maximum(1.0, numpy.abs(target))
    same = (wide == target) | (numpy.isnan(wide) & numpy.isnan(target))
    error = numpy.where(same, 0.0, numpy.where(numpy.isnan(error), numpy.inf, error))
    worst = float(error.max(initial=0.0))
    tolerance = TOLERANCES.get(spec.dtype.name, 1e-3)
    return worst, f"error {worst:.3g} above {tolerance:g}" if worst > tolerance else ""

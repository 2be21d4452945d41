"""Comparison of a result with an oracle's answer: element type, shape and values.

The permitted error depends on the computation: under cancellation no implementation gets the last
digits right. An error above a few units in the last place is compared with the error of numpy in
the program's own types. The factor between them allows for other summation orders and for
Winograd's algorithm (docs/numerics.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import numpy

from anydim.base.dtypes import DTYPES, DType, convert_array, from_numpy
from anydim.base.errors import UserError
from anydim.base.records import dataclass
from anydim.compiler.checking.oracle import Answer, Arrays, Function
from anydim.runtime.signature import TensorSpec

TOLERANCES = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 1e-3, "float64": 1e-9}
"""Limits if the error of numpy is unknown."""
FEW_UNITS = 64  # in the last place: an error that is always permitted
FACTOR = 64  # permitted multiple of numpy's error
ROUNDED_FACTOR = 4  # likewise with all factors rounded to bfloat16: the same roundings, or fewer
_PERTURBED = 7  # perturbed inputs at which numpy's error is measured
_MANTISSA = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}


def unit(dtype: DType) -> float:
    """A unit in the last place of 1."""
    return float(2.0 ** -_MANTISSA.get(dtype.name, 2))


class Noise:
    """The rounding error of the computation: numpy in the program's types against float64.

    Measured at these inputs and at inputs perturbed by up to a hundredth, since one rounding may be
    exact by chance. Computed on first use; empty if numpy rejects the inputs.
    """

    def __init__(self, exact: Function | None, plain: Function | None, inputs: Arrays) -> None:
        self._functions, self._inputs = (exact, plain), inputs

    @cached_property
    def _results(self) -> list[tuple[Arrays, Arrays]]:
        exact, plain = self._functions
        if exact is None or plain is None:
            return []
        try:
            return [(exact(inputs), plain(inputs)) for inputs in self._perturbed_inputs()]
        except (UserError, ArithmeticError, ValueError):  # numpy has no negative power of integers
            return []

    def _perturbed_inputs(self) -> Iterator[Arrays]:
        yield self._inputs
        for seed in range(_PERTURBED):
            chance = numpy.random.default_rng(seed)
            yield {name: _moved(array, chance) for name, array in self._inputs.items()}

    def of(self, spec: TensorSpec) -> float | None:
        """The error of numpy, or for integers the count of different elements; None if unknown."""
        pairs = [(exact.get(spec.name), plain.get(spec.name)) for exact, plain in self._results]
        errors = [
            largest_error(spec.dtype, b, a)
            if spec.dtype.is_float
            else float(numpy.count_nonzero(a != b))
            for a, b in pairs
            if a is not None and b is not None and a.shape == b.shape
        ]
        return max(errors, default=None)


def _moved(array: numpy.ndarray, chance: numpy.random.Generator) -> numpy.ndarray:
    """Perturb floats by up to a hundredth; other types are unchanged."""
    dtype = from_numpy(array.dtype)
    if not dtype.is_float or dtype.stored:
        return array
    wide = convert_array(array, numpy.dtype(numpy.float64))
    return numpy.asarray(convert_array(wide * chance.uniform(0.99, 1.01, array.shape), dtype.numpy))


@dataclass(frozen=True)
class Difference:
    """An error, the reason if it is too large, else '', and numpy's error if computed."""

    error: float
    reason: str = ""
    plain: float | None = None


def judged(
    spec: TensorSpec, result: numpy.ndarray, wanted: Answer, noise: Callable[[], Noise],
    factor: int = FACTOR,
) -> Difference:  # fmt: skip
    """Compare a result with an answer; up to `factor` times numpy's error is permitted."""
    if result.dtype.name != wanted.dtype:
        text = f"the element type is {result.dtype}, expected {wanted.dtype}"
        return Difference(numpy.inf, text)
    if result.shape != wanted.values.shape:
        expected, got = list(wanted.values.shape), list(result.shape)
        return Difference(numpy.inf, f"the shape is {got}, expected {expected}")
    if not spec.dtype.is_float:
        return _counted(spec, result, wanted.values, noise, factor)
    error = largest_error(spec.dtype, result, wanted.values)
    few = FEW_UNITS * unit(spec.dtype)
    if error <= few:
        return Difference(error)
    plain = noise().of(spec)
    if plain is None:
        limit = TOLERANCES.get(spec.dtype.name, few)
        return Difference(error, f"error {error:.3g} above {limit:g}" if error > limit else "")
    limit = max(factor * plain, few)
    text = f"error {error:.3g}, and numpy's in the same types is {plain:.3g}"
    return Difference(error, "" if error <= limit else text, plain)


def _counted(
    spec: TensorSpec, result: numpy.ndarray, wanted: numpy.ndarray, noise: Callable[[], Noise],
    factor: int,
) -> Difference:  # fmt: skip
    """Compare integers and bools: equal, up to the count that rounding changes."""
    differs = numpy.asarray(result != wanted)
    wrong = int(numpy.count_nonzero(differs))
    if not wrong:
        return Difference(0.0)
    moved = noise().of(spec)
    at = [int(index) for index in numpy.argwhere(differs)[0]]
    text = f"{wrong} of {differs.size} elements differ"
    shown = f"{text}, at {at} {result[tuple(at)]}, expected {wanted[tuple(at)]}"
    fine = moved is not None and wrong <= factor * moved
    return Difference(1.0, "" if fine else shown, None if moved is None else float(moved > 0))


def largest_error(dtype: DType, result: numpy.ndarray, expected: numpy.ndarray) -> float:
    """The largest error, relative above 1 and absolute below; 0 for no elements.

    NaN equals NaN, an infinity equals itself and numbers above the type's range.
    """
    float64 = numpy.dtype(numpy.float64)
    wide, target = convert_array(result, float64), convert_array(expected, float64)
    with numpy.errstate(all="ignore"):
        held = convert_array(convert_array(expected, dtype.numpy), float64)
        target = numpy.where(numpy.isinf(held), held, target)
        error = numpy.abs(wide - target) / numpy.maximum(1.0, numpy.abs(target))
    same = (wide == target) | (numpy.isnan(wide) & numpy.isnan(target))
    error = numpy.where(same, 0.0, numpy.where(numpy.isnan(error), numpy.inf, error))
    return float(error.max(initial=0.0))


def tolerance_text(dtypes: Mapping[str, str], factor: int = FACTOR) -> str:
    """The permitted errors, by element type, as text."""
    kinds = [DTYPES[name] for name in dict.fromkeys(dtypes.values())]
    floats = [f"{kind.name} {FEW_UNITS * unit(kind):.1e}" for kind in kinds if kind.is_float]
    equal = "" if len(floats) == len(kinds) else "integers and bools equal"
    wide = f"{', '.join(floats)}, or {factor} times numpy's own error" if floats else ""
    return "; ".join(filter(None, (wide, equal)))

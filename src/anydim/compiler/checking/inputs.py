"""Random inputs that expose differences: signs, magnitudes and ties vary from call to call.

Integers that are not indices range from bits to the whole range of their type; if a model rejects
them (for example, since they determine sizes), tamer ones follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle, islice

import numpy

from anydim.base.dtypes import DType, convert_array
from anydim.base.errors import OutOfMemoryError
from anydim.base.records import dataclass
from anydim.runtime.program.inputs import Ranges
from anydim.runtime.signature import TensorSpec
from anydim.sizes import as_size

Array = numpy.ndarray
Chance = numpy.random.Generator


@dataclass(frozen=True)
class Flavour:
    """The distribution of a call's inputs: `floats` and `integers` name kinds, `share` is the
    fraction of true bools."""

    floats: str
    integers: str
    share: float = 0.5


BITS, SMALL, WHOLE = "bits", "small", "whole"
_FLAVOURS = (
    Flavour("normal", BITS), Flavour("mixed", SMALL, 0.8), Flavour("ties", SMALL, 0.2),
    Flavour("wide", WHOLE), Flavour("normal", WHOLE, 0.9), Flavour("mixed", BITS),
)  # fmt: skip
_TAMER = {WHOLE: SMALL, SMALL: BITS}


def flavours(number: int, tame: bool) -> tuple[Flavour, ...]:
    """Flavours for a call, in order, until one is accepted; `tame`: no large integers."""
    first = next(islice(cycle(_FLAVOURS), number % len(_FLAVOURS), None))
    found = [first]
    while found[-1].integers in _TAMER:
        last = found[-1]
        found.append(Flavour(last.floats, _TAMER[last.integers], last.share))
    return tuple(each for each in found if not (tame and each.integers == WHOLE))


def drawn(
    spec: TensorSpec, sizes: Mapping[str, int], chance: Chance, flavour: Flavour,
    ranges: Ranges,
) -> Array:  # fmt: skip
    """A random array for an input; integers with a range (ends included) are drawn from it."""
    made: Array
    shape = tuple(size.evaluate(sizes) for size in spec.shape)
    try:
        if spec.dtype.is_float:
            return convert_array(
                numpy.asarray(_FLOATS[flavour.floats](shape, chance)), spec.dtype.numpy
            )
        if spec.name in ranges:
            low, high = ranges[spec.name][0], as_size(ranges[spec.name][1]).evaluate(sizes)
            made = chance.integers(low, max(low, high) + 1, shape)
        elif spec.dtype.kind == "bool":
            made = chance.random(shape) < flavour.share
        else:
            made = _integers(spec.dtype, shape, chance, flavour.integers)
        return convert_array(numpy.asarray(made), spec.dtype.numpy)
    except (MemoryError, ValueError):  # numpy's error for an array that is too large
        problem = f"there is no memory for an input '{spec.name}' of shape {shape}"
        raise OutOfMemoryError(problem, "draw smaller sizes") from None


def _mixed(shape: tuple[int, ...], chance: Chance) -> Array:
    """Mostly of magnitude 1, with integers, zeros and some of magnitude 30."""
    made = chance.standard_normal(shape)
    kind = chance.random(shape)
    made = numpy.where(kind < 0.1, made * 30, made)
    return numpy.where(kind > 0.85, numpy.rint(made), made)


def _wide(shape: tuple[int, ...], chance: Chance) -> Array:
    return chance.standard_normal(shape) * 10.0 ** chance.uniform(-3, 2, shape)


_FLOATS = {
    "normal": lambda shape, chance: chance.standard_normal(shape),
    "mixed": _mixed,
    "ties": lambda shape, chance: chance.integers(-3, 4, shape).astype(float),
    "wide": _wide,
}


def _integers(dtype: DType, shape: tuple[int, ...], chance: Chance, kind: str) -> Array:
    low, high = dtype.range
    if kind == BITS:
        return chance.integers(0, 2, shape)
    if kind == SMALL:
        return chance.integers(max(low, -4), min(high, 9) + 1, shape)
    size = 2.0 ** chance.uniform(0, dtype.bits, shape) - 1  # log-uniform magnitudes
    made = numpy.minimum(size, float(high) * (1 - 2.0**-52)).astype(dtype.numpy)
    return numpy.where(chance.random(shape) < 0.5, made, made * 0 + low - made if low else made)

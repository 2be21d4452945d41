"""How constants of a program are derived from the weights of its source.

    Weight        an initializer of the source
    Derivation    a step applied to constants: a group evaluated, a scaling, a moved axis, rounding,
                  panels

A program is compiled for a *structure*: the source without the contents of its weights. Passes that
derive a constant from others use a step, which can be repeated on the weights of another source of
this structure, in the same bits. Whatever reads the elements of a constant for another purpose
(`Constant.array`) decides by them: its weights are marked as *read*, and belong to the structure.
Of some decisions only the answer belongs to it (`Constant.are_finite`): it is a fact of the weight.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy

from anydim.base.digest import sha256
from anydim.base.dtypes import DType, convert_array, float32, float64, from_numpy
from anydim.base.records import dataclass
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.tree import Group
from anydim.runtime.packing import pack
from anydim.runtime.panels import Packing

if TYPE_CHECKING:
    from anydim.compiler.graph.nodes import Constant

MOST_STEP = 127  # of a column or a row in bytes
SMALLEST_TOP = 2.0**-100  # rows and columns of smaller numbers count as zeros
_STEPS = numpy.float64(MOST_STEP)
_AT_ONCE = 1 << 20  # elements
_SMALLEST = numpy.float32(2.0**-133)  # bfloat16
FACTS = {
    "finite": lambda array: bool(numpy.isfinite(array).all()),
    "zero": lambda array: not array.any(),
    "fits parts": lambda array: bool((numpy.abs(array) <= 2.0**40).all()),  # float_parts.py
}


class Weight:
    """An initializer of a source by its number; `digest`, if set: decisions depend on its contents.

    `facts` are answers that depend on it: a constant, a name in `FACTS`, and the answer.
    """

    def __init__(self, number: int, name: str, array: numpy.ndarray, fixed: bool = False) -> None:
        self.number, self.name = number, name
        self.dtype, self.shape = from_numpy(array.dtype), array.shape
        self.digest = digest_of(array) if fixed else ""
        self.facts: list[tuple[Constant, str, bool]] = []

    def mark_read(self, array: numpy.ndarray) -> None:
        """A decision depends on the contents, which are this array."""
        self.digest = self.digest or digest_of(array)


def digest_of(array: numpy.ndarray) -> str:
    """The SHA-256 of the elements in order."""
    flat = numpy.ascontiguousarray(array).reshape(-1)
    digest: str = sha256(flat.view(numpy.uint8).data).hexdigest()
    return digest


@dataclass(frozen=True)
class Evaluated:
    """An output of a group; long sums are computed in float64, then rounded to `dtype`."""

    group: Group
    dtype: DType
    long: bool = False
    output: int = 0

    def run(self, *arrays: numpy.ndarray) -> numpy.ndarray:
        """The array for those of the group's inputs, in order. Raises InputError."""
        named = {tensor.name: array for tensor, array in zip(self.group.inputs, arrays)}
        made = evaluate(self.group, named, {}, float64 if self.long else None)
        only = made[self.group.outputs[self.output].name]
        found: numpy.ndarray = convert_array(only, self.dtype.numpy) if self.long else only
        return found


@dataclass(frozen=True)
class Scaled:
    """The first array times the second one, viewed in a shape that broadcasts."""

    shape: tuple[int, ...]

    def run(self, *arrays: numpy.ndarray) -> numpy.ndarray:
        """The product."""
        array, scale = arrays
        found: numpy.ndarray = array * scale.reshape(self.shape)
        return found


@dataclass(frozen=True)
class LastAxis:
    """A view with an axis moved to the end."""

    axis: int

    def run(self, *arrays: numpy.ndarray) -> numpy.ndarray:
        """The view."""
        return numpy.moveaxis(arrays[0], self.axis, -1)


@dataclass(frozen=True)
class Converted:
    """The elements in another type, rounded; with several `parts`, float32 as sums of such numbers
    along a new first axis, each of which is what those before it leave.

    Numbers below the smallest bfloat16 become it, not zero: an infinity times them is infinite.
    """

    dtype: DType
    parts: int = 1

    def _split(self, rest: numpy.ndarray) -> numpy.ndarray:
        small, found = (rest != 0) & (numpy.abs(rest) < _SMALLEST), []
        rest = numpy.where(small, numpy.copysign(_SMALLEST, rest), rest)
        for _ in range(self.parts):
            found.append(convert_array(rest, self.dtype.numpy))
            rest = rest - convert_array(found[-1], float32.numpy)
        return numpy.stack(found)

    def run(self, *arrays: numpy.ndarray) -> numpy.ndarray:
        """The array."""
        if self.parts > 1:
            return self._split(arrays[0])
        found: numpy.ndarray = convert_array(arrays[0], self.dtype.numpy)
        return found


@dataclass(frozen=True)
class InPanels:
    """The bytes of a constant as a product reads it, viewed in a type and a shape."""

    packing: Packing
    dtype: DType
    shape: tuple[int, ...]

    def run(self, *arrays: numpy.ndarray) -> numpy.ndarray:
        """The panels."""
        panels = pack(arrays[0], self.packing).reshape(-1)
        found: numpy.ndarray = panels.view(self.dtype.numpy).reshape(self.shape)
        return found


@dataclass(frozen=True)
class Quantised:
    """Weights of a product as bytes, or with `scales` the scale that they are multiplied by.

    Dimensions are taken in an `order`; numbers `along` some of them, a column, have one scale. A
    column with NaN or an infinity has a scale of NaN, one of numbers below 2^-100 is 0.
    """

    order: tuple[int, ...]
    along: tuple[int, ...]
    scales: bool = False

    def run(self, *arrays: numpy.ndarray) -> numpy.ndarray:
        """The bytes, int8, or the scales, float32."""
        return self.run_with(arrays[0], self.tops(arrays[0]))

    def tops(self, array: numpy.ndarray) -> numpy.ndarray:
        """The largest magnitude of each column, some columns at a time."""
        array = array.transpose(self.order)
        shape = tuple(1 if n in self.along else size for n, size in enumerate(array.shape))
        found = numpy.zeros(shape, array.dtype)
        for own in _parts(array, whole=0 in self.along):
            numpy.abs(array[own]).max(self.along, keepdims=True, initial=0, out=found[own])
        return found

    def run_with(self, array: numpy.ndarray, tops: numpy.ndarray) -> numpy.ndarray:
        """What `run` returns, where the tops are known; scales do not read the array."""
        with numpy.errstate(all="ignore"):
            if self.scales:
                scale = numpy.where(numpy.isfinite(tops), tops / _STEPS / MOST_STEP, numpy.nan)
                shape = numpy.delete(tops.shape, self.along)
                return scale.astype(numpy.float32).reshape(shape)
            array = array.transpose(self.order)
            steps = numpy.where(tops > SMALLEST_TOP, _STEPS / tops, 0)
            return self._round(array, numpy.broadcast_to(steps, array.shape))

    def _round(self, array: numpy.ndarray, steps: numpy.ndarray) -> numpy.ndarray:
        """The bytes, some at a time: products are float64."""
        made = numpy.empty(array.shape, numpy.int8)
        for own in _parts(array):
            scaled = numpy.rint(array[own] * steps[own])
            made[own] = numpy.where(numpy.isfinite(scaled), scaled, 0)
        return made


def _parts(array: numpy.ndarray, whole: bool = False) -> Iterator[slice]:
    """Slices of the first axis with some elements each; `whole`: one slice."""
    part = max(1, len(array) if whole else _AT_ONCE * len(array) // max(1, array.size))
    for begin in range(0, len(array), part):
        yield slice(begin, begin + part)


class SharedTops:
    """The bytes and the scales of a constant: the first of them computes the tops of both."""

    def __init__(self, given: Constant) -> None:
        self._given, self._lock = given, threading.Lock()
        self._tops: numpy.ndarray | None = None

    def run(self, step: Quantised) -> numpy.ndarray:
        """The result of a step; threads may call it at the same time."""
        array = None
        with self._lock:
            if self._tops is None:
                array = self._given.elements
                self._tops = step.tops(array)
        if array is None:
            array = self._tops if step.scales else self._given.elements
        return step.run_with(array, self._tops)


Step: TypeAlias = "Evaluated | Scaled | LastAxis | Converted | InPanels | Quantised"


@dataclass(frozen=True, eq=False)
class Derivation:
    """A step, and the constants that it is applied to."""

    step: Step
    inputs: tuple[Constant, ...]


Origin: TypeAlias = "Weight | Derivation | None"


def sources_of(constants: Sequence[Constant]) -> list[Constant]:
    """The constants that no step makes, among these and those that they are derived from."""
    found: list[Constant] = []
    pending: list[Constant] = [*constants]
    seen: set[int] = set()
    while pending:
        constant = pending.pop()
        if id(constant) in seen:
            continue
        seen.add(id(constant))
        if isinstance(constant.origin, Derivation):
            pending += constant.origin.inputs
        else:
            found.append(constant)
    return found


def weights_of(constants: Sequence[Constant]) -> dict[Weight, Constant]:
    """The weights that constants are derived from, with their own constants."""
    found = sources_of(constants)
    return {each.origin: each for each in found if isinstance(each.origin, Weight)}

"""Variations of a model: calls may need what the file does not fix, each compiled separately.

A call may override an initializer that the graph lists among its inputs (since IR version 4, as in
onnxruntime), and it determines the rank of an input without a declared shape. The model of a
variation is compiled on its first call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy

from anydim.base.errors import InputError, OptionError
from anydim.base.records import dataclass
from anydim.frontends.onnx.file.reading import Opened
from anydim.frontends.onnx.file.string_types import STRING
from anydim.frontends.onnx.file.tensors import MOST_AXES
from anydim.sizes import Dim

_OVERRIDES = 4  # the first IR version in which initializers may be overridden
Made = TypeVar("Made")


@dataclass(frozen=True)
class Variation:
    """`overridden` initializers become inputs.

    `ranks` holds (input, rank) for inputs without a declared shape; with `apart`, axes of one name
    are separate dims.
    """

    overridden: frozenset[str] = frozenset()
    apart: bool = False
    ranks: tuple[tuple[str, int], ...] = ()


PLAIN = Variation()


@dataclass(frozen=True)
class Variable:
    """The parts that vary by call: initializers that may be overridden, inputs without a rank.

    `inputs` are the names of the required inputs.
    """

    name: str
    inputs: tuple[str, ...]
    overridable: frozenset[str]
    unranked: tuple[str, ...]

    @staticmethod
    def of(opened: Opened, strings: bool = True) -> Variable:
        """The variable parts of a file; `strings` includes the ranks of string inputs."""
        graph = opened.proto.graph
        held = {tensor.name for tensor in graph.initializer}
        inputs = tuple(value.name for value in graph.input if value.name not in held)
        optional = {value.name for value in graph.input} & held
        return Variable(
            graph.name or opened.name, inputs,
            frozenset(optional if opened.proto.ir_version >= _OVERRIDES else ()),
            tuple(value.name for value in graph.input if _without_rank(value, strings)),
        )  # fmt: skip

    @property
    def open(self) -> tuple[str, ...]:
        """The required inputs without a rank."""
        return tuple(name for name in self.unranked if name in self.inputs)

    def variation(self, given: Collection[str], rank: Callable[[str], int]) -> Variation:
        """The variation for a call with these inputs; raises InputError for a missing one."""
        overridden = self.overridable.intersection(given) if self.overridable else self.overridable
        if not (overridden or self.unranked):
            return PLAIN
        missing = [name for name in self.open if name not in given]
        if missing:
            takes = f"it takes {', '.join(self.inputs)}"
            raise InputError(f"{self.name} needs input '{missing[0]}'", takes)
        ranks = ((name, rank(name)) for name in self.unranked if name in given)
        return Variation(overridden, False, tuple(ranks))


def _without_rank(value: Any, strings: bool) -> bool:
    kind = value.type
    if not kind.HasField("tensor_type") or kind.tensor_type.HasField("shape"):
        return False
    return strings or kind.tensor_type.elem_type != STRING


def rank_of(value: Any) -> int:
    """The number of axes of the value given for an input."""
    known = getattr(value, "ndim", None)
    if isinstance(known, int):
        return known
    shape = getattr(value, "shape", None)
    try:
        return len(shape) if shape is not None else numpy.ndim(value)
    except (TypeError, ValueError):
        raise InputError("an input is no array: its rows differ in length") from None


class Variations(Generic[Made]):
    """One object per variation, made by `make` on first use. Thread-safe."""

    def __init__(self, make: Callable[[Variation], Made]) -> None:
        self._make = make
        self._made: dict[Variation, Made] = {}
        self._lock = threading.RLock()

    def __getitem__(self, variation: Variation) -> Made:
        found = self._made.get(variation)
        if found is None:
            with self._lock:
                found = self._made.get(variation)
                if found is None:
                    found = self._made[variation] = self._make(variation)
        return found

    def __len__(self) -> int:
        return len(self._made)

    def put(self, variation: Variation, made: Made) -> None:
        """Store the object of a variation."""
        self._made[variation] = made


# ---- the file of a variation ---------------------------------------------------------------------


def varied(found: Opened, variation: Variation) -> Opened:
    """A copy of the model modified for a variation."""
    if variation == PLAIN:
        return found
    proto = type(found.proto)()
    proto.CopyFrom(found.proto)
    values = {value.name: value for value in proto.graph.input}
    for name, rank in variation.ranks:
        shape = values[name].type.tensor_type.shape
        for _ in range(rank):
            shape.dim.add()
        shape.SetInParent()
    if variation.apart:
        for value in proto.graph.input:
            for axis in value.type.tensor_type.shape.dim:
                if axis.dim_param:
                    axis.ClearField("dim_param")
    weights = dict(_kept(proto.graph.initializer, found, variation.overridden))
    return replace(found, proto=proto, weights=weights)


def _kept(
    tensors: Any, found: Opened, overridden: frozenset[str]
) -> Iterator[tuple[int, Callable[[], numpy.ndarray]]]:
    """Remove the overridden initializers; yields the contents of the others by new numbers."""
    kept = [number for number, tensor in enumerate(tensors) if tensor.name not in overridden]
    for number in reversed(range(len(tensors))):
        if tensors[number].name in overridden:
            del tensors[number]
    for now, before in enumerate(kept):
        if before in found.weights:
            yield now, found.weights[before]


def ranked(opened: Opened, dims: Mapping[str, Dim]) -> tuple[Opened, dict[str, Dim]]:
    """Apply the ranks that `dims` gives to inputs without a shape; the model and the other dims.

    Raises OptionError for an invalid rank.
    """
    ranks = {name: dims[name] for name in Variable.of(opened).unranked if name in dims}
    if not ranks:
        return opened, dict(dims)
    for name, dim in ranks.items():
        if dim.lo != dim.hi or dim.lo > MOST_AXES:
            problem = f"{opened.name}: input '{name}' has no shape, and '{dim}' is no rank"
            raise OptionError(problem, f"give its number of axes, at most {MOST_AXES}: {name}=3")
    variation = Variation(ranks=tuple((name, dim.lo) for name, dim in ranks.items()))
    return varied(opened, variation), {n: d for n, d in dims.items() if n not in ranks}

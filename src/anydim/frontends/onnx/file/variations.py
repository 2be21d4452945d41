"""What a call needs that a file does not have: a model of its own for each such variation.

A call may give a value for an initializer that the graph lists among its inputs (from IR version 4
on, as in onnxruntime), and it decides the rank of an input whose shape the file does not declare.
Such a model is compiled when the first call needs it.
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

_OVERRIDES = 4  # the IR version from which on initializers may be overridden
Made = TypeVar("Made")


@dataclass(frozen=True)
class Variation:
    """`overridden` initializers become inputs; `ranks` (input, rank) where the file has none; with
    `apart`, axes of one name are dims of their own."""

    overridden: frozenset[str] = frozenset()
    apart: bool = False
    ranks: tuple[tuple[str, int], ...] = ()


PLAIN = Variation()


@dataclass(frozen=True)
class Variable:
    """What differs from call to call: initializers that may be overridden, inputs without a rank.

    `inputs` are the names of those that a call has to give.
    """

    name: str
    inputs: tuple[str, ...]
    overridable: frozenset[str]
    unranked: tuple[str, ...]

    @staticmethod
    def of(opened: Opened, strings: bool = True) -> Variable:
        """That of a file; the ranks of inputs of `strings` matter or do not."""
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
        """The inputs that have to be there and have no rank."""
        return tuple(name for name in self.unranked if name in self.inputs)

    def variation(self, given: Collection[str], rank: Callable[[str], int]) -> Variation:
        """What a call needs that gives these inputs; raises InputError for one that is missing."""
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
    """The number of axes of what came for an input."""
    known = getattr(value, "ndim", None)
    if isinstance(known, int):
        return known
    shape = getattr(value, "shape", None)
    try:
        return len(shape) if shape is not None else numpy.ndim(value)
    except (TypeError, ValueError):
        raise InputError("an input is no array: its rows have unlike lengths") from None


class Variations(Generic[Made]):
    """What was made for each variation, by `make`, when it was first needed. Thread-safe."""

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
        """Have it there already."""
        self._made[variation] = made


# ---- the file of a variation ---------------------------------------------------------------------


def varied(found: Opened, variation: Variation) -> Opened:
    """A copy of the model, as a variation has it."""
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
    """Remove the initializers that are inputs now; the contents of the others by new numbers."""
    kept = [number for number, tensor in enumerate(tensors) if tensor.name not in overridden]
    for number in reversed(range(len(tensors))):
        if tensors[number].name in overridden:
            del tensors[number]
    for now, before in enumerate(kept):
        if before in found.weights:
            yield now, found.weights[before]


def ranked(opened: Opened, dims: Mapping[str, Dim]) -> tuple[Opened, dict[str, Dim]]:
    """The model with the ranks that `dims` gives to inputs without a shape, and the other dims.

    Raises OptionError for what is no rank.
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

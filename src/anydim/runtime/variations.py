"""Variations of a model: calls may need what its file does not fix, each compiled separately.

A call may override an initializer that the graph lists among its inputs (since IR version 4, as in
onnxruntime), and it determines the rank of an input without a declared shape. The model of a
variation is compiled on its first call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

import numpy

from anydim.base.errors import InputError
from anydim.base.fork_locks import fork_lock
from anydim.base.records import dataclass

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
        self._lock = fork_lock(self, "_lock", threading.RLock)

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

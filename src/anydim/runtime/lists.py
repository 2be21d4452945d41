"""Lists of arrays as two arrays: concatenated elements, and the shape of each array.

Ragged batches (`ragged.py`) are such lists, too, with the sizes of all rows in one array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy

from anydim.base.dtypes import DType, from_numpy
from anydim.base.errors import DimError, InputError
from anydim.base.records import dataclass
from anydim.runtime.signature import TensorSpec
from anydim.sizes import Box, Dim, Size


@dataclass(frozen=True)
class Listed:
    """A list of arrays as two values: elements [total] and shapes [count, rank].

    The elements of all arrays are concatenated, each array in row-major order. With `optional`, the
    list has at most one array: the user sees it, or None. With `single` it has exactly one, and
    `shapes` is its shape [rank], whose length may differ between calls.
    """

    elements: str
    shapes: str
    optional: bool = False
    single: bool = False

    @property
    def hidden(self) -> tuple[str, ...]:
        """The inputs or results of the program that users do not see."""
        return (self.shapes,)


@dataclass(frozen=True)
class RowTable:
    """The inputs of a program that describe the rows of a ragged batch.

    `rows` is int64 [rows, units + dims]: the first index of a row in each unit, then its size of
    each ragged dim. `sums` is int64: the total of each unit of `summed`, which no input determines,
    then the largest size of each ragged dim. `totals` and `longest` are the names of these dims.
    """

    rows: str
    sums: str
    dims: tuple[Dim, ...]
    longest: tuple[str, ...]
    units: tuple[Size, ...]
    totals: tuple[str, ...]
    summed: tuple[str, ...]


@dataclass(frozen=True)
class RaggedPort:
    """An input or output that users see as a ragged batch.

    The program has the value `values` for it: all rows along axis 0, or, when `flat`, all elements
    in one axis. `shape` is the shape of a row, over the ragged dims and others. `counted` is the
    size of a row's part of `values`. An input that is `ones` is not in the program: it marks
    padding, of which there is none.
    """

    values: str
    table: RowTable
    shape: tuple[Size, ...]
    counted: Size
    flat: bool = False
    ones: bool = False

    @property
    def elements(self) -> str:
        """The value of the program with the elements, as of a list."""
        return self.values

    @property
    def hidden(self) -> tuple[str, ...]:
        """The inputs of the program that users do not see."""
        return self.table.rows, self.table.sums


@dataclass(frozen=True)
class FieldPort:
    """A field of a constructor: the program has an input `values` for it.

    A tensor field has `values` [nodes, shape...]. A field of structure type `type` has int64
    [nodes]: the nodes of this type that it refers to. If it has any number of structures, `values`
    has those of all nodes one after another, and `offsets` names the input int64 [nodes + 1] with
    the first one of each node.
    """

    name: str
    values: str
    type: str = ""
    shape: tuple[Size, ...] = ()
    offsets: str = ""


@dataclass(frozen=True)
class ConstructorPort:
    """A constructor of a structure type; without fields it has exactly one node."""

    name: str
    fields: tuple[FieldPort, ...]


@dataclass(frozen=True)
class TypePort:
    """A structure type. Its nodes are numbered constructor after constructor."""

    name: str
    constructors: tuple[ConstructorPort, ...]


@dataclass(frozen=True)
class StructurePort:
    """An input that users see as structures, a forest: `roots`, int64 [trees], are nodes of `type`.

    Results of the program have an axis of trees in front.
    """

    type: str
    types: tuple[TypePort, ...]
    roots: str

    @property
    def elements(self) -> str:
        """The input of the program that tells the number of trees."""
        return self.roots

    @property
    def hidden(self) -> tuple[str, ...]:
        """The other inputs of the program, which users do not see."""
        fields = (f for t in self.types for c in t.constructors for f in c.fields)
        return tuple(name for f in fields for name in (f.values, f.offsets) if name)


def pack(
    name: str, arrays: Sequence[numpy.ndarray], dtype: DType, rank: int | None
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Convert a list to (elements [total], shapes int64 [count, rank]).

    Without `rank`, all arrays have the rank of the first one. Raises InputError for a wrong array.
    """
    if isinstance(arrays, numpy.ndarray) or not isinstance(arrays, (list, tuple)):
        raise InputError(f"input '{name}' is {type(arrays).__name__}, expected a list of arrays")
    held = [numpy.asarray(array) for array in arrays]
    if rank is None:
        rank = held[0].ndim if held else 0
    for number, array in enumerate(held):
        if from_numpy(array.dtype) != dtype or array.ndim != rank:
            raise InputError(
                f"input '{name}', array {number}: got {array.dtype} with {array.ndim} axes, "
                f"expected {dtype} with {rank}"
            )
    shapes = numpy.array([array.shape for array in held], numpy.int64).reshape(len(held), rank)
    flat = [array.reshape(-1) for array in held]
    return numpy.concatenate(flat) if flat else numpy.zeros(0, dtype.numpy), shapes


Lists = Mapping[str, Listed | RaggedPort | StructurePort]


class Conversion:
    """Converts between what the user sees and what the program takes; made once for all calls.

    `specs` are the inputs of the program by name, `box` has the bounds of its dims.
    """

    def __init__(self, model: str, lists: Lists, specs: Mapping[str, TensorSpec], box: Box) -> None:
        self._lists, self._specs, self._packing, self._forests = lists, specs, None, None
        if any(isinstance(parts, StructurePort) for parts in lists.values()):
            inputs: Any = import_module("anydim.runtime.structure_inputs")
            self._forests = inputs.Forests(model, lists, specs, box)
        if any(isinstance(parts, RaggedPort) for parts in lists.values()):
            packing: Any = import_module("anydim.runtime.ragged").Packing(model, lists, specs)
            self._packing = packing

    @property
    def packing(self) -> Any:
        """The conversions of ragged batches; None if there are none."""
        return self._packing

    @property
    def forests(self) -> Any:
        """The conversions of structures; None if there are none."""
        return self._forests

    def run(
        self, call: Callable[[dict[str, Any]], dict[str, Any]], given: Mapping[str, Any],
        out: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Call the program with converted inputs; the results as the user sees them.

        `out` are arrays for the results of an executable with ragged batches.
        """
        if self._forests is not None:
            feeds, single = self._forests.packed(given)
            try:
                results = self._run(call, feeds, out)
            except DimError as error:
                raise self._forests.explained(error, feeds) from None
            return dict(self._forests.unpacked(results, single))
        return self._run(call, dict(given), out)

    def _run(
        self, call: Callable[[dict[str, Any]], dict[str, Any]], feeds: dict[str, Any], out: Any
    ) -> dict[str, Any]:
        """As `run`, for arrays of structures."""
        for name, parts in self._lists.items():
            if isinstance(parts, Listed) and name in feeds and parts.elements in self._specs:
                arrays = feeds.pop(name)
                if parts.optional:
                    arrays = [] if arrays is None else [arrays]
                rank = self._specs[parts.shapes].shape[1].constant
                both = pack(name, arrays, self._specs[parts.elements].dtype, rank)
                feeds[parts.elements], feeds[parts.shapes] = both
        if self._packing is None:
            return seen(call(feeds), self._lists)
        feeds, *rows = self._packing.packed(feeds)
        packing = self._packing
        results: dict[str, Any]
        if out is None:
            results = packing.unpacked(call(feeds), *rows)
        else:
            made: Any = import_module("anydim.runtime.ragged_results").RaggedOutput
            filled = made(call, packing, out, *rows).filled
            results = filled(feeds, lambda results: packing.unpacked(results, *rows))
        return results


def seen(results: dict[str, Any], lists: Mapping[str, Any]) -> dict[str, Any]:
    """Convert results to what the user sees, in their order."""
    listed = {name: parts for name, parts in lists.items() if isinstance(parts, Listed)}
    found, of = {}, {parts.elements: name for name, parts in listed.items()}
    hidden = {parts.shapes for parts in listed.values()}
    for key, value in results.items():
        if key in of:
            parts = listed[of[key]]
            found[of[key]] = _seen(value, results[parts.shapes], parts)
        elif key not in hidden:
            found[key] = value
    return found


def _seen(elements: numpy.ndarray, shapes: numpy.ndarray, parts: Listed) -> Any:
    if parts.single:
        return elements.reshape(shapes)
    arrays = unpack(elements, shapes)
    return arrays if not parts.optional else arrays[0] if arrays else None


def unpack(elements: numpy.ndarray, shapes: numpy.ndarray) -> list[numpy.ndarray]:
    """Return the arrays of a list, each with memory of its own."""
    ends = numpy.cumsum(shapes.prod(axis=1))
    parts = numpy.split(elements, ends[:-1]) if len(shapes) else []
    return [part.reshape(shape).copy() for part, shape in zip(parts, shapes)]

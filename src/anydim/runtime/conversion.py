"""Converts lists, ragged batches and structures to the arrays of a program, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy

from anydim.base.dtypes import DType, from_numpy
from anydim.base.errors import DimError, InputError
from anydim.runtime.lists import Listed, Lists, RaggedPort, StructurePort
from anydim.runtime.signature import TensorSpec
from anydim.sizes import Box

if TYPE_CHECKING:  # imported if a model has such inputs
    from anydim.runtime.executable import Executable
    from anydim.runtime.ragged import Packing
    from anydim.runtime.structure_inputs import Forests


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


class Conversion:
    """Converts between what the user sees and what the program takes; made once for all calls.

    `specs` are the inputs of the program by name, `box` has the bounds of its dims.
    """

    def __init__(self, model: str, lists: Lists, specs: Mapping[str, TensorSpec], box: Box) -> None:
        self._lists, self._specs = lists, specs
        self._packing: Packing | None = None
        self._forests: Forests | None = None
        if any(isinstance(parts, StructurePort) for parts in lists.values()):
            from anydim.runtime.structure_inputs import Forests

            self._forests = Forests(model, lists, specs, box)
        if any(isinstance(parts, RaggedPort) for parts in lists.values()):
            from anydim.runtime.ragged import Packing

            self._packing = Packing(model, lists, specs)

    @property
    def packing(self) -> Packing | None:
        """The conversions of ragged batches; None if there are none."""
        return self._packing

    @property
    def forests(self) -> Forests | None:
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
            feeds, single = self._forests.pack(given)
            try:
                results = self._run(call, feeds, out)
            except DimError as error:
                raise self._forests.explain_error(error, feeds) from None
            return dict(self._forests.unpack(results, single))
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
            return visible_results(call(feeds), self._lists)
        packing = self._packing
        feeds, lengths, shared = packing.pack(feeds)
        results: dict[str, Any]
        if out is None:
            results = packing.unpack(call(feeds), lengths, shared)
        else:
            from anydim.runtime.ragged_results import RaggedOutput

            output = RaggedOutput(cast("Executable[Any]", call), packing, out, lengths, shared)
            results = output.fill_results(
                feeds, lambda results: packing.unpack(results, lengths, shared)
            )
        return results


def visible_results(results: dict[str, Any], lists: Mapping[str, Any]) -> dict[str, Any]:
    """Convert results to what the user sees, in their order."""
    listed = {name: parts for name, parts in lists.items() if isinstance(parts, Listed)}
    found, of = {}, {parts.elements: name for name, parts in listed.items()}
    hidden = {parts.shapes for parts in listed.values()}
    for key, value in results.items():
        if key in of:
            parts = listed[of[key]]
            found[of[key]] = _list_arrays(value, numpy.asarray(results[parts.shapes]), parts)
        elif key not in hidden:
            found[key] = value
    return found


def _list_arrays(elements: numpy.ndarray, shapes: numpy.ndarray, parts: Listed) -> Any:
    if parts.single:
        return elements.reshape(tuple(shapes.tolist()))
    arrays = unpack(elements, shapes)
    return arrays if not parts.optional else arrays[0] if arrays else None


def unpack(elements: Any, shapes: numpy.ndarray) -> list[Any]:
    """Return the arrays of a list, each with memory of its own, of the library of `elements`."""
    ends = numpy.cumsum(shapes.prod(axis=1)).tolist()
    parts = zip([0, *ends], ends, shapes.tolist())
    found = (elements[start:end].reshape(tuple(shape)) for start, end, shape in parts)
    return [each.copy() if isinstance(each, numpy.ndarray) else each.clone() for each in found]

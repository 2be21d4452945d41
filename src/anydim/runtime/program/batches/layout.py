"""Batching of inputs into one call, and splitting of its results.

An item is the input of one call: an array per input, with a batch axis (any number of rows) or
without it (a single row). Items of a group are concatenated along that axis and padded to the
longest along padded dims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from hashlib import blake2b
from typing import Any

import numpy

from anydim.base.errors import DimError, InputError, UserError
from anydim.base.records import dataclass
from anydim.base.text import quote_list, suggestion
from anydim.runtime.arrays import Wrap, plain, rank_of, wrapper
from anydim.runtime.program.binding import Source
from anydim.runtime.signature import Signature, TensorSpec

Arrays = Mapping[str, numpy.ndarray]
_KNOWN = 4096  # shapes of items whose sizes are kept
_ALIKE = 1e-3  # tolerance, relative to the largest element of a result


@dataclass(frozen=True)
class ItemArrays:
    """The arrays of an item, with a batch axis, and the sizes of its dims.

    `single`: it was given without that axis; `wrap` converts results to the library of its inputs.
    `shared` identifies the contents of inputs without a batch axis, which a group shares.
    """

    number: int
    arrays: tuple[numpy.ndarray, ...]
    sizes: Mapping[str, int]
    single: bool
    shared: bytes
    wrap: Wrap | None


@dataclass(frozen=True)
class Layout:
    """The batch axis of inputs and outputs, the padded dims, and their fill values.

    Without a `batch`, every item is a call of its own.
    """

    signature: Signature
    batch: str | None
    axes: tuple[int | None, ...]  # batch axis of each input
    results: tuple[tuple[TensorSpec, int | None], ...]  # requested results and their batch axes
    fills: Mapping[str, Any]
    padded: tuple[str, ...]
    sources: tuple[Source, ...]
    known: dict[tuple[tuple[int, ...], ...], dict[str, int]] = field(
        default_factory=dict, compare=False, repr=False
    )  # sizes by the shapes of an item

    # ---- items ---------------------------------------------------------------------------------

    def read_item(self, number: int, given: Any) -> ItemArrays:
        """Convert a given item; raises InputError or DimError that name it."""
        try:
            return self._read_item(number, given)
        except UserError as error:
            raise error_of_item(number, error) from None

    def _read_item(self, number: int, given: Any) -> ItemArrays:
        specs = self.signature.inputs
        values = input_values(given, self.signature.name, [spec.name for spec in specs])
        single = self.batch is not None and all(
            axis is None or rank_of(value) == spec.rank - 1
            for value, spec, axis in zip(values, specs, self.axes)
        )
        arrays, shared = [], []
        for value, spec, axis in zip(values, specs, self.axes):
            if single and axis is not None:
                row = replace(spec, shape=_other(spec.shape, axis))
                array = plain(value, row, spec.dtype.numpy, self.signature.name)
                arrays.append(numpy.expand_dims(array, axis))
            else:
                arrays.append(plain(value, spec, spec.dtype.numpy, self.signature.name))
            if axis is None and self.batch is not None:
                shared.append(blake2b(arrays[-1].tobytes()).digest())
        shapes = tuple([array.shape for array in arrays])
        sizes = self.known.get(shapes)
        if sizes is None:
            sizes = self._sizes(arrays)
            if len(self.known) >= _KNOWN:
                self.known.clear()
            self.known[shapes] = sizes
        return ItemArrays(number, tuple(arrays), sizes, single, b"".join(shared), wrapper(values))

    def _sizes(self, arrays: Sequence[numpy.ndarray]) -> dict[str, int]:
        """Return the sizes of the dims; raises DimError if they disagree or exceed their bounds.

        The batch is not checked here: its bounds apply to groups.
        """
        sizes: dict[str, int] = {}
        for source in self.sources:
            size = arrays[source.input].shape[source.axis]
            rest, factor = source.rest.evaluate(sizes), source.factor.evaluate(sizes)
            sizes[source.dim] = (size - rest) // factor if factor else 0
        for spec, array in zip(self.signature.inputs, arrays):
            for axis, (size, actual) in enumerate(zip(spec.shape, array.shape)):
                wanted = size.evaluate(sizes)
                if wanted != actual:
                    raise DimError(
                        f"input '{spec.name}' has size {actual} on axis {axis}, "
                        f"expected {size} = {wanted}",
                        f"its shape is [{', '.join(map(str, spec.shape))}]",
                    )
        for dim in self.signature.box.dims:
            if dim.name in sizes and dim.name != self.batch and sizes[dim.name] not in dim:
                raise DimError(
                    f"dim '{dim.name}' is {sizes[dim.name]}, outside its bounds {dim.range}"
                )
        return sizes

    # ---- groups --------------------------------------------------------------------------------

    def call_sizes(self, items: Sequence[ItemArrays]) -> dict[str, int]:
        """Return the sizes of a call with these items."""
        sizes = dict(items[0].sizes)
        for name in self.padded:
            sizes[name] = max(item.sizes[name] for item in items)
        if self.batch is not None:
            sizes[self.batch] = sum(item.sizes[self.batch] for item in items)
        return sizes

    def join_inputs(
        self, items: Sequence[ItemArrays], sizes: Mapping[str, int]
    ) -> dict[str, numpy.ndarray]:
        """Return the inputs of a call with these items and sizes."""
        specs = self.signature.inputs
        return {
            spec.name: self._join_input(spec, axis, [item.arrays[number] for item in items], sizes)
            for number, (spec, axis) in enumerate(zip(specs, self.axes))
        }

    def _join_input(
        self, spec: TensorSpec, axis: int | None, parts: Sequence[numpy.ndarray],
        sizes: Mapping[str, int],
    ) -> numpy.ndarray:  # fmt: skip
        if len(parts) == 1 or axis is None:
            return parts[0]
        shape = tuple(size.evaluate(sizes) for size in spec.shape)
        kept = _other(shape, axis)
        if all(_other(part.shape, axis) == kept for part in parts):
            return numpy.concatenate(parts, axis)
        whole = numpy.full(shape, self.fills[spec.name], spec.dtype.numpy)
        begin = 0
        for part in parts:
            place = [slice(size) for size in part.shape]
            place[axis] = slice(begin, begin + part.shape[axis])
            whole[tuple(place)] = part
            begin += part.shape[axis]
        return whole

    def split_results(
        self, outputs: Arrays, items: Sequence[ItemArrays], sizes: Mapping[str, int]
    ) -> list[dict[str, Any]]:
        """Return the results of each item as separate arrays."""
        begin, found = 0, []
        for item in items:
            rows = 0 if self.batch is None else item.sizes[self.batch]
            found.append({
                spec.key: self._own(outputs[spec.key], spec, axis, item, begin, len(items) == 1)
                for spec, axis in self.results
            })  # fmt: skip
            begin += rows
        return found

    def _own(
        self, output: numpy.ndarray, spec: TensorSpec, axis: int | None, item: ItemArrays,
        begin: int, alone: bool,
    ) -> Any:  # fmt: skip
        place: list[slice | int] = [slice(None)] * spec.rank
        if axis is not None and self.batch is not None:
            for number, size in enumerate(spec.shape):
                if not alone and size.symbols & set(self.padded):
                    place[number] = slice(size.evaluate(item.sizes))
            place[axis] = begin if item.single else slice(begin, begin + item.sizes[self.batch])
        part = output[tuple(place)]
        made = part if alone else part.copy()
        return made if item.wrap is None else item.wrap(made)


def input_values(
    given: Any, model: str, names: Sequence[str], optional: Sequence[str] = ()
) -> list[Any]:
    """Return the values of an item by input; None for `optional` ones that it does not have."""
    if type(given) is dict or isinstance(given, Mapping):  # the first is fast
        count = len(names)
        if optional:
            count += sum(map(given.__contains__, optional))
        if len(given) != count or not all(map(given.__contains__, names)):
            raise _wrong_names(given, model, names, optional)
        found = [given[name] for name in names]
        return found + [given.get(name) for name in optional] if optional else found
    values = list(given) if isinstance(given, tuple) else [given]
    if len(values) != len(names):
        noun = "input" if len(names) == 1 else "inputs"
        raise InputError(
            f"{model} has {len(names)} {noun}, got {len(values)}",
            f"give a mapping or a tuple of {quote_list(names)}",
        )
    return values + [None] * len(optional)


def _wrong_names(
    given: Mapping[str, Any], model: str, names: Sequence[str], optional: Sequence[str]
) -> InputError:
    """Return the error of an item that lacks an input, or has one too many."""
    every = (*names, *optional)
    other = next((name for name in given if name not in every), None)
    if other is not None:
        hint = suggestion(str(other), every) or f"its inputs are {quote_list(every)}"
        return InputError(f"{model} has no input '{other}'", hint)
    missing = next(name for name in names if name not in given)
    return InputError(f"{model} needs input '{missing}'", f"its inputs are {quote_list(names)}")


def error_of_item(number: int, error: UserError) -> UserError:
    """Prefix an error with the number of its item."""
    return type(error)(f"item {number}: {error.problem}", error.hint)


def differing_result(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str | None:
    """Return the first result that differs by more than rounding, or None."""
    for name, one in found.items():
        left, right = numpy.asarray(one), numpy.asarray(expected[name])
        if left.dtype.kind not in "fc":
            same = numpy.array_equal(left, right)
        else:
            scale = numpy.abs(right[numpy.isfinite(right)]).max(initial=0.0)
            same = numpy.allclose(left, right, rtol=_ALIKE, atol=_ALIKE * scale, equal_nan=True)
        if not same:
            return name
    return None


def _other(shape: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    return shape[:axis] + shape[axis + 1 :]

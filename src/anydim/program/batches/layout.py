"""How inputs of a model are put together for one call, and its results taken apart again.

An item is what a call takes for itself: an array for each input, with an axis of the batch (any
number of rows) or without one (a single row). Items of a group are put together along that axis;
along the axes of padded dims they are filled up to the longest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy

from anydim.base.errors import DimError, InputError, UserError
from anydim.base.records import dataclass
from anydim.base.text import listed, suggestion
from anydim.program.binding import Source
from anydim.runtime.arrays import Wrap, plain, wrapper
from anydim.runtime.signature import Signature, TensorSpec

Arrays = Mapping[str, numpy.ndarray]
_ALIKE = 1e-3  # of the largest element of a result: what other rows may change in it


@dataclass(frozen=True)
class Item:
    """The arrays of one item, with an axis of the batch, and the sizes of its dims.

    `single` says that it came without that axis; `wrap` makes of a result what its inputs were.
    `shared` tells the contents of inputs without that axis: a group has one of each.
    """

    number: int
    arrays: tuple[numpy.ndarray, ...]
    sizes: Mapping[str, int]
    single: bool
    shared: bytes
    wrap: Wrap | None


@dataclass(frozen=True)
class Layout:
    """Where the batch lies in inputs and outputs, which dims are padded, and with what.

    Without a `batch`, every item is a call of its own.
    """

    signature: Signature
    batch: str | None
    axes: tuple[int | None, ...]  # of the batch in each input
    results: tuple[tuple[TensorSpec, int | None], ...]  # the wanted ones, and theirs
    fills: Mapping[str, Any]
    padded: tuple[str, ...]
    sources: tuple[Source, ...]

    # ---- items ---------------------------------------------------------------------------------

    def item(self, number: int, given: Any) -> Item:
        """An item as it was given; raises InputError or DimError, which name it."""
        try:
            return self._item(number, given)
        except UserError as error:
            raise of_item(number, error) from None

    def _item(self, number: int, given: Any) -> Item:
        values = self._values(given)
        specs = self.signature.inputs
        single = self.batch is not None and all(
            axis is None or _rank(value) == spec.rank - 1
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
        sizes = self._sizes(arrays)
        return Item(number, tuple(arrays), sizes, single, b"".join(shared), wrapper(values))

    def _values(self, given: Any) -> list[Any]:
        """One value for each input."""
        names = [spec.name for spec in self.signature.inputs]
        if isinstance(given, Mapping):
            other = next((name for name in given if name not in names), None)
            missing = next((name for name in names if name not in given), None)
            if other is not None:
                hint = suggestion(str(other), names) or f"its inputs are {listed(names)}"
                raise InputError(f"{self.signature.name} has no input '{other}'", hint)
            if missing is not None:
                raise InputError(f"{self.signature.name} needs input '{missing}'",
                                 f"its inputs are {listed(names)}")  # fmt: skip
            return [given[name] for name in names]
        values = list(given) if isinstance(given, tuple) else [given]
        if len(values) != len(names):
            raise InputError(
                f"{self.signature.name} has {len(names)} inputs, {len(values)} came",
                f"give a mapping or a tuple of {listed(names)}",
            )
        return values

    def _sizes(self, arrays: Sequence[numpy.ndarray]) -> dict[str, int]:
        """The sizes of the dims; raises DimError where they disagree or leave their bounds.

        The batch has no bounds yet: they are those of a group.
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

    def together(self, items: Sequence[Item]) -> dict[str, int]:
        """The sizes of a call with all of these items."""
        sizes = dict(items[0].sizes)
        for name in self.padded:
            sizes[name] = max(item.sizes[name] for item in items)
        if self.batch is not None:
            sizes[self.batch] = sum(item.sizes[self.batch] for item in items)
        return sizes

    def stacked(self, items: Sequence[Item], sizes: Mapping[str, int]) -> dict[str, numpy.ndarray]:
        """The inputs of a call with these items, which has these sizes."""
        specs = self.signature.inputs
        return {
            spec.name: self._joined(spec, axis, [item.arrays[number] for item in items], sizes)
            for number, (spec, axis) in enumerate(zip(specs, self.axes))
        }

    def _joined(
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

    def apart(
        self, outputs: Arrays, items: Sequence[Item], sizes: Mapping[str, int]
    ) -> list[dict[str, Any]]:
        """The results of each item, arrays of their own."""
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
        self, output: numpy.ndarray, spec: TensorSpec, axis: int | None, item: Item, begin: int,
        alone: bool,
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


def of_item(number: int, error: UserError) -> UserError:
    """An error, said of an item."""
    return type(error)(f"item {number}: {error.problem}", error.hint)


def alike(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str | None:
    """The first result that differs by more than rounding; None where all agree."""
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


def _rank(value: Any) -> int:
    rank = getattr(value, "ndim", None)
    return numpy.ndim(value) if rank is None else int(rank)


def _other(shape: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    return shape[:axis] + shape[axis + 1 :]

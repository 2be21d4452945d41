"""Reads the inputs of ragged models: rows of any sizes, alone or several at once, and masks."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy

from anydim.base.dtypes import from_numpy
from anydim.base.errors import InputError
from anydim.base.records import dataclass
from anydim.runtime.arrays import as_array, plain, rank_of
from anydim.runtime.lists import RaggedPort
from anydim.runtime.program.batches.map_arguments import axis_of
from anydim.runtime.ragged import Packing, Ragged
from anydim.runtime.signature import TensorSpec
from anydim.sizes import Size

MOST_ROWS = 1 << 16  # of a request
_SHORT = 1 << 12  # bytes of a mask that is compared as bytes


@dataclass(frozen=True)
class RowInput:
    """An input of a ragged model; `row` describes one row of it, without the batch axis.

    An input without a `port` is not ragged. An input without an `axis` has no batch axis: all rows
    of a call share it. A mask has a port and no `dtype`.
    """

    row: TensorSpec
    dtype: numpy.dtype | None
    port: RaggedPort | None
    axis: int | None

    def read_row(self, value: Any, model: str) -> tuple[numpy.ndarray, bool]:
        """Returns the array of a row, and whether it came without the batch axis."""
        if type(value) is numpy.ndarray and value.dtype == self.dtype:
            if value.ndim == len(self.row.shape):  # `rank` takes a tenth of a microsecond more
                return value, True
        if self.dtype is None:
            value = as_array(value, f"input '{self.row.name}' of {model}")
        row, axis = self.row, self.axis
        is_single = axis is None or rank_of(value) != row.rank + 1
        if axis is not None and not is_single:
            shape = list(row.shape)
            shape.insert(axis, Size.symbol("batch"))
            row = replace(row, shape=tuple(shape))
        array = plain(value, row, self.dtype or value.dtype, model)
        if axis is None or is_single:
            return array, is_single
        if array.shape[axis] != 1:
            raise InputError(
                f"input '{row.name}' has {array.shape[axis]} rows, and an item is one row",
                "give each row as an item",
            )
        return array.squeeze(axis), False

    def read_rows(self, value: Any, model: str) -> tuple[list[numpy.ndarray], bool]:
        """Returns the rows of an array or a list, and whether it is one row without batch axis."""
        if type(value) is numpy.ndarray and value.dtype == self.dtype and not self.axis:
            if value.ndim == self.row.rank:
                return [value], True
            if value.ndim == self.row.rank + 1 and 0 < len(value) <= MOST_ROWS:
                return list(value), False
        if _is_list_of_rows(value):
            return [self.read_row(row, model)[0] for row in value], False
        name = self.row.name
        array = as_array(value, f"input '{name}' of {model}")
        if array.ndim != self.row.rank + 1:
            return [self.read_row(value, model)[0]], True
        if self.axis:
            array = numpy.moveaxis(array, self.axis, 0)
        count = len(array)
        if count > MOST_ROWS:
            raise InputError(
                f"{model}: input '{name}' has {count} rows, at most {MOST_ROWS} are taken",
                "split the request",
            )
        if count == 0 and self.dtype is not None and array.dtype != self.dtype:
            raise InputError(f"{model}: input '{name}' is {array.dtype}, expected {self.dtype}")
        return [self.read_row(array[number], model)[0] for number in range(count)], False


def row_input(packing: Packing, name: str) -> RowInput:
    """Returns the record of an input of a ragged model."""
    port = packing.inputs.get(name)
    if port is None:
        spec, batch = packing.specs[name], packing.rows_dim
        has = any(batch in size.symbols for size in spec.shape)
        axis = axis_of(packing.model, "input", spec, batch) if has else None
        shape = tuple(size for place, size in enumerate(spec.shape) if place != axis)
        return RowInput(replace(spec, shape=shape), spec.dtype.numpy, None, axis)
    dtype = None if port.ones else packing.specs[port.values].dtype
    row = TensorSpec(name, dtype or from_numpy(numpy.dtype(bool)), port.shape)
    return RowInput(row, dtype.numpy if dtype else None, port, 0)


def _is_list_of_rows(value: Any) -> bool:
    """Whether a value is a list of arrays, or of lists of unequal lengths."""
    if not isinstance(value, (list, tuple, Ragged)) or not len(value):
        return False
    first = value[0]
    return hasattr(first, "ndim") or (
        isinstance(first, (list, tuple))
        and any(isinstance(row, (list, tuple)) and len(row) != len(first) for row in value)
    )


# ---- masks -----------------------------------------------------------------------------------


@lru_cache(1024)
def _bytes_of_ones(dtype: numpy.dtype, count: int) -> bytes:
    return numpy.ones(count, dtype).tobytes()


def is_all_ones(mask: numpy.ndarray) -> bool:
    """Whether all elements are 1; comparing bytes takes a fifth of the time of elements."""
    if mask.nbytes > _SHORT:
        return bool((mask == 1).all())
    return mask.tobytes() == _bytes_of_ones(mask.dtype, mask.size)


def count_leading_ones(mask: numpy.ndarray) -> int | None:
    """Returns how many ones a mask begins with; None if anything but zeros follows them."""
    count = int((mask == 1).sum())
    return count if (mask[:count] == 1).all() and not mask[count:].any() else None

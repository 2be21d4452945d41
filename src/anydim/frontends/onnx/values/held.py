"""What a name of a model stands for while it is imported, and what can be told of it.

Most names stand for one tensor. A sequence whose elements are known one by one is the list of
their values; any other sequence is two tensors, its elements one after another and their shapes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy

from anydim.base.dtypes import DType, from_numpy, int64
from anydim.base.records import dataclass
from anydim.lang.tree import TensorType
from anydim.sizes import Size, as_size


@dataclass(frozen=True)
class Known:
    """The contents of a value: numbers, or an object array with sizes among them."""

    array: numpy.ndarray
    dtype: DType

    @staticmethod
    def of(array: numpy.ndarray) -> Known:
        return Known(array, from_numpy(array.dtype))

    @staticmethod
    def sizes(sizes: Iterable[Size | int], dtype: DType = int64) -> Known:
        """A vector of sizes; plain numbers when all are constant."""
        return Known(plain(numpy.array([*map(as_size, sizes), None], object)[:-1], dtype), dtype)

    @staticmethod
    def size(size: Size | int, dtype: DType = int64) -> Known:
        """One size as a scalar."""
        return Known(Known.sizes([size], dtype).array.reshape(()), dtype)

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, tuple(as_size(size) for size in self.array.shape))


def plain(array: numpy.ndarray, dtype: DType) -> numpy.ndarray:
    """Numbers instead of sizes where all are constant."""
    constants = [size.constant for size in array.flat]
    if any(constant is None for constant in constants):
        return array
    return numpy.array(constants, dtype.numpy).reshape(array.shape)


@dataclass(frozen=True)
class Items:
    """A sequence whose elements are known one by one; `dtype` is theirs."""

    values: tuple[str, ...]
    dtype: DType


@dataclass(frozen=True)
class Packed:
    """A sequence as two tensors: elements [total] and shapes int64 [count, rank].

    `rank` None: the model does not say it, and it is a dim.
    """

    elements: str
    shapes: str
    rank: int | None


@dataclass(frozen=True)
class Maybe:
    """An optional value: what it holds, None when it holds nothing.

    `single`: only a run can tell; then the value is a packed sequence of at most one tensor.
    """

    value: Held | None
    single: bool = False


@dataclass(frozen=True)
class Ranked:
    """A result whose rank a call decides, as two tensors: elements [count] and shape [rank]."""

    elements: str
    shape: str


class Broken:
    """Stands for the results of a node that could not be imported."""


Held: TypeAlias = "str | Items | Packed | Maybe | Ranked | Broken"
Result: TypeAlias = "Held | Known"

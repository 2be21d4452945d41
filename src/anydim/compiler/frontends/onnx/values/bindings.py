"""Values that the names of a model are bound to during import, and facts about them.

Most names are bound to one tensor. A sequence with individually known elements is the list of their
values; any other sequence is two tensors, its concatenated elements and their shapes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy

from anydim.base.dtypes import DType, from_numpy, int64
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Constant
from anydim.lang.tree import TensorType
from anydim.sizes import Size, as_size


@dataclass(frozen=True)
class Known:
    """The contents of a value: numbers, or an object array with sizes."""

    array: numpy.ndarray
    dtype: DType

    @staticmethod
    def of(array: numpy.ndarray) -> Known:
        return Known(array, from_numpy(array.dtype))

    @staticmethod
    def sizes(sizes: Iterable[Size | int], dtype: DType = int64) -> Known:
        """A vector of sizes; plain numbers if all are constant."""
        return Known(plain(numpy.array([*map(as_size, sizes), None], object)[:-1], dtype), dtype)

    @staticmethod
    def size(size: Size | int, dtype: DType = int64) -> Known:
        """One size as a scalar."""
        return Known(Known.sizes([size], dtype).array.reshape(()), dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.array.shape

    @property
    def has_sizes(self) -> bool:
        """Whether the array holds sizes."""
        return self.array.dtype == object

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, tuple(map(as_size, self.shape)))

    def constant(self) -> Constant:
        """A constant of the numbers."""
        return Constant(self.array)


class KnownWeight(Known):
    """The contents of a small weight, or of what is derived from one.

    Who reads them decides by them (`graph/derivations.py`).
    """

    has_sizes = False

    def __init__(self, held: Constant) -> None:
        object.__setattr__(self, "held", held)
        object.__setattr__(self, "dtype", held.type.dtype)

    held: Constant

    @property
    def array(self) -> numpy.ndarray:
        """The contents."""
        return self.held.array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.held.shape

    def constant(self) -> Constant:
        """The constant, whose origin is known."""
        return self.held


def plain(array: numpy.ndarray, dtype: DType) -> numpy.ndarray:
    """Convert sizes to numbers if all are constant."""
    constants = [size.constant for size in array.flat]
    if any(constant is None for constant in constants):
        return array
    return numpy.array(constants, dtype.numpy).reshape(array.shape)


@dataclass(frozen=True)
class Items:
    """A sequence with individually known elements; `dtype` is their type."""

    values: tuple[str, ...]
    dtype: DType


@dataclass(frozen=True)
class Packed:
    """A sequence as two tensors: elements [total] and shapes int64 [count, rank].

    `rank` None: the model does not declare it, and it is a dim.
    """

    elements: str
    shapes: str
    rank: int | None


@dataclass(frozen=True)
class Maybe:
    """An optional value; None if it is empty.

    `single`: presence is known only at run time; the value is a packed sequence of at most one
    tensor.
    """

    value: Binding | None
    single: bool = False


@dataclass(frozen=True)
class Ranked:
    """A result of run-time rank, as two tensors: elements [count] and shape [rank]."""

    elements: str
    shape: str


class Broken:
    """The results of a node that could not be imported."""


Binding: TypeAlias = "str | Items | Packed | Maybe | Ranked | Broken"
Result: TypeAlias = "Binding | Known"

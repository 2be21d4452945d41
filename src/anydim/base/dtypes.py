"""Element types: one record each, with its numpy type and its place in the families."""

from __future__ import annotations

from dataclasses import dataclass

import numpy

from anydim.base.errors import InputError


@dataclass(frozen=True)
class DType:
    """An element type. `kind` is 'float', 'int', 'uint' or 'bool'; `bits` counts value bits."""

    name: str
    kind: str
    bits: int

    @property
    def bytes(self) -> int:
        """Bytes that one element takes in memory."""
        return max(1, self.bits // 8)

    @property
    def numpy(self) -> numpy.dtype:
        """The numpy type of the same layout."""
        return numpy.dtype(self.name)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    def __str__(self) -> str:
        return self.name


float64 = DType("float64", "float", 64)
float32 = DType("float32", "float", 32)
float16 = DType("float16", "float", 16)
int64 = DType("int64", "int", 64)
int32 = DType("int32", "int", 32)
int16 = DType("int16", "int", 16)
int8 = DType("int8", "int", 8)
uint64 = DType("uint64", "uint", 64)
uint32 = DType("uint32", "uint", 32)
uint16 = DType("uint16", "uint", 16)
uint8 = DType("uint8", "uint", 8)
boolean = DType("bool", "bool", 1)

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        float64, float32, float16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, boolean
    )
}  # fmt: skip


def from_numpy(dtype: numpy.dtype) -> DType:
    """The element type of a numpy array; raises InputError for a type anydim does not hold."""
    name = numpy.dtype(dtype).name
    if name not in DTYPES:
        known = ", ".join(DTYPES)
        raise InputError(f"dtype '{name}' is not supported", f"supported dtypes: {known}")
    return DTYPES[name]

"""Element types: one record each, with its numpy type and its kind.

Types that numpy lacks come from `ml_dtypes`, with the same names and memory layout: elements of
less than eight bits take one byte each, in its low bits.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache, cached_property
from importlib import import_module
from typing import Any

import numpy

from anydim.base.errors import InputError, OptionError
from anydim.base.records import dataclass
from anydim.base.text import suggestion
from anydim.base.user_values import short_repr


@dataclass(frozen=True)
class Format:
    """The encoding of a narrow float; codes are magnitudes, without the sign.

    A code with exponent field e and fraction f is (1 + f / 2^fraction) * 2^(e - bias), or
    f / 2^fraction * 2^(1 - bias) if e is 0. `largest` is the code of the largest number, `beyond`
    the code of larger ones (infinity, NaN or the largest), `nan` the code of NaN: with the sign if
    `signed_zero`, else only the code of negative zero. Without `sign` all eight bits are the
    exponent.
    """

    exponent: int
    fraction: int
    bias: int
    largest: int
    beyond: int
    nan: int
    signed_zero: bool = True
    sign: bool = True


@dataclass(frozen=True)
class DType:
    """An element type. `kind` is 'float', 'int', 'uint' or 'bool'; `bits` counts value bits.

    `stored` types can only be moved, selected and converted; arithmetic uses another type.
    """

    name: str
    kind: str
    bits: int
    stored: bool = False
    format: Format | None = None

    @cached_property
    def bytes(self) -> int:
        """Bytes of an element in memory."""
        return max(1, self.bits // 8)

    @property
    def numpy(self) -> numpy.dtype:
        """The numpy type of the same layout; OptionError if `ml_dtypes` is missing."""
        if not self.is_native:
            _teach_numpy()
        return numpy.dtype(self.name)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_native(self) -> bool:
        """Whether numpy has it without `ml_dtypes`."""
        return self.format is None and not self.stored

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest value of an integer type."""
        if self.kind == "int":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1

    def __hash__(self) -> int:
        return hash(self.name)  # hot; the other fields follow from the name

    def __str__(self) -> str:
        return self.name


@cache
def _teach_numpy() -> None:
    """Register the types of `ml_dtypes` with numpy."""
    try:
        import_module("ml_dtypes")
    except ImportError:
        raise OptionError(
            "this model has types that numpy lacks", "install the package 'ml_dtypes'"
        ) from None


def _stored_float(name: str, bits: int, format: Format) -> DType:
    return DType(name, "float", bits, True, format)


float64 = DType("float64", "float", 64)
float32 = DType("float32", "float", 32)
float16 = DType("float16", "float", 16)
bfloat16 = DType("bfloat16", "float", 16, False, Format(8, 7, 127, 0x7F7F, 0x7F80, 0x7FC0))
int64 = DType("int64", "int", 64)
int32 = DType("int32", "int", 32)
int16 = DType("int16", "int", 16)
int8 = DType("int8", "int", 8)
uint64 = DType("uint64", "uint", 64)
uint32 = DType("uint32", "uint", 32)
uint16 = DType("uint16", "uint", 16)
uint8 = DType("uint8", "uint", 8)
boolean = DType("bool", "bool", 1)
int4 = DType("int4", "int", 4, True)
uint4 = DType("uint4", "uint", 4, True)
int2 = DType("int2", "int", 2, True)
uint2 = DType("uint2", "uint", 2, True)
# OCP 8-bit floating point; FNUZ and the smaller ones as in ONNX and OCP microscaling formats
float8_e4m3fn = _stored_float("float8_e4m3fn", 8, Format(4, 3, 7, 0x7E, 0x7F, 0x7F))
float8_e4m3fnuz = _stored_float("float8_e4m3fnuz", 8, Format(4, 3, 8, 0x7F, 0x80, 0x80, False))
float8_e5m2 = _stored_float("float8_e5m2", 8, Format(5, 2, 15, 0x7B, 0x7C, 0x7E))
float8_e5m2fnuz = _stored_float("float8_e5m2fnuz", 8, Format(5, 2, 16, 0x7F, 0x80, 0x80, False))
float8_e8m0fnu = _stored_float("float8_e8m0fnu", 8, Format(8, 0, 127, 0xFE, 0xFF, 0xFF, sign=False))
float6_e2m3fn = _stored_float("float6_e2m3fn", 6, Format(2, 3, 1, 0x1F, 0x1F, 0x20))
float6_e3m2fn = _stored_float("float6_e3m2fn", 6, Format(3, 2, 3, 0x1F, 0x1F, 0x20))
float4_e2m1fn = _stored_float("float4_e2m1fn", 4, Format(2, 1, 1, 0x7, 0x7, 0x8))

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        float64, float32, float16, int64, int32, int16, int8, uint64, uint32, uint16, uint8,
        boolean, bfloat16, int4, uint4, int2, uint2, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2,
        float8_e5m2fnuz, float8_e8m0fnu, float6_e2m3fn, float6_e3m2fn, float4_e2m1fn,
    )
}  # fmt: skip


def from_numpy(dtype: numpy.dtype) -> DType:
    """The element type of a numpy array; raises InputError for a type anydim does not hold."""
    name = numpy.dtype(dtype).name
    if name not in DTYPES:
        known = ", ".join(DTYPES)
        raise InputError(f"dtype '{name}' is not supported", f"supported dtypes: {known}")
    return DTYPES[name]


def dtype_of(given: Any) -> DType:
    """The element type of a name ('float32') or numpy type; raises InputError for others."""
    if isinstance(given, DType):
        return given
    name = str(given) if isinstance(given, str) else None
    if given is not None and name is None:
        with suppress(Exception):  # any error of the object
            name = numpy.dtype(given).name
    if name not in DTYPES:
        hint = suggestion(name or "", DTYPES) or f"the types are {', '.join(DTYPES)}"
        raise InputError(f"there is no element type {short_repr(given)}", hint)
    return DTYPES[name]


def is_float(dtype: numpy.dtype) -> bool:
    """Whether a numpy type holds real numbers; `ml_dtypes` does not say so by its kind."""
    known = DTYPES.get(dtype.name)
    return dtype.kind == "f" if known is None else known.is_float


def convert_array(array: Any, wanted: numpy.dtype) -> Any:
    """numpy's astype between any two types, including those of `ml_dtypes`.

    Narrow floats are converted through float32, narrow integers through int32, keeping low bits.
    """
    have = numpy.asarray(array).dtype
    if have == wanted or have.name not in DTYPES or wanted.name not in DTYPES:
        return array.astype(wanted, copy=False)
    source, target = DTYPES[have.name], DTYPES[wanted.name]
    if not source.is_native and wanted.kind != "b":
        array = array.astype(numpy.float32 if source.is_float else numpy.int32)
    if target.is_native:
        return array.astype(wanted)
    return array.astype(numpy.float32 if target.is_float else numpy.int32).astype(wanted)


def array_of_numbers(value: Any, wanted: numpy.dtype) -> numpy.ndarray:
    """A Python number, or nested lists of numbers, as an array of type `wanted`.

    Python numbers have no width, so they take the requested type. Floats are rounded to it; values
    that an integer type or bool cannot hold raise TypeError, as text does, and lists of unequal
    lengths raise ValueError.
    """
    array = numpy.asarray(value)
    known = DTYPES.get(wanted.name)
    if array.dtype.kind not in "biuf" or known is None:
        whole = f"{short_repr(value)} is not a number" if array.ndim == 0 else "not all are numbers"
        raise TypeError(f"{whole} of at most 64 bits")
    with numpy.errstate(invalid="ignore"):
        taken = convert_array(array, wanted)
    if not known.is_float:
        back = convert_array(taken, array.dtype)
        changed = array[(back != array) | ((taken < 0) != (array < 0))]
        if changed.size:
            raise TypeError(f"{changed.ravel()[0]} is no {wanted.name}")
    return taken

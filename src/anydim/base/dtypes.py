"""Element types: one record each, with its numpy type and its place in the families.

Types that numpy lacks are those of `ml_dtypes`. They are named as there and lie in memory as
there: what takes fewer than eight bits has a byte of its own, in its low bits.
"""

from __future__ import annotations

from functools import cache, cached_property
from importlib import import_module
from typing import Any

import numpy

from anydim.base.errors import InputError, OptionError
from anydim.base.records import dataclass
from anydim.base.text import suggestion


@dataclass(frozen=True)
class Format:
    """How the bits of a narrow float are read; codes are magnitudes, without the sign.

    A code of exponent field e and fraction f is (1 + f / 2^fraction) * 2^(e - bias), or
    f / 2^fraction * 2^(1 - bias) where e is 0. `largest` is the code of the largest number,
    `beyond` what a larger one becomes (infinity, NaN or the largest), `nan` what NaN becomes: with
    the sign for `signed_zero`, else the one code of negative zero. Without `sign` all eight bits
    are an exponent.
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

    What is `stored` only can be moved, chosen and converted; arithmetic takes another type.
    """

    name: str
    kind: str
    bits: int
    stored: bool = False
    format: Format | None = None

    @cached_property
    def bytes(self) -> int:
        """Bytes that one element takes in memory."""
        return max(1, self.bits // 8)

    @property
    def numpy(self) -> numpy.dtype:
        """The numpy type of the same layout; OptionError where `ml_dtypes` is missing."""
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
        """The least and the largest value of an integer type."""
        if self.kind == "int":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1

    def __hash__(self) -> int:
        return hash(self.name)  # asked for often; the others follow from it

    def __str__(self) -> str:
        return self.name


@cache
def _teach_numpy() -> None:
    """Have numpy know the types of `ml_dtypes` by name."""
    try:
        import_module("ml_dtypes")
    except ImportError:
        raise OptionError(
            "this model has types that numpy lacks", "install the package 'ml_dtypes'"
        ) from None


def _stored(name: str, bits: int, format: Format) -> DType:
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
float8_e4m3fn = _stored("float8_e4m3fn", 8, Format(4, 3, 7, 0x7E, 0x7F, 0x7F))
float8_e4m3fnuz = _stored("float8_e4m3fnuz", 8, Format(4, 3, 8, 0x7F, 0x80, 0x80, False))
float8_e5m2 = _stored("float8_e5m2", 8, Format(5, 2, 15, 0x7B, 0x7C, 0x7E))
float8_e5m2fnuz = _stored("float8_e5m2fnuz", 8, Format(5, 2, 16, 0x7F, 0x80, 0x80, False))
float8_e8m0fnu = _stored("float8_e8m0fnu", 8, Format(8, 0, 127, 0xFE, 0xFF, 0xFF, sign=False))
float6_e2m3fn = _stored("float6_e2m3fn", 6, Format(2, 3, 1, 0x1F, 0x1F, 0x20))
float6_e3m2fn = _stored("float6_e3m2fn", 6, Format(3, 2, 3, 0x1F, 0x1F, 0x20))
float4_e2m1fn = _stored("float4_e2m1fn", 4, Format(2, 1, 1, 0x7, 0x7, 0x8))

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
    """An element type of its name ('float32') or numpy's; raises InputError for what is none."""
    if isinstance(given, DType):
        return given
    try:
        name = given if isinstance(given, str | None) else numpy.dtype(given).name
    except TypeError:
        name = None
    if name not in DTYPES:
        hint = suggestion(name or "", DTYPES) or f"the types are {', '.join(DTYPES)}"
        raise InputError(f"there is no element type {_short(given)}", hint)
    return DTYPES[name]


def is_float(dtype: numpy.dtype) -> bool:
    """Whether a numpy type holds real numbers; `ml_dtypes` does not say so by its kind."""
    known = DTYPES.get(dtype.name)
    return dtype.kind == "f" if known is None else known.is_float


def converted(array: Any, wanted: numpy.dtype) -> Any:
    """numpy's astype between any two types, those of `ml_dtypes` included.

    Narrow floats are reached through float32, narrow integers through int32, whose low bits stay.
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


def of_numbers(value: Any, wanted: numpy.dtype) -> numpy.ndarray:
    """A Python number, or nested lists of numbers, as an array of type `wanted`.

    Numbers of Python have no width, so they take the type that is asked for. Floats are rounded to
    it; what an integer type or bool does not hold raises TypeError, as text does, and lists of
    unequal lengths raise ValueError.
    """
    array = numpy.asarray(value)
    known = DTYPES.get(wanted.name)
    if array.dtype.kind not in "biuf" or known is None:
        whole = f"{_short(value)} is no number" if array.ndim == 0 else "not all are numbers"
        raise TypeError(f"{whole} of at most 64 bits")
    with numpy.errstate(invalid="ignore"):
        taken = converted(array, wanted)
    if not known.is_float:
        back = converted(taken, array.dtype)
        changed = array[(back != array) | ((taken < 0) != (array < 0))]
        if changed.size:
            raise TypeError(f"{changed.ravel()[0]} is no {wanted.name}")
    return taken


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."

"""DLPack exchange of element types that numpy does not support: bfloat16, float8, sub-byte types.

A capsule stores its element type as a code and a number of bits. numpy rejects the codes of these
types, so the code in the capsule is replaced by that of unsigned integers of the same width in
both directions. The memory is shared, never copied.
https://dmlc.github.io/dlpack/latest/c_api.html
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy

from anydim.base.dtypes import DTYPES, DType

_UNSIGNED = 1
_KINDS = {"int": 0, "uint": _UNSIGNED, "float": 2, "bool": 6}
_CODES = {
    "bfloat16": 4, "float8_e4m3fn": 10, "float8_e4m3fnuz": 11, "float8_e5m2": 12,
    "float8_e5m2fnuz": 13, "float8_e8m0fnu": 14,
}  # fmt: skip
_NAMES = {code: name for name, code in _CODES.items()}
_TYPE_AT = 20  # of code, bits and lanes in a DLTensor: after data, device and the number of axes
_EXCHANGE, _MAJOR = b"dlpack_exchange_api", 1  # the name of its capsules, and DLPack's version
_VERSIONED_AT = 32  # of the DLTensor in a DLManagedTensorVersioned: after version, context,
# deleter and flags

_SAYS_READ_ONLY = numpy.lib.NumpyVersion(numpy.__version__) >= "2.1.0"

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, (ctypes.py_object,)


class Exchange(ctypes.Structure):
    """DLPackExchangeAPI: the C functions of a tensor class."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p), ("export", ctypes.c_void_p), ("wrap", ctypes.c_void_p),
        ("view", ctypes.c_void_p), ("stream", ctypes.c_void_p),
    )  # fmt: skip


def exchange_of(kind: type) -> Exchange | None:
    """Return the C functions of a tensor class; None if any that a call needs is missing."""
    capsule = kind.__dict__.get("__dlpack_c_exchange_api__")
    if type(capsule).__name__ != "PyCapsule" or _name(capsule) != _EXCHANGE:
        return None
    found = Exchange.from_address(_pointer(capsule, _EXCHANGE))
    whole = found.major == _MAJOR and found.view and found.wrap
    return found if whole else None


class _Element(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


def _element(capsule: Any) -> _Element:
    """Return the element type field of a capsule, writable in place."""
    name = _name(capsule)
    start = _VERSIONED_AT if name == b"dltensor_versioned" else 0
    return _Element.from_address(_pointer(capsule, name) + start + _TYPE_AT)


class _Handed:
    """An object that exports a given capsule through `__dlpack__`."""

    def __init__(self, capsule: Any, device: tuple[int, int]) -> None:
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def _capsule(value: Any) -> Any:
    """Export a capsule: a versioned one, with a read-only flag, if both sides support it.

    numpy treats the memory of unversioned capsules as read-only.
    """
    if _SAYS_READ_ONLY:
        try:
            return value.__dlpack__(max_version=(1, 0))
        except TypeError:
            pass
    return value.__dlpack__()


def is_read_only(value: Any, array: numpy.ndarray) -> bool:
    """Whether the library of a DLPack array marks it read-only; `array` views its memory.

    An unversioned capsule has no such flag and counts as writable.
    """
    return not array.flags.writeable and _name(_capsule(value)) == b"dltensor_versioned"


def import_array(value: Any) -> numpy.ndarray:
    """Return a numpy array that shares the memory of a DLPack array; raises as from_dlpack does."""
    capsule = _capsule(value)
    element = _element(capsule)
    name = _NAMES.get(element.code)
    if name is None or element.lanes != 1 or DTYPES[name].bits != element.bits:
        return numpy.from_dlpack(_Handed(capsule, value.__dlpack_device__()))
    element.code = _UNSIGNED
    array = numpy.from_dlpack(_Handed(capsule, value.__dlpack_device__()))
    return array.view(DTYPES[name].numpy)


def with_strides(array: numpy.ndarray) -> numpy.ndarray:
    """The array; without elements, with strides as other libraries expect them: numpy's are 0."""
    return array if array.size else numpy.ndarray(array.shape, array.dtype, bytearray())


def export_array(array: numpy.ndarray, dtype: DType) -> Any:
    """Wrap an array of a dtype in `_CODES` for export to other libraries by DLPack."""
    bits = array.view(f"u{array.itemsize}")
    capsule = bits.__dlpack__()
    _element(capsule).code = _CODES[dtype.name]
    return _Handed(capsule, bits.__dlpack_device__())


def code_of(dtype: DType) -> int | None:
    """Return DLPack's code of an element type; None if DLPack has no equivalent representation."""
    return _KINDS[dtype.kind] if dtype.is_native else _CODES.get(dtype.name)


def is_exchanged(dtype: DType) -> bool:
    """Whether `export_array` supports this element type."""
    return dtype.name in _CODES

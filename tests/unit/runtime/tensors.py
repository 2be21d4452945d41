"""A library of tensors in a few lines, with DLPack and its exchange API of C functions."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import numpy

from anydim.base.dtypes import from_numpy
from anydim.runtime.exchange import Exchange, code_of

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("number", ctypes.c_int32),
        ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("delete", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _DLTensor),
    )  # fmt: skip


class Tensor:
    """An array [shape] on a device, which may record gradients or stand for its negative; it counts
    what is shared how."""

    views: ClassVar[int] = 0
    wrapped: ClassVar[int] = 0
    alive: ClassVar[int] = 0  # that were made of the memory of others

    def __init__(self, array: numpy.ndarray, device: int = 1, requires_grad: bool = False) -> None:
        self.array, self.device, self.requires_grad = array, device, requires_grad
        self.sizes = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        steps = (step // array.itemsize for step in array.strides)
        self.strides = (ctypes.c_int64 * max(array.ndim, 1))(*steps)
        self.delete: Any = None
        self.negated = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def is_neg(self) -> bool:
        return self.negated

    def resolve_neg(self) -> Tensor:
        return Tensor(-self.array)

    def __dlpack__(self, **how: Any) -> Any:
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __array_namespace__(self) -> type[Tensor]:
        return Tensor

    @classmethod
    def from_dlpack(cls, other: Any) -> Tensor:
        return cls(numpy.from_dlpack(other))

    def __del__(self) -> None:
        if self.delete is not None:
            Tensor.alive -= 1
            self.delete()


def _view(tensor: Any, seen: Any) -> int:
    Tensor.views += 1
    array, it = tensor.array, seen.contents
    dtype = from_numpy(array.dtype)
    it.data, it.device, it.rank = array.ctypes.data - 8, tensor.device, array.ndim
    it.code, it.bits, it.lanes = code_of(dtype), 8 * dtype.bytes, 1
    it.shape, it.strides = tensor.sizes, tensor.strides
    it.offset = 8
    return 0


def _wrap(managed: Any, found: Any) -> int:
    Tensor.wrapped += 1
    Tensor.alive += 1
    it = managed.contents.tensor
    kinds = {(2, 32): "float32", (2, 64): "float64", (0, 64): "int64", (6, 8): "bool"}
    dtype = numpy.dtype(kinds[it.code, it.bits])
    shape = tuple(it.shape[axis] for axis in range(it.rank))
    steps = tuple(it.strides[axis] * dtype.itemsize for axis in range(it.rank))
    count = max(int(numpy.prod(shape)) * dtype.itemsize, 1)
    memory = (ctypes.c_char * count).from_address(it.data + it.offset)
    made = Tensor(numpy.ndarray(shape, dtype, memory, 0, steps))
    delete = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.contents.delete)
    address = ctypes.addressof(managed.contents)
    made.delete = lambda: delete(address)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    found[0] = id(made)
    return 0


_VIEW = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_DLTensor))(_view)
_WRAP = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(_Managed), ctypes.POINTER(ctypes.c_void_p)
)(_wrap)  # fmt: skip
_API = Exchange(1, 3, None, None, None, None, None, None)
_API.view, _API.wrap = (ctypes.cast(each, ctypes.c_void_p).value for each in (_VIEW, _WRAP))
_NAME = ctypes.create_string_buffer(b"dlpack_exchange_api")
Tensor.__dlpack_c_exchange_api__ = _new_capsule(  # type: ignore[attr-defined]
    ctypes.addressof(_API), ctypes.cast(_NAME, ctypes.c_char_p), None
)

"""Arrays in the memory of a device, and their exchange with other libraries by DLPack.

https://dmlc.github.io/dlpack/latest/c_api.html
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy

from anydim.base.dtypes import DType, from_numpy
from anydim.base.errors import InputError
from anydim.runtime.arrays import AtAddress
from anydim.runtime.devices.device import Device
from anydim.runtime.exchange import code_of
from anydim.runtime.signature import TensorSpec
from anydim.runtime.system_functions import memory_functions

ALIGNMENT = 64  # bytes, of arrays that kernels read in place
_CAPSULE = b"dltensor"
Array: TypeAlias = numpy.ndarray


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_uint64), ("kind", ctypes.c_int32), ("number", ctypes.c_int32),
        ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (
        ("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    )  # fmt: skip


_api = ctypes.pythonapi
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", _api))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_exported: dict[int, tuple[Any, ...]] = {}  # what exported tensors keep alive, by address


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete(managed: int) -> None:
    _exported.pop(managed, None)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _drop_capsule(capsule: int) -> None:
    """Delete the tensor of a capsule that no library has taken."""
    if _is_valid(capsule, _CAPSULE):
        _delete(_pointer(capsule, _CAPSULE))


class DeviceArray:
    """A contiguous array in the memory of `device`: a result that stays there.

    `numpy()` copies it to the host; `torch.from_dlpack(array)` shares it. Its memory is free when
    no library refers to it. As an argument of a model with parts on the device it is not copied.
    """

    def __init__(
        self, device: Device, address: int, shape: Sequence[int], dtype: numpy.dtype,
        free: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.device, self.shape, self.dtype = device, tuple(shape), dtype
        self._address = address
        if free is not None:
            weakref.finalize(self, free).atexit = False

    def __repr__(self) -> str:
        return f"DeviceArray({from_numpy(self.dtype)}{list(self.shape)}, {self.device.name!r})"

    @property
    def address(self) -> int:
        """The address on the device."""
        return self._address

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def numpy(self) -> Array:
        """Return a copy in host memory."""
        made = numpy.empty(self.shape, self.dtype)
        self.device.copy_out(made.ctypes.data, self._address, self.nbytes)
        self.device.wait(self.device.record())
        return made

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        assert self.device.dlpack is not None
        return self.device.dlpack

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        """Export it to another library; calls that wrote it are complete on every stream."""
        rank = len(self.shape)
        sizes = (ctypes.c_int64 * max(1, rank))(*self.shape)
        dtype = from_numpy(self.dtype)
        code = code_of(dtype)
        if code is None:
            raise BufferError(f"DLPack has no element type {dtype}")
        kind, number = self.__dlpack_device__()
        tensor = _Tensor(
            self._address, kind, number, rank, code, 8 * self.dtype.itemsize, 1, sizes, None, 0
        )
        managed = _Managed(tensor, None, ctypes.cast(_delete, ctypes.c_void_p))
        at = ctypes.addressof(managed)
        _exported[at] = (managed, sizes, self)
        return _new_capsule(at, _CAPSULE, ctypes.cast(_drop_capsule, ctypes.c_void_p))


def own_array(
    device: Device, address: int, shape: tuple[int, ...], dtype: numpy.dtype, head: int
) -> DeviceArray:
    """Return a block of a device as an array, which frees it and its head in host memory."""

    def free() -> None:
        if 0 not in shape:
            device.free(address)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(memory_functions()[1])(head)

    return DeviceArray(device, address, shape, dtype, free)


class _At:
    """Memory at an address, as numpy's array interface describes it."""

    def __init__(self, address: int, shape: tuple[int, ...], bytes: int) -> None:
        text = f"<u{bytes}" if bytes in (1, 2, 4, 8) else f"|V{bytes}"
        self.__array_interface__ = {
            "shape": shape, "typestr": text, "data": (address, False), "version": 3
        }  # fmt: skip


def address_of(device: Device, value: Any, spec: TensorSpec, where: str) -> AtAddress:
    """Return the address and shape of an array on `device`, after pending work of its library.

    Raises InputError, prefixed by `where`, for an array elsewhere, of another dtype or rank, not
    contiguous, or not aligned to 64 bytes.
    """
    if tuple(map(int, value.__dlpack_device__())) != device.dlpack:
        raise InputError(
            f"{where}: the array is on device {value.__dlpack_device__()} of DLPack, the input is"
            f" read on '{device.name}', {device.dlpack}",
            "move it to that device, or to the CPU",
        )
    if isinstance(value, DeviceArray):
        same = value.dtype == spec.dtype.numpy
        dtype = spec.dtype if same else from_numpy(value.dtype)
        found = value.address, value.shape, dtype, value
    else:
        found = _import(value, device, spec, where)
    address, shape, dtype, kept = found
    if dtype != spec.dtype:
        raise InputError(f"{where}: expected dtype {spec.dtype}, got {dtype}", "convert it")
    if len(shape) != len(spec.shape):
        raise InputError(
            f"{where}: expected {len(spec.shape)} axes, got {list(shape)}", "reshape the array"
        )
    if address % ALIGNMENT:
        raise InputError(f"{where}: the array is not aligned to 64 bytes", "pass a copy of it")
    bits = numpy.asarray(_At(address or ALIGNMENT, shape, spec.dtype.numpy.itemsize))
    made = bits.view(spec.dtype.numpy).view(AtAddress)
    made.kept = kept
    return made


def _import(
    value: Any, device: Device, spec: TensorSpec, where: str
) -> tuple[int, tuple[int, ...], DType, Any]:
    """Return address, shape and dtype of another library's array, and what keeps it alive."""
    try:
        capsule = value.__dlpack__(stream=device.stream)
    except Exception as error:  # any error of the object
        raise InputError(
            f"{where}: the array cannot be shared: {error}", "give a dense array"
        ) from None
    tensor = _Tensor.from_address(_pointer(id(capsule), _CAPSULE))
    shape = tuple(tensor.shape[: tensor.rank])
    if tensor.strides:
        wanted = [math.prod(shape[axis + 1 :]) for axis in range(tensor.rank)]
        axes = zip(shape, tensor.strides[: tensor.rank], wanted)
        if 0 not in shape and any(size > 1 and stride != dense for size, stride, dense in axes):
            raise InputError(f"{where}: the array is not contiguous", "pass x.contiguous()")
    same = (tensor.code, tensor.bits) == (code_of(spec.dtype), spec.dtype.bits)
    if not same or tensor.lanes != 1:
        raise InputError(
            f"{where}: expected dtype {spec.dtype}, got DLPack's type {tensor.code} of"
            f" {tensor.bits} bits",
            "convert it",
        )
    return tensor.data + tensor.offset, shape, spec.dtype, (value, capsule)

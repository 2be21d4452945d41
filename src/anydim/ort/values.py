"""OrtValue: an array, or a list of arrays, in CPU memory, with its ONNX type.

In onnxruntime an OrtValue wraps its C++ object, `_ortvalue`, which programs access; here both are
one object.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from math import prod
from typing import Any, TypeAlias

import numpy

from anydim.base.errors import InputError
from anydim.base.onnx_notation import ELEMENT_TYPES, STRING, type_name
from anydim.ort.errors import ObjectRefused, TypeRefused, Unimplemented, ValueRefused
from anydim.runtime.arrays import shared_array

Array: TypeAlias = numpy.ndarray  # `numpy` is shadowed by a method below
_DEVICES = {"cpu": 0, "cuda": 1, "gpu": 1, "dml": 1, "webgpu": 1, "cann": 3, "npu": 3}
_NO_DEVICE = (
    "Can't allocate memory on the device using this package of OnnxRuntime: anydim has the CPU"
    " alone"
)


_BY_NUMPY = {dtype.name: number for number, dtype in ELEMENT_TYPES.items()}


def element_of(array: numpy.ndarray) -> int:
    """The number of an array's element type; 0 if ONNX has none."""
    if array.dtype.kind in "USOT":
        return STRING
    return _BY_NUMPY.get(array.dtype.name, 0)


def numpy_of(element: Any) -> numpy.dtype:
    """The numpy type of an ONNX number, or of anything that numpy accepts as a type."""
    if isinstance(element, int):
        if element not in ELEMENT_TYPES:
            raise ObjectRefused(f"element type {element} has no array")
        return ELEMENT_TYPES[element].numpy
    try:
        return numpy.dtype(element)
    except TypeError:
        raise TypeRefused(f"{element!r} is no type of elements") from None


class OrtDevice:
    """A device: the number of its kind, and its index."""

    def __init__(self, kind: int, memory: int = 0, vendor: int = 0, number: int = 0) -> None:
        self._kind, self._memory, self._vendor, self._number = kind, memory, vendor, number

    @staticmethod
    def make(name: str, device_id: int = 0, vendor_id: int = -1) -> OrtDevice:
        """The device of a name; raises for one that onnxruntime does not have either."""
        if name not in _DEVICES:
            raise ValueRefused(f"Unsupported device type: {name}")
        return OrtDevice(_DEVICES[name], 0, max(vendor_id, 0), device_id)

    @staticmethod
    def cpu() -> int:
        return 0

    @staticmethod
    def default_memory() -> int:
        return 0

    def _get_c_device(self) -> OrtDevice:
        return self

    def device_id(self) -> int:
        return self._number

    def device_type(self) -> int:
        return self._kind

    def device_vendor_id(self) -> int:
        return self._vendor

    def device_mem_type(self) -> int:
        return self._memory


class OrtDeviceVendorId(IntEnum):
    """PCI vendor ids."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


def on_cpu(device_type: str) -> None:
    """Raise for a device on which memory cannot be allocated."""
    if OrtDevice.make(device_type.lower()).device_type() != 0:
        raise ObjectRefused(_NO_DEVICE)


class OrtValue:
    """A tensor [shape] or a list of tensors. It shares the memory of the array it is made of."""

    def __init__(self, held: Any, element: int = 0) -> None:
        if isinstance(held, OrtValue):
            held, element = held.held, held._element
        self.held: Any = held
        self._element = element

    @property
    def _ortvalue(self) -> OrtValue:
        return self

    def _get_c_value(self) -> OrtValue:
        return self

    # ---- constructors ----

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Any, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Wrap a contiguous numpy array of numbers without a copy; other arrays are copied."""
        on_cpu(device_type)
        element = element_of(numpy_obj) if isinstance(numpy_obj, numpy.ndarray) else STRING
        if element in (0, STRING):
            raise ObjectRefused(
                "Creation of OrtValues is currently only supported from non-string numpy arrays"
            )
        return cls(numpy.require(numpy_obj, requirements=("C",)), element)

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Any, /, onnx_element_type: int) -> OrtValue:
        """Reinterpret a numpy array as elements of another type of the same size."""
        dtype = numpy_of(int(onnx_element_type))
        if dtype.itemsize != data.dtype.itemsize:
            raise ObjectRefused(
                f"elements of {data.dtype} have {data.dtype.itemsize} bytes,"
                f" those of {dtype} {dtype.itemsize}"
            )
        return cls(numpy.ascontiguousarray(data).view(dtype), int(onnx_element_type))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any, device_type: str = "cpu",
        device_id: int = 0, vendor_id: int = -1, memory_info: Any = None,
    ) -> OrtValue:  # fmt: skip
        """A new tensor [shape] with uninitialized elements."""
        on_cpu(device_type)
        dtype = numpy_of(element_type)
        array = numpy.empty(tuple(map(int, shape)), dtype)
        return cls(array, element_type if isinstance(element_type, int) else element_of(array))

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: Any) -> OrtValue:
        """Raise NotImplemented: sparse tensors are not supported."""
        raise Unimplemented("sparse tensors are not supported")

    @classmethod
    def from_dlpack(cls, data: Any, /, is_bool: bool = False) -> OrtValue:
        """Wrap the memory of an array of any library on the CPU."""
        try:
            array = shared_array(data, "from_dlpack")
        except InputError as error:
            raise TypeRefused(error.problem, error.hint) from None
        return cls(array, element_of(array))

    # ---- properties ----

    def is_tensor(self) -> bool:
        return isinstance(self.held, numpy.ndarray)

    def is_tensor_sequence(self) -> bool:
        return isinstance(self.held, list)

    def is_sparse_tensor(self) -> bool:
        return False

    def has_value(self) -> bool:
        """Whether an optional holds a value."""
        return self.held is not None

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def element_type(self) -> int:
        return self._element or element_of(self._array)

    def data_type(self) -> str:
        """The ONNX type, as 'tensor(float)', 'seq(tensor(int64))'."""
        if self.is_tensor():
            return f"tensor({type_name(self.element_type())})"
        first = self.held[0] if self.held else numpy.zeros(0, numpy.float32)
        return f"seq(tensor({type_name(element_of(first))}))"

    def device_name(self) -> str:
        return "cpu"

    def tensor_size_in_bytes(self) -> int:
        return prod(self._array.shape) * self._array.dtype.itemsize

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._array.ctypes.data

    def numpy(self) -> Array:
        """The tensor; RuntimeError if the value is not one."""
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy:
            return numpy.array(self._array, dtype=dtype)
        return numpy.asarray(self._array, dtype=dtype)

    def __dlpack__(self, *, stream: Any = None) -> Any:
        return self._array.__dlpack__()

    def to_dlpack(self) -> Any:
        """A DLPack capsule over this memory."""
        return self._array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __len__(self) -> int:
        return len(self.held)

    @property
    def _array(self) -> Array:
        if not self.is_tensor():
            raise ObjectRefused("this OrtValue holds no tensor")
        return self.held

    def update_inplace(self, data: Any) -> None:
        """Write new elements into the same memory; RuntimeError for another type or count."""
        if isinstance(data, OrtValue):
            data = data.numpy()
        if not isinstance(data, numpy.ndarray):
            raise TypeRefused("data must be a numpy.ndarray or an OrtValue.")
        if data.dtype != self._array.dtype or data.size != self._array.size:
            raise ObjectRefused(
                "The input size of numpy arrays does not match the size of the OrtValue:"
                f" got {data.dtype}{list(data.shape)}, expected {self.data_type()}{self.shape()}"
            )
        self._array.reshape(-1)[...] = data.reshape(-1)

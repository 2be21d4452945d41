"""libOpenCL: finds and loads it, wraps its functions and error codes.

The specification: https://registry.khronos.org/OpenCL/specs/3.0-unified/html/OpenCL_API.html
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from ctypes import POINTER, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from ctypes.util import find_library
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from anydim.base import settings
from anydim.base.errors import DeviceError

SUCCESS, DEVICE_NOT_FOUND, NO_PLATFORM = 0, -1, -1001
NO_MEMORY = frozenset((-4, -5, -6, -61))
_NAMES = {
    -1: "DEVICE_NOT_FOUND", -2: "DEVICE_NOT_AVAILABLE", -3: "COMPILER_NOT_AVAILABLE",
    -4: "MEM_OBJECT_ALLOCATION_FAILURE", -5: "OUT_OF_RESOURCES", -6: "OUT_OF_HOST_MEMORY",
    -11: "BUILD_PROGRAM_FAILURE", -13: "MISALIGNED_SUB_BUFFER_OFFSET",
    -14: "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", -30: "INVALID_VALUE", -33: "INVALID_DEVICE",
    -34: "INVALID_CONTEXT", -36: "INVALID_COMMAND_QUEUE", -38: "INVALID_MEM_OBJECT",
    -42: "INVALID_BINARY", -43: "INVALID_BUILD_OPTIONS", -44: "INVALID_PROGRAM",
    -45: "INVALID_PROGRAM_EXECUTABLE", -46: "INVALID_KERNEL_NAME", -48: "INVALID_KERNEL",
    -49: "INVALID_ARG_INDEX", -50: "INVALID_ARG_VALUE", -51: "INVALID_ARG_SIZE",
    -52: "INVALID_KERNEL_ARGS", -54: "INVALID_WORK_GROUP_SIZE", -55: "INVALID_WORK_ITEM_SIZE",
    -58: "INVALID_EVENT", -61: "INVALID_BUFFER_SIZE", -63: "INVALID_GLOBAL_WORK_SIZE",
    -1001: "PLATFORM_NOT_FOUND_KHR",
}  # fmt: skip
_WHEEL = "pyopencl"  # its folder has a loader, and packaged drivers for it
_HOME = "PYOPENCL_HOME"  # folder in which that loader searches for drivers
# PoCL 3.0 writes out of bounds when it vectorises the work-items of a group
_GROUPS, _IN_TURN = "POCL_WORK_GROUP_METHOD", "loops"
_BESIDE: list[ctypes.CDLL] = []  # driver libraries next to it

_P, _N, _S, _CODE = c_void_p, c_uint32, c_size_t, POINTER(c_int32)
_EVENTS = (_N, c_void_p, c_void_p)
_FUNCTIONS: dict[str, tuple[Any, ...]] = {  # name -> its parameters; all return an error code
    "clGetPlatformIDs": (_N, c_void_p, c_void_p),
    "clGetPlatformInfo": (_P, _N, _S, c_void_p, c_void_p),
    "clGetDeviceIDs": (_P, c_uint64, _N, c_void_p, c_void_p),
    "clGetDeviceInfo": (_P, _N, _S, c_void_p, c_void_p),
    "clReleaseContext": (_P,),
    "clReleaseCommandQueue": (_P,),
    "clReleaseMemObject": (_P,),
    "clReleaseProgram": (_P,),
    "clReleaseKernel": (_P,),
    "clReleaseEvent": (_P,),
    "clRetainEvent": (_P,),
    "clGetEventProfilingInfo": (_P, _N, _S, c_void_p, c_void_p),
    "clBuildProgram": (_P, _N, c_void_p, ctypes.c_char_p, c_void_p, c_void_p),
    "clGetProgramBuildInfo": (_P, _P, _N, _S, c_void_p, c_void_p),
    "clGetProgramInfo": (_P, _N, _S, c_void_p, c_void_p),
    "clGetKernelWorkGroupInfo": (_P, _P, _N, _S, c_void_p, c_void_p),
    "clSetKernelArg": (_P, _N, _S, c_void_p),
    "clEnqueueNDRangeKernel": (_P, _P, _N, c_void_p, c_void_p, c_void_p, *_EVENTS),
    "clEnqueueReadBuffer": (_P, _P, _N, _S, _S, c_void_p, *_EVENTS),
    "clEnqueueWriteBuffer": (_P, _P, _N, _S, _S, c_void_p, *_EVENTS),
    "clEnqueueCopyBuffer": (_P, _P, _P, _S, _S, _S, *_EVENTS),
    "clEnqueueFillBuffer": (_P, _P, c_void_p, _S, _S, _S, *_EVENTS),
    "clEnqueueMarkerWithWaitList": (_P, *_EVENTS),
    "clEnqueueBarrierWithWaitList": (_P, *_EVENTS),
    "clWaitForEvents": (_N, c_void_p),
    "clFlush": (_P,),
    "clFinish": (_P,),
}
_LATER: dict[str, tuple[Any, ...]] = {  # OpenCL 2
    "clEnqueueSVMMemcpy": (_P, _N, c_void_p, c_void_p, _S, *_EVENTS),
    "clEnqueueSVMMemFill": (_P, c_void_p, c_void_p, _S, _S, *_EVENTS),
}
_MAKERS: dict[str, tuple[Any, ...]] = {  # return a handle; the error code is the last parameter
    "clCreateContext": (c_void_p, _N, c_void_p, c_void_p, c_void_p, _CODE),
    "clCreateCommandQueue": (_P, _P, c_uint64, _CODE),
    "clCreateBuffer": (_P, c_uint64, _S, c_void_p, _CODE),
    "clCreateProgramWithSource": (_P, _N, c_void_p, c_void_p, _CODE),
    "clCreateProgramWithBinary": (_P, _N, c_void_p, c_void_p, c_void_p, c_void_p, _CODE),
    "clCreateKernel": (_P, ctypes.c_char_p, _CODE),
}


class ClError(Exception):
    """A function of OpenCL returned an error code."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function} gave {code}, CL_{_NAMES.get(code, 'error')}")
        self.code = code


class Library:
    """The functions of libOpenCL; each raises ClError or MemoryError on failure."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._held = ctypes.CDLL(path)
        self.functions: dict[str, Any] = {}
        for name, parameters in (*_FUNCTIONS.items(), *_LATER.items(), *_MAKERS.items()):
            if name in _LATER and not hasattr(self._held, name):
                continue
            function = self.functions[name] = getattr(self._held, name)
            function.argtypes = parameters
            function.restype = c_void_p if name in _MAKERS else c_int32
        self.shares = _LATER.keys() <= self.functions.keys()  # supports shared virtual memory

    def do(self, name: str, *given: Any) -> None:
        """Call a function that returns an error code."""
        code = self.functions[name](*given)
        if code:
            raise error_of(name, code)

    def make(self, name: str, *given: Any) -> int:
        """Call a function that returns a handle."""
        code = c_int32(0)
        made = self.functions[name](*given, ctypes.byref(code))
        if code.value or not made:
            raise error_of(name, code.value)
        return int(made)

    def text(self, name: str, *given: Any) -> str:
        """Query a text, its size first."""
        return self.bytes(name, *given).rstrip(b"\0").decode("utf-8", "replace").strip()

    def bytes(self, name: str, *given: Any) -> bytes:
        """Query bytes, their number first."""
        size = c_size_t(0)
        self.do(name, *given, 0, None, ctypes.byref(size))
        data = ctypes.create_string_buffer(max(1, size.value))
        self.do(name, *given, size, data, None)
        return data.raw[: size.value]

    def number(self, name: str, *given: Any, bytes: int = 8) -> int:
        """Query an integer of `bytes` bytes."""
        value = c_uint64(0)
        self.do(name, *given, bytes, ctypes.byref(value), None)
        return value.value

    def handles(self, name: str, *given: Any) -> list[int]:
        """Query a list of handles, its length first; empty is not an error."""
        count = c_uint32(0)
        code = self.functions[name](*given, 0, None, ctypes.byref(count))
        if code in (DEVICE_NOT_FOUND, NO_PLATFORM) or (not code and not count.value):
            return []
        if code:
            raise error_of(name, code)
        found = (c_void_p * count.value)()
        self.do(name, *given, count, found, None)
        return [int(handle) for handle in found if handle]


def library() -> Library:
    """Return libOpenCL of this machine; raises DeviceError if there is none."""
    return _open_library(settings.opencl_library)


def error_of(name: str, code: int) -> Exception:
    """Return the error for a code of a function; MemoryError if out of memory."""
    error = ClError(name, code)
    return MemoryError(str(error)) if code in NO_MEMORY else error


@lru_cache(maxsize=4)
def _open_library(wanted: str) -> Library:
    os.environ.setdefault(_GROUPS, _IN_TURN)
    failures = []
    for path in [wanted] if wanted else _usual():
        _ready(Path(path))
        try:
            return Library(path)
        except (OSError, AttributeError) as error:
            failures.append(str(error))
    said = f": {'; '.join(failures)}" if failures else ""
    raise DeviceError(
        f"there is no OpenCL loader{' ' + repr(wanted) if wanted else ''} on this machine{said}",
        "install the driver of the device, or PoCL, which runs on processors, with"
        " `pip install anydim[opencl]`; setting 'opencl_library' (environment variable"
        " ANYDIM_OPENCL_LIBRARY) names another loader",
    )


def _usual() -> Iterator[str]:
    """Yield default paths of the loader: the wheel's knows its own and the system's drivers."""
    yield from map(str, _wheel())
    found = find_library("OpenCL")
    if found:
        yield found
    yield "libOpenCL.so.1"


def _wheel() -> list[Path]:
    """Return the loader in the wheel of pyopencl."""
    spec = find_spec(_WHEEL)
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    return [] if folder is None else sorted((folder / ".libs").glob("libOpenCL*"))


def _ready(path: Path) -> None:
    """Set the path of a wheel for its loader, which would otherwise abort the process.

    It resolves the libraries next to it by name: they have to be loaded before.
    """
    beside = sorted(path.parent.glob("*.icd")) if path.parent.name == ".libs" else []
    if beside:
        os.environ.setdefault(_HOME, str(path.parent.parent))
    for listed in beside:
        with suppress(OSError):  # then the loader omits its devices
            _BESIDE.append(ctypes.CDLL(str(path.parent / listed.read_text("utf-8").strip())))

"""NVIDIA's driver library: its functions, and their error codes as exceptions.

The functions are those of the CUDA driver API 11 and later (`cuda.h`, CUDA Toolkit documentation).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from anydim.base.errors import DeviceError

_OK, _NO_MEMORY = 0, 2

WORD, ADDRESS, COUNT = ctypes.c_int, ctypes.c_uint64, ctypes.c_size_t
ANY, UNSIGNED = ctypes.c_void_p, ctypes.c_uint
CALLS: Mapping[str, tuple[Any, ...]] = {
    "cuInit": (UNSIGNED,),
    "cuDeviceGetCount": (ANY,),
    "cuDeviceGet": (ANY, WORD),
    "cuDeviceGetName": (ANY, WORD, WORD),
    "cuDeviceGetAttribute": (ANY, WORD, WORD),
    "cuDeviceTotalMem_v2": (ANY, WORD),
    "cuDevicePrimaryCtxRetain": (ANY, WORD),
    "cuDevicePrimaryCtxRelease_v2": (WORD,),
    "cuCtxPushCurrent_v2": (ANY,),
    "cuCtxPopCurrent_v2": (ANY,),
    "cuStreamCreate": (ANY, UNSIGNED),
    "cuStreamSynchronize": (ANY,),
    "cuMemAlloc_v2": (ANY, COUNT),
    "cuMemFree_v2": (ADDRESS,),
    "cuMemHostAlloc": (ANY, COUNT, UNSIGNED),
    "cuMemcpyHtoDAsync_v2": (ADDRESS, ANY, COUNT, ANY),
    "cuMemcpyDtoHAsync_v2": (ANY, ADDRESS, COUNT, ANY),
    "cuMemcpyDtoDAsync_v2": (ADDRESS, ADDRESS, COUNT, ANY),
    "cuMemsetD8Async": (ADDRESS, ctypes.c_ubyte, COUNT, ANY),
    "cuModuleLoadData": (ANY, ANY),
    "cuModuleUnload": (ANY,),
    "cuModuleGetFunction": (ANY, ANY, ctypes.c_char_p),
    "cuModuleGetGlobal_v2": (ANY, ANY, ANY, ctypes.c_char_p),
    "cuFuncGetAttribute": (ANY, WORD, ANY),
    "cuLaunchKernel": (ANY, *(UNSIGNED,) * 7, ANY, ANY, ANY),
    "cuStreamBeginCapture_v2": (ANY, WORD),
    "cuStreamEndCapture": (ANY, ANY),
    "cuGraphInstantiateWithFlags": (ANY, ANY, ctypes.c_ulonglong),
    "cuGraphExecUpdate_v2": (ANY, ANY, ANY),
    "cuGraphLaunch": (ANY, ANY),
    "cuGraphDestroy": (ANY,),
    "cuGraphExecDestroy": (ANY,),
    "cuEventCreate": (ANY, UNSIGNED),
    "cuEventRecord": (ANY, ANY),
    "cuEventSynchronize": (ANY,),
    "cuEventDestroy_v2": (ANY,),
    "cuGetErrorString": (WORD, ANY),
}


class Failed(Exception):
    """A failed call, with the driver's text."""


class Library:
    """The functions of the driver library; a call that fails raises `Failed`, or MemoryError."""

    def __init__(self, library: Any) -> None:
        self._functions: dict[str, Callable[..., int]] = {}
        for name, types in CALLS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, ctypes.c_int
            self._functions[name] = function

    def __call__(self, name: str, *given: Any) -> None:
        code = self._functions[name](*given)
        if code != _OK:
            self.raise_error(name, code)

    def address(self, name: str) -> int:
        """Return the address of a function, for native code."""
        return ctypes.cast(self._functions[name], ctypes.c_void_p).value or 0  # type: ignore

    def raise_error(self, name: str, code: int) -> None:
        """Raise the exception for an error code of a function."""
        if code == _NO_MEMORY:
            raise MemoryError(self._text(code))
        raise Failed(f"{name}: {self._text(code)}")

    def output_of(self, name: str, kind: Any, *given: Any) -> Any:
        """Return the output of a call, written to its first argument."""
        held = kind()
        self(name, ctypes.byref(held), *given)
        return held.value

    def _text(self, code: int) -> str:
        text = ctypes.c_char_p()
        known = self._functions["cuGetErrorString"](code, ctypes.byref(text)) == _OK
        return text.value.decode(errors="replace") if known and text.value else f"error {code}"


@lru_cache(maxsize=1)
def driver_library() -> Library:
    """Return the driver library of this machine, initialised. Raises DeviceError if there is
    none."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = Library(ctypes.CDLL(name))
        library("cuInit", 0)
    except (OSError, AttributeError, Failed) as error:
        raise DeviceError(
            f"there is no working CUDA driver: {error}",
            "install NVIDIA's driver, or use another device: devices={...: 'cpu'}",
        ) from None
    return library

"""Builds programs of a device from their texts; binaries are cached on disk."""

from __future__ import annotations

import ctypes

from anydim.base.cache import key_of, user_cache
from anydim.base.errors import DeviceError
from anydim.runtime.devices.opencl.inventory import OpenClDeviceInfo
from anydim.runtime.devices.opencl.libopencl import ClError, Library

# Build options: version 1.2, no warnings, division and square root rounded as in numpy.
_OPTIONS = "-cl-std=CL1.2 -w"
_ROUNDED = "-cl-fp32-correctly-rounded-divide-sqrt"
_PROCESSOR = "-D ON_PROCESSOR"  # for processors with clang
_SHARED = "-D IN_MEMORY_OF_HOST"  # operands are addresses, not memory objects
_BUILD_LOG, _DEVICES, _BINARY_SIZES, _BINARIES = 0x1183, 0x1163, 0x1165, 0x1166


def options(found: OpenClDeviceInfo, shared: bool) -> str:
    """Return the build options for a device; `shared`: it works in host memory."""
    more = [_ROUNDED] * found.divides + [_PROCESSOR] * found.processor + [_SHARED] * shared
    return " ".join([_OPTIONS, *more])


def build(
    known: Library, context: int, found: OpenClDeviceInfo, name: str, text: bytes, shared: bool
) -> int:
    """Build a program from its cached binary or its text; returns its handle.

    Raises DeviceError with the build log if the device rejects the text.
    """
    cache, flags = user_cache(), options(found, shared)
    key = key_of("opencl 2", found.identity, flags, text.decode("utf-8", "replace"))
    binary = cache.get(key) if cache is not None else None
    if binary is not None:
        program = _of_binary(known, context, found, binary, flags)
        if program is not None:
            return program
    program = _of_text(known, context, found, name, text, flags)
    if cache is not None:
        cache.put(key, _binary(known, program, found.handle))
    return program


def _of_text(
    known: Library, context: int, found: OpenClDeviceInfo, name: str, text: bytes, flags: str
) -> int:
    texts, sizes = (ctypes.c_char_p * 1)(text), (ctypes.c_size_t * 1)(len(text))
    program = known.make("clCreateProgramWithSource", context, 1, texts, sizes)
    devices = (ctypes.c_void_p * 1)(found.handle)
    try:
        known.do(
            "clBuildProgram", program, 1, devices, flags.encode(), None, None
        )  # fmt: skip
    except (ClError, MemoryError) as error:
        log = known.text("clGetProgramBuildInfo", program, found.handle, _BUILD_LOG)
        known.do("clReleaseProgram", program)
        raise DeviceError(
            f"device {found.name} cannot build '{name}': {error}\n{log}",
            "this is a bug in anydim or in the device's compiler: please report it, with the"
            " name of the device; devices={...: 'cpu'} runs the model meanwhile",
        ) from None
    return program


def _of_binary(
    known: Library, context: int, found: OpenClDeviceInfo, binary: bytes, flags: str
) -> int | None:
    """Load a program from a binary; None if the device no longer accepts it."""
    devices, sizes = (ctypes.c_void_p * 1)(found.handle), (ctypes.c_size_t * 1)(len(binary))
    parts = (ctypes.c_char_p * 1)(binary)
    try:
        program = known.make(
            "clCreateProgramWithBinary", context, 1, devices, sizes, parts, None
        )  # fmt: skip
    except ClError:
        return None
    try:
        known.do(
            "clBuildProgram", program, 1, devices, flags.encode(), None, None
        )  # fmt: skip
    except ClError:
        known.do("clReleaseProgram", program)
        return None
    return program


def _binary(known: Library, program: int, device: int) -> bytes:
    """Return the binary of a program for the device of its context that it was built for."""
    devices = memoryview(known.bytes("clGetProgramInfo", program, _DEVICES)).cast("P").tolist()
    sizes = memoryview(known.bytes("clGetProgramInfo", program, _BINARY_SIZES)).cast("P").tolist()
    if len(sizes) == 1:  # PoCL 3.0 lists all devices, but only binaries of built ones
        devices = [device]
    number = devices.index(device)
    data = ctypes.create_string_buffer(max(1, sizes[number]))
    pointers = (ctypes.c_void_p * len(devices))()  # null: not requested
    pointers[number] = ctypes.addressof(data)
    known.do("clGetProgramInfo", program, _BINARIES, ctypes.sizeof(pointers), pointers, None)
    return data.raw[: sizes[number]]

"""The devices that libOpenCL lists, in the order of their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.amounts import bytes_text
from anydim.base.errors import DeviceError
from anydim.base.records import dataclass
from anydim.base.text import count_of
from anydim.runtime.devices.opencl.libopencl import ClError, Library, library
from anydim.runtime.system_functions import lock_functions

_PLATFORM_NAME, _PLATFORM_VERSION = 0x0902, 0x0901
_NAME, _DRIVER, _VERSION, _EXTENSIONS, _TYPE = 0x102B, 0x102D, 0x102F, 0x1030, 0x1000
_UNITS, _MAX_GROUP_SIZE, _LOCAL_BYTES, _LARGEST, _MEMORY = 0x1002, 0x1004, 0x1023, 0x1010, 0x101F
_ARGUMENT_BYTES, _FLOAT_WORDS, _FLOATS, _LITTLE = 0x1017, 0x1036, 0x101B, 0x1026
_ALL, _CPU = 0xFFFFFFFF, 1 << 1
_ROUNDED_DIVIDE = 1 << 7
# shared virtual memory: fine-grained, of the system or of buffers; kernels of a processor run
# in this process and access all of its memory
_SHARED, _ANYWHERE, _IN_STEP = 0x1053, 1 << 2, 1 << 1


@dataclass(frozen=True)
class OpenClDeviceInfo:
    """A device: its handle, description and limits.

    `units` is the number of compute units. A group has at most `items` work-items and `local_bytes`
    of local memory. `largest` is the maximum bytes of a block, `memory` the total. `argument_bytes`
    is the maximum of a kernel's arguments. `float64`: it supports 64-bit floats; `divides`: it can
    round division and square root of float32 correctly; `shares`: it works in host memory, with the
    host's addresses. `beside` are all devices of its platform.
    """

    handle: int
    platform: str
    name: str
    version: str
    driver: str
    processor: bool
    units: int
    items: int
    local_bytes: int
    largest: int
    memory: int
    argument_bytes: int
    lanes: int
    float64: bool
    divides: bool
    shares: bool
    beside: tuple[int, ...]

    @property
    def about(self) -> str:
        """A description for users."""
        platform = " ".join(self.platform.partition(",")[0].split())
        return f"{self.name}, {self.units} units, {bytes_text(self.memory)}, {platform}"

    @property
    def identity(self) -> str:
        """The key of its binaries in the cache."""
        return f"{self.platform} | {self.name} | {self.version} | {self.driver}"


def devices() -> list[OpenClDeviceInfo]:
    """Return all devices; raises DeviceError if there is no loader, or a driver fails to list
    them."""
    known = library()
    try:
        return [
            _describe_device(known, platform, handle, handles)
            for platform in known.handles("clGetPlatformIDs")
            for handles in [known.handles("clGetDeviceIDs", platform, _ALL)]
            for handle in handles
        ]
    except ClError as error:
        raise DeviceError(
            f"OpenCL cannot list its devices: {error}", "check the installation of its drivers"
        ) from None


def device(number: int) -> OpenClDeviceInfo:
    """Return the device of a number; raises DeviceError if there is none."""
    found = devices()
    if number < len(found):
        return found[number]
    names = ", ".join(f"'opencl:{n}' is {each.name}" for n, each in enumerate(found))
    raise DeviceError(
        f"there is no device 'opencl:{number}': the OpenCL loader {library().path} has"
        f" {count_of(len(found), 'device')}{': ' + names if names else ''}",
        f"{'take one of these, or ' if found else ''}install the driver of the device,"
        " or PoCL, which runs on processors, with `pip install anydim[opencl]`",
    )


def _describe_device(
    known: Library, platform: int, handle: int, beside: Sequence[int]
) -> OpenClDeviceInfo:
    def text(what: int) -> str:
        return known.text("clGetDeviceInfo", handle, what)

    def number(what: int, bytes: int = 8) -> int:
        return known.number("clGetDeviceInfo", handle, what, bytes=bytes)

    def shares() -> bool:
        if not known.shares or not lock_functions()[0]:
            return False
        try:
            can = number(_SHARED)
        except ClError:  # OpenCL 1
            return False
        return bool(can & _ANYWHERE or (can & _IN_STEP and number(_TYPE) & _CPU))

    made = known.text("clGetPlatformInfo", platform, _PLATFORM_NAME)
    return OpenClDeviceInfo(
        handle=handle,
        platform=f"{made} {known.text('clGetPlatformInfo', platform, _PLATFORM_VERSION)}",
        name=text(_NAME), version=text(_VERSION), driver=text(_DRIVER),
        processor=bool(number(_TYPE) & _CPU),
        units=number(_UNITS, 4), items=number(_MAX_GROUP_SIZE), local_bytes=number(_LOCAL_BYTES),
        largest=number(_LARGEST), memory=number(_MEMORY),
        argument_bytes=number(_ARGUMENT_BYTES), lanes=max(1, number(_FLOAT_WORDS, 4)),
        float64="cl_khr_fp64" in text(_EXTENSIONS),
        divides=bool(number(_FLOATS) & _ROUNDED_DIVIDE), shares=shares(),
        beside=tuple(beside),
    )  # fmt: skip

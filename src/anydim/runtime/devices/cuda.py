"""NVIDIA devices, by the functions of their driver library; no toolkit is needed.

Code is cubins, one per module (`targets/cuda`). Addresses are the device's own. All commands use
one stream; host data is copied to page-locked memory first, so that a copy returns without waiting.
`library` opens the driver library; tests replace it.

The functions are those of the CUDA driver API 11 and later (`cuda.h`, CUDA Toolkit documentation).
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from anydim.base import settings
from anydim.base.amounts import bytes_text
from anydim.base.errors import DeviceError
from anydim.base.records import dataclass
from anydim.runtime.devices.captured import Captured, Ready
from anydim.runtime.devices.cublas import PREFIX, Cublas, cublas
from anydim.runtime.devices.device import Device, Launch

_OK, _NO_MEMORY, _NO_DEVICE = 0, 2, 100
_COMPUTE_MAJOR, _COMPUTE_MINOR = 75, 76  # CUdevice_attribute
_MULTIPROCESSORS = 16
_MAX_THREADS = 0  # CUfunction_attribute: threads per block that a kernel was compiled for
_TIMING_OFF = 2  # CUevent_flags
_STAGE_BYTES = 1 << 20  # page-locked staging memory of small copies
_BLOCKS = 8  # blocks per multiprocessor of a range kernel
_WORKERS, _MAX_WORKERS = 4, 512  # per multiprocessor and in total, if each has scratch
RANGE = "_range"  # suffix of the variable that marks a range kernel

_PARAMETERS, _PARAMETERS_SIZE = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE

_WORD, _ADDRESS, _COUNT = ctypes.c_int, ctypes.c_uint64, ctypes.c_size_t
_ANY, _UNSIGNED = ctypes.c_void_p, ctypes.c_uint
_CALLS: Mapping[str, tuple[Any, ...]] = {
    "cuInit": (_UNSIGNED,),
    "cuDeviceGetCount": (_ANY,),
    "cuDeviceGet": (_ANY, _WORD),
    "cuDeviceGetName": (_ANY, _WORD, _WORD),
    "cuDeviceGetAttribute": (_ANY, _WORD, _WORD),
    "cuDeviceTotalMem_v2": (_ANY, _WORD),
    "cuDevicePrimaryCtxRetain": (_ANY, _WORD),
    "cuDevicePrimaryCtxRelease_v2": (_WORD,),
    "cuCtxPushCurrent_v2": (_ANY,),
    "cuCtxPopCurrent_v2": (_ANY,),
    "cuStreamCreate": (_ANY, _UNSIGNED),
    "cuStreamSynchronize": (_ANY,),
    "cuMemAlloc_v2": (_ANY, _COUNT),
    "cuMemFree_v2": (_ADDRESS,),
    "cuMemHostAlloc": (_ANY, _COUNT, _UNSIGNED),
    "cuMemcpyHtoDAsync_v2": (_ADDRESS, _ANY, _COUNT, _ANY),
    "cuMemcpyDtoHAsync_v2": (_ANY, _ADDRESS, _COUNT, _ANY),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, _COUNT, _ANY),
    "cuMemsetD8Async": (_ADDRESS, ctypes.c_ubyte, _COUNT, _ANY),
    "cuModuleLoadData": (_ANY, _ANY),
    "cuModuleUnload": (_ANY,),
    "cuModuleGetFunction": (_ANY, _ANY, ctypes.c_char_p),
    "cuModuleGetGlobal_v2": (_ANY, _ANY, _ANY, ctypes.c_char_p),
    "cuFuncGetAttribute": (_ANY, _WORD, _ANY),
    "cuLaunchKernel": (_ANY, *(_UNSIGNED,) * 7, _ANY, _ANY, _ANY),
    "cuStreamBeginCapture_v2": (_ANY, _WORD),
    "cuStreamEndCapture": (_ANY, _ANY),
    "cuGraphInstantiateWithFlags": (_ANY, _ANY, ctypes.c_ulonglong),
    "cuGraphExecUpdate_v2": (_ANY, _ANY, _ANY),
    "cuGraphLaunch": (_ANY, _ANY),
    "cuGraphDestroy": (_ANY,),
    "cuGraphExecDestroy": (_ANY,),
    "cuEventCreate": (_ANY, _UNSIGNED),
    "cuEventRecord": (_ANY, _ANY),
    "cuEventSynchronize": (_ANY,),
    "cuEventDestroy_v2": (_ANY,),
    "cuGetErrorString": (_WORD, _ANY),
}


class Failed(Exception):
    """A failed call, with the driver's text."""


class Library:
    """The functions of the driver library; a call that fails raises `Failed`, or MemoryError."""

    def __init__(self, library: Any) -> None:
        self._functions: dict[str, Callable[..., int]] = {}
        for name, types in _CALLS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, ctypes.c_int
            self._functions[name] = function

    def __call__(self, name: str, *given: Any) -> None:
        code = self._functions[name](*given)
        if code == _NO_MEMORY:
            raise MemoryError(self._text(code))
        if code != _OK:
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


@dataclass(frozen=True)
class CudaDeviceInfo:
    """A device of this machine; `architecture` is that of its code, such as 'sm_90'."""

    number: int
    name: str
    architecture: str
    memory: int
    multiprocessors: int

    @property
    def about(self) -> str:
        """A description for users."""
        units = f"{self.multiprocessors} multiprocessors"
        return f"{self.name}, {self.architecture}, {units}, {bytes_text(self.memory)}"


def list_cuda_devices(library: Library | None = None) -> list[CudaDeviceInfo]:
    """Return the devices that the driver lists. Raises DeviceError if there is no driver."""
    call = library or driver_library()
    return [
        _describe_device(call, number)
        for number in range(call.output_of("cuDeviceGetCount", _WORD))
    ]


def _describe_device(call: Library, number: int) -> CudaDeviceInfo:
    device = call.output_of("cuDeviceGet", _WORD, number)
    text = ctypes.create_string_buffer(256)
    call("cuDeviceGetName", text, len(text), device)
    major, minor, units = (
        call.output_of("cuDeviceGetAttribute", _WORD, attribute, device)
        for attribute in (_COMPUTE_MAJOR, _COMPUTE_MINOR, _MULTIPROCESSORS)
    )
    memory = call.output_of("cuDeviceTotalMem_v2", _COUNT, device)
    return CudaDeviceInfo(number, text.value.decode(), f"sm_{major}{minor}", memory, units)


@dataclass(frozen=True)
class _Entry:
    """A kernel: its function, the threads of a block, and whether the threads share a range.

    Otherwise each block is a work-group that runs one position.
    """

    function: int
    threads: int
    shared: bool
    product: str = ""  # its name, if a library may replace it


class CudaDevice(Device):
    """The device of a number, with its primary context."""

    target = "cuda"

    def __init__(
        self, name: str, number: int, library: Library | None = None,
        products: Callable[[], Cublas] = cublas, graphs: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name)
        graphs = settings.cuda_graphs if graphs is None else graphs
        self._products = products  # opened for the first plain matmul kernel
        self._handle = 0
        self.call = library or driver_library()
        shown = list_cuda_devices(self.call)
        if number >= len(shown):
            raise DeviceError(
                f"there is no device '{name}': the CUDA driver shows {len(shown)}",
                "`anydim devices` lists the devices of this machine",
            )
        self.about = shown[number]
        self.workers = min(_MAX_WORKERS, _WORKERS * self.about.multiprocessors)
        self._device = self.call.output_of("cuDeviceGet", _WORD, number)
        self._context = self.call.output_of("cuDevicePrimaryCtxRetain", _ANY, self._device)
        with self:
            self._stream = self.call.output_of("cuStreamCreate", _ANY, 1)  # independent of stream 0
            self._stage = self.call.output_of("cuMemHostAlloc", _ANY, _STAGE_BYTES, 0)
        self._captured = Captured(self.call, self._stream, graphs) if graphs else None
        self._staged = 0
        self._modules: list[tuple[int, bytes]] = []
        self._entries: list[_Entry] = []
        self._events: dict[int, int] = {}
        self._last = 0

    @property
    def identity(self) -> str:
        """Its name and architecture."""
        return f"{self.about.name} {self.about.architecture}"

    @property
    def processor(self) -> str:
        """Its architecture, such as 'sm_90'."""
        return self.about.architecture

    def __enter__(self) -> None:
        """Make this device's context current: contexts are per thread."""
        self.call("cuCtxPushCurrent_v2", self._context)

    def __exit__(self, *error: object) -> None:
        self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    # ---- memory --------------------------------------------------------------------------------

    def _after_flush(self) -> CudaDevice:
        """Return the device after starting deferred launches, for commands that follow them."""
        if self._captured is not None:
            with self._lock, self:
                self._captured.flush()
        return self

    def _trim(self) -> None:
        if self._captured is not None:
            with self:
                self._captured.trim()

    def _allocate(self, bytes: int) -> int:
        with self:
            address: int = self.call.output_of("cuMemAlloc_v2", _ADDRESS, bytes)
            return address

    def _free(self, address: int) -> None:
        with self._after_flush():
            self.call("cuStreamSynchronize", self._stream)  # memory in use must not be freed
            self.call("cuMemFree_v2", address)

    def _copy_in(self, target: int, source: int, bytes: int) -> None:
        with self._after_flush():
            if bytes > _STAGE_BYTES:
                self.call("cuMemcpyHtoDAsync_v2", target, source, bytes, self._stream)
                self.call("cuStreamSynchronize", self._stream)
                return
            at = -(-self._staged // 64) * 64
            if at + bytes > _STAGE_BYTES:  # wait until the staged bytes have been read
                self.call("cuStreamSynchronize", self._stream)
                at = 0
            ctypes.memmove(self._stage + at, source, bytes)
            self._staged = at + bytes
            self.call("cuMemcpyHtoDAsync_v2", target, self._stage + at, bytes, self._stream)

    def _copy_out(self, target: int, source: int, bytes: int) -> None:
        with self._after_flush():
            self.call("cuMemcpyDtoHAsync_v2", target, source, bytes, self._stream)

    def _copy_within(self, target: int, source: int, bytes: int) -> None:
        with self._after_flush():
            self.call("cuMemcpyDtoDAsync_v2", target, source, bytes, self._stream)

    def _fill(self, target: int, value: int, bytes: int) -> None:
        with self._after_flush():
            self.call("cuMemsetD8Async", target, value, bytes, self._stream)

    # ---- work ----------------------------------------------------------------------------------

    def _load(self, code: Mapping[str, bytes], symbols: Sequence[str]) -> Mapping[str, int]:
        with self:
            first = len(self._modules)
            for data in code.values():
                module = self.call.output_of("cuModuleLoadData", _ANY, data)
                self._modules.append((module, data))
            return {symbol: self._entry(symbol, first) for symbol in symbols}

    def _entry(self, symbol: str, first: int) -> int:
        """Return the number of a kernel, from 1 on, so that 0 is never an address."""
        for module, _ in self._modules[first:]:
            try:
                function = self.call.output_of("cuModuleGetFunction", _ANY, module, symbol.encode())
            except Failed:
                continue
            threads = self.call.output_of("cuFuncGetAttribute", _WORD, _MAX_THREADS, function)
            product = symbol if symbol.startswith(f"{PREFIX}_") else ""
            if product and not self._handle:
                self._handle = self._products().handle(self._stream)
            self._entries.append(
                _Entry(function, threads, self._has_symbol(module, symbol), product)
            )
            return len(self._entries)
        raise Failed(f"no module has the kernel '{symbol}'")

    def _has_symbol(self, module: int, symbol: str) -> bool:
        bytes = ctypes.c_size_t()
        try:
            self.call.output_of(
                "cuModuleGetGlobal_v2", _ANY, ctypes.byref(bytes), module,
                f"{symbol}{RANGE}".encode(),
            )  # fmt: skip
        except Failed:
            return False
        return True

    def _launch(self, launch: Launch) -> None:
        entry = self._entries[launch.entry - 1]
        blocks, threads, part = launch.parallel, entry.threads, 1
        if entry.shared:
            limit = self.workers if launch.stride else self._max_threads(entry)
            threads = 1 if launch.stride else threads  # few workers: each has its own warp
            workers = max(1, min(-(-launch.parallel // max(1, launch.grain)), limit))
            part = -(-launch.parallel // workers)
            blocks = -(-launch.parallel // (part * threads))
        count = launch.operands + launch.sizes
        words = (ctypes.c_int64 * (count + 4))()
        ctypes.memmove(words, launch.arguments, 8 * count)
        words[count:] = [launch.parallel, part, launch.scratch, launch.stride]
        begin = partial(self._begin, entry, blocks, threads, words, count)
        if self._captured is None:
            with self:
                begin()
            return
        whole, first = bytes(words), 8 * launch.operands
        addresses = whole[:first] + whole[8 * (count + 2) : 8 * (count + 3)]  # with scratch
        what = struct.pack("qqqq", launch.entry, blocks, threads, launch.operands)
        what += whole[first : 8 * (count + 2)] + whole[8 * (count + 3) :]
        with self:
            self._captured.add(Ready(begin, what, addresses))

    def _begin(
        self, entry: _Entry, blocks: int, threads: int, words: ctypes.Array[ctypes.c_int64],
        count: int,
    ) -> None:  # fmt: skip
        """Start a launch now, in the context; a library takes its first `count` slots."""
        if entry.product and self._products().multiply(
            self._handle, entry.product, words[:count]
        ):  # fmt: skip
            return
        size = ctypes.c_size_t(ctypes.sizeof(words))
        extra = (ctypes.c_void_p * 5)(
            _PARAMETERS, ctypes.addressof(words), _PARAMETERS_SIZE, ctypes.addressof(size), None
        )
        self.call(
            "cuLaunchKernel", entry.function, blocks, 1, 1, threads, 1, 1, 0, self._stream, None,
            extra,
        )  # fmt: skip

    def _max_threads(self, entry: _Entry) -> int:
        return entry.threads * _BLOCKS * self.about.multiprocessors

    def _record(self) -> int:
        with self._after_flush():
            event = self.call.output_of("cuEventCreate", _ANY, _TIMING_OFF)
            self.call("cuEventRecord", event, self._stream)
        self._last += 1
        self._events[self._last] = event
        return self._last

    def _wait(self, event: int) -> None:
        with self._lock:  # this thread owns the events up to it
            mine = {number: self._events.pop(number) for number in list(self._events)
                    if number <= event}  # fmt: skip
        with self:
            if event in mine:
                self.call("cuEventSynchronize", mine[event])
            else:  # another thread waits, or has waited, for it
                self.call("cuStreamSynchronize", self._stream)
            for held in mine.values():
                self.call("cuEventDestroy_v2", held)

    def _synchronise(self) -> None:
        with self._after_flush():
            self.call("cuStreamSynchronize", self._stream)

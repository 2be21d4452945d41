"""NVIDIA devices, by the functions of their driver library; no toolkit is needed.

Code is cubins, one per module (`targets/cuda`). Addresses are the device's own. All commands use
one stream. Programs use the native entry points (`native/device_api/cuda.py`): these stage host
data in page-locked memory, so that a copy returns without waiting, and replay captured graphs.
Methods of this class launch kernels one by one and wait for copies to the device. `library` opens
the driver library; tests replace it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anydim.base import settings
from anydim.base.amounts import bytes_text
from anydim.base.errors import DeviceError
from anydim.base.records import dataclass
from anydim.runtime.devices import cuda_state as state
from anydim.runtime.devices.cublas import PREFIX, Cublas, cublas
from anydim.runtime.devices.device import Launch
from anydim.runtime.devices.libcuda import (
    ADDRESS,
    ANY,
    COUNT,
    WORD,
    Failed,
    Library,
    driver_library,
)
from anydim.runtime.devices.native_state import NativeState

KIND = "cuda 1"
_COMPUTE_MAJOR, _COMPUTE_MINOR = 75, 76  # CUdevice_attribute
_MULTIPROCESSORS = 16
_MAX_THREADS = 0  # CUfunction_attribute: threads per block that a kernel was compiled for
_TIMING_OFF = 2  # CUevent_flags
_BLOCKS = 8  # blocks per multiprocessor of a range kernel
_WORKERS, _MAX_WORKERS = 4, 512  # per multiprocessor and in total, if each has scratch
RANGE = "_range"  # suffix of the variable that marks a range kernel

_PARAMETERS, _PARAMETERS_SIZE = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE


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
        _describe_device(call, number) for number in range(call.output_of("cuDeviceGetCount", WORD))
    ]


def _describe_device(call: Library, number: int) -> CudaDeviceInfo:
    device = call.output_of("cuDeviceGet", WORD, number)
    text = ctypes.create_string_buffer(256)
    call("cuDeviceGetName", text, len(text), device)
    major, minor, units = (
        call.output_of("cuDeviceGetAttribute", WORD, attribute, device)
        for attribute in (_COMPUTE_MAJOR, _COMPUTE_MINOR, _MULTIPROCESSORS)
    )
    memory = call.output_of("cuDeviceTotalMem_v2", COUNT, device)
    return CudaDeviceInfo(number, text.value.decode(), f"sm_{major}{minor}", memory, units)


class CudaDevice(NativeState):
    """The device of a number, with its primary context."""

    target = "cuda"
    kind = KIND
    own_words = state.WORDS

    def __init__(
        self, name: str, number: int, library: Library | None = None,
        products: Callable[[], Cublas] = cublas, graphs: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name)
        graphs = settings.cuda_graphs if graphs is None else graphs
        self._products = products  # opened for the first plain matmul kernel
        self.call = library or driver_library()
        shown = list_cuda_devices(self.call)
        if number >= len(shown):
            raise DeviceError(
                f"there is no device '{name}': the CUDA driver shows {len(shown)}",
                "`anydim devices` lists the devices of this machine",
            )
        self.about = shown[number]
        self.workers = min(_MAX_WORKERS, _WORKERS * self.about.multiprocessors)
        self._device = self.call.output_of("cuDeviceGet", WORD, number)
        self._context = self.call.output_of("cuDevicePrimaryCtxRetain", ANY, self._device)
        self._entries: list[ctypes.Array[ctypes.c_int64]] = []
        self._modules: list[tuple[int, bytes]] = []
        self._deferred = (ctypes.c_int64 * (state.BUFFER_WORDS if graphs else 0))()
        self._table = (ctypes.c_int64 * (state.TABLE_WORDS * graphs))()
        words = self.words
        for word, function in enumerate(state.FUNCTIONS, state.PUSH):
            words[word] = self.call.address(function)
        with self:
            self._stream = self.call.output_of("cuStreamCreate", ANY, 1)  # independent of stream 0
            words[state.STAGE] = self.call.output_of("cuMemHostAlloc", ANY, state.STAGE_BYTES, 0)
            for row in range(state.RING, state.RING + state.RING_ROWS):
                words[row] = self.call.output_of("cuEventCreate", ANY, _TIMING_OFF)
        words[state.STREAM], words[state.CONTEXT] = self._stream, self._context
        words[state.WORKERS], words[state.GRAPHS] = self.workers, graphs
        words[state.DEFERRED] = ctypes.addressof(self._deferred)
        words[state.TABLE] = ctypes.addressof(self._table)

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

    def _trim(self) -> None:
        """Release all captured graphs."""
        with self._mutex, self:
            self._flush()
            self.call("cuStreamSynchronize", self._stream)
            for row in range(0, len(self._table), state.TABLE_WORDS):
                graph, data = self._table[row + state.GRAPH], self._table[row + state.DATA]
                self._table[row : row + state.TABLE_WORDS] = [0] * state.TABLE_WORDS
                self._give_memory(data)
                if graph:
                    self.call("cuGraphExecDestroy", graph)

    def _allocate(self, bytes: int) -> int:
        with self:
            address: int = self.call.output_of("cuMemAlloc_v2", ADDRESS, bytes)
            return address

    def _release(self, address: int) -> None:
        with self:
            self.call("cuMemFree_v2", address)

    def _enqueue(self, name: str, *given: Any) -> None:
        """Issue a command after the deferred launches."""
        with self._mutex, self:
            self._flush()
            self.call(name, *given)

    def _copy_in(self, target: int, source: int, bytes: int) -> None:
        self._enqueue("cuMemcpyHtoDAsync_v2", target, source, bytes, self._stream)
        self._synchronise()

    def _copy_out(self, target: int, source: int, bytes: int) -> None:
        self._enqueue("cuMemcpyDtoHAsync_v2", target, source, bytes, self._stream)

    def _copy_within(self, target: int, source: int, bytes: int) -> None:
        self._enqueue("cuMemcpyDtoDAsync_v2", target, source, bytes, self._stream)

    def _fill(self, target: int, value: int, bytes: int) -> None:
        self._enqueue("cuMemsetD8Async", target, value, bytes, self._stream)

    # ---- work ----------------------------------------------------------------------------------

    def _load(self, code: Mapping[str, bytes], symbols: Sequence[str]) -> Mapping[str, int]:
        with self:
            first = len(self._modules)
            for data in code.values():
                module = self.call.output_of("cuModuleLoadData", ANY, data)
                self._modules.append((module, data))
            return {symbol: self._entry(symbol, first) for symbol in symbols}

    def _entry(self, symbol: str, first: int) -> int:
        """Return the address of a kernel's record."""
        for module, _ in self._modules[first:]:
            try:
                function = self.call.output_of("cuModuleGetFunction", ANY, module, symbol.encode())
            except Failed:
                continue
            threads = self.call.output_of("cuFuncGetAttribute", WORD, _MAX_THREADS, function)
            most = threads * _BLOCKS * self.about.multiprocessors
            entry = (ctypes.c_int64 * state.ENTRY_WORDS)(
                function, threads, self._has_symbol(module, symbol), most
            )
            if symbol.startswith(f"{PREFIX}_"):
                entry[state.MATRIX :] = [1, *self._matrix_types(symbol)]
            self._entries.append(entry)
            return ctypes.addressof(entry)
        raise Failed(f"no module has the kernel '{symbol}'")

    def _matrix_types(self, symbol: str) -> Sequence[int]:
        library = self._products()
        if not self.words[state.HANDLE]:
            self.words[state.MULTIPLY] = library.address
            self.words[state.HANDLE] = library.handle(self._stream)
        return library.types(symbol)

    def _has_symbol(self, module: int, symbol: str) -> bool:
        bytes = ctypes.c_size_t()
        try:
            self.call.output_of(
                "cuModuleGetGlobal_v2", ANY, ctypes.byref(bytes), module,
                f"{symbol}{RANGE}".encode(),
            )  # fmt: skip
        except Failed:
            return False
        return True

    def _launch(self, launch: Launch) -> None:
        entry = (ctypes.c_int64 * state.ENTRY_WORDS).from_address(launch.entry)
        blocks, threads, part = launch.parallel, entry[state.THREADS], 1
        if entry[state.SHARED]:
            limit = self.workers if launch.stride else entry[state.MAX_THREADS]
            threads = 1 if launch.stride else threads  # few workers: each has its own warp
            workers = max(1, min(-(-launch.parallel // max(1, launch.grain)), limit))
            part = -(-launch.parallel // workers)
            blocks = -(-launch.parallel // (part * threads))
        count = launch.operands + launch.sizes
        given = (ctypes.c_int64 * count).from_address(launch.arguments)
        words = (*given, launch.parallel, part, launch.scratch, launch.stride)
        with self._mutex, self:
            self._flush()
            self._begin(launch.entry, blocks, threads, (ctypes.c_int64 * len(words))(*words))

    def _begin(
        self, entry: int, blocks: int, threads: int, words: ctypes.Array[ctypes.c_int64]
    ) -> None:
        """Start a launch now, in the context, without cuBLAS."""
        function = ctypes.c_int64.from_address(entry + 8 * state.FUNCTION).value
        size = ctypes.c_size_t(ctypes.sizeof(words))
        extra = (ctypes.c_void_p * 5)(
            _PARAMETERS, ctypes.addressof(words), _PARAMETERS_SIZE, ctypes.addressof(size), None
        )
        self.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, self._stream, None,
                  extra)  # fmt: skip

    def _flush(self) -> None:
        """Start launches that native code has deferred."""
        at, end = 0, self.words[state.DEFERRED_WORDS]
        self.words[state.DEFERRED_WORDS] = self.words[state.DEFERRED_COUNT] = 0
        while at < end:
            entry, blocks, threads, _, count = self._deferred[at : at + state.HEAD]
            words = self._deferred[at + state.HEAD : at + state.HEAD + count]
            self._begin(entry, blocks, threads, (ctypes.c_int64 * count)(*words))
            at += state.HEAD + count

    def _record(self) -> int:
        with self._mutex:
            self.words[state.RECORDED] = number = self.words[state.RECORDED] + 1
        self._enqueue("cuEventRecord", self._event(number), self._stream)
        return number

    def _event(self, number: int) -> int:
        return self.words[state.RING + number % state.RING_ROWS]

    def _wait(self, event: int) -> None:
        with self:
            self.call("cuEventSynchronize", self._event(event))

    def _synchronise(self) -> None:
        self._enqueue("cuStreamSynchronize", self._stream)

    def _raise(self, function: int, code: int) -> None:
        if function == len(state.FUNCTIONS):
            self._products().raise_error(code)
        self.call.raise_error(state.FUNCTIONS[function], code)

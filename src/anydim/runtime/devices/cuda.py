"""NVIDIA devices, by the functions of their driver library; no toolkit is needed.

Code is cubins, one per module (`targets/cuda`). Addresses are the device's own. All commands use
one stream. Programs use the native entry points (`native/device_api/cuda.py`): these stage host
data in page-locked memory, so that a copy returns without waiting, and replay captured graphs.
Methods of this class launch kernels one by one and wait for copies to the device. `library` opens
the driver library; tests replace it.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anydim.base import settings
from anydim.base.amounts import bytes_text
from anydim.base.errors import DeviceError, OptionError
from anydim.base.records import dataclass
from anydim.runtime.devices import cuda_state as state
from anydim.runtime.devices.cublaslt import PREFIX, CublasLt, Products, cublaslt
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


def _multiply_callback(device: weakref.ref[CudaDevice]) -> Any:
    """Return the function by which native code starts a product of a record."""

    def multiply(record: int) -> int:
        known = device()
        return state.DECLINED if known is None else known.multiply(record)

    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(multiply)


class CudaDevice(NativeState):
    """The device of a number, with its primary context."""

    target = "cuda"
    kind = KIND
    own_words = state.WORDS

    def __init__(
        self, name: str, number: int, library: Library | None = None,
        products: Callable[[], CublasLt] = cublaslt, graphs: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name)
        graphs = settings.cuda_graphs if graphs is None else graphs
        self._open_products = products
        self._products: Products | None = None
        self._symbols: list[str] = []  # of kernels of matrix products
        self._product_error: Exception | None = None
        self._multiply = _multiply_callback(weakref.ref(self))
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
        words[state.MULTIPLY] = ctypes.cast(self._multiply, ctypes.c_void_p).value or 0
        words[state.STREAM], words[state.CONTEXT] = self._stream, self._context
        self.stream = self._stream
        words[state.WORKERS], words[state.GRAPHS] = self.workers, graphs
        words[state.DEFERRED] = ctypes.addressof(self._deferred)
        words[state.TABLE] = ctypes.addressof(self._table)

    @property
    def dlpack(self) -> tuple[int, int]:
        """kDLCUDA and its number."""
        return 2, self.about.number

    @property
    def identity(self) -> str:
        """Its name and architecture."""
        return f"{self.about.name} {self.about.architecture}"

    @property
    def processor(self) -> str:
        """Its architecture, such as 'sm_90'."""
        return self.about.architecture

    @property
    def features(self) -> str:
        """'+library' if cuBLASLt computes matrix products."""
        return "+library" if settings.cublaslt and self._library() is not None else ""

    def _library(self) -> CublasLt | None:
        try:
            return self._open_products()
        except OptionError:  # kernels compute their products
            return None

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
                entry[state.MATRIX] = self._product(symbol)
            self._entries.append(entry)
            return ctypes.addressof(entry)
        raise Failed(f"no module has the kernel '{symbol}'")

    def _product(self, symbol: str) -> int:
        """Return the number of a product for the library, 0 without a library."""
        library = self._library()
        if library is None:
            return 0
        if self._products is None:
            self._products = library.products(self._stream)
        self._symbols.append(symbol)
        return len(self._symbols)

    def multiply(self, record: int) -> int:
        """Start the product of a launch record (`cuda_state.py`), in the context.

        Returns 0, DECLINED if the kernel has to compute it, or 1 for a failure.
        """
        head = (ctypes.c_int64 * state.HEAD).from_address(record)
        words = (ctypes.c_int64 * head[state.PARAMETERS]).from_address(record + 8 * state.HEAD)
        *given, _, _, scratch, stride = words
        number = ctypes.c_int64.from_address(head[state.ENTRY] + 8 * state.MATRIX).value
        try:
            assert self._products is not None
            done = self._products.multiply(
                self._symbols[number - 1], given, scratch, stride * self.workers
            )
        except Exception as error:  # must not propagate into native code
            self._product_error = error
            return 1
        return 0 if done else state.DECLINED

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
        """Start a launch now, in the context."""
        function, matrix = (
            ctypes.c_int64.from_address(entry + 8 * word).value
            for word in (state.FUNCTION, state.MATRIX)
        )
        if matrix:
            record = (ctypes.c_int64 * (state.HEAD + len(words)))(
                entry, blocks, threads, 0, len(words), *words
            )
            done = self.multiply(ctypes.addressof(record))
            if done not in (0, state.DECLINED):
                self._raise(len(state.FUNCTIONS), done)
            if done == 0:
                return
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
            raise self._product_error or RuntimeError("a matrix product failed")
        self.call.raise_error(state.FUNCTIONS[function], code)

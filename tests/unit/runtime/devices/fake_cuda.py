"""A CUDA driver library in Python: memory of the host, kernels that are Python functions.

Its functions have C addresses, so that native code calls them as it calls those of a real one.

It refuses what a real one refuses: calls without a context, addresses that it did not give,
memory beyond its capacity. `kernels` says what symbols do; a cubin is a text of symbols, those of
kernels on ranges with a plus behind them.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import re
import struct
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from anydim.compiler.targets.c.loader import load
from anydim.compiler.targets.run import ENTRY
from anydim.runtime.devices.libcuda import CALLS

OK, INVALID, NO_MEMORY, NOT_FOUND, FAILED = 0, 1, 2, 500, 719
CAPTURED, UNLIKE, NO_HANDLE = 900, 910, 400
STREAM = 5  # its handle
ALIGNED = 256  # the alignment of blocks
GRAPH_BYTES = 256  # of a node of a graph that can be launched
TEXTS = {INVALID: b"invalid argument", NO_MEMORY: b"out of memory", NOT_FOUND: b"not found",
         CAPTURED: b"operation not permitted when stream is capturing",
         NO_HANDLE: b"invalid resource handle",
         UNLIKE: b"the graph update was not performed",
         FAILED: b"unspecified launch failure", 201: b"invalid device context"}  # fmt: skip
Graph = list[tuple[Callable[[], None], tuple[int, ...]]]
Kernel = Callable[[Sequence[int], int, int], None]  # words, blocks, items


class _Calls:
    """No finalizer runs during calls: native code that calls may hold the lock of a device."""

    def __init__(self) -> None:
        self.count, self.lock = 0, threading.Lock()

    def __enter__(self) -> None:
        with self.lock:
            self.count += 1
            gc.disable()

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.count -= 1
            if not self.count:
                gc.enable()


_CALLS = _Calls()


def c_function(types: Sequence[Any], work: Callable[..., int]) -> Any:
    """A function of Python as one of C that returns an int; FAILED where it raises an error."""

    def called(*given: Any) -> int:
        with _CALLS:
            try:
                return work(*given)
            except Exception:
                traceback.print_exc()
                return FAILED

    return ctypes.CFUNCTYPE(ctypes.c_int, *types)(called)


def put(address: int, value: int) -> None:
    """Write what a function gives: a handle or an address."""
    ctypes.c_uint64.from_address(address).value = value


def put_int(address: int, value: int) -> None:
    """Write an int of C."""
    ctypes.c_int.from_address(address).value = value


def elf_bytes(address: int) -> int:
    """The bytes of an ELF file in memory: its section headers come last."""
    (sections,) = struct.unpack("<Q", ctypes.string_at(address + 0x28, 8))
    size, count = struct.unpack("<HH", ctypes.string_at(address + 0x3A, 4))
    return int(sections + size * count)


class FakeCuda:
    """The library; attributes are its functions."""

    def __init__(self, devices: int = 1, capacity: int = 1 << 24, items: int = 64) -> None:
        self.devices, self.capacity, self.items = devices, capacity, items
        self.kernels: dict[str, Kernel] = {}
        self.idle = False  # whether unknown kernels do nothing
        self.every: Callable[[list[int]], object] = lambda words: None  # for each launch
        self.most = 0  # bytes allocated at a time, without graphs
        self.blocks: dict[int, Any] = {}
        self.pinned: list[Any] = []
        self.modules: list[list[str]] = []
        self.symbols: list[str] = []
        self.loaded: list[object] = []
        self.events: set[int] = set()
        self.launches: list[tuple[str, int, int]] = []
        self.capture: Graph | None = None
        self.graphs: dict[int, Graph] = {}  # and those that can be launched
        self.instances: dict[int, Graph] = {}  # those of them that take memory of the device
        self.last = 1 << 20
        self.counts = dict.fromkeys(("captures", "instances", "updates", "replays"), 0)
        self.fails: str | None = None  # the call that fails from now on
        self.local = threading.local()

    def __getattr__(self, name: str) -> Any:
        work = getattr(type(self), f"do_{name.removesuffix('_v2')}", None)
        if work is None:
            raise AttributeError(name)
        free = name in _WITHOUT_CONTEXT
        parameters = [*inspect.signature(work).parameters][1:]
        at = parameters.index("stream") if "stream" in parameters else None

        def function(*given: Any) -> int:
            if self.fails == name:
                return FAILED
            if not free and not getattr(self.local, "contexts", None):
                return 201
            if at is not None and given[at] != STREAM and "Create" not in name:
                return NO_HANDLE
            return int(work(self, *given) or OK)

        made = c_function(CALLS[name], function)
        setattr(self, name, made)
        return made

    # ---- devices ---------------------------------------------------------------------------------

    def do_cuInit(self, flags: int) -> None: ...

    def do_cuDeviceGetCount(self, count: int) -> None:
        put_int(count, self.devices)

    def do_cuDeviceGet(self, device: int, number: int) -> None:
        put_int(device, number)

    def do_cuDeviceGetName(self, text: int, length: int, device: int) -> None:
        ctypes.memmove(text, b"Fake", 5)

    def do_cuDeviceGetAttribute(self, value: int, attribute: int, device: int) -> None:
        put_int(value, {75: 9, 76: 0, 16: 4}[attribute])

    def do_cuDeviceTotalMem(self, bytes: int, device: int) -> None:
        put(bytes, self.capacity)

    def do_cuDevicePrimaryCtxRetain(self, context: int, device: int) -> None:
        put(context, 7 + device)

    def do_cuDevicePrimaryCtxRelease(self, device: int) -> None: ...

    def do_cuCtxPushCurrent(self, context: int) -> None:
        self.local.contexts = [*getattr(self.local, "contexts", []), context]

    def do_cuCtxPopCurrent(self, context: int) -> None:
        self.local.contexts.pop()

    def do_cuStreamCreate(self, stream: int, flags: int) -> None:
        put(stream, STREAM)

    def do_cuStreamSynchronize(self, stream: int) -> int:
        return CAPTURED if self.capture is not None else OK

    # ---- memory ----------------------------------------------------------------------------------

    def do_cuMemAlloc(self, address: int, bytes: int) -> int:
        if self.taken + bytes > self.capacity:
            return NO_MEMORY
        room = bytearray(bytes + ALIGNED)
        skipped = -ctypes.addressof(ctypes.c_ubyte.from_buffer(room)) % ALIGNED
        block = (ctypes.c_ubyte * bytes).from_buffer(room, skipped)
        put(address, ctypes.addressof(block))
        self.blocks[ctypes.addressof(block)] = block
        self.most = max(self.most, self.used)
        return OK

    @property
    def used(self) -> int:
        """The bytes of all blocks."""
        return sum(len(block) for block in self.blocks.values())

    @property
    def taken(self) -> int:
        """The bytes of blocks and of graphs that can be launched."""
        return self.used + GRAPH_BYTES * sum(map(len, self.instances.values()))

    def do_cuMemFree(self, address: int) -> int:
        return OK if self.blocks.pop(address, None) is not None else INVALID

    def do_cuMemHostAlloc(self, address: int, bytes: int, flags: int) -> None:
        self.pinned.append((ctypes.c_ubyte * bytes)())
        put(address, ctypes.addressof(self.pinned[-1]))

    def inside(self, address: int, bytes: int) -> bool:
        return any(
            at <= address and address + bytes <= at + len(b) for at, b in self.blocks.items()
        )

    def do_cuMemcpyHtoDAsync(self, target: int, source: int, bytes: int, stream: int) -> int:
        return self.moved(target, source, bytes, [target])

    def do_cuMemcpyDtoHAsync(self, target: int, source: int, bytes: int, stream: int) -> int:
        return self.moved(target, source, bytes, [source])

    def do_cuMemcpyDtoDAsync(self, target: int, source: int, bytes: int, stream: int) -> int:
        return self.moved(target, source, bytes, [target, source])

    def moved(self, target: int, source: int, bytes: int, own: Sequence[int]) -> int:
        if not all(self.inside(address, bytes) for address in own):
            return INVALID
        if self.capture is not None:
            return CAPTURED
        ctypes.memmove(target, source, bytes)
        return OK

    def do_cuMemsetD8Async(self, target: int, value: int, bytes: int, stream: int) -> int:
        if not self.inside(target, bytes):
            return INVALID
        if self.capture is not None:
            return CAPTURED
        ctypes.memset(target, value, bytes)
        return OK

    # ---- code ------------------------------------------------------------------------------------

    def do_cuModuleLoadData(self, module: int, code: int) -> int:
        if ctypes.string_at(code, 4) == b"\x7fELF":  # of this processor (tests/cuda_on_host.py)
            return self.load(module, ctypes.string_at(code, elf_bytes(code)))
        data = ctypes.string_at(code)
        if data.startswith(b"broken"):
            return INVALID
        self.modules.append(data.decode().split())
        put(module, len(self.modules))
        return OK

    def load(self, module: int, data: bytes) -> int:
        (name,) = re.findall(rb"(?<=\0)(\w+)_text(?=\0)", data)[:1]
        symbol = name.decode()
        shared = f"{symbol}_range".encode() in data
        code = load([data], [symbol])
        entry = ENTRY(code.address(symbol))

        def run(words: Sequence[int], blocks: int, items: int) -> None:
            *own, parallel, _part, scratch, _stride = words
            block = (ctypes.c_int64 * len(own))(*own)
            entry(ctypes.addressof(block), 0, parallel, scratch)

        self.kernels[symbol] = run
        self.loaded.append(code)
        self.modules.append([f"{symbol}+" if shared else symbol])
        put(module, len(self.modules))
        return OK

    def do_cuModuleUnload(self, module: int) -> None: ...

    def do_cuModuleGetFunction(self, function: int, module: int, symbol: bytes) -> int:
        name = symbol.decode()
        if name not in [known.rstrip("+") for known in self.modules[module - 1]]:
            return NOT_FOUND
        self.symbols.append(name)
        put(function, len(self.symbols))
        return OK

    def do_cuModuleGetGlobal(self, address: int, bytes: int, module: int, symbol: bytes) -> int:
        wanted = symbol.decode().removesuffix("_range") + "+"
        return OK if wanted in self.modules[module - 1] else NOT_FOUND

    def do_cuFuncGetAttribute(self, value: int, attribute: int, function: int) -> None:
        put_int(value, self.items)

    def do_cuLaunchKernel(self, function: int, *given: Any) -> int:
        (blocks, _, _, items, _, _, _, stream, _, extra) = given
        if stream != STREAM or not 0 < function <= len(self.symbols):
            return NO_HANDLE
        if not 0 < blocks < 1 << 31 or not 0 < items <= 1024:
            return INVALID
        extra = (ctypes.c_uint64 * 5).from_address(extra)
        size = ctypes.c_size_t.from_address(extra[3]).value
        if [*extra[:3:2], extra[4]] != [1, 2, 0] or size > 4096:
            return INVALID
        words = (ctypes.c_int64 * (size // 8)).from_address(extra[1])
        name, given = self.symbols[function - 1], list(words)
        return self.begun(lambda: self.do(name, given, blocks, items), (function,))

    def do(self, name: str, words: Sequence[int], blocks: int, items: int) -> None:
        self.launches.append((name, blocks, items))
        self.every([*words])
        if name in self.kernels or not self.idle:
            self.kernels[name](words, blocks, items)

    # ---- graphs ----------------------------------------------------------------------------------

    def begun(self, work: Callable[[], None], form: tuple[int, ...]) -> int:
        """Do work now, or note it where a stream is captured; `form` is what makes graphs alike."""
        if self.capture is None:
            work()
        else:
            self.capture.append((work, form))
        return OK

    def do_cuStreamBeginCapture(self, stream: int, mode: int) -> int:
        if self.capture is not None:
            return CAPTURED
        self.capture = []
        return OK

    def do_cuStreamEndCapture(self, stream: int, graph: int) -> int:
        if self.capture is None:
            return CAPTURED
        self.counts["captures"] += 1
        put(graph, self.made(self.capture))
        self.capture = None
        return OK

    def made(self, graph: Graph) -> int:
        self.last += 1
        self.graphs[self.last] = graph
        return self.last

    def do_cuGraphInstantiateWithFlags(self, made: int, graph: int, flags: int) -> int:
        nodes = self.graphs[graph]
        if self.taken + GRAPH_BYTES * len(nodes) > self.capacity:
            return NO_MEMORY
        self.counts["instances"] += 1
        put(made, self.made(nodes))
        self.instances[self.last] = nodes
        return OK

    def do_cuGraphExecUpdate(self, made: int, graph: int, info: Any) -> int:
        if [form for _, form in self.graphs[made]] != [form for _, form in self.graphs[graph]]:
            return UNLIKE
        self.counts["updates"] += 1
        self.graphs[made] = self.graphs[graph]
        return OK

    def do_cuGraphLaunch(self, made: int, stream: int) -> int:
        if made not in self.graphs or self.capture is not None:
            return INVALID
        self.counts["replays"] += 1
        for work, _ in self.graphs[made]:
            work()
        return OK

    def do_cuGraphDestroy(self, graph: int) -> int:
        return OK if self.graphs.pop(graph, None) is not None else INVALID

    def do_cuGraphExecDestroy(self, made: int) -> int:
        self.instances.pop(made, None)
        return self.do_cuGraphDestroy(made)

    # ---- events ----------------------------------------------------------------------------------

    def do_cuEventCreate(self, event: int, flags: int) -> None:
        self.events.add(made := max(self.events, default=0) + 1)
        put(event, made)

    def do_cuEventRecord(self, event: int, stream: int) -> int:
        return OK if event in self.events and self.capture is None else INVALID

    def do_cuEventSynchronize(self, event: int) -> int:
        return OK if event in self.events else INVALID

    def do_cuEventDestroy(self, event: int) -> int:
        if event not in self.events:
            return INVALID
        self.events.remove(event)
        return OK

    def do_cuGetErrorString(self, code: int, text: int) -> None:
        put(text, ctypes.cast(TEXTS[code], ctypes.c_void_p).value or 0)


_WITHOUT_CONTEXT = {
    "cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2",
    "cuCtxPushCurrent_v2", "cuGetErrorString",
}  # fmt: skip

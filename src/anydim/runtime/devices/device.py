"""The device interface of a program: commands in call order, and counters.

    device = open_device("null")
    block = device.allocate(4096)                   an address: an int64 for any kind of memory
    device.copy_in(block, array.ctypes.data, 4096)
    device.launch(Launch(entry, ...))
    device.copy_out(array.ctypes.data, block, 4096)
    device.wait(device.record())                    now the bytes are in the array

Addresses support offsets: the address of a value in an arena is the arena's address plus an offset.
Devices whose memory objects are handles use virtual addresses (`addresses.py`). All commands of a
device behave as if executed one after the other, in call order, from all threads: freeing or
reusing a block needs no wait. A driver with several queues ensures that by events.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from anydim.base.errors import DeviceError, DeviceMemoryError, UserError
from anydim.base.records import dataclass
from anydim.runtime import slots
from anydim.runtime.devices import context
from anydim.runtime.system_functions import memory_functions

_FAILED = ctypes.CFUNCTYPE(None, *(ctypes.c_int64,) * 3)
_NATIVE = {
    "launches": context.LAUNCHES, "copies_in": context.COPIES_IN, "copies_out": context.COPIES_OUT,
    "copies_within": context.COPIES_WITHIN, "bytes_in": context.BYTES_IN,
    "bytes_out": context.BYTES_OUT, "bytes_within": context.BYTES_WITHIN, "waits": context.WAITS,
}  # fmt: skip


HOSTS = ("cpu", "host")  # names of the host's processor


class Link(Protocol):
    """Links object code of the host's processor and resolves `symbols`."""

    def __call__(
        self, code: Mapping[str, bytes], symbols: Sequence[str]
    ) -> tuple[Mapping[str, int], object]: ...


class Launch(NamedTuple):
    """A launch of a kernel.

    `entry` is the result of `load` for its symbol. `arguments` is the address, in host memory, of
    int64 slots: first the device addresses of `operands`, then `sizes`; they may change after
    `launch` returns. The range is 0:`parallel`, at least `grain` of it per worker; `scratch` is the
    address of `stride` bytes per worker. `flops` and `moved` (bytes) are estimates.
    """

    entry: int
    arguments: int
    operands: int
    sizes: int
    parallel: int
    grain: int = 1
    scratch: int = 0
    stride: int = 0
    flops: int = 0
    moved: int = 0


@dataclass
class Counters:
    """Counts of commands since the device was opened; `bytes` is the memory in use."""

    launches: int = 0
    copies_in: int = 0
    copies_out: int = 0
    copies_within: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_within: int = 0
    waits: int = 0
    allocations: int = 0
    blocks: int = 0  # currently in use
    bytes: int = 0
    most_bytes: int = 0  # peak

    @property
    def copies(self) -> int:
        """The number of copies between the device and the host."""
        return self.copies_in + self.copies_out


_OPEN: weakref.WeakValueDictionary[int, Device] = weakref.WeakValueDictionary()


def device_at(context: int) -> Device:
    """Return the device with these slots."""
    return _OPEN[context]


def _failure_callback(device: weakref.ref[Device]) -> Any:
    """Return the function by which native code reports failures of a device."""

    def report(verb: int, function: int, code: int) -> None:
        known = device()
        if known is not None:
            known.keep(verb, function, code)

    return _FAILED(report)


class Device(ABC):
    """An open device; `name` is its name in `devices=` ('opencl:0'), `target` generates its code.

    Public methods count, synchronise threads and convert every failure to a DeviceError with the
    device's text; a subclass implements those with an underscore, which may raise anything. `link`
    loads code of this processor, for devices that run it; the code's owner sets it. `workers` share
    a range kernel.
    """

    target: str  # a name in `targets/targets.py`, or that of `made_by`
    workers: int = 1
    kind: str = (
        ""  # of native entry points (`native/device_api/`) for exactly this class; not inherited
    )
    own_words: int = 0  # number of slots for native entry points
    on_host: bool = False  # whether it works in host memory
    stream: int = 0  # of its commands, as DLPack gives it to other libraries
    made_by: Any = None  # its Target, if that is not a named one

    def __init__(self, name: str) -> None:
        self.name = name
        self.link: Link | None = None
        self.kept = threading.local()  # the last exception in a call of this thread
        self.words = (ctypes.c_int64 * (context.OWN + self.own_words))()
        self._failed = _failure_callback(weakref.ref(self))
        malloc, free, copy, fill = memory_functions()
        self.words[context.COPY], self.words[context.FILL_BYTES] = copy, fill
        self.words[context.ALLOCATE_BYTES], self.words[context.FREE_BYTES] = malloc, free
        self.words[context.FAILED] = ctypes.cast(self._failed, ctypes.c_void_p).value or 0
        self._counted = Counters()
        _OPEN[self.context] = self
        self._lock = threading.RLock()
        self._sizes: dict[int, int] = {}  # bytes of each block, by address

    @property
    def identity(self) -> str:
        """The key of its measured speed in the cache; '' disables caching."""
        return ""

    @property
    def processor(self) -> str:
        """The processor for its target."""
        return "native"

    @property
    def features(self) -> str:
        """What is installed beside the device and changes its code, such as '+library'."""
        return ""

    def clock(self) -> float:
        """Return seconds; differences are durations."""
        return perf_counter()

    @property
    def counters(self) -> Counters:
        """The counts so far."""
        counted, native = self._counted, self.words
        more = {name: getattr(counted, name) + native[word] for name, word in _NATIVE.items()}
        return replace(counted, **more)

    @property
    def context(self) -> int:
        """The context argument of native entry points."""
        return ctypes.addressof(self.words)

    @property
    def dlpack(self) -> tuple[int, int] | None:
        """DLPack's type and number of the device, if its addresses are those of a type."""
        return None

    @property
    def native(self) -> str:
        """The kind of its native entry points, '' if there are none."""
        return str(vars(type(self)).get("kind", ""))

    # ---- memory --------------------------------------------------------------------------------

    def allocate(self, bytes: int) -> int:
        """Allocate a block of `bytes` >= 1, aligned to 64; returns its address, not 0.

        Raises DeviceMemoryError if out of memory.
        """
        with self._lock:
            address: int = self._converting_errors("memory", self._allocate, bytes)
            counters = self._counted
            self._sizes[address] = bytes
            counters.allocations += 1
            counters.blocks += 1
            counters.bytes += bytes
            counters.most_bytes = max(counters.most_bytes, counters.bytes)
            return address

    def free(self, address: int) -> None:
        """Free a block after the commands issued so far."""
        with self._lock:
            bytes = self._sizes.pop(address)
            self._counted.blocks -= 1
            self._counted.bytes -= bytes
            self._converting_errors("free", self._free, address)

    def copy_in(self, target: int, source: int, bytes: int) -> None:
        """Copy host to device. The host bytes have been read when this returns."""
        with self._lock:
            self._counted.copies_in += 1
            self._counted.bytes_in += bytes
            if bytes:
                self._converting_errors("copy in", self._copy_in, target, source, bytes)

    def copy_out(self, target: int, source: int, bytes: int) -> None:
        """Copy device to host. The bytes are valid after waiting for a later event; the host memory
        must stay allocated until then."""
        with self._lock:
            self._counted.copies_out += 1
            self._counted.bytes_out += bytes
            if bytes:
                self._converting_errors("copy out", self._copy_out, target, source, bytes)

    def copy_within(self, target: int, source: int, bytes: int) -> None:
        """Copy between blocks of the device, which do not overlap."""
        with self._lock:
            self._counted.copies_within += 1
            self._counted.bytes_within += bytes
            if bytes:
                self._converting_errors("copy within", self._copy_within, target, source, bytes)

    def copy_from(self, target: int, origin: Device, source: int, bytes: int) -> bool:
        """Copy from the memory of another device; False if it has to go via the host.

        The copy follows earlier commands of both devices and precedes later ones.
        """
        with self._lock:
            if bytes and not self._converting_errors(
                "copy from", self._copy_from, target, origin, source, bytes
            ):
                return False
            self._counted.copies_in += 1
            self._counted.bytes_in += bytes
        with origin._lock:
            origin._counted.copies_out += 1
            origin._counted.bytes_out += bytes
        return True

    def fill(self, target: int, value: int, bytes: int) -> None:
        """Set all bytes to a value of 0 to 255."""
        with self._lock:
            if bytes:
                self._converting_errors("fill", self._fill, target, value, bytes)

    # ---- work ----------------------------------------------------------------------------------

    def load(self, code: Mapping[str, bytes], symbols: Sequence[str]) -> Mapping[str, int]:
        """Load objects of the device's target, by module; returns an entry for each symbol.

        The code stays loaded until the device is closed.
        """
        with self._lock:
            entries: Mapping[str, int] = self._converting_errors("load", self._load, code, symbols)
            return entries

    def launch(self, launch: Launch) -> None:
        """Start a kernel; an empty range is a no-op."""
        with self._lock:
            self._counted.launches += 1
            if launch.parallel > 0:
                self._converting_errors("launch", self._launch, launch)

    def record(self) -> int:
        """Record an event, 1 or more, that completes with all commands issued so far."""
        with self._lock:
            event: int = self._converting_errors("record", self._record)
            return event

    def wait(self, event: int) -> None:
        """Wait for an event; all events up to it are released."""
        self._counted.waits += 1
        self._converting_errors("wait", self._wait, event)

    def trim(self) -> None:
        """Release cached resources other than blocks."""
        with self._lock:
            self._converting_errors("trim", self._trim)

    def synchronise(self) -> None:
        """Wait until the device is idle, ignoring failures."""
        self._converting_errors("synchronise", self._synchronise)

    # ---- times ---------------------------------------------------------------------------------

    def watch(self) -> bool:
        """Start recording times of commands; False if unsupported or already active. Waits for
        idle."""
        return False

    def command_number(self) -> int:
        """Return the number of the last command of this thread, counted from `watch` on, or -1."""
        return -1

    def unwatch(self) -> list[tuple[int, int]]:
        """Stop recording; returns begin and end of each command, in ns of
        `time.perf_counter_ns`."""
        return []

    # ---- implemented by drivers ----------------------------------------------------------------

    @abstractmethod
    def _allocate(self, bytes: int) -> int: ...

    @abstractmethod
    def _free(self, address: int) -> None: ...

    @abstractmethod
    def _copy_in(self, target: int, source: int, bytes: int) -> None: ...

    @abstractmethod
    def _copy_out(self, target: int, source: int, bytes: int) -> None: ...

    @abstractmethod
    def _copy_within(self, target: int, source: int, bytes: int) -> None: ...

    def _copy_from(self, target: int, origin: Device, source: int, bytes: int) -> bool:
        if origin.words[context.FAMILY] != context.AT_ONCE:
            return False
        self._copy_in(target, source, bytes)
        return True

    @abstractmethod
    def _fill(self, target: int, value: int, bytes: int) -> None: ...

    @abstractmethod
    def _load(self, code: Mapping[str, bytes], symbols: Sequence[str]) -> Mapping[str, int]: ...

    @abstractmethod
    def _launch(self, launch: Launch) -> None: ...

    @abstractmethod
    def _record(self) -> int: ...

    @abstractmethod
    def _wait(self, event: int) -> None: ...

    @abstractmethod
    def _synchronise(self) -> None: ...

    def _trim(self) -> None:
        return  # most devices cache nothing

    def _converting_errors(self, verb: str, work: Callable[..., Any], *given: Any) -> Any:
        """Return the result of a driver's method, converting exceptions."""
        try:
            return work(*given)
        except UserError:
            raise
        except MemoryError as error:
            bytes = given[0] if verb == "memory" else None
            raise self.no_memory(bytes, str(error)) from None
        except Exception as error:
            raise self.command_error(verb, f"{type(error).__name__}: {error}") from error

    def keep(self, verb: int, function: int, code: int) -> None:
        """Store the exception for a failure reported by native code, for this thread."""
        name = next(name for name, word in slots.NAMES.items() if word == verb)
        try:
            self._converting_errors(name.replace("_", " "), self._raise, function, code)
        except BaseException as error:  # must not propagate into native code
            self.kept.error = error

    def _raise(self, function: int, code: int) -> None:
        """Raise the exception for an error code of a function, by its number."""
        raise RuntimeError(f"function {function} returned {code}")

    # ---- errors --------------------------------------------------------------------------------

    def command_error(self, verb: str, text: str) -> DeviceError:
        """Return the error for a failed command, with the device's text."""
        return DeviceError(
            f"device '{self.name}': {verb} failed: {text}",
            "call the model again, or put its parts elsewhere: devices={...: 'cpu'}",
        )

    def no_memory(self, bytes: int | None, text: str = "") -> DeviceMemoryError:
        """Return the error for a failed allocation; None: the number of bytes is unknown."""
        said = f": {text}" if text else ""
        wanted = "" if bytes is None else f" for {bytes} bytes"
        return DeviceMemoryError(
            f"device '{self.name}': no memory{wanted}, {self.counters.bytes} in use{said}",
            "use smaller inputs, or put parts elsewhere: devices={...: 'cpu'}",
        )

"""What a device is to a program: verbs, done in the order of the calls, and counters of them.

    device = open_device("null")
    block = device.allocate(4096)                   an address: an int64, whatever the memory is
    device.copy_in(block, array.ctypes.data, 4096)
    device.launch(Launch(entry, ...))
    device.copy_out(array.ctypes.data, block, 4096)
    device.wait(device.record())                    now the bytes are in the array

Addresses can be added to: a value in an arena lies at the arena's address plus an offset. A device
whose memory is handles gives out virtual addresses (`addresses.py`). All verbs of a device happen
as if one after the other, in the order of the calls, whichever threads they come from: that a block
is freed or used again needs no waiting. A driver with several queues keeps to that by events.
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
from anydim.devices import context
from anydim.runtime import slots
from anydim.runtime.system import memory_functions

_FAILED = ctypes.CFUNCTYPE(None, *(ctypes.c_int64,) * 3)
_NATIVE = {
    "launches": context.LAUNCHES, "copies_in": context.COPIES_IN, "copies_out": context.COPIES_OUT,
    "copies_within": context.COPIES_WITHIN, "bytes_in": context.BYTES_IN,
    "bytes_out": context.BYTES_OUT, "bytes_within": context.BYTES_WITHIN, "waits": context.WAITS,
}  # fmt: skip


HOSTS = ("cpu", "host")  # what users call the processor that runs the program itself


class Link(Protocol):
    """Object code of the processor that runs this -> where each of `symbols` begins."""

    def __call__(
        self, code: Mapping[str, bytes], symbols: Sequence[str]
    ) -> tuple[Mapping[str, int], object]: ...


class Launch(NamedTuple):
    """One launch of a kernel.

    `entry` is what `load` gave for its symbol. `arguments` is the address, in the memory of the
    host, of int64 words: first the addresses of so many `operands` in the memory of the device,
    then so many `sizes`; they may change when `launch` has returned. The work is 0:`parallel`, of
    which a part smaller than `grain` is not worth a worker of its own; `scratch` is the address of
    `stride` bytes for each worker. `flops` and `moved` (bytes) are estimates.
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
    """What a device was asked for since it was opened; `bytes` are those in use now."""

    launches: int = 0
    copies_in: int = 0
    copies_out: int = 0
    copies_within: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_within: int = 0
    waits: int = 0
    allocations: int = 0
    blocks: int = 0  # in use now
    bytes: int = 0
    most_bytes: int = 0  # at a time

    @property
    def copies(self) -> int:
        """Copies between the device and the host."""
        return self.copies_in + self.copies_out


_OPEN: weakref.WeakValueDictionary[int, Device] = weakref.WeakValueDictionary()


def device_at(context: int) -> Device:
    """The device whose words are there."""
    return _OPEN[context]


def _telling(device: weakref.ref[Device]) -> Any:
    """A function that native code tells failures of a device."""

    def tell(verb: int, function: int, code: int) -> None:
        known = device()
        if known is not None:
            known.keep(verb, function, code)

    return _FAILED(tell)


class Device(ABC):
    """An open device; `name` is what it is asked for by ('opencl:0'), `target` what makes its code.

    Verbs count, keep threads apart and make every failure a DeviceError with the device's own text
    inside; a subclass writes those with an underscore, which may raise anything. `link` makes code
    of this processor callable, for devices that run such; whoever brings code sets it. So many
    `workers` share a kernel that runs on a range.
    """

    target: str  # a name of `targets/targets.py`, or that of `made_by`
    workers: int = 1
    kind: str = (
        ""  # of native verbs (`native/device_api/`) that do what the class says; no subclass's
    )
    own_words: int = 0  # that native verbs work with
    on_host: bool = False  # whether it works in the memory of the host
    made_by: Any = None  # the Target that makes its code, where it is none of those with a name

    def __init__(self, name: str) -> None:
        self.name = name
        self.link: Link | None = None
        self.kept = threading.local()  # what the last verb has raised in a call of this thread
        self.words = (ctypes.c_int64 * (context.OWN + self.own_words))()
        self._failed = _telling(weakref.ref(self))
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
        """What its measured speed is kept under; '' where it is measured each time."""
        return ""

    @property
    def processor(self) -> str:
        """What its target is told to make code for."""
        return "native"

    def clock(self) -> float:
        """Seconds, of which a difference is what something took."""
        return perf_counter()

    @property
    def counters(self) -> Counters:
        """What it was asked for so far."""
        counted, native = self._counted, self.words
        more = {name: getattr(counted, name) + native[word] for name, word in _NATIVE.items()}
        return replace(counted, **more)

    @property
    def context(self) -> int:
        """What native verbs are called with."""
        return ctypes.addressof(self.words)

    @property
    def native(self) -> str:
        """The kind of native verbs that do what this one does, '' where there are none."""
        return str(vars(type(self)).get("kind", ""))

    # ---- memory --------------------------------------------------------------------------------

    def allocate(self, bytes: int) -> int:
        """The address of a new block of so many bytes, 1 or more, aligned to 64; not 0.

        Raises DeviceMemoryError where there is no memory.
        """
        with self._lock:
            address: int = self._told("memory", self._allocate, bytes)
            counters = self._counted
            self._sizes[address] = bytes
            counters.allocations += 1
            counters.blocks += 1
            counters.bytes += bytes
            counters.most_bytes = max(counters.most_bytes, counters.bytes)
            return address

    def free(self, address: int) -> None:
        """Give a block back, as soon as what was called before is done with it."""
        with self._lock:
            bytes = self._sizes.pop(address)
            self._counted.blocks -= 1
            self._counted.bytes -= bytes
            self._told("free", self._free, address)

    def copy_in(self, target: int, source: int, bytes: int) -> None:
        """Host to device. The bytes of the host are taken when this returns."""
        with self._lock:
            self._counted.copies_in += 1
            self._counted.bytes_in += bytes
            if bytes:
                self._told("copy in", self._copy_in, target, source, bytes)

    def copy_out(self, target: int, source: int, bytes: int) -> None:
        """Device to host. The bytes are there when an event recorded after it has been waited for;
        the memory of the host must stay until then."""
        with self._lock:
            self._counted.copies_out += 1
            self._counted.bytes_out += bytes
            if bytes:
                self._told("copy out", self._copy_out, target, source, bytes)

    def copy_within(self, target: int, source: int, bytes: int) -> None:
        """Between blocks of the device, which do not overlap."""
        with self._lock:
            self._counted.copies_within += 1
            self._counted.bytes_within += bytes
            if bytes:
                self._told("copy within", self._copy_within, target, source, bytes)

    def copy_from(self, target: int, origin: Device, source: int, bytes: int) -> bool:
        """From the memory of another device; False where that has to go by way of the host.

        It comes after what either device was asked for before, and what follows comes after it.
        """
        with self._lock:
            if bytes and not self._told(
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
        """All bytes take a value of 0 to 255."""
        with self._lock:
            if bytes:
                self._told("fill", self._fill, target, value, bytes)

    # ---- work ----------------------------------------------------------------------------------

    def load(self, code: Mapping[str, bytes], symbols: Sequence[str]) -> Mapping[str, int]:
        """Make objects of the device's target, by module, callable: an entry for each symbol.

        It stays until the device goes.
        """
        with self._lock:
            entries: Mapping[str, int] = self._told("load", self._load, code, symbols)
            return entries

    def launch(self, launch: Launch) -> None:
        """Begin a kernel; nothing happens for an empty range."""
        with self._lock:
            self._counted.launches += 1
            if launch.parallel > 0:
                self._told("launch", self._launch, launch)

    def record(self) -> int:
        """An event, 1 or more: it happens when all that was called so far is done."""
        with self._lock:
            event: int = self._told("record", self._record)
            return event

    def wait(self, event: int) -> None:
        """Return when an event has happened; all events up to it are forgotten."""
        self._counted.waits += 1
        self._told("wait", self._wait, event)

    def trim(self) -> None:
        """Give back what is kept for later calls, of which blocks are no part."""
        with self._lock:
            self._told("trim", self._trim)

    def synchronise(self) -> None:
        """Return when nothing is in progress, whatever became of it."""
        self._told("synchronise", self._synchronise)

    # ---- times ---------------------------------------------------------------------------------

    def watch(self) -> bool:
        """Have the device note when it does what it is asked for; False where it cannot, or does
        so already. What is in progress is waited for."""
        return False

    def noted(self) -> int:
        """The number of the command that the last verb of this thread began, counted from `watch`
        on; -1 where it began none."""
        return -1

    def unwatch(self) -> list[tuple[int, int]]:
        """Note no more; begin and end of each command, in ns of `time.perf_counter_ns`."""
        return []

    # ---- what a driver writes ------------------------------------------------------------------

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
        return  # most keep nothing

    def _told(self, verb: str, work: Callable[..., Any], *given: Any) -> Any:
        """What a driver's verb gives; what it raises becomes an error of ours."""
        try:
            return work(*given)
        except UserError:
            raise
        except MemoryError as error:
            bytes = given[0] if verb == "memory" else None
            raise self.no_memory(bytes, str(error)) from None
        except Exception as error:
            raise self.failed(verb, f"{type(error).__name__}: {error}") from error

    def keep(self, verb: int, function: int, code: int) -> None:
        """Native code tells that a verb failed: the error of that is kept for the thread."""
        name = next(name for name, word in slots.NAMES.items() if word == verb)
        try:
            self._told(name.replace("_", " "), self._raise, function, code)
        except BaseException as error:  # it must not go into native code
            self.kept.error = error

    def _raise(self, function: int, code: int) -> None:
        """Raise what a code means that a function gave, both as native verbs say them."""
        raise RuntimeError(f"function {function} gave {code}")

    # ---- errors --------------------------------------------------------------------------------

    def failed(self, verb: str, text: str) -> DeviceError:
        """The error for a verb that failed with the device's own text."""
        return DeviceError(
            f"device '{self.name}': {verb} failed: {text}",
            "call the model again, or put its parts elsewhere: devices={...: 'cpu'}",
        )

    def no_memory(self, bytes: int | None, text: str = "") -> DeviceMemoryError:
        """The error for so many bytes that there are not, None: who knows how many."""
        said = f": {text}" if text else ""
        wanted = "" if bytes is None else f" for {bytes} bytes"
        return DeviceMemoryError(
            f"device '{self.name}': no memory{wanted}, {self.counters.bytes} in use{said}",
            "use smaller inputs, or put parts elsewhere: devices={...: 'cpu'}",
        )

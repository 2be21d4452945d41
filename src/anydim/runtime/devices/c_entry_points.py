"""The device interface of host code: C functions of int64s, which never raise.

An entry point takes the context first. `allocate` returns an address and `record` an event, or 0 on
failure; the others return 0, or 1 on failure. The exception is stored for the thread, which
retrieves it at the end of the call. Entry points are native functions for kinds of devices that
have them (`native/device_api/`), otherwise methods of the device: those take the interpreter's
lock.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy

from anydim.runtime import slots
from anydim.runtime.device_calls import Note
from anydim.runtime.devices.device import Device, Launch, device_at
from anydim.runtime.devices.device_array import address_of, own_array

_TOGETHER, _ALIGNMENT = 64 << 20, 64  # bytes of constants per block, and their alignment
_LAUNCH = len(Launch._fields)
_ARGUMENTS: Mapping[int, int] = {
    slots.ALLOCATE: 1, slots.FREE: 1, slots.COPY_WITHIN: 4, slots.FILL: 3, slots.LAUNCH: _LAUNCH,
    slots.COPY_IN: 4, slots.COPY_OUT: 4, slots.RECORD: 0, slots.WAIT: 1, slots.COPY_FROM: 5,
}  # fmt: skip
_GIVING = {slots.ALLOCATE, slots.RECORD}
_BEGUN = {
    slots.COPY_FROM,
    slots.LAUNCH,
    slots.COPY_IN,
    slots.COPY_OUT,
    slots.COPY_WITHIN,
    slots.FILL,
}


class HostedDevice:
    """A device with the code of a program, and its constants, which it owns.

    `native` are the addresses of native entry points, by their roles in an interface; a kind of
    device has all of them or none.
    """

    def __init__(
        self, device: Device, code: Mapping[str, bytes], symbols: Sequence[str],
        native: Mapping[str, int],
    ) -> None:  # fmt: skip
        self.device = device
        self._entries = device.load(code, symbols) if symbols else {}
        self.address_of = partial(address_of, device)
        self.own_array = partial(own_array, device)
        self._constants: dict[str, int] = {}
        self._blocks: list[int] = []  # blocks of constants
        roles = {word: slots.role(device.native, name) for name, word in slots.NAMES.items()}
        self.native = {w: native[name] for w, name in roles.items() if name in native}
        self._functions, words = _functions(device, _verbs(device))
        self.words = {**words, **self.native}
        weakref.finalize(self, _free, device, self._blocks).atexit = False

    def with_clock(self, note: Note, waited: bool) -> ClockedDevice:
        """Return the same with timed entry points."""
        return ClockedDevice(self, note, waited)

    def entry(self, symbol: str) -> int:
        """Return the entry for launches of a kernel."""
        return self._entries[symbol]

    def upload(self, arrays: Mapping[str, numpy.ndarray]) -> Mapping[str, int]:
        """Return the addresses of constants, copied to the device on first use."""
        missing = {name: each for name, each in arrays.items() if name not in self._constants}
        for group in _blocks_of(missing):
            block = self.device.allocate(max(1, sum(_padded_bytes(each) for _, each in group)))
            self._blocks.append(block)
            for name, array in group:
                self.device.copy_in(block, array.ctypes.data, array.nbytes)
                self._constants[name] = block
                block += _padded_bytes(array)
        return {name: self._constants[name] for name in arrays}

    def empty(self) -> int:
        """Return the address of values without bytes: of a constant, or of a block for them."""
        if not self._blocks:
            self._blocks.append(self.device.allocate(_ALIGNMENT))
        return self._blocks[0]

    def begin(self) -> None:
        """Clear the stored exception of this thread at the begin of a call."""
        self.device.kept.error = None

    def raise_kept(self) -> None:
        """Raise the stored exception of this thread, if any."""
        error: BaseException | None = getattr(self.device.kept, "error", None)
        self.device.kept.error = None
        if error is not None:
            raise error

    def settle(self) -> None:
        """Wait until the device is idle; raises nothing."""
        with suppress(Exception):  # failures are reported by the call that caused them
            self.device.synchronise()


class ClockedDevice:
    """A device with the code of a program and timed entry points; it shares the constants."""

    def __init__(self, plain: HostedDevice, note: Note, waited: bool) -> None:
        self.device = plain.device
        self.upload, self.empty, self.begin = plain.upload, plain.empty, plain.begin
        self.raise_kept, self.settle = plain.raise_kept, plain.settle
        self.address_of, self.own_array = plain.address_of, plain.own_array
        self._plain = plain
        self._entries = [0]  # entries of the device, by the numbers of launches
        verbs = _verbs(plain.device)
        verbs |= {word: _call_native(word, plain) for word in plain.native}
        timed = {
            word: _time_entry(word, verb, note, self._entries, plain.device, waited)
            for word, verb in verbs.items()
        }
        self._functions, self.words = _functions(plain.device, timed)

    def entry(self, symbol: str) -> int:
        """Return the number of a launch."""
        self._entries.append(self._plain.entry(symbol))
        return len(self._entries) - 1

    def with_clock(self, note: Note, waited: bool) -> ClockedDevice:
        """Return another clock for the same device."""
        return self._plain.with_clock(note, waited)


def _verbs(device: Device) -> dict[int, Callable[..., Any]]:
    launch = device.launch
    return {
        slots.ALLOCATE: device.allocate, slots.FREE: device.free,
        slots.COPY_WITHIN: _of_bytes(device.copy_within), slots.FILL: device.fill,
        slots.LAUNCH: lambda *given: launch(Launch(*given)),
        slots.COPY_IN: _of_bytes(device.copy_in), slots.COPY_OUT: _of_bytes(device.copy_out),
        slots.RECORD: device.record, slots.WAIT: device.wait, slots.COPY_FROM: _from(device),
    }  # fmt: skip


def _of_bytes(verb: Callable[[int, int, int], None]) -> Callable[..., None]:
    """Drop the last argument of a copy, its number in the program."""
    return lambda target, source, bytes, which: verb(target, source, bytes)


def _from(device: Device) -> Callable[..., int]:
    def copy(target: int, origin: int, source: int, bytes: int, which: int) -> int:
        copied = device.copy_from(target, device_at(origin), source, bytes)
        return 0 if copied else slots.BY_HOST

    return copy


def _time_entry(
    word: int, verb: Callable[..., Any], note: Note, entries: Sequence[int], device: Device,
    waited: bool,
) -> Callable[..., Any]:  # fmt: skip
    """Return an entry point that is timed; if `waited`, until its work is done."""
    begins = word in _BEGUN

    def call(*given: int) -> Any:
        arguments, sizes = given, ()
        if word == slots.LAUNCH:  # its arguments may change after it returns
            launch = Launch(*given)
            first = launch.arguments + 8 * launch.operands
            sizes = tuple((ctypes.c_int64 * launch.sizes).from_address(first))
            arguments = launch._replace(entry=entries[launch.entry])
        begin, command, result = perf_counter_ns(), -1, None
        try:
            result = verb(*arguments)
            command = device.command_number() if begins else -1
            if waited and begins:
                device.synchronise()
            return result
        finally:
            if word != slots.COPY_FROM or result != slots.BY_HOST:  # else via the host
                note(word, given, sizes, begin, perf_counter_ns(), command)

    return call


def _call_native(word: int, plain: HostedDevice) -> Callable[..., int]:
    """Return a native entry point as a Python function; raises its stored exception."""
    function = _kind(word)(plain.native[word])
    context, failed = plain.device.context, 0 if word in _GIVING else 1

    def call(*given: int) -> int:
        result = int(function(context, *given))
        if result == failed:
            plain.raise_kept()
        return result

    return call


def _kind(word: int) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * (1 + _ARGUMENTS[word]))


def _functions(
    device: Device, verbs: Mapping[int, Callable[..., Any]]
) -> tuple[list[Any], Mapping[int, int]]:
    """Return the functions for native code, to be kept alive, and their addresses by slot."""
    functions = {
        word: _kind(word)(_guard(verb, word in _GIVING, device.kept))
        for word, verb in verbs.items()
    }
    words = {
        word: ctypes.cast(function, ctypes.c_void_p).value or 0
        for word, function in functions.items()
    }
    words |= {slots.CONTEXT: device.context, slots.ON_HOST: int(device.on_host)}
    return list(functions.values()), words


def _guard(verb: Callable[..., Any], giving: bool, kept: threading.local) -> Callable[..., int]:
    """Return a verb's result, 0 for None; on an error store it and return 1, or 0 if `giving`."""

    def call(_: int, *given: int) -> int:
        try:
            return int(verb(*given) or 0)
        except BaseException as error:  # must not propagate into native code
            kept.error = error
            return 0 if giving else 1

    return call


def _padded_bytes(array: numpy.ndarray) -> int:
    return -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT


def _blocks_of(arrays: Mapping[str, numpy.ndarray]) -> Iterator[list[tuple[str, numpy.ndarray]]]:
    """Yield the constants of each block: few large blocks are faster to read than many."""
    group: list[tuple[str, numpy.ndarray]] = []
    bytes = 0
    for name, array in arrays.items():
        if group and bytes + array.nbytes > _TOGETHER:
            yield group
            group, bytes = [], 0
        group.append((name, array))
        bytes += _padded_bytes(array)
    if group:
        yield group


def _free(device: Device, blocks: list[int]) -> None:
    while blocks:
        device.free(blocks.pop())

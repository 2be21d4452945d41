"""A device as host code reaches it: C functions of int64s, which never raise.

A verb takes the context first. `allocate` returns an address and `record` an event, 0 where they
fail; the others return 0, and 1 where they fail. What was raised is kept for the thread, which asks
for it when the call has ended.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy

from anydim.devices.device import Device, Launch
from anydim.runtime import home

_TOGETHER, _ALIGNMENT = 64 << 20, 64  # bytes of constants in one block, and where each begins
_LAUNCH = len(Launch._fields)
_ARGUMENTS: Mapping[int, int] = {
    home.ALLOCATE: 1, home.FREE: 1, home.COPY_WITHIN: 3, home.FILL: 3, home.LAUNCH: _LAUNCH,
    home.COPY_IN: 3, home.COPY_OUT: 3, home.RECORD: 0, home.WAIT: 1,
}  # fmt: skip


class HostedDevice:
    """A device with the code of a program; its constants go when this does."""

    def __init__(self, device: Device, code: Mapping[str, bytes], symbols: Sequence[str]) -> None:
        self.device = device
        self._entries = device.load(code, symbols) if symbols else {}
        self._kept = threading.local()
        self._constants: dict[str, int] = {}
        self._blocks: list[int] = []  # that hold them
        self._functions = {
            word: ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * (1 + count))(work)
            for (word, count), work in zip(_ARGUMENTS.items(), self._verbs())
        }
        words = {
            word: ctypes.cast(function, ctypes.c_void_p).value or 0
            for word, function in self._functions.items()
        }
        self.words: Mapping[int, int] = {**words, home.CONTEXT: id(device)}
        weakref.finalize(self, _free, device, self._blocks).atexit = False

    def _verbs(self) -> list[Callable[..., int]]:
        """In the order of `_ARGUMENTS`."""
        device, kept = self.device, self._kept

        def told(verb: Callable[..., Any]) -> Callable[..., int]:
            def call(_: int, *given: int) -> int:
                try:
                    verb(*given)
                    return 0
                except BaseException as error:  # it must not go into native code
                    kept.error = error
                    return 1

            return call

        def asked(verb: Callable[..., int]) -> Callable[..., int]:
            def call(_: int, *given: int) -> int:
                try:
                    return verb(*given)
                except BaseException as error:
                    kept.error = error
                    return 0

            return call

        launch = device.launch
        return [
            asked(device.allocate), told(device.free), told(device.copy_within), told(device.fill),
            told(lambda *given: launch(Launch(*given))), told(device.copy_in),
            told(device.copy_out), asked(device.record), told(device.wait),
        ]  # fmt: skip

    def entry(self, symbol: str) -> int:
        """What launches a kernel."""
        return self._entries[symbol]

    def upload(self, arrays: Mapping[str, numpy.ndarray]) -> Mapping[str, int]:
        """The addresses of constants, copied there when they are first asked for."""
        missing = {name: each for name, each in arrays.items() if name not in self._constants}
        for group in _together(missing):
            block = self.device.allocate(max(1, sum(_padded(each) for _, each in group)))
            self._blocks.append(block)
            for name, array in group:
                self.device.copy_in(block, array.ctypes.data, array.nbytes)
                self._constants[name] = block
                block += _padded(array)
        return {name: self._constants[name] for name in arrays}

    def begin(self) -> None:
        """Forget what a verb has raised in this thread: a call begins."""
        self._kept.error = None

    def raise_kept(self) -> None:
        """Raise what a verb has raised last in this thread in this call, if anything."""
        error: BaseException | None = getattr(self._kept, "error", None)
        self._kept.error = None
        if error is not None:
            raise error

    def settle(self) -> None:
        """Return when nothing is in progress; raises nothing."""
        with suppress(Exception):  # what failed is told by the call that asked for it
            self.device.synchronise()


def _padded(array: numpy.ndarray) -> int:
    return -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT


def _together(arrays: Mapping[str, numpy.ndarray]) -> Iterator[list[tuple[str, numpy.ndarray]]]:
    """The constants that lie in one block: few large blocks are faster to read than many."""
    group: list[tuple[str, numpy.ndarray]] = []
    bytes = 0
    for name, array in arrays.items():
        if group and bytes + array.nbytes > _TOGETHER:
            yield group
            group, bytes = [], 0
        group.append((name, array))
        bytes += _padded(array)
    if group:
        yield group


def _free(device: Device, blocks: list[int]) -> None:
    while blocks:
        device.free(blocks.pop())

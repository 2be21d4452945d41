"""A device as host code reaches it: C functions of int64s, which never raise.

A verb takes the context first. `allocate` returns an address and `record` an event, 0 where they
fail; the others return 0, and 1 where they fail. What was raised is kept for the thread, which asks
for it when the call has ended.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy

from anydim.devices.device import Device, Launch
from anydim.runtime import home

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
        self._functions = {
            word: ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * (1 + count))(work)
            for (word, count), work in zip(_ARGUMENTS.items(), self._verbs())
        }
        words = {
            word: ctypes.cast(function, ctypes.c_void_p).value or 0
            for word, function in self._functions.items()
        }
        self.words: Mapping[int, int] = {**words, home.CONTEXT: id(device)}
        weakref.finalize(self, _free, device, self._constants).atexit = False

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

    def upload(self, name: str, array: numpy.ndarray) -> int:
        """The address of a constant, copied there when it is first asked for."""
        if name not in self._constants:
            address = self.device.allocate(max(array.nbytes, 1))
            self._constants[name] = address
            self.device.copy_in(address, array.ctypes.data, array.nbytes)
        return self._constants[name]

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


def _free(device: Device, constants: dict[str, int]) -> None:
    for address in constants.values():
        device.free(address)
    constants.clear()

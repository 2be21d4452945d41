"""Drivers that share the slots of a device with native entry points, under one mutex."""

from __future__ import annotations

import ctypes
from abc import abstractmethod
from typing import Any

from anydim.runtime.devices import context
from anydim.runtime.devices.device import Device
from anydim.runtime.system_functions import Mutex, memory_functions


class NativeState(Device):
    """A device whose slots native code changes while it holds the mutex.

    A finalizer may free a block while its thread holds the mutex: the block is freed later.
    """

    def __init__(self, name: str, *given: Any) -> None:
        super().__init__(name, *given)
        self._mutex = Mutex()
        self._late: list[int] = []  # blocks to be freed
        self._give_memory = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(memory_functions()[1])
        self.words[context.LOCK], self.words[context.UNLOCK] = self._mutex.functions
        self.words[context.MUTEX] = self._mutex.address

    @property
    def native(self) -> str:
        """The kind of its native entry points, which need a mutex of the system."""
        return super().native if self._mutex.functions[0] else ""

    def _free(self, address: int) -> None:
        self._late.append(address)
        if self._mutex.is_mine:
            return
        self._synchronise()
        while self._late:
            self._release(self._late.pop())

    @abstractmethod
    def _release(self, address: int) -> None:
        """Free a block that no command uses."""

"""Interface of a call to a device; `devices/c_entry_points.py` implements it for drivers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy

from anydim.runtime.arrays import AtAddress
from anydim.runtime.signature import TensorSpec

# the slot of an entry point (`slots.py`), its arguments, the sizes of a launch, begin and end in
# ns, and the number of the device command that it enqueued
Note: TypeAlias = Callable[[int, Sequence[int], Sequence[int], int, int, int], None]


class Hosted(Protocol):
    """A device with a program's code on it."""

    @property
    def device(self) -> Any:
        """The device itself."""

    @property
    def words(self) -> Mapping[int, int]:
        """Addresses of the entry points and the context, by slot (`slots.py`)."""

    def entry(self, symbol: str) -> int:
        """Return the launch handle of a kernel."""

    def upload(self, arrays: Mapping[str, numpy.ndarray]) -> Mapping[str, int]:
        """Return device addresses of constants; the first request copies them."""

    def empty(self) -> int:
        """Return the device address of values without bytes."""

    def address_of(self, value: Any, spec: TensorSpec, where: str) -> AtAddress:
        """Return shape and address of an array on the device, as `devices/device_array.py`."""

    def own_array(
        self, address: int, shape: tuple[int, ...], dtype: numpy.dtype, head: int
    ) -> Any:  # fmt: skip
        """Return a block that has left the memory of a call as an array."""

    def begin(self) -> None:
        """Clear this thread's stored exception at the begin of a call."""

    def raise_kept(self) -> None:
        """Raise this thread's stored exception of this call, if any."""

    def settle(self) -> None:
        """Wait until the device is idle; raises nothing."""

    def with_clock(self, note: Note, waited: bool) -> Hosted:
        """Return the same device and code with entry points that are timed and recorded by `note`.

        `entry` returns consecutive numbers from 1 on: they identify launches, not kernels. With
        `waited`, asynchronous entry points return when the device is idle.
        """

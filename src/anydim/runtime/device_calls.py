"""What a call needs of a device: words for its memory, and what went wrong.

`devices/c_entry_points.py` makes it of a device; this room knows no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy

# a verb by its place in `slots.py`, what it was given, the sizes of a launch, its begin and end in
# ns, and which command of the device it began
Note: TypeAlias = Callable[[int, Sequence[int], Sequence[int], int, int, int], None]


class Hosted(Protocol):
    """A device with a program's code on it."""

    @property
    def device(self) -> Any:
        """The device itself."""

    @property
    def words(self) -> Mapping[int, int]:
        """The verbs and the context, by their places in `slots.py`."""

    def entry(self, symbol: str) -> int:
        """What launches a kernel."""

    def upload(self, arrays: Mapping[str, numpy.ndarray]) -> Mapping[str, int]:
        """The addresses of constants, copied there when they are first asked for."""

    def begin(self) -> None:
        """Forget what a verb has raised in this thread: a call begins."""

    def raise_kept(self) -> None:
        """Raise what a verb has raised last in this thread in this call, if anything."""

    def settle(self) -> None:
        """Return when nothing is in progress; raises nothing."""

    def clocked(self, note: Note, waited: bool) -> Hosted:
        """The same device and code, by verbs that are timed and noted.

        The entries of its launches are numbers from 1 on, in the order in which `entry` is asked:
        they say which launch it is, not which kernel. `waited`: a verb that begins something ends
        when nothing is in progress any more.
        """

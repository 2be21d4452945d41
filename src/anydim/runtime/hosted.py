"""What a call needs of a device: words for its memory, and what went wrong.

`devices/hosted.py` makes it of a device; this room knows no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy


class Hosted(Protocol):
    """A device with a program's code on it."""

    @property
    def device(self) -> Any:
        """The device itself."""

    @property
    def words(self) -> Mapping[int, int]:
        """The verbs and the context, by their places in `home.py`."""

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

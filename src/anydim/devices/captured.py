"""Sequences of launches that come again, as captured graphs of CUDA: one call for all of them.

What is launched waits until something else is asked for. A sequence of kernels with sizes that was
there before is captured then, and launched as a graph from then on; where its addresses have moved
it is captured again and the graph is told. So many graphs are kept, those that were used last.
CUDA Driver API, "Stream Management" and "Graph Management".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

from anydim.base.records import dataclass

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE: other threads may do what a capture forbids
_FEW = 3  # launches that a graph is not worth
_MOST = 4096  # launches that wait
_INFO_BYTES = 64  # more than a CUgraphExecUpdateResultInfo has


class Call(Protocol):
    """The functions of the driver's library."""

    def __call__(self, name: str, *given: Any) -> None: ...

    def asked(self, name: str, kind: Any, *given: Any) -> Any: ...


@dataclass(frozen=True)
class Ready:
    """A launch whose words are taken: what begins it, what it is at which sizes, and on what."""

    begin: Callable[[], None]
    what: bytes
    addresses: bytes


@dataclass
class _Graph:
    """What a sequence was captured to; 0 until it comes a second time."""

    executable: int = 0
    addresses: bytes = b""


class Captured:
    """Launches on a stream, at most so many graphs of them kept. Not for several threads at once.

    The context is current wherever something is done.
    """

    def __init__(self, call: Call, stream: int, graphs: int) -> None:
        self._call, self._stream, self._most = call, stream, graphs
        self._waiting: list[Ready] = []
        self._known: dict[bytes, _Graph] = {}  # the last used one last

    def add(self, ready: Ready) -> None:
        """Launch it, when the sequence that it is part of ends."""
        self._waiting.append(ready)
        if len(self._waiting) >= _MOST:
            self.flush()

    def flush(self) -> None:
        """Begin all that waits."""
        sequence, self._waiting = self._waiting, []
        if len(sequence) <= _FEW:
            for each in sequence:
                each.begin()
            return
        key = b"".join(each.what for each in sequence)
        known = self._known.pop(key, None)
        self._known[key] = known or _Graph()
        while len(self._known) > self._most:
            self._forget(next(iter(self._known)))
        if known is None:
            for each in sequence:
                each.begin()
            return
        addresses = b"".join(each.addresses for each in sequence)
        if not known.executable or known.addresses != addresses:
            self._capture(sequence, known)
            known.addresses = addresses
        self._call("cuGraphLaunch", known.executable, self._stream)

    def trim(self) -> None:
        """Give all graphs back."""
        while self._known:
            self._forget(next(iter(self._known)))

    def _capture(self, sequence: list[Ready], known: _Graph) -> None:
        """The graph of a sequence, new or with what has moved."""
        self._call("cuStreamBeginCapture_v2", self._stream, _RELAXED)
        try:
            for each in sequence:
                each.begin()
        finally:
            held = ctypes.c_void_p()
            self._call("cuStreamEndCapture", self._stream, ctypes.byref(held))
        graph = held.value or 0
        try:
            if known.executable and not self._told(known.executable, graph):
                self._destroy(known)
            if not known.executable:
                known.executable = self._call.asked(
                    "cuGraphInstantiateWithFlags", ctypes.c_void_p, graph, 0
                )
        finally:
            self._call("cuGraphDestroy", graph)

    def _told(self, executable: int, graph: int) -> bool:
        """Whether an executable graph takes the numbers of another one of its form."""
        info = ctypes.create_string_buffer(_INFO_BYTES)
        try:
            self._call("cuGraphExecUpdate_v2", executable, graph, info)
        except MemoryError:
            raise
        except Exception:  # the driver may find them unlike: a new one is made
            return False
        return True

    def _forget(self, key: bytes) -> None:
        known = self._known.pop(key)
        if known.executable:
            self._destroy(known)

    def _destroy(self, known: _Graph) -> None:
        self._call("cuStreamSynchronize", self._stream)  # it may be at work
        executable, known.executable = known.executable, 0
        self._call("cuGraphExecDestroy", executable)

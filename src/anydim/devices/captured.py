"""Sequences of launches that come again, as captured graphs of CUDA: one call for all of them.

What is launched waits until something else is asked for. A sequence of kernels with sizes that was
there before is captured then, and launched as a graph from then on. Calls take turns with blocks of
memory: a few graphs are kept for addresses of a sequence, then one that is captured again is told
of them. So many sequences are kept, those that were used last.
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
_ADDRESSES = 4  # sets of them that a sequence has graphs for
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


class Captured:
    """Launches on a stream, at most so many graphs of them kept. Not for several threads at once.

    The context is current wherever something is done.
    """

    def __init__(self, call: Call, stream: int, graphs: int) -> None:
        self._call, self._stream, self._most = call, stream, graphs
        self._waiting: list[Ready] = []
        # graphs by their addresses, by what they do; what was used last is last
        self._known: dict[bytes, dict[bytes, int]] = {}

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
        self._known[key] = {} if known is None else known
        while len(self._known) > self._most:
            self._forget(next(iter(self._known)))
        if known is None:
            for each in sequence:
                each.begin()
            return
        addresses = b"".join(each.addresses for each in sequence)
        graph = known.pop(addresses, 0) or self._capture(sequence, known)
        known[addresses] = graph
        self._call("cuGraphLaunch", graph, self._stream)

    def trim(self) -> None:
        """Give all graphs back."""
        while self._known:
            self._forget(next(iter(self._known)))

    def _capture(self, sequence: list[Ready], known: dict[bytes, int]) -> int:
        """The graph of a sequence: a new one, or one of those known, which is told what moved."""
        self._call("cuStreamBeginCapture_v2", self._stream, _RELAXED)
        try:
            for each in sequence:
                each.begin()
        finally:
            held = ctypes.c_void_p()
            self._call("cuStreamEndCapture", self._stream, ctypes.byref(held))
        graph = held.value or 0
        try:
            if len(known) >= _ADDRESSES:
                oldest = known.pop(next(iter(known)))
                if self._told(oldest, graph):
                    return oldest
                self._destroy(oldest)
            made: int = self._call.asked("cuGraphInstantiateWithFlags", ctypes.c_void_p, graph, 0)
            return made
        finally:
            self._call("cuGraphDestroy", graph)

    def _told(self, executable: int, graph: int) -> bool:
        """Whether an executable graph takes the numbers of another one of its form."""
        info = ctypes.create_string_buffer(_INFO_BYTES)
        try:
            self._call("cuGraphExecUpdate_v2", executable, graph, info)
        except Exception:  # the driver may find them unlike: a new one is made in its place
            return False
        return True

    def _forget(self, key: bytes) -> None:
        for graph in self._known.pop(key).values():
            self._destroy(graph)

    def _destroy(self, graph: int) -> None:
        self._call("cuStreamSynchronize", self._stream)  # it may be at work
        self._call("cuGraphExecDestroy", graph)

"""Recurring sequences of launches as captured CUDA graphs: one call for a whole sequence.

Launches are deferred until another operation. If a sequence of kernels with its sizes occurs a
second time, it is captured and from then on launched as a graph. Calls alternate between blocks of
memory: a few graphs are cached per sequence, for different addresses; beyond that, a captured graph
updates one of them. The number of cached sequences is limited; the least recently used is evicted.
CUDA Driver API, "Stream Management" and "Graph Management".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

from anydim.base.records import dataclass

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE: no restrictions on other threads
_TOO_FEW = 3  # launches, too few for a graph
_MAX_DEFERRED = 4096  # maximum deferred launches
_ADDRESSES = 4  # graphs per sequence, for different addresses
_INFO_BYTES = 64  # at least a CUgraphExecUpdateResultInfo


class Call(Protocol):
    """The functions of the driver library."""

    def __call__(self, name: str, *given: Any) -> None: ...

    def output_of(self, name: str, kind: Any, *given: Any) -> Any: ...


@dataclass(frozen=True)
class Ready:
    """A deferred launch: the function that starts it, its kernel and sizes, its addresses."""

    begin: Callable[[], None]
    what: bytes
    addresses: bytes


class Captured:
    """Launches on a stream with a limited number of cached graphs. Not thread-safe.

    The context must be current.
    """

    def __init__(self, call: Call, stream: int, graphs: int) -> None:
        self._call, self._stream, self._max_sequences = call, stream, graphs
        self._deferred: list[Ready] = []
        # graphs by addresses, by sequence; in order of last use
        self._known: dict[bytes, dict[bytes, int]] = {}

    def add(self, ready: Ready) -> None:
        """Defer a launch to the end of its sequence."""
        self._deferred.append(ready)
        if len(self._deferred) >= _MAX_DEFERRED:
            self.flush()

    def flush(self) -> None:
        """Start all deferred launches."""
        sequence, self._deferred = self._deferred, []
        if len(sequence) <= _TOO_FEW:
            for each in sequence:
                each.begin()
            return
        key = b"".join(each.what for each in sequence)
        known = self._known.pop(key, None)
        self._known[key] = {} if known is None else known
        while len(self._known) > self._max_sequences:
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
        """Release all graphs."""
        while self._known:
            self._forget(next(iter(self._known)))

    def _capture(self, sequence: list[Ready], known: dict[bytes, int]) -> int:
        """Return the graph of a sequence: a new one, or an updated one."""
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
                if self._can_update(oldest, graph):
                    return oldest
                self._destroy(oldest)
            made: int = self._call.output_of(
                "cuGraphInstantiateWithFlags", ctypes.c_void_p, graph, 0
            )
            return made
        finally:
            self._call("cuGraphDestroy", graph)

    def _can_update(self, executable: int, graph: int) -> bool:
        """Whether an executable graph can be updated to another graph of the same form."""
        info = ctypes.create_string_buffer(_INFO_BYTES)
        try:
            self._call("cuGraphExecUpdate_v2", executable, graph, info)
        except Exception:  # not updatable: it is replaced by a new one
            return False
        return True

    def _forget(self, key: bytes) -> None:
        for graph in self._known.pop(key).values():
            self._destroy(graph)

    def _destroy(self, graph: int) -> None:
        self._call("cuStreamSynchronize", self._stream)  # it may be running
        self._call("cuGraphExecDestroy", graph)

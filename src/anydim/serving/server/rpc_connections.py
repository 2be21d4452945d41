"""The connections over gRPC, which grpcio keeps for itself: their sockets are those of this process
with the server's port (on Linux). It refuses new ones at its limit; before, idle ones are closed.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import unquote

from anydim.base.records import dataclass
from anydim.serving.server.clients import FIRST_SECONDS

_FILES = "/proc/self/fd"
_SECONDS = 0.25  # between two looks
_INFO = 256  # bytes of what the system says of a connection (struct tcp_info of linux/tcp.h)
_SILENT = slice(52, 56)  # of it: the milliseconds since bytes arrived
_RECEIVED = slice(128, 136)  # the bytes that arrived
_MAPPED = "::ffff:"  # before an address of IPv4 on a socket of IPv6
Peer = tuple[str, int]
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class _Socket:
    """An open file of this process; `peer` is None for one that is no connection over gRPC."""

    inode: int
    peer: Peer | None


def peer_of(text: str) -> Peer:
    """Host and port of a client, as grpcio writes it: `ipv4:1.2.3.4:5`, `ipv6:%5B::1%5D:5`."""
    host, _, port = unquote(text).partition(":")[2].rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0


class RpcConnections:
    """The connections of a port, of which there are `most`. `others` counts those of HTTP."""

    def __init__(self, port: int, most: int, others: Callable[[], int]) -> None:
        self._port, self._most, self._others = port, most, others
        self.calls = Counter[Peer]()  # that are not answered
        self._known: dict[int, _Socket] = {}

    async def run(self) -> None:
        """Close idle connections while there are nearly too many."""
        most = self._most - self._most // 4
        while os.path.isdir(_FILES):
            await asyncio.sleep(_SECONDS)
            if len(os.listdir(_FILES)) - self._others() > most:
                await asyncio.to_thread(self.close_idle, most)

    def close_idle(self, most: int) -> None:
        """Close those that have been silent longest, until `most` are left. One with a call, or
        that has just come, is not idle."""
        found = self._look()
        silent = {number: _number(number, _SILENT) for number, peer in found.items()
                  if not self.calls[peer]}  # fmt: skip
        idle = [number for number, time in silent.items() if time >= 1000 * FIRST_SECONDS]
        idle.sort(key=lambda number: -silent[number])
        for number in idle[: max(0, len(found) - most)]:
            _on(number, lambda each: each.shutdown(socket.SHUT_RDWR))

    def bytes_received(self, peer: Peer) -> int | None:
        """The bytes that a client has sent so far; None if the system does not tell."""
        number = self._number_of(peer)
        if number is None:
            self._look()
            number = self._number_of(peer)
        return None if number is None else _number(number, _RECEIVED)

    def _number_of(self, peer: Peer) -> int | None:
        return next((number for number, each in self._known.items() if each.peer == peer), None)

    def _look(self) -> dict[int, Peer]:
        """The descriptors of connections. A file that was seen before is not looked at again."""
        now: dict[int, _Socket] = {}
        for name in os.listdir(_FILES) if os.path.isdir(_FILES) else ():
            number = int(name)
            with suppress(OSError):
                inode, before = os.fstat(number).st_ino, self._known.get(number)
                if before is None or before.inode != inode:
                    before = _Socket(inode, self._peer(number))
                now[number] = before
        self._known = now
        return {number: each.peer for number, each in now.items() if each.peer is not None}

    def _peer(self, number: int) -> Peer | None:
        def of(each: socket.socket) -> Peer | None:
            name: Any = each.getsockname()
            if not isinstance(name, tuple) or name[1] != self._port:
                return None
            host, port, *_ = each.getpeername()
            return host.removeprefix(_MAPPED), port

        return _on(number, of)


def _on(number: int, use: Callable[[socket.socket], _Found]) -> _Found | None:
    """What the use of a descriptor as a socket returns; None if it is none. It stays open."""
    try:
        made = socket.socket(fileno=number)
    except OSError:
        return None
    try:
        return use(made)
    except OSError:
        return None
    finally:
        made.detach()


def _number(number: int, where: slice) -> int:
    """A number of the system's information on a connection; 0 without any."""
    level, name = socket.IPPROTO_TCP, getattr(socket, "TCP_INFO", 11)
    found = _on(number, lambda each: each.getsockopt(level, name, _INFO))
    return int.from_bytes((found or b"")[where], "little")

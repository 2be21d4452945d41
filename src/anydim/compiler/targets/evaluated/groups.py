"""Work-groups of the interpreter: each work-item runs up to a barrier, then the next one does.

Checks: all work-items reach the same barrier, or the end; between two barriers no work-item
accesses memory that another one writes, and no group memory that another group of the launch
writes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy

from anydim.base.errors import InternalError
from anydim.base.records import dataclass

_NOBODY, _SEVERAL = -1, -2


class Touched:
    """The readers and writers of each byte of memory since the last `clear`."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._known: dict[int, tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]] = {}

    def note(
        self, name: str, data: numpy.ndarray, positions: numpy.ndarray, me: int, writes: bool
    ) -> None:
        """Record an access; raises InternalError on a conflict with another work-item or group."""
        if id(data) not in self._known:
            nobody = numpy.full((2, len(data)), _NOBODY)
            self._known[id(data)] = (data, *nobody)  # alive, so that its id is unique
        _, writers, readers = self._known[id(data)]
        others = [writers[positions], readers[positions]] if writes else [writers[positions]]
        for found in others:
            clash = (found != _NOBODY) & (found != me)
            if clash.any():
                raise InternalError(
                    f"byte {int(positions[clash][0])} of '{name}' is accessed by {self._who} {me} "
                    "and another one, and written"
                )
        if writes:
            writers[positions] = me
        else:
            before = readers[positions]
            readers[positions] = numpy.where((before == _NOBODY) | (before == me), me, _SEVERAL)

    def clear(self) -> None:
        self._known.clear()


class _Abandoned(Exception):
    """Another work-item of the group failed."""


@dataclass
class Member:
    """A running work-item of a group."""

    number: int
    group: Group
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    waits: object = None  # the barrier it waits at
    ended: bool = False
    error: BaseException | None = None

    def exchange(
        self, step: object, given: object, warp: int, combine: Callable[[Sequence[Any]], Any]
    ) -> Any:
        """Combine the inputs of each `warp` work-items when all have reached the step."""
        group = self.group
        group.given[self.number] = given
        self.meet(step)
        first = self.number // warp * warp
        if first + warp > len(group.shown):
            raise InternalError(f"a group of {len(group.shown)} work-items has no whole warps")
        if first not in group.combined:
            group.combined[first] = combine([group.shown[first + n] for n in range(warp)])
        return group.combined[first]

    def meet(self, barrier: object) -> None:
        """Wait at a barrier for all work-items."""
        self.waits = barrier
        self.group.turn.release()
        self.go.acquire()
        if self.group.abandoned:
            raise _Abandoned
        self.waits = None

    def note(self, name: str, data: numpy.ndarray, positions: numpy.ndarray, writes: bool) -> None:
        """Record accessed bytes."""
        self.group.items.note(name, data, positions, self.number, writes)
        self.group.launch.note(name, data, positions, self.group.number, writes)


class Group:
    """Group `number` of a launch; `launch` has the accesses of all its groups so far."""

    def __init__(self, number: int, count: int, launch: Touched) -> None:
        self.number = number
        self.launch = launch
        self.items = Touched("item")
        self.turn = threading.Semaphore(0)
        self.abandoned = False
        self.given: dict[int, Any] = {}  # inputs of a collective step, until all have arrived
        self.shown: dict[int, Any] = {}
        self.combined: dict[int, Any] = {}  # results, by the first work-item of a warp
        self._members = [Member(item, self) for item in range(count)]

    def run(self, work: Callable[[Member], None]) -> None:
        """Run `work` for every work-item, in turn; raises what any of them raises."""
        threads = [
            threading.Thread(target=self._item, args=(member, work)) for member in self._members
        ]
        for thread in threads:
            thread.start()
        try:
            while self._round():
                if not self.given:  # a barrier, not a collective step
                    self.items.clear()
                self.given, self.shown, self.combined = {}, self.given, {}
        finally:
            self.abandoned = True
            for member in self._members:
                member.go.release()
            for thread in threads:
                thread.join()

    def _item(self, member: Member, work: Callable[[Member], None]) -> None:
        member.go.acquire()
        try:
            if not self.abandoned:
                work(member)
        except _Abandoned:
            pass
        except BaseException as error:  # re-raised by `run`
            member.error = error
        member.ended = True
        self.turn.release()

    def _round(self) -> bool:
        """Run every work-item up to its next barrier; False when all have ended."""
        for member in self._members:
            member.go.release()
            self.turn.acquire()
            if member.error is not None:
                raise member.error
        ended = {member.ended for member in self._members}
        if len(ended) > 1 or len({id(member.waits) for member in self._members}) > 1:
            raise InternalError("work-items of a group do not reach the same barrier")
        return ended == {False}

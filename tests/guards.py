"""Launches that are watched: none writes outside of its operands and its scratch.

    with telling():
        model = ad.compile(source, threads=1)
    results = Watched(model)(feeds)     # raises Trespass

Host code compiled under `telling` passes each launch, behind its arguments, the place and bytes of
all buffers of its segment. `Watched` is a twin of the executable whose table of code has a function
of Python for each launch (as that of `runtime/clocked.py`), which compares all memory of the
segment before and after the kernel. On one thread, it also fills the bytes of the arena that hold
no live value with a pattern before each launch, so that a kernel that reads them gives other
results. `everywhere` does all this for each call of a model (`python -m tests.fuzz --watched`).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import numpy

import anydim as ad
from anydim.compiler.native import emit, region_emit
from anydim.runtime.arrays import by_name
from anydim.runtime.clocked import ENTRY
from anydim.runtime.program.callable_program import CallableProgram
from anydim.runtime.program.segment import Segment, Site
from anydim.sizes import Size, negated_if_negative

_sizes = Segment._sizes
_key_of = emit.key_of
_call = CallableProgram.__call__
_WORD = 8


class Trespass(AssertionError):
    """A launch that wrote where it must not."""


class _Telling(emit._Launches):
    """Launches with one more argument: the address of arena, its bytes, and these of buffers."""

    def __init__(self, program: Segment, words: Any, body: Any) -> None:
        super().__init__(program, words, body)
        self.told = body.array(2 + 2 * len(program.buffers))
        body.store(self.told, 0, self.arena)
        body.store(self.told, 1, self.size(program.total_bytes))
        for number, buffer in enumerate(program.buffers, 1):
            body.store(self.told, 2 * number, self.buffer(buffer.name))
            body.store(self.told, 2 * number + 1, self.size(buffer.bytes))

    def launch(self, site: int, step: Site) -> None:
        behind = self.words.arguments[site] + len(step.operands) + len(step.sizes)
        self.body.store(emit.BLOCK, behind, self.told)
        super().launch(site, step)


def _all_sizes(segment: Segment) -> Iterator[Size]:
    yield from _sizes(segment)
    yield from (buffer.bytes for buffer in segment.buffers)


@contextmanager
def telling() -> Iterator[None]:
    """Host code compiled meanwhile tells launches where all buffers are."""
    with ExitStack() as patches:
        patches.enter_context(ad.settings.override(keep_programs=False, strategy="generic"))
        patches.enter_context(mock.patch.object(emit, "_Launches", _Telling))
        patches.enter_context(mock.patch.object(Segment, "_sizes", _all_sizes))
        for module in (emit, region_emit):  # other code, so other keys of the cache
            key = mock.patch.object(module, "key_of", lambda *parts: _key_of("telling", *parts))
            patches.enter_context(key)
        yield


@contextmanager
def everywhere() -> Iterator[None]:
    """Each call of a model without devices is made once more, watched, with the same results."""
    watched: WeakKeyDictionary[CallableProgram, Watched] = WeakKeyDictionary()

    def call(model: CallableProgram, *values: Any, **named: Any) -> dict[str, Any]:
        results = _call(model, *values, **named)
        if "out" in named or model._lists or model._varied is not None or model.executable.devices:
            return results
        given = by_name(model.name, model._given_names, values, named) if values else named
        if model not in watched:
            watched[model] = Watched(model)
        for name, array in watched[model](given).items():
            if _content(array) != _content(results[name]):
                raise Trespass(f"'{name}' depends on bytes of the arena that hold no live value")
        return results

    with telling(), mock.patch.object(CallableProgram, "__call__", call):
        yield


def _content(array: Any) -> bytes:
    return numpy.asarray(array).tobytes()


class Watched:
    """Calls of a model whose launches are watched."""

    def __init__(self, model: ad.Model) -> None:
        self.model = model
        self.launches = 0
        self._twin = model.executable.twin()
        self._lock = threading.Lock()
        self._raised: list[BaseException] = []
        self._kept = []
        segments = [each for each in model.program.segments if not each.device]
        for table, segment in zip(self._twin.entries.values(), segments, strict=True):
            for number, address in enumerate(table.tolist()):
                run = ENTRY(self._watched(segment, number, ENTRY(address)))
                table[number] = ctypes.cast(run, ctypes.c_void_p).value or 0
                self._kept.append(run)

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The results of a call. Raises Trespass, and the errors of a call."""
        self._raised.clear()
        results = self._twin(feeds)
        if self._raised:
            raise self._raised[0]
        return results

    def _watched(self, segment: Segment, number: int, kernel: Any) -> Callable[..., None]:
        launch = _Launch(segment, number, self.model)
        alone = self.model.executable.threads == 1

        def run(arguments: int, start: int, stop: int, scratch: int) -> None:
            with self._lock:
                self.launches += 1
                if self._raised:
                    kernel(arguments, start, stop, scratch)
                    return
                try:
                    held = launch.held(arguments)
                    launch.check(held)
                    if alone and start == 0:
                        launch.poison(held)
                    before = {
                        name: _bytes(*pair).copy() for name, pair in launch.seen(held).items()
                    }
                    kernel(arguments, start, stop, scratch)
                    launch.compare(arguments, held, before, scratch)
                except BaseException as error:  # ctypes would ignore it
                    self._raised.append(error)

        return run


Held = dict[str, tuple[int, int]]  # address and bytes, by name of buffer; "" is the arena


class _Launch:
    """A launch of a segment, and what it may touch."""

    def __init__(self, segment: Segment, number: int, model: ad.Model) -> None:
        self.segment, self.number, self.site = segment, number, segment.sites[number]
        kernel = model.report.kernels[self.site.kernel]
        self.written = {
            name for name, operand in zip(self.site.operands, kernel.operands, strict=True)
            if operand.written
        }  # fmt: skip
        ends = numpy.cumsum([setup.launches for setup in segment.setups])
        self.setups = int(numpy.searchsorted(ends, number, side="right")) + 1

    def held(self, arguments: int) -> Held:
        at = arguments + _WORD * (len(self.site.operands) + len(self.site.sizes))
        names = ["", *(buffer.name for buffer in self.segment.buffers)]
        told = ctypes.c_int64.from_address(at).value
        words = list((ctypes.c_int64 * (2 * len(names))).from_address(told))
        return {
            name: (address, max(0, bytes))
            for name, address, bytes in zip(names, words[::2], words[1::2])
        }

    def seen(self, held: Held) -> Held:
        """The arena and the buffers outside of it; blocks of later setups are not there yet."""
        seen = {"": held[""]}
        for buffer in self.segment.buffers:
            setup = self.segment.setup_of.get(buffer.name, 0)
            if buffer.kind != "arena" and setup < self.setups:
                seen[buffer.name] = held[buffer.name]
        return seen

    def poison(self, held: Held) -> None:
        """Fill the bytes of the arena that hold no live value."""
        base, total = held[""]
        free = numpy.ones(total, bool)
        for name in self._live():
            if self.segment.lives[name][0] < self.number:
                address, bytes = held[name]
                free[address - base : address - base + bytes] = False
        pattern = numpy.arange(total, dtype=numpy.int64) * 37 + self.number * 101 + 13
        _bytes(base, total)[free] = (pattern[free] % 251 + 1).astype(numpy.uint8)

    def check(self, held: Held) -> None:
        """Raise Trespass where two buffers in use share bytes."""
        spans = sorted((*held[name], name) for name in self._live() if held[name][1])
        for (start, bytes, name), (following, _, other) in pairwise(spans):
            if start + bytes > following:
                raise Trespass(f"{self.site}: '{name}' and '{other}' overlap in the arena")

    def compare(
        self, arguments: int, held: Held, before: Mapping[str, numpy.ndarray], scratch: int
    ) -> None:
        """Raise Trespass for a changed byte that the launch does not own."""
        own = [held[name] for name in self.written]
        if self.site.workspace:
            end = sum(held[self.site.workspace])
            own.append((scratch, min(end, scratch + self._scratch(held)) - scratch))
        for name, old in before.items():
            address, bytes = held[name]
            changed = numpy.flatnonzero(_bytes(address, bytes) != old) + address
            if not len(changed):
                continue
            wrong = ~_within(changed, own) | _within(changed, self._needed(held))
            if wrong.any():
                raise Trespass(self._said(name, held, changed[wrong]))

    def _needed(self, held: Held) -> list[tuple[int, int]]:
        """Live values of the arena that this launch only reads, or does not know of."""
        own = {*self.written, self.site.workspace}
        return [held[name] for name in self._live() if name not in own]

    def _live(self) -> Iterator[str]:
        """Buffers of the arena that are in use during this launch."""
        for name, (first, last) in self.segment.lives.items():
            if self.segment.buffer[name].kind == "arena" and first <= self.number <= last:
                yield name

    def _scratch(self, held: Held) -> int:
        """Bytes of a thread, or of all in a range of stages."""
        whole = held[self.site.workspace][1]
        staged = negated_if_negative(self.site.grain) is not None
        return whole if staged else whole // max(1, self.segment.threads)

    def _said(self, name: str, held: Held, changed: numpy.ndarray) -> str:
        where = f"'{name}'" if name else "the arena"
        near = [
            f"'{each}' + {changed[0] - address} of {bytes}"
            for each, (address, bytes) in held.items()
            if each and address <= changed[0] <= address + bytes + 64
        ]
        return (
            f"{self.site} wrote {len(changed)} bytes of {where}, from "
            f"{changed[0] - held[name][0]} on ({'; '.join(near) or 'no buffer'})"
        )


def _within(places: numpy.ndarray, spans: Sequence[tuple[int, int]]) -> numpy.ndarray:
    inside = numpy.zeros(len(places), bool)
    for start, count in spans:
        inside |= (places >= start) & (places < start + count)
    return inside


def _bytes(address: int, count: int) -> numpy.ndarray:
    if not count:
        return numpy.empty(0, numpy.uint8)
    return numpy.frombuffer((ctypes.c_uint8 * count).from_address(address), numpy.uint8)

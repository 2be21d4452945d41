"""Launches of a segment on a device: by its entry points, in its memory, in order.

A launch returns when the device has enqueued it. The status slots of checked indices follow the
arena on the device; they are read back, synchronously, after all launches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anydim.compiler.kernels import ir
from anydim.compiler.native.body import Body
from anydim.compiler.native.entry import verdict
from anydim.compiler.native.launch_words import BLOCK, Chunk, Words, words_of
from anydim.runtime import slots
from anydim.runtime.layout import ARENA, ARENA_BYTES, CODE, POOL, Layout
from anydim.runtime.positions import FINE
from anydim.runtime.program.segment import Segment, Site

STEPS_PER_FUNCTION = 16  # bounds register allocation time of long programs


def on_device(program: Segment, layout: Layout, name: str) -> Iterator[ir.Function]:
    """Yield the functions with all launches; slot POOL of the block has the address of the device
    slots.

    They return the code of the first checked index out of range, the number of checks + 1 if the
    device failed, otherwise 0.
    """
    starts, words = range(0, len(program.sites), STEPS_PER_FUNCTION), words_of(program, layout)
    for number, start in enumerate(starts):
        steps = program.sites[start : start + STEPS_PER_FUNCTION]
        yield _chunk(number, start, steps, program, words)
    body = Body()
    failed, statuses = len(program.positions) + 1, _Statuses(body, layout)
    if program.positions:
        statuses.clear(failed)
    for number in range(len(starts)):
        with body.when(body.ask(f"part{number}", BLOCK).differs(0)):
            body.give(failed)
    if not program.positions:
        body.give(0)
    else:
        statuses.read(failed)
    yield body.function(name, ("block",), public=True, quick=True)


def call_device(body: Body, words: ir.Value, verb: int, *given: ir.Value | int) -> ir.Value:
    """Call an entry point of the device with these slots."""
    of = body.load(words, slots.CONTEXT)
    return body.ask(body.load(words, verb), of, *given)


class _Statuses:
    """The status slots of a segment's checked indices, on the host and on the device."""

    def __init__(self, body: Body, layout: Layout) -> None:
        self.body, self.words = (
            body,
            range(layout.first_status, layout.first_status + layout.statuses),
        )
        self.bytes = 8 * layout.statuses

    def clear(self, failed: int) -> None:
        for word in self.words:
            self.body.store(BLOCK, word, FINE)
        self._try(failed, slots.COPY_IN, *self._addresses())

    def read(self, failed: int) -> None:
        here, there = self._addresses()[::-1]
        self._try(failed, slots.COPY_OUT, here, there)
        words = self.body.load(BLOCK, POOL)
        event = call_device(self.body, words, slots.RECORD)
        with self.body.when(event.equals(0)):
            self.body.give(failed)
        with self.body.when(call_device(self.body, words, slots.WAIT, event).differs(0)):
            self.body.give(failed)
        found = [self.body.load(BLOCK, word) for word in self.words]
        inside = [self.body.let(index.equals(FINE)) for index in found]
        self.body.give(verdict(self.body, inside, 1))

    def _addresses(self) -> tuple[ir.Value, ir.Value]:
        """Return their addresses on the device and on the host."""
        body = self.body
        there = body.let(body.load(BLOCK, ARENA) + body.load(BLOCK, ARENA_BYTES))
        return there, body.let(BLOCK + 8 * self.words.start)

    def _try(self, failed: int, verb: int, target: ir.Value, source: ir.Value) -> None:
        words = self.body.load(BLOCK, POOL)
        bad = call_device(self.body, words, verb, target, source, self.bytes, 0)
        with self.body.when(bad.differs(0)):
            self.body.give(failed)


def _chunk(
    number: int, first: int, steps: Sequence[Site], program: Segment, words: Words
) -> ir.Function:
    body = Body()
    chunk = _Launches(program, words, body)
    for site, step in enumerate(steps, first):
        chunk.launch(site, step)
    body.give(0)
    return body.function(f"part{number}", ("block",), quick=True)


class _Launches(Chunk):
    """Launches on a device."""

    def launch(self, site: int, step: Site) -> None:
        body, words = self.body, self.load(POOL)
        arguments = self.give_operands(site, step)
        bad = call_device(
            body, words, slots.LAUNCH, body.load(self.load(CODE), site), arguments,
            len(step.operands), len(step.sizes), self.size(step.parallel), self.size(step.grain),
            self.buffer(step.workspace) if step.workspace else 0, self.size(step.scratch),
            self.size(step.flops), self.size(step.moved),
        )  # fmt: skip
        with body.when(bad.differs(0)):
            body.give(1)

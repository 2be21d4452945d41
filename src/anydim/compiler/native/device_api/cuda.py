"""Entry points of a CUDA device (`devices/cuda.py`): commands on one stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Variable
from anydim.compiler.kernels.ir import Like, greatest, least
from anydim.compiler.native.body import ZERO, parameter
from anydim.compiler.native.device_api.cuda_graphs import FLUSH, graph_functions
from anydim.compiler.native.device_api.cuda_launch import (
    BEGIN,
    CODE,
    LARGEST,
    attempt,
    launch_functions,
    number,
)
from anydim.compiler.native.device_api.entry_points import (
    CONTEXT,
    EntryPoint,
    Written,
    count_across,
    symbol,
)
from anydim.runtime import slots
from anydim.runtime.devices import context as common
from anydim.runtime.devices import cuda_state as state
from anydim.runtime.devices.cuda import KIND

__all__ = ["ENTRY_POINTS", "KIND", "helpers"]

_INVALID = 1  # CUDA_ERROR_INVALID_VALUE
_TARGET, _SOURCE, _BYTES = map(parameter, ("target", "source", "bytes"))


def helpers() -> Iterator[ir.Function]:
    """Yield the functions that entry points call."""
    yield from launch_functions()
    yield from graph_functions()


@contextmanager
def _issuing(body: EntryPoint, bad: Variable) -> Iterator[None]:
    """Hold the lock in the device's context; deferred launches have started."""
    with body.hold_lock(), _in_context(body, bad):
        with body.when(bad().equals(0) & body.word(state.DEFERRED_WORDS).differs(0)):
            bad.set(body.ask(FLUSH, CONTEXT))
        yield


@contextmanager
def _in_context(body: EntryPoint, bad: Variable) -> Iterator[None]:
    popped = body.array(1)
    attempt(body, bad, state.PUSH, body.word(state.CONTEXT))
    pushed = body.let(bad().equals(0))
    yield
    with body.when(pushed):
        body.call(body.word(state.POP), popped)


def _return(body: EntryPoint, verb: int, bad: Variable, result: Like = 0, failed: int = 1) -> None:
    with body.when(bad().differs(0)):
        body.report(verb, bad() >> 32, bad() & CODE)
        body.give(failed)
    body.give(result)


# ---- copies --------------------------------------------------------------------------------------


def _command(verb: int, issue: Callable[[EntryPoint, Variable], None]) -> Written:
    """Return an entry point that issues a command on bytes."""

    def write(body: EntryPoint) -> None:
        with body.when(_BYTES.equals(0)):
            body.give(0)
        bad = body.variable(0)
        with _issuing(body, bad):
            issue(body, bad)
        _return(body, verb, bad)

    return write


def _copy_in(body: EntryPoint, bad: Variable) -> None:
    """Copy by the stage, or wait until the host's bytes have been read."""
    stream = body.word(state.STREAM)
    with body.when(_BYTES > state.STAGE_BYTES):
        attempt(body, bad, state.COPY_IN, _TARGET, _SOURCE, _BYTES, stream)
        attempt(body, bad, state.SYNCHRONISE, stream)
    with body.otherwise():
        at = body.variable((body.word(state.STAGED) + 63) & ~63)
        with body.when(at() + _BYTES > state.STAGE_BYTES):
            attempt(body, bad, state.SYNCHRONISE, stream)
            at.set(0)
        with body.when(bad().equals(0)):
            staged = body.let(body.word(state.STAGE) + at())
            body.call(body.word(common.COPY), staged, _SOURCE, _BYTES)
            body.put(state.STAGED, at() + _BYTES)
            attempt(body, bad, state.COPY_IN, _TARGET, staged, _BYTES, stream)


def _copy_out(body: EntryPoint, bad: Variable) -> None:
    attempt(body, bad, state.COPY_OUT, _TARGET, _SOURCE, _BYTES, body.word(state.STREAM))


def _copy_within(body: EntryPoint, bad: Variable) -> None:
    attempt(body, bad, state.COPY_WITHIN, _TARGET, _SOURCE, _BYTES, body.word(state.STREAM))


def _fill(body: EntryPoint, bad: Variable) -> None:
    attempt(body, bad, state.FILL, _TARGET, parameter("value"), _BYTES, body.word(state.STREAM))


def _copy_from(body: EntryPoint) -> None:
    """Copy from a device in host memory; from others through the host."""
    origin = parameter("origin")
    with body.when(body.load(origin, common.FAMILY).differs(common.AT_ONCE)):
        body.give(slots.BY_HOST)
    count_across(body)
    for word, amount in ((common.COPIES_IN, -1), (common.BYTES_IN, ZERO - _BYTES)):
        body.count(word, amount)  # `copy_in` counts them
    copy_in = symbol(KIND, "copy_in")
    body.give(body.ask(copy_in, CONTEXT, _TARGET, _SOURCE, _BYTES, parameter("which")))


# ---- launches ------------------------------------------------------------------------------------


def _launch(body: EntryPoint) -> None:
    parallel, operands = parameter("parallel"), parameter("operands")
    with body.when(parallel <= 0):
        body.give(0)
    own = body.let(operands + parameter("sizes"))
    count, bad = body.let(own + 4), body.variable(0)
    blocks, threads, part = _split(body)
    with body.when((count > state.MAX_WORDS) | (blocks > LARGEST)):
        bad.set(number(state.LAUNCH, _INVALID))
        _return(body, slots.LAUNCH, bad)
    record = body.array(state.HEAD + state.MAX_WORDS)
    for word, value in enumerate((parameter("entry"), blocks, threads, operands, count)):
        body.store(record, word, value)
    words = body.let(record + 8 * state.HEAD)
    body.call(body.word(common.COPY), words, parameter("arguments"), own * 8)
    for word, value in enumerate((parallel, part, parameter("scratch"), parameter("stride"))):
        body.store(words, own + word, value)
    eager = body.word(state.GRAPHS).equals(0)
    with body.when(eager), _in_context(body, bad), body.when(bad().equals(0)):
        bad.set(body.ask(BEGIN, CONTEXT, record))
    with body.otherwise(), body.hold_lock():
        _defer(body, record, body.let(count + state.HEAD), bad)
    _return(body, slots.LAUNCH, bad)


def _defer(body: EntryPoint, record: ir.Value, words: ir.Value, bad: Variable) -> None:
    """Append a record to the deferred launches; a full buffer is flushed."""
    full = body.let(body.word(state.DEFERRED_WORDS) + words > state.BUFFER_WORDS)
    with body.when(full), _in_context(body, bad), body.when(bad().equals(0)):
        bad.set(body.ask(FLUSH, CONTEXT))
    with body.when(bad().equals(0)):
        first = body.word(state.DEFERRED_WORDS)
        target = body.let(body.word(state.DEFERRED) + first * 8)
        body.call(body.word(common.COPY), target, record, words * 8)
        body.put(state.DEFERRED_WORDS, first + words)
        body.put(state.DEFERRED_COUNT, body.word(state.DEFERRED_COUNT) + 1)


def _split(body: EntryPoint) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return the blocks of a launch, their threads, and the part of the range per thread."""
    entry, parallel, grain, stride = map(parameter, ("entry", "parallel", "grain", "stride"))
    blocks, part = body.variable(parallel), body.variable(1)
    threads = body.variable(body.load(entry, state.THREADS))
    with body.when(body.load(entry, state.SHARED).differs(0)):
        most = body.variable(body.load(entry, state.MAX_THREADS))
        with body.when(stride.differs(0)):  # few workers: each has its own warp
            most.set(body.word(state.WORKERS))
            threads.set(1)
        shares = body.let((parallel - 1) / greatest(grain, 1) + 1)
        workers = body.let(greatest(least(shares, most()), 1))
        part.set((parallel - 1) / workers + 1)
        blocks.set((parallel - 1) / (part() * threads()) + 1)
    return body.let(blocks()), body.let(threads()), body.let(part())


# ---- events --------------------------------------------------------------------------------------


def _event(body: EntryPoint, number: ir.Value) -> ir.Value:
    row = body.let(number & (state.RING_ROWS - 1))
    return body.load(CONTEXT, row + state.RING)


def _record(body: EntryPoint) -> None:
    bad, made = body.variable(0), body.variable(0)
    with _issuing(body, bad):
        made.set(body.word(state.RECORDED) + 1)
        body.put(state.RECORDED, made())
        attempt(body, bad, state.RECORD, _event(body, made()), body.word(state.STREAM))
    _return(body, slots.RECORD, bad, made(), failed=0)


def _wait(body: EntryPoint) -> None:
    bad = body.variable(0)
    with _in_context(body, bad):
        attempt(body, bad, state.WAIT, _event(body, parameter("event")))
    _return(body, slots.WAIT, bad)


ENTRY_POINTS: Mapping[str, Written] = {
    "launch": _launch,
    "copy_in": _command(slots.COPY_IN, _copy_in),
    "copy_out": _command(slots.COPY_OUT, _copy_out),
    "copy_within": _command(slots.COPY_WITHIN, _copy_within),
    "fill": _command(slots.FILL, _fill),
    "copy_from": _copy_from,
    "record": _record,
    "wait": _wait,
}

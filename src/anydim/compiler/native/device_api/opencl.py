"""Entry points of an OpenCL device that works in host memory (`devices/opencl/shared.py`).

Commands are numbered from 1 and complete in order, so a block is busy until the last command that
touches it completes. Copies to or from an idle block run immediately; otherwise bytes copied in are
staged, and copies to the host are pending until a wait, or until the next command, which must
follow them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Variable
from anydim.compiler.kernels.ir import Like, greatest, least, select
from anydim.compiler.native.body import ZERO, Body, as_int64, parameter
from anydim.compiler.native.device_api.entry_points import (
    CONTEXT,
    EntryPoint,
    Written,
    count_across,
    symbol,
)
from anydim.runtime import slots
from anydim.runtime.devices import context as common
from anydim.runtime.devices.opencl import state
from anydim.runtime.devices.opencl.shared import KIND

__all__ = ["ENTRY_POINTS", "KIND", "helpers"]

_FIND, _SETTLE, _ARRIVE, _COMMAND = (
    f"anydim_opencl_{name}" for name in ("find", "settle", "arrive", "command")
)
_ERROR = 0xFFFFFFFF  # mask of a 32-bit code
_TOO_MANY, _NO_MEMORY = -51 & _ERROR, -6 & _ERROR  # INVALID_ARG_SIZE, OUT_OF_HOST_MEMORY
_TARGET, _SOURCE, _BYTES = map(parameter, ("target", "source", "bytes"))


def helpers() -> Iterator[ir.Function]:
    """Yield the functions that entry points call."""
    yield _find()
    yield _command()
    yield _settle()
    yield _arrive()


def _code(body: Body, of: ir.Value, *given: Like) -> ir.Value:
    """Call a function of libOpenCL; returns its 32-bit result."""
    return body.let(body.ask(of, *given) & _ERROR)


def _find() -> ir.Function:
    """Return the row of the block that contains an address, otherwise 0."""
    body, address = EntryPoint(), parameter("place")
    table, bytes = body.word(state.BLOCKS), 8 * state.BLOCK_WORDS
    low, high = body.variable(0), body.variable(body.word(state.BLOCK_COUNT))
    with body.loop(lambda: low() < high()):
        middle = body.let((low() + high()) >> 1)
        before = body.let(body.load(table + middle * bytes, state.FIRST) <= address)
        low.set(select(before, middle + 1, low()))
        high.set(select(before, high(), middle))
    with body.when(low().equals(0)):
        body.give(0)
    row = body.let(table + (low() - 1) * bytes)
    body.give(select(address < body.load(row, state.BEHIND), row, 0))
    return body.function(_FIND, ("context", "place"))


def _command() -> ir.Function:
    """Register a new command by its event; returns its number."""
    body = EntryPoint()
    _release(body, body.word(state.LAST))
    body.put(state.LAST, parameter("event"))
    number = body.let(body.word(state.LAUNCHED) + 1)
    body.put(state.LAUNCHED, number)
    body.give(number)
    return body.function(_COMMAND, ("context", "event"))


def _settle() -> ir.Function:
    """Enqueue the pending copies; returns a code. Events recorded so far then follow them."""
    body = EntryPoint()
    event, rows = body.array(1), body.at(state.PENDINGS)
    with body.range(0, body.word(state.PENDING)) as number:
        row = body.let(rows + number * (8 * state.PENDING_WORDS))
        target, source, bytes = (body.load(row, word) for word in range(3))
        code = _enqueue_copy(body, target, source, bytes, event)
        with body.when(code.differs(0)):
            body.give(code)
        _touch(body, source, body.ask(_COMMAND, CONTEXT, body.load(event)))
    body.put(state.PENDING, 0)
    last, recorded = body.word(state.LAST), body.word(state.RECORDED)
    oldest = greatest(body.word(state.SETTLED), recorded - state.RING_ROWS)
    with body.range(oldest + 1, recorded + 1) as number:
        row = _row(body, number)
        _release(body, body.load(row, state.EVENT))
        body.call(body.word(state.RETAIN), last)
        body.store(row, state.EVENT, last)
        body.store(row, state.AFTER, body.word(state.LAUNCHED))
    body.put(state.SETTLED, recorded)
    body.give(0)
    return body.function(_SETTLE, ("context",))


def _arrive() -> ir.Function:
    """Mark commands up to a number as done: run copies that waited for them, free their stages."""
    body, done = EntryPoint(), parameter("done")
    with body.when(done > body.word(state.DONE)):
        body.put(state.DONE, done)
    known, rows = body.word(state.DONE), body.at(state.PENDINGS)
    first, kept = body.variable(0), body.variable(0)
    count, bytes = body.word(state.PENDING), 8 * state.PENDING_WORDS
    with body.loop(lambda: first() < count):
        row = body.let(rows + first() * bytes)
        held = [body.load(row, word) for word in range(state.PENDING_WORDS)]
        with body.when(held[3] <= known):
            body.call(body.word(common.COPY), *held[:3])
        with body.otherwise():
            for word, value in enumerate(held):
                body.store(rows + kept() * bytes, word, value)
            kept += 1
        first += 1
    body.put(state.PENDING, kept())
    stage = body.variable(body.word(state.STAGED))
    with body.loop(lambda: stage().differs(0)):
        last = body.let(body.load(stage(), state.COMMAND) > known)
        with body.when(last):
            body.give(0)
        after = body.load(stage(), state.NEXT)
        body.put(state.STAGED, after)
        body.call(body.word(common.FREE_BYTES), stage())
        stage.set(after)
    body.give(0)
    return body.function(_ARRIVE, ("context", "done"))


# ---- shared code of entry points -----------------------------------------------------------------


def _idle(body: EntryPoint, *addresses: ir.Value) -> ir.Value:
    """Whether no command touches the blocks at these addresses."""
    done = body.word(state.DONE)
    last = body.variable(0)
    for address in addresses:
        last.set(greatest(_last_command(body, CONTEXT, address), last()))
    return body.let(last() <= done)


def _last_command(body: EntryPoint, context: ir.Value, address: ir.Value) -> ir.Value:
    """Return the last command that touches the block at an address; the last one if unknown."""
    row = body.ask(_FIND, context, address)
    worked = body.variable(body.load(context, state.LAUNCHED))
    with body.when(row.differs(0)):
        worked.set(body.load(row, state.WORKED))
    return worked()


def _touch(body: Body, address: ir.Value, command: ir.Value, context: ir.Value = CONTEXT) -> None:
    row = body.ask(_FIND, context, address)
    with body.when(row.differs(0)):
        body.store(row, state.WORKED, command)


def _enqueue_copy(
    body: EntryPoint, target: ir.Value, source: ir.Value, bytes: ir.Value, event: ir.Value
) -> ir.Value:
    """Enqueue a copy; returns its code."""
    queue = body.word(state.QUEUE)
    return _code(body, body.word(state.COPY_MEMORY), queue, 0, target, source, bytes, 0, 0, event)


def _settle_pending(body: EntryPoint, bad: Variable) -> None:
    with body.when(body.word(state.PENDING).differs(0)):
        bad.set(body.ask(_SETTLE, CONTEXT))


def _return_code(body: EntryPoint, verb: int, bad: Variable, function: Like) -> None:
    """Return from the entry point; `bad` is the error code of a function."""
    with body.when(bad().differs(0)):
        body.report(verb, function, bad())
        body.give(1)
    body.give(0)


def _copy_entry(
    verb: int, addresses: tuple[ir.Value, ...], at_once: Callable[[EntryPoint], None],
    later: Callable[[EntryPoint, Variable], None], function: int,
) -> Written:  # fmt: skip
    """Return an entry point on blocks: immediate if they are idle, otherwise in the queue."""

    def write(body: EntryPoint) -> None:
        with body.when(_BYTES.equals(0)):
            body.give(0)
        bad, idle = body.variable(0), body.variable(0)
        with body.hold_lock():
            _settle_pending(body, bad)
            with body.when(_idle(body, *addresses)):
                idle.set(1)
            with body.otherwise():
                later(body, bad)
        with body.when(idle().differs(0)):
            at_once(body)
        _return_code(body, verb, bad, function - state.SET_ARGUMENT)

    return write


# ---- copies --------------------------------------------------------------------------------------


def _copy_now(body: EntryPoint) -> None:
    body.call(body.word(common.COPY), _TARGET, _SOURCE, _BYTES)


def _copy_staged(body: EntryPoint, bad: Variable) -> None:
    """Copy the host bytes to a stage until the queue has read them."""
    stage = body.ask(body.word(common.ALLOCATE_BYTES), _BYTES + state.STAGE_HEAD)
    with body.when(stage.equals(0)):
        bad.set(_NO_MEMORY)
    with body.otherwise():
        bytes, event = body.let(stage + state.STAGE_HEAD), body.array(1)
        body.call(body.word(common.COPY), bytes, _SOURCE, _BYTES)
        code = _enqueue_copy(body, _TARGET, bytes, _BYTES, event)
        bad.set(code)
        with body.when(code.differs(0)):
            body.call(body.word(common.FREE_BYTES), stage)
        with body.otherwise():
            number = body.ask(_COMMAND, CONTEXT, body.load(event))
            _touch(body, _TARGET, number)
            body.store(stage, state.COMMAND, number)
            body.store(stage, state.NEXT, 0)
            _append(body, stage)


def _append(body: EntryPoint, stage: ir.Value) -> None:
    """Append a stage to the list."""
    at = body.variable(body.at(state.STAGED))
    with body.loop(lambda: body.load(at()).differs(0)):
        at.set(body.load(at()) + 8 * state.NEXT)
    body.store(at(), 0, stage)


def _copy_queued(body: EntryPoint, bad: Variable) -> None:
    event = body.array(1)
    code = _enqueue_copy(body, _TARGET, _SOURCE, _BYTES, event)
    bad.set(code)
    with body.when(code.equals(0)):
        number = body.ask(_COMMAND, CONTEXT, body.load(event))
        _touch(body, _TARGET, number)
        _touch(body, _SOURCE, number)


def _fill_now(body: EntryPoint) -> None:
    body.call(body.word(common.FILL_BYTES), _TARGET, parameter("value"), _BYTES)


def _fill_queued(body: EntryPoint, bad: Variable) -> None:
    event, pattern = body.array(1), body.array(1)
    body.store(pattern, 0, parameter("value") * 0x01010101)
    code = _code(
        body, body.word(state.FILL_MEMORY), body.word(state.QUEUE), _TARGET, pattern, 1, _BYTES,
        0, 0, event,
    )  # fmt: skip
    bad.set(code)
    with body.when(code.equals(0)):
        _touch(body, _TARGET, body.ask(_COMMAND, CONTEXT, body.load(event)))


def _copy_from(body: EntryPoint) -> None:
    """Copy from a device of the same context, whose queue continues after the copy."""
    origin = parameter("origin")
    family = body.load(origin, common.FAMILY)
    with body.when(family.equals(common.AT_ONCE)):
        body.atomic("add", body.let(origin + 8 * common.COPIES_OUT), 1)
        body.atomic("add", body.let(origin + 8 * common.BYTES_OUT), _BYTES)
        copy_in = symbol(KIND, "copy_in")
        body.give(body.ask(copy_in, CONTEXT, _TARGET, _SOURCE, _BYTES, parameter("which")))
    with body.when(family.differs(body.word(common.FAMILY))):
        body.give(slots.BY_HOST)
    count_across(body)
    with body.when(_BYTES.equals(0)):
        body.give(0)
    bad = body.variable(0)
    first = body.let(select(origin < CONTEXT, origin, CONTEXT))
    second = body.let(select(origin < CONTEXT, CONTEXT, origin))
    with body.hold_lock(first), body.hold_lock(second):
        _settle_pending(body, bad)
        done = body.load(origin, state.DONE)
        busy = body.let(_last_command(body, origin, _SOURCE) > done)
        with body.when(_idle(body, _TARGET) & ~busy):
            _copy_now(body)
        with body.otherwise(), body.when(bad().equals(0)):
            _copy_across(body, bad, busy)
    _return_code(body, slots.COPY_FROM, bad, state.COPY_MEMORY - state.SET_ARGUMENT)


def _copy_across(body: EntryPoint, bad: Variable, busy: ir.Value) -> None:
    """Enqueue a copy that waits for the other queue, and a barrier there that waits for it."""
    origin, queue = parameter("origin"), body.word(state.QUEUE)
    theirs, waits, events = body.load(origin, state.QUEUE), body.array(1), body.array(2)
    body.store(waits, 0, body.load(origin, state.LAST))
    with body.when(busy):
        body.call(body.word(state.FLUSH), theirs)
    bad.set(_code(
        body, body.word(state.COPY_MEMORY), queue, 0, _TARGET, _SOURCE, _BYTES, as_int64(busy),
        select(busy, waits, 0), events,
    ))  # fmt: skip
    with body.when(bad().equals(0)):
        _touch(body, _TARGET, body.ask(_COMMAND, CONTEXT, body.load(events)))
        body.call(body.word(state.FLUSH), queue)
        bad.set(_code(body, body.word(state.BARRIER), theirs, 1, events, events + 8))
    with body.when(bad().equals(0)):
        _touch(body, _SOURCE, body.ask(_COMMAND, origin, body.load(events, 1)), origin)


def _copy_out(body: EntryPoint) -> None:
    with body.when(_BYTES.equals(0)):
        body.give(0)
    bad, idle = body.variable(0), body.variable(0)
    with body.hold_lock():
        with body.when(_idle(body, _SOURCE)):
            idle.set(1)
        with body.otherwise():
            with body.when(body.word(state.PENDING).equals(state.PENDING_ROWS)):
                bad.set(body.ask(_SETTLE, CONTEXT))
            with body.when(bad().equals(0)):
                _pend(body)
                with body.when(body.word(state.AT_ONCE).differs(0)):
                    bad.set(body.ask(_SETTLE, CONTEXT))
    with body.when(idle().differs(0)):
        _copy_now(body)
    _return_code(body, slots.COPY_OUT, bad, state.COPY_MEMORY - state.SET_ARGUMENT)


def _pend(body: EntryPoint) -> None:
    count = body.word(state.PENDING)
    row = body.let(body.at(state.PENDINGS) + count * (8 * state.PENDING_WORDS))
    for word, value in enumerate((_TARGET, _SOURCE, _BYTES, body.word(state.LAUNCHED))):
        body.store(row, word, value)
    body.put(state.PENDING, count + 1)


# ---- work ----------------------------------------------------------------------------------------


def _launch(body: EntryPoint) -> None:
    operands, parallel = parameter("operands"), parameter("parallel")
    with body.when(parallel <= 0):
        body.give(0)
    count = body.let(operands + parameter("sizes"))
    bad, function = body.variable(0), body.variable(0)
    with body.when(count + 5 > state.MAX_ARGUMENTS):
        body.report(slots.LAUNCH, 0, _TOO_MANY)
        body.give(1)
    given, event = body.array(state.MAX_ARGUMENTS), body.array(1)
    split, entry = body.array(2), parameter("entry")
    part = _split(body, split)
    body.call(body.word(common.COPY), given, parameter("arguments"), count * 8)
    rest = (ZERO, parallel, part, parameter("scratch"), parameter("stride"))
    for word, value in enumerate(rest):
        body.store(given, count + word, value)
    body.store(event, 0, 0)
    kernel = body.load(entry, state.HANDLE)
    with body.hold_lock():
        _settle_pending(body, bad)
        function.set(state.COPY_MEMORY - state.SET_ARGUMENT)
        with body.when(bad().equals(0)):
            function.set(0)
            bad.set(_code(body, body.word(state.SET_ARGUMENT), kernel, 0, (count + 5) * 8, given))
        with body.when(bad().equals(0)):
            function.set(state.ENQUEUE - state.SET_ARGUMENT)
            bad.set(_code(
                body, body.word(state.ENQUEUE), body.word(state.QUEUE), kernel, 1, 0, split,
                split + 8, 0, 0, event,
            ))  # fmt: skip
            with body.when(bad().equals(0)):
                number = body.ask(_COMMAND, CONTEXT, body.load(event))
                with body.range(0, operands) as operand:
                    _touch(body, body.load(parameter("arguments"), operand), number)
                _touch(body, parameter("scratch"), number)
    _return_code(body, slots.LAUNCH, bad, function())


def _split(body: EntryPoint, split: ir.Value) -> ir.Value:
    """Store the global and the local work size; returns the part per work-item."""
    entry, parallel, grain = map(parameter, ("entry", "parallel", "grain"))
    group, part = body.load(entry, state.GROUP), body.variable(1)
    with body.when(group.differs(0)):
        body.store(split, 0, parallel * group)
        body.store(split, 1, group)
    with body.otherwise():
        shares = body.let((parallel + grain - 1) / grain)
        workers = body.let(least(body.load(entry, state.MAX_WORK_ITEMS), shares))
        part.set((parallel + workers - 1) / workers)
        body.store(split, 0, (parallel + part() - 1) / part())
        body.store(split, 1, 1)
    return part()


# ---- events --------------------------------------------------------------------------------------


def _row(body: EntryPoint, number: ir.Value) -> ir.Value:
    address = body.let(number & (state.RING_ROWS - 1))
    return body.let(body.at(state.RING) + address * (8 * state.RING_WORDS))


def _release(body: EntryPoint, event: ir.Value) -> None:
    with body.when(event.differs(0)):
        body.call(body.word(state.RELEASE), event)


def _record(body: EntryPoint) -> None:
    made = body.variable(0)
    with body.hold_lock():
        number = body.let(body.word(state.RECORDED) + 1)
        body.put(state.RECORDED, number)
        row, command = _row(body, number), body.word(state.LAUNCHED)
        last = body.variable(0)
        _release(body, body.load(row, state.EVENT))
        with body.when(command > body.word(state.DONE)):
            last.set(body.word(state.LAST))
            body.call(body.word(state.RETAIN), last())
            body.call(body.word(state.FLUSH), body.word(state.QUEUE))
        for word, value in enumerate((number, command, last())):
            body.store(row, word, value)
        made.set(number)
    body.give(made())


def _wait(body: EntryPoint) -> None:
    """Wait for an event; it follows pending copies that are enqueued meanwhile."""
    bad, event, again = body.variable(0), body.array(1), body.variable(1)
    command = body.variable(0)
    with body.loop(lambda: again().differs(0)):
        with body.hold_lock():
            body.call(_ARRIVE, CONTEXT, command())
            row = _row(body, parameter("event"))
            body.store(event, 0, 0)
            mine = body.let(body.load(row, state.NUMBER).equals(parameter("event")))
            after = body.let(select(mine, body.load(row, state.AFTER), body.word(state.LAUNCHED)))
            # a reused row: wait once, for all commands so far
            open = body.let((after > body.word(state.DONE)) & (mine | command().equals(0)))
            again.set(as_int64(open))
            with body.when(open):
                command.set(after)
                _event_to_wait_for(body, row, mine, event)
        waited = body.load(event)
        with body.when(waited.differs(0)):
            bad.set(_code(body, body.word(state.WAIT_FOR), 1, event))
            body.call(body.word(state.RELEASE), waited)
            with body.when(bad().differs(0)):
                again.set(0)
    _return_code(body, slots.WAIT, bad, state.WAIT_FOR - state.SET_ARGUMENT)


def _event_to_wait_for(body: EntryPoint, row: ir.Value, mine: ir.Value, event: ir.Value) -> None:
    """Store the event to wait for: the event of the row, if any, otherwise the last one."""
    held = body.let(select(mine, body.load(row, state.EVENT), 0))
    with body.when(held.differs(0)):
        body.store(row, state.EVENT, 0)
        body.store(event, 0, held)
    with body.otherwise():
        last = body.word(state.LAST)
        body.call(body.word(state.RETAIN), last)
        body.store(event, 0, last)


ENTRY_POINTS: Mapping[str, Written] = {
    "launch": _launch,
    "copy_in": _copy_entry(slots.COPY_IN, (_TARGET,), _copy_now, _copy_staged, state.COPY_MEMORY),
    "copy_out": _copy_out,
    "copy_within": _copy_entry(
        slots.COPY_WITHIN, (_TARGET, _SOURCE), _copy_now, _copy_queued, state.COPY_MEMORY
    ),
    "fill": _copy_entry(slots.FILL, (_TARGET,), _fill_now, _fill_queued, state.FILL_MEMORY),
    "copy_from": _copy_from,
    "record": _record,
    "wait": _wait,
}

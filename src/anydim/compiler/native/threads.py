"""A small fork-join thread pool, the same for every program, compiled once per machine.

The caller publishes a launch, runs parts itself, and waits for parts that workers have claimed; it
never waits for a worker to wake up:

    state = launch number << 16 | parts

Each part has a slot with the number of the last launch in which it was claimed, so a late worker
cannot claim a part of another launch: all parts of its own were claimed then. Every thread first
tries the part that it ran in the last launch, since its data are in the thread's cache.

An idle worker spins for a while, then blocks; it spins longer between `WAKE` and `REST`, while
single-threaded launches pass. Little work wakes no worker: the awake ones do it. In a loop, little
work adds up: the work of launches that a sleeper could have shared is summed over the call, and
sleepers are woken when the sum is worth it, since as much is likely to follow. After a launch whose
range reaches its grain size, and after pieces of a long range, the caller checks whether to stop
the call (`stopping.py`); a nonzero result stops it. A range of stages (a grain size < 0: -grain
positions per stage) is a sequence of launches; scratch is then shared by all threads.

Blocking uses functions of the system, passed in the pool (`runtime/threads.py` fills it). A thread
that changes a condition does so before it checks for sleepers; a sleeper increments the count of
sleepers before it checks the condition; both are sequentially consistent, so no wake-up is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import least, select
from anydim.compiler.native.body import Body, as_int64, parameter
from anydim.compiler.native.choosing import CHOOSE, choosing_code
from anydim.compiler.native.size_table import size_table_code
from anydim.compiler.native.stopping import LOOK, stopping_functions
from anydim.runtime import variant_tables
from anydim.runtime.layout import WORTH_WAKING

LAUNCH, WORKER, STOP = "anydim_launch", "anydim_worker", "anydim_stop"
WAKE, REST, BEGIN = "anydim_wake", "anydim_rest", "anydim_begin"
_PIECE = 1 << 13  # grains between two checks; a packed matmul has no more
_PATIENCE = 20  # factor of a worker's spinning time in a call: waking it takes the caller 40 us

# slots of a pool: state, parts done and the job are on separate cache lines
_STATE, _DONE, _JOB, _SLEEPERS = 0, 8, 16, 24
_WAKES, _CALLER_SLEEPS, _STOP, _ALIVE, _SPINS, _THREADS, _BUSY = range(25, 32)
_LOCK, _UNLOCK, _WAIT, _BROADCAST, _YIELD = range(32, 37)  # functions
_MUTEX, _OF_WORKERS, _OF_CALLER = range(37, 40)  # the mutex, and conditions
_MISSED = 40  # grains of this call that sleepers could have run
_CLAIMS = 48  # a slot per part
POOL_WORDS = {
    "done": _DONE, "alive": _ALIVE, "spins": _SPINS, "threads": _THREADS, "functions": _LOCK,
    "locks": _MUTEX, "claims": _CLAIMS,
}  # fmt: skip
"""What a caller in C or JavaScript reads and fills (`deploy/`)."""
# slots of a job: the last ones are the stride between the threads' scratch in bytes, and the
# start of the range
_KERNEL, _ARGUMENTS, _PARALLEL, _PARTS, _SCRATCH, _STRIDE, _FIRST = range(_JOB, _JOB + 7)

_SPINS_PER_YIELD = 64  # spins between two yields of the core, some 3 us

_LAUNCHED = ("pool", "kernel", "arguments", "parallel", "grain", "scratch", "stride", "call")
_POOL, _THREAD = parameter("pool"), parameter("thread")


def threads_code() -> ir.Library:
    """Return the module."""
    return ir.Library("threads", lambda: tuple(_functions()), "of every program", True)


def _functions() -> Iterator[ir.Function]:
    yield _claim()
    yield _notify()
    yield _work()
    yield _wake_sleepers()
    yield _wake()
    yield _rest()
    yield _begin()
    yield _stop()
    yield _join()
    yield from size_table_code()
    yield from choosing_code()
    yield from stopping_functions()
    yield _launch_chosen()
    yield _share()
    yield _alone()
    yield _launch()
    yield _sleep()
    yield _wait_for_work()
    yield _worker()


def _at(word: int) -> ir.Value:
    return _POOL + 8 * word


def _number(state: ir.Value) -> ir.Value:
    """Return the launch number of a state."""
    return state >> 16


def _claim() -> ir.Function:
    """Claim a part of launch `number`; returns 1 on success, 0 if another thread has it."""
    body, number = Body(), parameter("number")
    claim = body.let(_at(_CLAIMS) + 8 * parameter("part"))
    claimed = body.let(body.atomic("load", claim))
    with body.when(claimed < number):
        body.give(as_int64(body.atomic("exchange_if", claim, claimed, number).equals(claimed)))
    body.give(0)
    return body.function("claim", ("pool", "number", "part"))


def _work() -> ir.Function:
    """Claim and run parts until none remains, the thread's own first; returns the launch number."""
    body = Body()
    state = body.let(body.atomic("load", _at(_STATE)))
    number, parts = body.let(_number(state)), body.let(state & 65535)
    part = body.variable(_THREAD * parts / body.load(_POOL, _THREADS))
    left = body.variable(parts)
    with body.loop(lambda: left() > 0):
        with body.when(body.ask("claim", _POOL, number, part()).differs(0)):
            _run_part(body, part())
            now = body.atomic("add", _at(_DONE), 1) + 1
            with body.when(now.equals(parts)):
                asleep = body.atomic("load", _at(_CALLER_SLEEPS))
                with body.when(asleep.differs(0)):
                    body.call("tell", _POOL, body.load(_POOL, _OF_CALLER))
        left += -1
        part += 1
        with body.when(part().equals(parts)):
            part.set(0)
    body.give(number)
    return body.function("work", ("pool", "thread"))


def _run_part(body: Body, part: ir.Value) -> None:
    """Run a part."""
    words = range(_KERNEL, _FIRST + 1)
    kernel, arguments, parallel, parts, scratch, stride, first = (
        body.load(_POOL, word) for word in words
    )
    each = body.let(parallel / parts)
    extra = body.let(parallel - each * parts)
    start = body.let(first + part * each + least(part, extra))
    stop = start + each + as_int64(part < extra)
    body.call(kernel, arguments, start, stop, scratch + _THREAD * stride)


def _notify() -> ir.Function:
    """Wake all threads that wait on a condition, or are about to.

    Not while the mutex is held: a thread that wakes up at once would wait for it.
    """
    body = Body()
    mutex = body.load(_POOL, _MUTEX)
    body.call(body.load(_POOL, _LOCK), mutex)
    body.call(body.load(_POOL, _UNLOCK), mutex)
    body.call(body.load(_POOL, _BROADCAST), parameter("condition"))
    return body.function("tell", ("pool", "condition"), result=False)


def _wake_sleepers() -> ir.Function:
    body = Body()
    with body.when(body.atomic("load", _at(_SLEEPERS)).differs(0)):
        body.call("tell", _POOL, body.load(_POOL, _OF_WORKERS))
    return body.function("wake_sleepers", ("pool",), result=False)


def _wake() -> ir.Function:
    """Announce work until `REST`: sleeping workers wake up and spin."""
    body = Body()
    with body.when(_POOL.differs(0)):
        body.publish(_at(_BUSY), 1)
        body.atomic("add", _at(_WAKES), 1)
        body.call("wake_sleepers", _POOL)
    return body.function(WAKE, ("pool",), public=True, result=False)


def _rest() -> ir.Function:
    """End the announcement of work."""
    body = Body()
    with body.when(_POOL.differs(0)):
        body.publish(_at(_BUSY), 0)
    return body.function(REST, ("pool",), public=True, result=False)


def _begin() -> ir.Function:
    """Begin a call with an unknown number of launches."""
    body = Body()
    with body.when(_POOL.differs(0)):
        body.store(_POOL, _MISSED, 0)
    return body.function(BEGIN, ("pool",), public=True, result=False)


def _stop() -> ir.Function:
    """Stop all workers."""
    body = Body()
    body.publish(_at(_STOP), 1)
    body.call("tell", _POOL, body.load(_POOL, _OF_WORKERS))
    return body.function(STOP, ("pool",), public=True, result=False)


def _launch_chosen() -> ir.Function:
    """Launch the variant that a table has for these sizes; the generic one if none, or scratch is
    short.

    An empty range selects no variant.
    """
    _, kernel, arguments, parallel, grain, scratch, stride, call = map(parameter, _LAUNCHED)
    body = Body()
    with body.when(parallel <= 0):
        body.give(0)
    table = body.let(kernel - variant_tables.TAG)
    count = body.load(table, variant_tables.OPERANDS) + body.load(table, variant_tables.SIZES)
    body.store(arguments, count - 1, parallel)
    row = body.ask(CHOOSE, table, arguments)
    with body.when(row.differs(0)):
        words = (
            variant_tables.CODE,
            variant_tables.PARALLEL,
            variant_tables.GRAIN,
            variant_tables.SCRATCH,
        )
        code, range, least, bytes = (body.load(row, word) for word in words)
        with body.when(range < 0):
            _launch_spanned(body, table, row, code, least)
        with body.when(bytes <= stride):
            rest = arguments, range, least, scratch, stride, call
            body.give(body.ask(LAUNCH, _POOL, code, *rest))
    generic = body.load(table, variant_tables.GENERIC)
    rest = arguments, parallel, grain, scratch, stride, call
    body.give(body.ask(LAUNCH, _POOL, generic, *rest))
    return body.function("launch_chosen", _LAUNCHED)


def _launch_spanned(
    body: Body, table: ir.Value, row: ir.Value, code: ir.Value, least: ir.Value
) -> None:
    """Launch the variant of a span, if it has one, with the launch's own scratch, and return."""
    _, _, arguments, parallel, _, scratch, stride, call = map(parameter, _LAUNCHED)
    with body.when(code.differs(0)):
        range, extent = body.variable(parallel), body.load(row, variant_tables.EXTENT)
        with body.when(extent.differs(0)):
            range.set(body.ask(extent, arguments + 8 * body.load(table, variant_tables.OPERANDS)))
        rest = arguments, range(), least, scratch, stride, call
        body.give(body.ask(LAUNCH, _POOL, code, *rest))


def _launch() -> ir.Function:
    """Run a kernel over 0:parallel, on the caller alone or with the workers of the pool.

    The kernel's address may be a tagged address of a variant table (`runtime/variant_tables.py`).
    """
    _, kernel, arguments, parallel, grain, scratch, stride, call = map(parameter, _LAUNCHED)
    body = Body()
    with body.when((kernel & variant_tables.TAG).differs(0)):
        body.give(body.ask("launch_chosen", *map(parameter, _LAUNCHED)))
    with body.when(parallel <= 0):
        body.give(0)
    staged = body.let(grain < 0)
    width = body.let(select(staged, -grain, parallel))
    parts = body.variable(1)
    with body.when(_POOL.differs(0)):
        threads = body.load(_POOL, _THREADS)
        parts.set(least(width / select(staged, 1, grain), threads))
    with body.when(parts() < 2):
        with body.when((parallel >= grain) & call.differs(0)):
            piece = select(staged, -grain, grain) * _PIECE
            body.give(body.ask("alone", kernel, arguments, parallel, piece, scratch, call))
        body.call(kernel, arguments, 0, parallel, scratch)
        body.give(0)
    grains = body.let(parallel / select(staged, 1, grain))
    scratch_stride = body.let(select(staged, 0, stride))
    job = (kernel, arguments, width, parts(), scratch, scratch_stride)
    for word, value in enumerate(job, _JOB):
        body.store(_POOL, word, value)
    checked = body.let(select(call.equals(0), parallel, grain * _PIECE))
    piece = body.let(select(staged, width, checked))
    with _pieces(body, parallel, piece) as (first, size):
        body.store(_POOL, _FIRST, first)
        body.store(_POOL, _PARALLEL, size)
        body.call("share", _POOL, parts(), grains)
        with body.when(call.differs(0)):
            verdict = body.ask(LOOK, call)
            with body.when(verdict.differs(0)):
                body.give(verdict)
    body.give(0)
    return body.function(LAUNCH, _LAUNCHED, public=True)


@contextmanager
def _pieces(
    body: Body, range: ir.Value, piece: ir.Value
) -> Iterator[tuple[ir.Value, ir.Value]]:  # fmt: skip
    """Yield start and size of the pieces of a range; the last one may be up to twice as large."""
    first = body.variable(0)
    with body.loop(lambda: first() < range):
        left = body.let(range - first())
        size = body.let(select(left < 2 * piece, left, piece))
        yield first(), size
        first += size


def _alone() -> ir.Function:
    """Run a kernel on the caller, piece by piece, until the call has to stop."""
    names = ("kernel", "arguments", "parallel", "piece", "scratch", "call")
    kernel, arguments, parallel, piece, scratch, call = map(parameter, names)
    body = Body()
    with _pieces(body, parallel, piece) as (first, size):
        body.call(kernel, arguments, first, first + size, scratch)
        verdict = body.ask(LOOK, call)
        with body.when(verdict.differs(0)):
            body.give(verdict)
    body.give(0)
    return body.function("alone", names)


def _share() -> ir.Function:
    """Run the job with the workers of the pool; `many` is its number of grains."""
    body, parts, grains = Body(), parameter("parts"), parameter("many")
    body.publish(_at(_DONE), 0)
    number = _number(body.atomic("load", _at(_STATE))) + 1
    body.publish(_at(_STATE), (number << 16) | parts)
    body.emit(ir.Fence())
    with body.when(body.atomic("load", _at(_SLEEPERS)).differs(0)):
        missed = body.let(body.load(_POOL, _MISSED) + grains)
        body.store(_POOL, _MISSED, missed)
        with body.when((grains >= WORTH_WAKING // 2) | (missed >= WORTH_WAKING)):
            body.store(_POOL, _MISSED, 0)
            body.call("tell", _POOL, body.load(_POOL, _OF_WORKERS))
    body.ask("work", _POOL, 0)
    body.call("join", _POOL, parts)
    return body.function("share", ("pool", "parts", "many"), result=False)


def _join() -> ir.Function:
    """Wait until all parts are done: spin, then block."""
    body, parts = Body(), parameter("parts")
    spins = body.load(_POOL, _SPINS)
    patience = body.let(spins * 2)
    spin = body.variable(0)
    count = body.variable(body.atomic("load", _at(_DONE)))
    with body.loop(lambda: count().differs(parts)):
        spin += 1
        with body.when(spin() > patience):
            _block(body, parts)
            body.leave()
        _pause(body, spin(), spins)
        count.set(body.atomic("load", _at(_DONE)))
    return body.function("join", ("pool", "parts"), result=False)


def _block(body: Body, parts: ir.Value) -> None:
    mutex, condition = body.load(_POOL, _MUTEX), body.load(_POOL, _OF_CALLER)
    body.call(body.load(_POOL, _LOCK), mutex)
    body.publish(_at(_CALLER_SLEEPS), 1)
    body.emit(ir.Fence())
    now = body.variable(body.atomic("load", _at(_DONE)))
    with body.loop(lambda: now().differs(parts)):
        body.call(body.load(_POOL, _WAIT), condition, mutex)
        now.set(body.atomic("load", _at(_DONE)))
    body.publish(_at(_CALLER_SLEEPS), 0)
    body.call(body.load(_POOL, _UNLOCK), mutex)


def _worker() -> ir.Function:
    """The main loop of a worker."""
    body = Body()
    stopped = body.variable(0)
    with body.loop(lambda: stopped().equals(0)):
        number = body.ask("work", _POOL, _THREAD)
        stopped.set(body.ask("wait_for_work", _POOL, number))
    body.atomic("add", _at(_ALIVE), -1)
    return body.function(WORKER, ("pool", "thread"), public=True, result=False)


def _wait_for_work() -> ir.Function:
    """Spin for another launch than `number`, then block; returns whether the worker has to stop."""
    body = Body()
    spins, spin, long = body.load(_POOL, _SPINS), body.variable(0), body.variable(0)
    with body.loop(lambda: spin() <= spins):
        with body.when(body.atomic("load", _at(_STOP)).differs(0)):
            body.give(1)
        with body.when(_has_work(body)):
            body.give(0)
        spin += 1
        busy = body.atomic("load", _at(_BUSY)).differs(0)
        with body.when(busy & (long() < spins * _PATIENCE)):
            long += 1
            spin.set(0)
        _pause(body, long(), spins)
    body.call("sleep", _POOL, parameter("number"))
    body.give(0)
    return body.function("wait_for_work", ("pool", "number"))


def _pause(body: Body, spin: ir.Value, spins: ir.Value) -> None:
    """Pause between two checks; later ones also yield the core, perhaps to the caller."""
    body.emit(ir.Pause())
    with body.when((spin > spins) & (spin & (_SPINS_PER_YIELD - 1)).equals(0)):
        body.ask(body.load(_POOL, _YIELD))


def _has_work(body: Body) -> ir.Value:
    return body.let(_number(body.atomic("load", _at(_STATE))).differs(parameter("number")))


def _sleep() -> ir.Function:
    """Block until there is work, a wake-up or the stop."""
    body = Body()
    mutex, condition = body.load(_POOL, _MUTEX), body.load(_POOL, _OF_WORKERS)
    before = body.atomic("load", _at(_WAKES))
    body.call(body.load(_POOL, _LOCK), mutex)
    body.atomic("add", _at(_SLEEPERS), 1)
    up = body.variable(_may_wake_up(body, before))
    with body.loop(lambda: ~up()):
        body.call(body.load(_POOL, _WAIT), condition, mutex)
        up.set(_may_wake_up(body, before))
    body.atomic("add", _at(_SLEEPERS), -1)
    body.call(body.load(_POOL, _UNLOCK), mutex)
    return body.function("sleep", ("pool", "number"), result=False)


def _may_wake_up(body: Body, before: ir.Value) -> ir.Value:
    work = _has_work(body)
    stop = body.atomic("load", _at(_STOP)).differs(0)
    return body.let(work | stop | body.atomic("load", _at(_WAKES)).differs(before))

"""Time limits and signals during a call; host code that is the same for every program.

A loop decrements a countdown in the call's memory with every iteration and pauses at 0. The
countdown doubles while iterations are fast, so that the clock is read every few milliseconds at
most. After a launch that may have taken long, `LOOK` reads a clock that takes less time than that
and is some milliseconds late. Python's signals are checked every 0.1 s, with its lock, on the main
thread.

    anydim_started(call)  start counting
    anydim_pause(call), anydim_look(call) -> 0: continue; TIMEOUT: the call took too long;
                          INTERRUPTED: a signal raised an exception, stored in the call's memory
"""

from __future__ import annotations

from collections.abc import Iterator

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import greatest, least
from anydim.compiler.native.body import Body, parameter
from anydim.runtime import context

STARTED, PAUSE, LOOK = "anydim_started", "anydim_pause", "anydim_look"
TIMEOUT, INTERRUPTED = VERDICTS = 1, 2
KINDS = ("time", "interrupted")  # kind of failure per verdict

_MILLISECOND = 1_000_000  # in nanoseconds
_QUICK, _SLOW = 4 * _MILLISECOND, 40 * _MILLISECOND  # between two readings of the clock
_BETWEEN_SIGNALS = 100 * _MILLISECOND
_MAX_COUNTDOWN = 1 << 20  # iterations between two readings
_NEVER = 1 << 62
_CALL = parameter("call")


def stopping_functions() -> Iterator[ir.Function]:
    """Yield the functions, callees first."""
    yield _signals()
    yield _verdict()
    yield _start_counting()
    yield _pause()
    yield _look()


def _clock(body: Body, number: int) -> ir.Value:
    """Read the clock whose id is in a slot, in nanoseconds."""
    time = body.array(2)
    body.call(body.load(_CALL, context.CLOCK), body.load(_CALL, number), time)
    return body.let(body.load(time, 0) * 1_000_000_000 + body.load(time, 1))


def _start_counting() -> ir.Function:
    """Start counting; signals were checked just before, so short calls never take Python's lock."""
    body = Body()
    has_clock = body.load(_CALL, context.CLOCK).differs(0)
    body.store(_CALL, context.LAST_LOOK, 0)
    body.store(_CALL, context.STEP, 1)
    with body.when(has_clock):
        body.store(_CALL, context.COUNTDOWN, 1)
        body.store(_CALL, context.LISTENED, _clock(body, context.QUICK_NUMBER))
    with body.otherwise():
        body.store(_CALL, context.COUNTDOWN, _NEVER)
    return body.function(STARTED, ("call",), public=True, result=False)


def _pause() -> ir.Function:
    body = Body()
    now = _clock(body, context.CLOCK_NUMBER)
    since = body.let(now - body.load(_CALL, context.LAST_LOOK))
    step = body.variable(body.load(_CALL, context.STEP))
    with body.when(since < _QUICK):
        step.set(least(step() * 2, _MAX_COUNTDOWN))
    with body.when(since > _SLOW):
        step.set(greatest(step() >> 4, 1))
    body.store(_CALL, context.LAST_LOOK, now)
    body.store(_CALL, context.STEP, step())
    body.store(_CALL, context.COUNTDOWN, step())
    body.give(body.ask("verdict", _CALL, now))
    return body.function(PAUSE, ("call",), public=True)


def _look() -> ir.Function:
    body = Body()
    with body.when(body.load(_CALL, context.CLOCK).equals(0)):
        body.give(0)
    body.give(body.ask("verdict", _CALL, _clock(body, context.QUICK_NUMBER)))
    return body.function(LOOK, ("call",), public=True)


def _verdict() -> ir.Function:
    body, now = Body(), parameter("now")
    deadline = body.load(_CALL, context.DEADLINE)
    with body.when((deadline > 0) & (now > deadline)):
        body.give(TIMEOUT)
    with body.when(now - body.load(_CALL, context.LISTENED) < _BETWEEN_SIGNALS):
        body.give(0)
    body.store(_CALL, context.LISTENED, now)
    body.give(body.ask("signals", _CALL))
    return body.function("verdict", ("call", "now"))


def _signals() -> ir.Function:
    """Run Python's signal handlers on the main thread; an exception that one raises is stored."""
    body = Body()
    with body.when(body.load(_CALL, context.TAKE_LOCK).equals(0)):
        body.give(0)
    here = body.ask(body.load(_CALL, context.THREAD))
    with body.when(here.differs(body.load(body.load(_CALL, context.MAIN)))):
        body.give(0)
    state = body.ask(body.load(_CALL, context.TAKE_LOCK))
    body.call(body.load(_CALL, context.CHECK_SIGNALS))
    raised = body.ask(body.load(_CALL, context.HAS_RAISED))
    with body.when(raised.differs(0)):
        slots = [body.let(_CALL + 8 * (context.RAISED + word)) for word in range(3)]
        body.call(body.load(_CALL, context.FETCH), *slots)
    body.call(body.load(_CALL, context.GIVE_LOCK), state)
    with body.when(raised.differs(0)):
        body.give(INTERRUPTED)
    body.give(0)
    return body.function("signals", ("call",))

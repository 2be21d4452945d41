"""Whether a call shall go on: host code that is the same for every program.

A loop counts a word of the call down with every iteration and pauses when it is 0. How many
iterations it counts doubles while they are quick, so that the clock is read every few milliseconds
at most. Behind a launch that may have taken long `LOOK` reads a clock that takes less time than
that and is some milliseconds late. Python looks at its signals every tenth of a second, with its
lock, on the main thread.

    anydim_started(call)  begin to count
    anydim_pause(call), anydim_look(call) -> 0: go on; TIMEOUT: the call took too long;
                          INTERRUPTED: a signal raised an exception, which is kept in the call
"""

from __future__ import annotations

from collections.abc import Iterator

from anydim.kernels import ir
from anydim.kernels.ir import greatest, least
from anydim.native.body import Body, parameter
from anydim.runtime import context

STARTED, PAUSE, LOOK = "anydim_started", "anydim_pause", "anydim_look"
TIMEOUT, INTERRUPTED = VERDICTS = 1, 2
KINDS = ("time", "interrupted")  # of failures, for each verdict

_MILLISECOND = 1_000_000  # of nanoseconds
_QUICK, _SLOW = 4 * _MILLISECOND, 40 * _MILLISECOND  # between two looks at the clock
_BETWEEN_SIGNALS = 100 * _MILLISECOND
_MOST = 1 << 20  # iterations between two looks
_NEVER = 1 << 62
_CALL = parameter("call")


def stopping_functions() -> Iterator[ir.Function]:
    """The functions, those that others call first."""
    yield _signals()
    yield _verdict()
    yield _started()
    yield _pause()
    yield _look()


def _clock(body: Body, number: int) -> ir.Value:
    """Nanoseconds by the clock whose number is in a word."""
    time = body.array(2)
    body.call(body.load(_CALL, context.CLOCK), body.load(_CALL, number), time)
    return body.let(body.load(time, 0) * 1_000_000_000 + body.load(time, 1))


def _started() -> ir.Function:
    """A short call never takes Python's lock: signals were looked at just now."""
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
        step.set(least(step() * 2, _MOST))
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
    """On the main thread, run Python's handlers of signals; what one raises is kept."""
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
        places = [body.let(_CALL + 8 * (context.RAISED + word)) for word in range(3)]
        body.call(body.load(_CALL, context.FETCH), *places)
    body.call(body.load(_CALL, context.GIVE_LOCK), state)
    with body.when(raised.differs(0)):
        body.give(INTERRUPTED)
    body.give(0)
    return body.function("signals", ("call",))

"""Whether a loop shall go on: host code that is the same for every program.

A loop counts a word of the call down with every iteration and asks here when it is 0. How many
iterations it counts doubles while they are quick, so that the clock is read every few milliseconds
at most; signals are looked at, with Python's lock, every tenth of a second.

    anydim_pause(call) -> 0: go on; TIMEOUT: the call took too long; INTERRUPTED: a signal raised
                          an exception, which is kept in the call
"""

from __future__ import annotations

from collections.abc import Iterator

from anydim.kernels import ir
from anydim.kernels.ir import greatest, least
from anydim.native.body import Body, parameter
from anydim.runtime import context

PAUSE = "anydim_pause"
TIMEOUT, INTERRUPTED = 1, 2

_MILLISECOND = 1_000_000  # of nanoseconds
_QUICK, _SLOW = 4 * _MILLISECOND, 40 * _MILLISECOND  # between two looks at the clock
_BETWEEN_SIGNALS = 100 * _MILLISECOND
_MOST = 1 << 20  # iterations between two looks
_CALL = parameter("call")


def stopping_code() -> ir.Library:
    """The module."""
    return ir.Library("stopping", lambda: tuple(_functions()), identity="of every program")


def _functions() -> Iterator[ir.Function]:
    yield _signals()
    yield _pause()


def _pause() -> ir.Function:
    body = Body()
    time = body.array(2)
    body.call(body.load(_CALL, context.CLOCK), body.load(_CALL, context.CLOCK_NUMBER), time)
    now = body.let(body.load(time, 0) * 1_000_000_000 + body.load(time, 1))
    since = body.let(now - body.load(_CALL, context.LAST_LOOK))
    step = body.variable(body.load(_CALL, context.STEP))
    with body.when(since < _QUICK):
        step.set(least(step() * 2, _MOST))
    with body.when(since > _SLOW):
        step.set(greatest(step() >> 4, 1))
    body.store(_CALL, context.LAST_LOOK, now)
    body.store(_CALL, context.STEP, step())
    body.store(_CALL, context.COUNTDOWN, step())
    deadline = body.load(_CALL, context.DEADLINE)
    with body.when((deadline > 0) & (now > deadline)):
        body.give(TIMEOUT)
    with body.when(body.load(_CALL, context.LISTENING).equals(0)):
        body.give(0)
    listened = body.load(_CALL, context.LISTENED)
    with body.when(listened.equals(0)):  # the first look: a short loop never takes the lock
        body.store(_CALL, context.LISTENED, now)
        body.give(0)
    with body.when(now - listened < _BETWEEN_SIGNALS):
        body.give(0)
    body.store(_CALL, context.LISTENED, now)
    body.give(body.ask("signals", _CALL))
    return body.function(PAUSE, ("call",), public=True)


def _signals() -> ir.Function:
    """Run Python's handlers of signals that came; an exception that one raises is kept."""
    body = Body()
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

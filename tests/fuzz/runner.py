"""Runs cases one after another in a child process, so that one that stops it is only a failure.

The child says which case it begins; when it dies, that case is the failure and another child
goes on behind it. A case that stops its process shrinks in a process for each trial. A child takes
a limited number of cases, and compiled code is kept for these alone: random kernels are of no use
to others, and a folder of all of them would be searched for old ones after each case.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from anydim.base import settings
from tests.fuzz.case import Case
from tests.fuzz.generate import random_case
from tests.fuzz.judge import Failure, blame, judge
from tests.fuzz.shrink import shrink

SECONDS = 120  # of its process that one case may take
CASES = 100  # that one child takes
BEGIN, END = "begin", "end"  # messages that are no failures


@dataclass(frozen=True)
class Outcome:
    """A case's seed and, where it failed, how, with its smallest form."""

    seed: int
    failure: str = ""
    text: str = ""


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the cases of these seeds, in order."""
    return run_each(seeds, small, _one, _crashed)


def run_each(
    seeds: Sequence[int],
    small: bool,
    one: Callable[[int, bool], Iterator[Outcome]],
    crashed: Callable[[int, str, bool], Outcome],
) -> Iterator[Outcome]:
    """The outcomes of `one` for these seeds; `crashed` tells of one that stopped its process."""
    for start in range(0, len(seeds), CASES):
        yield from _run_some(list(seeds[start : start + CASES]), small, one, crashed)


def _run_some(
    pending: list[int],
    small: bool,
    one: Callable[[int, bool], Iterator[Outcome]],
    crashed: Callable[[int, str, bool], Outcome],
) -> Iterator[Outcome]:
    """The outcomes of the seeds that are pending, by one child where none stops it."""
    while pending:
        end = ""
        for outcome in _child(lambda: (one(seed, small) for seed in pending)):
            if outcome.failure == END:
                end = outcome.text
            elif outcome.failure != BEGIN:
                pending.remove(outcome.seed)
                yield outcome
        if pending:
            yield crashed(pending.pop(0), end, small)


def _one(seed: int, small: bool) -> Iterator[Outcome]:
    yield Outcome(seed, BEGIN)
    stop_after(SECONDS)
    case = random_case(seed)
    found = judge(case)
    if found is None:
        stop_after(0)
        yield Outcome(seed)
        return
    stop_after(SECONDS * 10)
    if small:
        case, found = shrink(case, found, judge)
    yield Outcome(seed, str(found), f"{case.text()}\n{blame(case, found)}")


def run_judged(
    seeds: range, small: bool, make: Callable[[int], Case], judged: Callable[[Case], Failure | None]
) -> Iterator[Outcome]:
    """The outcomes of the cases that `make` makes of these seeds, by a law of their own."""

    def one(seed: int, small: bool) -> Iterator[Outcome]:
        yield Outcome(seed, BEGIN)
        stop_after(SECONDS)
        case = make(seed)
        found = judged(case)
        if found and small:
            stop_after(SECONDS * 10)
            case, found = shrink(case, found, judged)
        yield Outcome(seed, str(found) if found else "", case.text() if found else "")

    def crashed(seed: int, end: str, small: bool) -> Outcome:
        return Outcome(seed, f"crash: {end}", make(seed).text())

    yield from run_each(seeds, small, one, crashed)


def run_texts(
    seeds: Sequence[int], small: bool, fault: Callable[[int], str], text: Callable[[int], str]
) -> Iterator[Outcome]:
    """The outcomes of programs that are small as they are: how each fails, and its text."""

    def one(seed: int, small: bool) -> Iterator[Outcome]:
        yield Outcome(seed, BEGIN)
        stop_after(SECONDS)
        try:
            found = fault(seed)
        except Exception as error:  # any kind is a failure
            found = f"{type(error).__name__}: {error}"
        stop_after(0)
        yield Outcome(seed, found, text(seed) if found else "")

    def crashed(seed: int, end: str, small: bool) -> Outcome:
        return Outcome(seed, f"crash: {end}", text(seed))

    yield from run_each(seeds, small, one, crashed)


def stop_after(seconds: int) -> None:
    """Stop this process after some seconds of its own time, or ten times as many of the clock's
    with a word on where it was; 0: never."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(10 * seconds)
    faulthandler.cancel_dump_traceback_later()
    if seconds:
        faulthandler.dump_traceback_later(10 * seconds - 5)


def _crashed(seed: int, end: str, small: bool) -> Outcome:
    case = random_case(seed)
    found = in_child(case)
    if found is None:
        return Outcome(seed, f"crash: {end}, but not when run again", case.text())
    if small:
        case, found = shrink(case, found, in_child)
    return Outcome(seed, str(found), case.text())


def in_child(case: Case) -> Failure | None:
    """The judgement of a case by a process of its own."""

    def work() -> Iterator[Iterator[Outcome]]:
        stop_after(SECONDS)
        found = judge(case)
        yield iter([Outcome(case.seed, *((found.kind, found.reason) if found else ()))])

    *outcomes, last = _child(work)
    if not outcomes:
        return Failure("crash", last.text)
    return Failure(outcomes[-1].failure, outcomes[-1].text) if outcomes[-1].failure else None


def _child(work: Callable[[], Iterator[Iterator[Outcome]]]) -> Iterator[Outcome]:
    """What a forked process tells before it ends, and how it ends."""
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        process = os.fork()
        if not process:
            os.close(reading)
            faulthandler.enable()  # says where the process was when a signal ends it
            with settings.override(cache_dir=folder, keep_programs=False):
                _tell(work(), writing)
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as pipe:
            for line in pipe:
                yield Outcome(*json.loads(line))
        _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    how = f"stopped by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    yield Outcome(0, END, how)


def _tell(work: Iterator[Iterator[Outcome]], writing: int) -> NoReturn:
    """Write outcomes as they come, then end this process."""
    code = 1
    try:
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            for outcomes in work:
                for outcome in outcomes:
                    pipe.write(json.dumps([outcome.seed, outcome.failure, outcome.text]) + "\n")
                    pipe.flush()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)

"""Judges cases in child processes whose memory and time are limited.

A child that dies, a raw error, more than `memory` bytes or `SECONDS` of processor time are
failures, which begin with RAW.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

SECONDS, HANGS = 5, 60  # of processor time; of the clock, after which a process is ended
MEMORY = 1 << 30  # bytes
_AT_ONCE = 250  # cases of a process
Judge = Callable[[int], str]
"""The outcome of a seed; what else may happen is raised."""


class TooLong(BaseException):
    """More processor time than a case may take."""


def _stop(number: int, frame: object) -> None:
    raise TooLong


def judged(judge: Judge, seed: int, seconds: float = SECONDS) -> str:
    """The outcome for a seed, or what went wrong and where, in one line."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(HANGS)
    try:
        found = judge(seed)
    except BaseException as error:  # a library in Rust raises what is no Exception
        found = raw(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return found if grown * 1024 < MEMORY else f"RAW memory grew by {grown} KiB: {found}"


def raw(error: BaseException) -> str:
    """A raw error in one line: its type, its text, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "anydim" in f.filename]
    text = " ".join(str(error).split())[:160]
    return f"RAW {type(error).__name__}: {text} at {' < '.join(reversed(own[-4:]))}"


def limit_memory() -> None:
    """From here on, the process may take `MEMORY` bytes more."""
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def run(judge: Judge, seeds: Sequence[int], seconds: float = SECONDS) -> Iterator[tuple[int, str]]:
    """Seeds and outcomes, from child processes; a child that dies is a failure, too."""
    waiting = list(seeds)
    while waiting:
        source, target = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(source)
            _work(judge, waiting[:_AT_ONCE], seconds, target)
        os.close(target)
        done = 0
        with os.fdopen(source, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                number, _, found = line.rstrip("\n").partition(" ")
                yield int(number), found
                done += 1
        _, status = os.waitpid(child, 0)
        if status:
            yield waiting[done], f"RAW the process died: status {status}"
            done += 1
        waiting = waiting[done:]


def _work(judge: Judge, seeds: Sequence[int], seconds: float, target: int) -> None:
    """In a child: judge, and tell the parent line by line."""
    signal.signal(signal.SIGPROF, _stop)
    limit_memory()
    with os.fdopen(target, "w", encoding="utf-8", errors="replace") as out:
        for seed in seeds:
            out.write(f"{seed} {judged(judge, seed, seconds)}\n")
            out.flush()
    os._exit(0)


def report(outcomes: Iterator[tuple[int, str]], what: str) -> None:
    """Print failures and counts, and exit: with 1 if there was a failure."""
    counts: Counter[str] = Counter()
    start = time.perf_counter()
    for number, (seed, found) in enumerate(outcomes, start=1):
        counts[found.split(":")[0] if found.startswith("RAW") else found] += 1
        if found.startswith("RAW"):
            click.echo(f"{seed}: {found}")
        if number % 100 == 0:
            pace = number / (time.perf_counter() - start)
            click.echo(f"{number} {what}, {pace:.1f} a second: {dict(counts)}", err=True)
    click.echo(f"{counts.total()} {what}: {dict(counts)}")
    sys.exit(any(name.startswith("RAW") for name in counts))

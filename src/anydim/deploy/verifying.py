"""Which contents of a file are verified, and when.

    verify        before the model is returned                     during its first calls
    "headers"     all but large floats
    "auto"        all; if large floats take more than `BACKGROUND`
                  bytes, all but these                             large floats
    "checksums"   all
    "digests"     all, by SHA-256 instead of checksums

Large means more than `LARGE` bytes. Values other than floats may be indices and are always verified
before anything runs. A wrong weight gives wrong numbers, never a crash.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from anydim.base.errors import ArtefactError, OptionError
from anydim.base.user_values import short_repr
from anydim.deploy.container import LARGE, Container
from anydim.deploy.saved import SavedArray, constant_member
from anydim.runtime.executable import Executable

BACKGROUND = 64 << 20  # bytes of large floats, some 5 ms, above which calls verify them
Check = Callable[[], None]
_KINDS = ("headers", "auto", "checksums", "digests")
_FLAGS = {True: "digests", False: "headers"}


def verify_of(given: Any) -> str:
    """The kind of verification that a user names; OptionError for an unknown one."""
    if isinstance(given, bool):
        return _FLAGS[given]
    if isinstance(given, str) and given in _KINDS:
        return given
    hint = "give 'auto', 'headers', 'checksums', or True for the digests of everything"
    raise OptionError(f"verify is {short_repr(given)}", hint)


def deferred_digests(arrays: Sequence[SavedArray], how: str) -> frozenset[str]:
    """The digests of the constants that are not verified before the model is returned."""
    large = {a.digest: a.bytes for a in arrays if a.bytes > LARGE and a.dtype.is_float}
    late = how == "headers" or (how == "auto" and sum(large.values()) > BACKGROUND)
    return frozenset(large) if late else frozenset()


def verify(
    container: Container, arrays: Sequence[SavedArray], how: str, late: Collection[str]
) -> list[Check]:
    """Verify the constants in the file but those in `late`; returns the checks of these.

    Raises ArtefactError for a damaged one.
    """
    digests = dict.fromkeys(each.digest for each in arrays if each.repacking is None)
    for digest in digests:
        if how == "digests":
            container.verify_member(constant_member(digest))
        elif digest not in late:
            container.check(constant_member(digest))
    if how != "auto":
        return []
    return [partial(container.check, constant_member(each)) for each in digests if each in late]


class BackgroundVerifier:
    """Runs checks in a thread during the calls of an executable, once in each process.

    It runs before each call until all checks are done; raises ArtefactError from the call that
    finds damage on.
    """

    def __init__(self, checks: Sequence[Check], run: Executable[Any]) -> None:
        self._checks = checks
        self._run = weakref.ref(run)
        self._problem: ArtefactError | None = None
        self._workers: dict[int, threading.Thread] = {}  # by process: threads do not survive a fork

    def __call__(self) -> None:
        """Start the thread; raises ArtefactError if it has found damage."""
        if self._problem is not None:
            raise ArtefactError(self._problem.problem, self._problem.hint)
        process = os.getpid()
        if process not in self._workers:
            worker = threading.Thread(target=self._compare, name="anydim verify", daemon=True)
            if self._workers.setdefault(process, worker) is worker:  # atomic
                self._start(worker)

    def _start(self, worker: threading.Thread) -> None:
        try:
            worker.start()
        except RuntimeError:  # the system cannot start a thread
            self._compare()

    def _compare(self) -> None:
        try:
            for check in self._checks:
                check()
        except ArtefactError as error:
            self._problem = error
            return
        run = self._run()
        if run is not None:
            run.guard = None

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
from collections.abc import Sequence
from typing import Any

from anydim.base.errors import ArtefactError, OptionError
from anydim.base.user_values import shown
from anydim.deploy.container import LARGE, Container
from anydim.deploy.saved import SavedArray, constant_member
from anydim.runtime.executable import Executable

BACKGROUND = 64 << 20  # bytes of large floats, some 5 ms, above which calls verify them
_KINDS = ("headers", "auto", "checksums", "digests")
_FLAGS = {True: "digests", False: "headers"}


def verify_of(given: Any) -> str:
    """The kind of verification that a user names; OptionError for an unknown one."""
    if isinstance(given, bool):
        return _FLAGS[given]
    if isinstance(given, str) and given in _KINDS:
        return given
    hint = "give 'auto', 'headers', 'checksums', or True for the digests of everything"
    raise OptionError(f"verify is {shown(given)}", hint)


def verify(container: Container, arrays: Sequence[SavedArray], how: str) -> tuple[str, ...]:
    """Verify constants; returns the members that are left to be verified during the first calls.

    Raises ArtefactError for a damaged one.
    """
    large = {a.digest: a.bytes for a in arrays if a.bytes > LARGE and a.dtype.is_float}
    deferred = how == "headers" or (how == "auto" and sum(large.values()) > BACKGROUND)
    for digest in dict.fromkeys(each.digest for each in arrays):
        name = constant_member(digest)
        if how == "digests":
            container.verified(name)
        elif not (deferred and digest in large):
            container.check(name)
    return tuple(map(constant_member, large)) if deferred and how == "auto" else ()


class BackgroundVerifier:
    """Verifies members in a thread during the calls of an executable, once in each process.

    It runs before each call until the members are verified; raises ArtefactError from the call that
    finds them damaged on.
    """

    def __init__(self, container: Container, names: Sequence[str], run: Executable[Any]) -> None:
        self._container, self._names = container, names
        self._run = weakref.ref(run)
        self._problem = ""
        self._workers: dict[int, threading.Thread] = {}  # by process: threads do not survive a fork

    def __call__(self) -> None:
        """Start the thread; raises ArtefactError if it has found damage."""
        if self._problem:
            raise self._container.fail(self._problem)
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
            for name in self._names:
                self._container.check(name)
        except ArtefactError as error:
            self._problem = error.problem.removeprefix(f"{self._container.path}: ")
            return
        run = self._run()
        if run is not None:
            run.guard = None

"""What trials found, kept on disk for every later process: which bodies are worth having.

An SQLite file beside the cache of compiled code. It is a memory, no authority: a schedule that it
names is made only where it is among the candidates of its site, and a row whose digest is not its
own was never there. A file that is damaged goes, one that cannot be used costs trials; both are
warned of once, and never an error.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from anydim.base import settings
from anydim.base.cache import code_version, key_of
from anydim.base.records import dataclass
from anydim.runtime.choices import Sizes

_TABLES = {
    "trials": """
create table trials (
    recipe text not null, sizes text not null, target text not null, code text not null,
    schedule text not null, ratio real not null, made real not null, digest text not null,
    primary key (recipe, sizes, target, code)
) without rowid
""",
}
_VERSION = 2  # of these tables, as `pragma user_version` says it
_WAIT, _SHORT_WAIT = 2.0, 0.05  # seconds for another process that writes; once that was too long
_MOST_ROWS = 200_000


@dataclass(frozen=True)
class Verdict:
    """The best schedule of a site at sizes, and its share of the generic body's time."""

    schedule: str
    ratio: float


class Ledger:
    """The verdicts in one file; `target` names the target and the processor they are for."""

    def __init__(self, path: Path | None, target: str) -> None:
        self._path, self._target = path, target
        self._lock = threading.Lock()
        self._said = False
        self._tidied = False

    def find(self, recipe: str, sizes: Sizes) -> Verdict | None:
        """What was found for the recipe of a digest; None where nothing was tried."""
        text = (
            "select schedule, ratio, digest from trials "
            "where recipe=? and sizes=? and target=? and code=?"
        )
        key = (recipe, _text(sizes), self._target, code_version())
        for schedule, ratio, digest in self._run(text, key):
            if isinstance(schedule, str) and isinstance(ratio, float):
                verdict = Verdict(schedule, ratio)
                if _digest(*key, verdict) == digest:
                    return verdict
        return None

    def keep(self, recipe: str, sizes: Sizes, verdict: Verdict) -> None:
        """Remember what was found."""
        key = (recipe, _text(sizes), self._target, code_version())
        row = (*key, verdict.schedule, verdict.ratio, time.time(), _digest(*key, verdict))
        self._run("insert or replace into trials values (?, ?, ?, ?, ?, ?, ?, ?)", row)
        if not self._tidied:
            self._tidied = True
            self.tidy()

    def tidy(self) -> None:
        """Forget the oldest of too many."""
        last = "select made from trials order by made desc limit 1 offset ?"
        self._run(f"delete from trials where made < ({last})", (_MOST_ROWS,))

    def _run(self, text: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        for _ in range(2 if self._path is not None else 0):  # again with a new file
            assert self._path is not None
            try:
                with self._lock, contextlib.closing(self._open(self._path)) as file, file:
                    return file.execute(text, values).fetchall()
            except (sqlite3.Error, OSError) as error:
                if type(error) is not sqlite3.DatabaseError:  # locked, read-only, full, no file
                    self._say(f"{self._path}: what was measured is not kept ({error})")
                    break
                self._say(f"{self._path} is damaged ({error}): what was measured is forgotten")
                _remove(self._path)
        return []

    def _say(self, what: str) -> None:
        """Warn, once. Where warnings are errors, nobody is there to catch this one."""
        if not self._said:
            self._said = True
            with contextlib.suppress(Warning):
                warnings.warn(what, RuntimeWarning, stacklevel=1)

    def _open(self, path: Path) -> sqlite3.Connection:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = sqlite3.connect(path, timeout=_SHORT_WAIT if self._said else _WAIT)
        try:
            (version,) = file.execute("pragma user_version").fetchone()
            if version > _VERSION:
                raise sqlite3.OperationalError("it is of a newer version")
            if version < _VERSION:
                with file:
                    for name, text in _TABLES.items():
                        file.execute(f"drop table if exists {name}")
                        file.execute(text)
                    file.execute(f"pragma user_version = {_VERSION}")
        except BaseException:
            file.close()
            raise
        return file


def _digest(*row: object) -> str:
    """What says that nobody else wrote a row, nor a bit of it: such files have no checksums."""
    return key_of(*map(repr, row))


def _remove(path: Path) -> None:
    """A damaged file, with what was to be written to it."""
    for name in (path, path.with_name(f"{path.name}-journal")):
        with contextlib.suppress(OSError):
            name.unlink()


def _text(sizes: Sizes) -> str:
    return ",".join(map(str, sizes))


@cache
def _at(path: Path | None, target: str) -> Ledger:
    return Ledger(path, target)


def ledger(target: str) -> Ledger:
    """The user's, in the folder that the settings name."""
    path = Path(settings.cache_dir) / "variants.sqlite" if settings.use_cache else None
    return _at(path, target)

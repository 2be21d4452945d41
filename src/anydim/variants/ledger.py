"""What trials found, kept on disk for every later process: which bodies are worth having.

An SQLite file beside the cache of compiled code. It is a memory, no authority: a schedule that it
names is made only where it is among the candidates of its site. A file that cannot be used costs
trials, never an error.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
import warnings
from functools import cache
from pathlib import Path

from anydim.base import settings
from anydim.base.cache import code_version
from anydim.base.records import dataclass
from anydim.runtime.choices import Sizes

_TABLE = """
create table if not exists trials (
    recipe text not null, sizes text not null, target text not null, code text not null,
    schedule text not null, ratio real not null, made real not null,
    primary key (recipe, sizes, target, code)
) without rowid
"""
_WAIT = 0.2  # seconds for another process that writes
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

    def find(self, recipe: str, sizes: Sizes) -> Verdict | None:
        """What was found for the recipe of a digest; None where nothing was tried."""
        text = (
            "select schedule, ratio from trials where recipe=? and sizes=? and target=? and code=?"
        )
        rows = self._run(text, (recipe, _text(sizes), self._target, code_version()))
        for schedule, ratio in rows:
            if isinstance(schedule, str) and isinstance(ratio, float):
                return Verdict(schedule, ratio)
        return None

    def keep(self, recipe: str, sizes: Sizes, verdict: Verdict) -> None:
        """Remember what was found."""
        row = (recipe, _text(sizes), self._target, code_version(), verdict.schedule, verdict.ratio)
        self._run("insert or replace into trials values (?, ?, ?, ?, ?, ?, ?)", (*row, time.time()))

    def tidy(self) -> None:
        """Forget the oldest of too many."""
        last = "select made from trials order by made desc limit 1 offset ?"
        self._run(f"delete from trials where made < ({last})", (_MOST_ROWS,))

    def _run(self, text: str, values: tuple[object, ...]) -> list[tuple[object, ...]]:
        if self._path is None:
            return []
        try:
            with self._lock, contextlib.closing(self._open(self._path)) as file, file:
                return file.execute(text, values).fetchall()
        except (sqlite3.Error, OSError) as error:
            if not self._said:
                self._said = True
                warnings.warn(
                    f"{self._path}: what was measured is not kept ({error})",
                    RuntimeWarning, stacklevel=1,
                )  # fmt: skip
            return []

    def _open(self, path: Path) -> sqlite3.Connection:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = sqlite3.connect(path, timeout=_WAIT)
        file.execute(_TABLE)
        return file


def _text(sizes: Sizes) -> str:
    return ",".join(map(str, sizes))


@cache
def _at(path: Path | None, target: str) -> Ledger:
    return Ledger(path, target)


def ledger(target: str) -> Ledger:
    """The user's, in the folder that the settings name."""
    path = Path(settings.cache_dir) / "variants.sqlite" if settings.use_cache else None
    return _at(path, target)

"""The ledger: results of trials, stored on disk for later processes.

An SQLite file next to the cache of compiled code. It is advisory: a schedule from it is used only
if it is among the candidates of its site, and rows with a wrong digest are ignored. A damaged file
is removed; without a usable file, trials are repeated; both cause one warning and never an error.

A row belongs to a recipe at sizes, or to the subject of recipes for a thread count at all sizes:
later compilations use these general schedules (`variants/records.py`).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anydim.base.cache import code_version, key_of
from anydim.base.cache_folder import LEDGER, cache_folder, not_kept, remove, say
from anydim.base.errors import OptionError
from anydim.base.files import replace_file
from anydim.base.records import dataclass
from anydim.runtime.variant_tables import Key, Span

if TYPE_CHECKING:
    from anydim.compiler.targets.target import Target

_TABLES = {
    "trials": """
create table trials (
    recipe text not null, sizes text not null, target text not null, code text not null,
    schedule text not null, ratio real not null, made real not null, digest text not null,
    primary key (recipe, sizes, target, code)
) without rowid
""",
}
_VERSION = 2  # of these tables, as `pragma user_version`
_WAIT, _SHORT_WAIT = 2.0, 0.05  # seconds to wait for a writing process; after a first timeout
_MAX_ROWS = 200_000
_ANY = "all, %"  # `_all` with any thread count
_MAX_TEXT = 1 << 16  # characters
_ROWS = "select recipe, sizes, target, code, schedule, ratio, made, digest from trials"
_READ = f"{_ROWS} where target=? and code=?"


@dataclass(frozen=True)
class Verdict:
    """The best schedule of a site at sizes, and its time ratio to the generic kernel."""

    schedule: str
    ratio: float


class Ledger:
    """The verdicts in one file; `target` names the target and its processor."""

    def __init__(self, path: Path | None, target: str) -> None:
        self._path, self._target = path, target
        self._lock = threading.Lock()
        self._slow = False  # after a failed access
        self._tidied = False

    def find(self, recipe: str, sizes: Key, bits: str = "") -> Verdict | None:
        """The verdict for a recipe (by digest) at sizes; None if none is stored.

        Variants that may give other `bits` have separate verdicts.
        """
        text = f"{_READ} and recipe=? and sizes=?"
        here = (self._target, code_version())
        rows = self._run(text, (*here, recipe, _text(sizes) + bits))
        return next((row.verdict for row in map(_row, rows) if row is not None), None)

    def tuned_schedules(self, threads: int) -> dict[str, Verdict]:
        """General schedules for a thread count, by the subjects of recipes."""
        rows = self._run(f"{_READ} and sizes=?", (self._target, code_version(), _all(threads)))
        return {row.recipe: row.verdict for row in map(_row, rows) if row is not None}

    def state(self) -> str:
        """A digest of the general schedules of all processors; '' if none."""
        rows = self._run("select digest from trials where sizes like ? order by digest", (_ANY,))
        return key_of(*map(repr, rows)) if rows else ""

    def keep(self, recipe: str, sizes: Key, verdict: Verdict, bits: str = "") -> None:
        """Store a verdict."""
        self._keep(recipe, _text(sizes) + bits, verdict)

    def keep_tuned(self, subject: str, threads: int, verdict: Verdict) -> None:
        """Store a general schedule."""
        self._keep(subject, _all(threads), verdict)

    def merge(self, path: str | os.PathLike[str]) -> int:
        """Merge rows of another file that are better or new; return its count of rows.

        Rows of other processors are merged, too. Raises OptionError for an unreadable file.
        """
        problem = f"{path} is not a file of records"
        if not Path(path).is_file():
            raise OptionError(f"{path} cannot be read", "give a file that `--export` wrote")
        try:
            uri = f"{Path(path).resolve().as_uri()}?mode=ro"
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as other:
                if other.execute("pragma user_version").fetchone() != (_VERSION,):
                    raise OptionError(f"{problem} of this version")
                found = other.execute(f"{_ROWS} limit {_MAX_ROWS}").fetchall()
        except sqlite3.Error as error:
            raise OptionError(f"{problem}: {error}") from None
        rows = [row for row in map(_row, found) if row is not None]
        text = "insert into trials values (?, ?, ?, ?, ?, ?, ?, ?) on conflict do update set "
        better = ", ".join(f"{n}=excluded.{n}" for n in ("schedule", "ratio", "made", "digest"))
        for row in rows:
            self._run(f"{text}{better} where excluded.ratio < ratio", row.values)
        return len(rows)

    def export(self, path: str | os.PathLike[str]) -> int:
        """Write the verdicts for this kind of machine to a file; return the count of rows.

        Raises OptionError for a path that cannot be written.
        """
        rows = [row for row in map(_row, self._run(_ROWS, ())) if row is not None]
        mine = [row for row in rows if (row.target, row.code) == (self._target, code_version())]
        try:
            if not Path(path).parent.is_dir():
                raise FileNotFoundError(f"there is no folder {Path(path).parent}")
            with (
                replace_file(os.fspath(path)) as new,
                contextlib.closing(self._open(Path(new))) as file,
            ):
                values = [row.values for row in mine]
                with file:
                    file.executemany("insert into trials values (?, ?, ?, ?, ?, ?, ?, ?)", values)
        except (OSError, sqlite3.Error) as error:
            raise OptionError(f"{path} cannot be written: {error}") from None
        return len(mine)

    def _keep(self, recipe: str, sizes: str, verdict: Verdict) -> None:
        key = (recipe, sizes, self._target, code_version())
        row = (*key, verdict.schedule, verdict.ratio, time.time(), _digest(*key, verdict))
        self._run("insert or replace into trials values (?, ?, ?, ?, ?, ?, ?, ?)", row)
        if not self._tidied:
            self._tidied = True
            self.tidy()

    def tidy(self) -> None:
        """Delete the oldest rows above the limit."""
        last = "select made from trials order by made desc limit 1 offset ?"
        self._run(f"delete from trials where made < ({last})", (_MAX_ROWS,))

    def _run(self, text: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        for _ in range(2 if self._path is not None else 0):  # retries with a new file
            assert self._path is not None
            try:
                with self._lock, contextlib.closing(self._open(self._path)) as file, file:
                    return file.execute(text, values).fetchall()
            except (sqlite3.Error, OSError) as error:
                if type(error) is not sqlite3.DatabaseError:  # locked, read-only, full, no file
                    self._slow = True
                    what = f"{self._path}: measurements are not stored ({error})"
                    not_kept(str(self._path.parent), what)
                    break
                what = f"{self._path} is damaged ({error}): its measurements are discarded"
                say(str(self._path), "damaged", what)
                remove(str(self._path))
                remove(f"{self._path}-journal")  # pending transactions
        return []

    def _open(self, path: Path) -> sqlite3.Connection:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = sqlite3.connect(path, timeout=_SHORT_WAIT if self._slow else _WAIT)
        try:
            file.execute("pragma synchronous = off")  # a file damaged by a crash is recreated
            (version,) = file.execute("pragma user_version").fetchone()
            if version > _VERSION:
                raise sqlite3.OperationalError("it has a newer version")
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


@dataclass(frozen=True)
class _Row:
    """A row of the table."""

    recipe: str
    sizes: str
    target: str
    code: str
    verdict: Verdict
    made: float

    @property
    def values(self) -> tuple[object, ...]:
        key, verdict = (self.recipe, self.sizes, self.target, self.code), self.verdict
        return (*key, verdict.schedule, verdict.ratio, self.made, _digest(*key, verdict))


def _row(values: tuple[Any, ...]) -> _Row | None:
    """Validate a row from the file; None if a field or the digest is wrong."""
    recipe, sizes, target, code, schedule, ratio, made, digest = values
    words = (recipe, sizes, target, code, schedule)
    texts = all(isinstance(each, str) and len(each) < _MAX_TEXT for each in words)
    if not texts or not isinstance(ratio, float) or not isinstance(made, float):
        return None
    found = _Row(recipe, sizes, target, code, Verdict(schedule, ratio), made)
    return found if found.values[-1] == digest else None


def _digest(*row: object) -> str:
    """Checksum of a row, which SQLite files lack."""
    return key_of(*map(repr, row))


def _all(threads: int) -> str:
    return f"all, {threads} threads"


def _text(sizes: Key) -> str:
    numbers = ",".join(map(str, sizes))
    return f"..{numbers}" if isinstance(sizes, Span) else numbers


_ledger_at = cache(Ledger)


def ledger(target: str) -> Ledger:
    """The user's ledger, in the configured cache folder."""
    folder = cache_folder()
    return _ledger_at(None if folder is None else Path(folder, LEDGER), target)


def name_of(target: Target) -> str:
    """The name of a target and its processor, the key in the ledger."""
    processor = target.processor
    return f"{target.name} {processor.triple} {processor.cpu} {processor.features}"

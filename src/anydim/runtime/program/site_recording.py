"""Recordings of the sizes of launches: lines next to those of calls.

    {"site": "rows_b2ea", "model": "encoder", "subject": "9f...", "names": ["m", "parallel"],
     "sizes": [128, 128], "count": 12, "seconds": 0.004, "body": "generic"}

`seconds` is the share of the calls' time, by the work in plans; 0 if no input determines the sizes.
Lines of the same launch and sizes are summed.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from typing import Any

from anydim.base.records import dataclass
from anydim.runtime.program.recording import SITE, lines_of
from anydim.sizes import LARGEST

_MOST_SIZES = 1024  # maximum sizes of a launch


@dataclass(frozen=True)
class RecordedSite:
    """Sizes of the launches of a kernel, its parallel range last, and their count.

    `subject` identifies the computation (`program/recipe.py`), `body` the variant that served at
    the time of writing.
    """

    model: str
    kernel: str
    subject: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    count: int
    seconds: float
    body: str

    @property
    def key(self) -> tuple[Any, ...]:
        """The common part of lines that are summed."""
        return self.model, self.kernel, self.subject, self.sizes

    def with_more(self, other: RecordedSite) -> RecordedSite:
        """Return the sum of both, with the later variant."""
        return RecordedSite(
            self.model, self.kernel, self.subject, self.names, self.sizes,
            self.count + other.count, self.seconds + other.seconds, other.body,
        )  # fmt: skip

    def line(self) -> str:
        """Return the line of a file."""
        return json.dumps({
            SITE: self.kernel, "model": self.model, "subject": self.subject,
            "names": self.names, "sizes": self.sizes, "count": self.count,
            "seconds": round(self.seconds, 9), "body": self.body,
        })  # fmt: skip


def read_sites(paths: Iterable[str | os.PathLike[str]]) -> list[RecordedSite]:
    """Read lines of launches; rows of the same sizes are summed and sorted by seconds, descending.

    Invalid lines are skipped. Raises OptionError for an unreadable file.
    """
    found: dict[tuple[Any, ...], RecordedSite] = {}
    for path in paths:
        for row in filter(None, map(_row, lines_of(path))):
            found[row.key] = found[row.key].with_more(row) if row.key in found else row
    return sorted(found.values(), key=lambda row: (-row.seconds, -row.count))


def _row(line: bytes) -> RecordedSite | None:
    """Parse a line of a launch; None if it is something else."""
    try:
        found = json.loads(line)
        names, sizes, count = found["names"], found["sizes"], found["count"]
        words = [found[word] for word in ("model", SITE, "subject", "body")]
        seconds = found["seconds"]
        fine = (
            all(isinstance(word, str) for word in (*words, *names))
            and len(names) == len(sizes) <= _MOST_SIZES
            and all(type(size) is int and abs(size) <= LARGEST for size in sizes)
            and type(count) is int
            and 0 < count <= LARGEST
            and isinstance(seconds, (int, float))
            and seconds >= 0
            and math.isfinite(seconds)
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    if not fine:
        return None
    model, kernel, subject, body = words
    rest = (count, float(seconds), body)
    return RecordedSite(model, kernel, subject, tuple(names), tuple(sizes), *rest)

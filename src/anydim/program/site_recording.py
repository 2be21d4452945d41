"""Which sizes came to the launches of a model: lines of a recording beside those of its calls.

    {"site": "rows_b2ea", "model": "encoder", "subject": "9f...", "names": ["m", "parallel"],
     "sizes": [128, 128], "count": 12, "seconds": 0.004, "body": "generic"}

`seconds` are the share of the calls' time, by the work that plans count; 0 where no input tells the
sizes. Lines of the same launch and sizes add up.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from typing import Any

from anydim.base.records import dataclass
from anydim.program.recording import SITE, lines_of
from anydim.sizes import LARGEST

_MOST_SIZES = 1024  # of a launch


@dataclass(frozen=True)
class RecordedSite:
    """Sizes that came to the launches of a kernel, its parallel range last: how often.

    `subject` says what is computed (`program/recipe.py`), `body` which code served when this was
    written.
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
        """What lines that add up share."""
        return self.model, self.kernel, self.subject, self.sizes

    def with_more(self, other: RecordedSite) -> RecordedSite:
        """Both together, with the later body."""
        return RecordedSite(
            self.model, self.kernel, self.subject, self.names, self.sizes,
            self.count + other.count, self.seconds + other.seconds, other.body,
        )  # fmt: skip

    def line(self) -> str:
        """As a file has it."""
        return json.dumps({
            SITE: self.kernel, "model": self.model, "subject": self.subject,
            "names": self.names, "sizes": self.sizes, "count": self.count,
            "seconds": round(self.seconds, 9), "body": self.body,
        })  # fmt: skip


def read_sites(paths: Iterable[str | os.PathLike[str]]) -> list[RecordedSite]:
    """What files have of launches, those of the same sizes added up, the most seconds first.

    Lines that are none are left out. Raises OptionError for a file that cannot be read.
    """
    found: dict[tuple[Any, ...], RecordedSite] = {}
    for path in paths:
        for row in filter(None, map(_row, lines_of(path))):
            found[row.key] = found[row.key].with_more(row) if row.key in found else row
    return sorted(found.values(), key=lambda row: (-row.seconds, -row.count))


def _row(line: bytes) -> RecordedSite | None:
    """A line, where it is one of a launch."""
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

"""The schedule of ordered steps."""

from __future__ import annotations

from anydim.base.records import dataclass

NONE = "none"


@dataclass(frozen=True)
class Nest:
    """At most `lanes` lanes, `unroll` vectors side by side; cut for threads along `parallel`.

    The range is done in blocks of `block`, each through all iterations; 0: a thread's part at a
    time.
    """

    lanes: int
    unroll: int = 2
    parallel: str = NONE
    block: int = 0

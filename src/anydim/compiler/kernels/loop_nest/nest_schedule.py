"""The schedule of ordered steps."""

from __future__ import annotations

from anydim.base.records import dataclass

NONE = "none"


@dataclass(frozen=True)
class LoopNest:
    """At most `lanes` lanes, unrolled `unroll` times; split over threads along `parallel`.

    The range is run in blocks of `block`, each through all iterations; 0: a thread's whole part.
    """

    lanes: int
    unroll: int = 2
    parallel: str = NONE
    block: int = 0

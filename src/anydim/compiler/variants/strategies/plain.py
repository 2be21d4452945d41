"""Strategies of variants for single sizes."""

from __future__ import annotations

from dataclasses import replace
from sys import float_info
from typing import ClassVar

from anydim.base.records import dataclass
from anydim.base.user_values import ABOVE_ZERO, number_within
from anydim.compiler.variants.strategies.strategy import MOST, SAME, Strategy, bits_of, whole


@dataclass(frozen=True)
class Generic(Strategy):
    """One variant for every size."""


@dataclass(frozen=True)
class Exact(Strategy):
    """A variant per size, compiled at its first launch, which waits for it.

    Later sizes use generic code. A size with 16 launches, and double the launches of the least used
    variant, replaces it in the background.

    Attributes:
        limit: Most variants per kernel launch site.
    """

    blocking: ClassVar[bool] = True
    after: ClassVar[int] = 16

    limit: int = 64

    def __post_init__(self) -> None:
        whole("limit", self.limit, 1, MOST)


@dataclass(frozen=True)
class Adaptive(Strategy):
    """Variants for frequent sizes, compiled in the background and kept if they are faster.

    Attributes:
        limit: Most variants per kernel launch site.
        after: Launches of a size before it gets a variant.
        most: Largest share of the generic time at which a variant is kept.
        bits: `"same"`: results are equal to the bit; `"any"`: sums may use another order, so
            results depend on the variant.
        patience: Seconds of service before sizes are counted.
    """

    background: ClassVar[bool] = True

    limit: int = 8
    after: int = 16
    most: float = 0.97
    bits: str = SAME
    patience: float = 0.0

    def __post_init__(self) -> None:
        whole("limit", self.limit, 1, MOST)
        whole("after", self.after, 1, 1 << 30)
        number_within("most", self.most, ABOVE_ZERO, 1, "give a share of time, such as 0.97")
        number_within("patience", self.patience, 0, float_info.max, "give seconds, 0 or more")
        bits_of(self.bits)

    def at_once(self, limit: int) -> Adaptive:
        return replace(self, limit=max(limit, self.limit), patience=0.0)


GENERIC = Generic()
USUAL = Adaptive(after=256, patience=2)  # equals `settings.USUAL_STRATEGY`

"""Strategies that say how bodies for single sizes come about."""

from __future__ import annotations

import math
from typing import ClassVar

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.base.user_values import shown
from anydim.variants.strategies.strategy import MOST, SAME, Strategy, bits_of, whole


@dataclass(frozen=True)
class Generic(Strategy):
    """One body for every size."""


@dataclass(frozen=True)
class Exact(Strategy):
    """A body for each size that comes, made at its first launch, for the first `limit` of a site.

    Later sizes are served by the generic body. One that came `after` times, and twice as often as
    the least used body, takes the room of that one; it is made aside.
    """

    after: ClassVar[int] = 16

    limit: int = 64

    def __post_init__(self) -> None:
        whole("limit", self.limit, 1, MOST)


@dataclass(frozen=True)
class Adaptive(Strategy):
    """Bodies made aside for sizes that came `after` times, at most `limit` a site.

    One is kept that takes at most `most` of the generic body's time. With `bits` "any" it may add
    in another order, so that results depend on which body serves. Nothing is looked at before a
    model has served for `patience` seconds.
    """

    limit: int = 8
    after: int = 16
    most: float = 0.97
    bits: str = SAME
    patience: float = 0.0

    def __post_init__(self) -> None:
        whole("limit", self.limit, 1, MOST)
        whole("after", self.after, 1, 1 << 30)
        if not isinstance(self.most, (int, float)) or not 0 < self.most <= 1:
            raise OptionError(f"most is {shown(self.most)}", "give a share of time, 0.97 say")
        if not isinstance(self.patience, (int, float)) or not 0 <= self.patience < math.inf:
            raise OptionError(f"patience is {shown(self.patience)}", "give seconds, 0 or more")
        bits_of(self.bits)


GENERIC = Generic()
USUAL = Adaptive(after=256, patience=2)  # what `settings.USUAL_STRATEGY` says

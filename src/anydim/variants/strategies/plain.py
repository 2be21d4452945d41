"""Strategies of variants for single sizes."""

from __future__ import annotations

import math
from typing import ClassVar

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.base.user_values import shown
from anydim.variants.strategies.strategy import MOST, SAME, Strategy, bits_of, whole


@dataclass(frozen=True)
class Generic(Strategy):
    """One kernel for every size."""


@dataclass(frozen=True)
class Exact(Strategy):
    """A variant for each size, compiled at its first launch, for the first `limit` sizes of a site.

    Later sizes are served by the generic kernel. A size with `after` launches that is twice as
    frequent as the least used variant replaces it; the new one is compiled in the background.
    """

    after: ClassVar[int] = 16

    limit: int = 64

    def __post_init__(self) -> None:
        whole("limit", self.limit, 1, MOST)


@dataclass(frozen=True)
class Adaptive(Strategy):
    """Variants compiled in the background for sizes with `after` launches, `limit` per site.

    A variant is kept if it takes at most the share `most` of the generic kernel's time. With `bits`
    "any" it may add in another order, so that results depend on the variant. Nothing is counted
    before a model has served for `patience` seconds.
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
            raise OptionError(f"most is {shown(self.most)}", "give a share of time, such as 0.97")
        if not isinstance(self.patience, (int, float)) or not 0 <= self.patience < math.inf:
            raise OptionError(f"patience is {shown(self.patience)}", "give seconds, 0 or more")
        bits_of(self.bits)


GENERIC = Generic()
USUAL = Adaptive(after=256, patience=2)  # equals `settings.USUAL_STRATEGY`

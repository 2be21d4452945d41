"""What a run at recorded sizes would gain by what trials have found before."""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.records import dataclass
from anydim.variants.serving import Serving
from anydim.variants.tuning import Wanted


@dataclass(frozen=True)
class Gain:
    """A kernel at recorded sizes: so many `sizes`, of them `tried` ones, the `seconds` of all.

    `whole` is the share of time of its schedule beside the template's own, None where it has that.
    `saved` are the seconds that bodies for single sizes save, `untried` those never looked at.
    """

    kernel: str
    source: str
    sizes: int
    tried: int
    seconds: float
    whole: float | None
    saved: float
    untried: float


def gains(serving: Serving, rows: Sequence[Wanted]) -> list[Gain]:
    """Kernels at recorded sizes, the costliest first."""
    found = []
    for number, place in enumerate(serving.places):
        mine = [row for row in rows if row.number == number]
        verdicts = [(row, serving.verdict(number, row.sizes)) for row in mine]
        known = [(row, verdict) for row, verdict in verdicts if verdict is not None]
        saved = sum(
            (1 - verdict.ratio) * row.seconds
            for row, verdict in known if verdict.ratio <= serving.most
        )  # fmt: skip
        untried = sum(row.seconds for row, verdict in verdicts if verdict is None)
        whole, cost = serving.whole(number), sum(row.seconds for row in mine)
        names = (place.site.kernel, place.site.source)
        ratio = None if whole is None else whole.ratio
        found.append(Gain(*names, len(mine), len(known), cost, ratio, saved, untried))
    return sorted(found, key=lambda gain: -gain.seconds)

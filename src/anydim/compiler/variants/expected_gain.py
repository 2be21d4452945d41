"""Expected gain at recorded sizes from earlier trials."""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.records import dataclass
from anydim.compiler.variants.serving import Serving
from anydim.compiler.variants.tuning import RecordedLaunch


@dataclass(frozen=True)
class Gain:
    """Gain of a kernel at recorded sizes: counts of `sizes` and of `tried` ones, total `seconds`.

    `whole` is the time ratio of its tuned schedule to the template's own, None without a tuned one.
    `saved` are the seconds that variants for single sizes save, `untried` those of untried sizes.
    """

    kernel: str
    source: str
    sizes: int
    tried: int
    seconds: float
    whole: float | None
    saved: float
    untried: float


def gains(serving: Serving, rows: Sequence[RecordedLaunch]) -> list[Gain]:
    """Gains of kernels at recorded sizes, most expensive first."""
    found = []
    for number, call_site in enumerate(serving.call_sites):
        mine = [row for row in rows if row.number == number]
        verdicts = [(row, serving.verdict(number, row.sizes)) for row in mine]
        known = [(row, verdict) for row, verdict in verdicts if verdict is not None]
        saved = sum(
            (1 - verdict.ratio) * row.seconds
            for row, verdict in known if verdict.ratio <= serving.most
        )  # fmt: skip
        untried = sum(row.seconds for row, verdict in verdicts if verdict is None)
        whole, cost = serving.general(number), sum(row.seconds for row in mine)
        names = (call_site.site.kernel, call_site.site.source)
        ratio = None if whole is None else whole.ratio
        found.append(Gain(*names, len(mine), len(known), cost, ratio, saved, untried))
    return sorted(found, key=lambda gain: -gain.seconds)

"""How near the machine's limit a workload is, and where the rest of the time goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import anydim as ad
from anydim.base.records import dataclass
from bench.six.workloads import Workload
from bench.workloads import Feeds

SAMPLES, SHOWN = 6, 3


@dataclass(frozen=True)
class Losses:
    """Of some requests: the least time by the machine's limits for the time taken; who loses most.

    `worst` has sources, and the seconds beyond the limit as a share of the whole time.
    """

    share: float
    worst: tuple[tuple[str, float], ...]


def losses(work: Workload, requests: Sequence[Feeds], threads: int) -> Losses:
    """Profiled at requests that lie evenly in the stream."""
    model = ad.compile(work.model().SerializeToString(), threads=threads)
    chosen = requests[:: max(1, len(requests) // SAMPLES)]
    if work.carried is not None:
        chosen = _carried(model, work, requests)
    lost: Counter[str] = Counter()
    taken = least = 0.0
    for feeds in chosen:
        profile = model.profile(feeds)
        limits = profile.limits
        assert limits is not None
        taken += profile.seconds
        lost["outside of kernels"] += max(0.0, profile.seconds - profile.in_launches)
        for launch in profile.launches:
            own = min(launch.seconds, limits.seconds(launch.flops, launch.moved))
            least += own
            lost[_named(launch.source, launch.kernel)] += launch.seconds - own
    worst = tuple((name, seconds / taken) for name, seconds in lost.most_common(SHOWN))
    return Losses(least / taken, worst)


def _named(source: str, kernel: str) -> str:
    """What a launch does, without the numbers of layers."""
    template = kernel.rpartition("_")[0]
    return f"{template}: {''.join(c for c in source if not c.isdigit())[:40]}"


def _carried(model: ad.Model, work: Workload, requests: Sequence[Feeds]) -> list[Feeds]:
    """Some requests with what those before them gave."""
    kept: Feeds = {}
    chosen = []
    for number, feeds in enumerate(requests):
        given = kept | feeds
        if number % (len(requests) // SAMPLES) == 0:
            chosen.append(given)
        results = model(**given)
        kept = {name: results[result] for result, name in (work.carried or {}).items()}
    return chosen

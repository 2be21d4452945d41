"""Which sizes come to the launches of a model while it is recorded, and which code serves them.

Sizes that inputs tell follow from those of the calls, and cost nothing. Launches whose sizes data
or loops decide look them up in a table of their own meanwhile, which counts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anydim.program.recording import Recorded
from anydim.program.site_recording import RecordedSite
from anydim.runtime.choices import Callee, Sizes
from anydim.variants.places import Place
from anydim.variants.serving import Serving
from anydim.variants.tuning import work_of


class Watch:
    """The launches of a serving that a recording asks about, from `start` to `stop`."""

    def __init__(self, model: str, serving: Serving, told: Sequence[str]) -> None:
        self._model, self._serving = model, serving
        known = dict.fromkeys(told, 1)
        self._untold = [
            place for place in serving.places
            if any(serving.key(site, known) is None for site in place.sites)
        ]  # fmt: skip
        self._opened: list[Place] = []

    def start(self) -> None:
        """Count the sizes that no input tells."""
        for place in self._untold:
            if place.choice is None:
                place.open(Callee(), watching=True)
                self._opened.append(place)

    def stop(self) -> None:
        """Count no more; whoever counted before still does."""
        for place in self._opened:
            self._serving.retire(place.close())
        self._opened = []

    def lines(self, rows: Sequence[Recorded], last: bool) -> Iterator[str]:
        """What came since the last time; at the end, with `last`, what all calls tell."""
        for place in self._untold:
            seen = {} if place.choice is None else place.choice.seen()
            for sizes, count in seen.items():
                assert place.choice is not None
                place.choice.forget(sizes)
                yield self._row(place, sizes, count, 0.0).line()
        if last:
            yield from (row.line() for row in self.told(rows))

    def told(self, rows: Sequence[Recorded]) -> Iterator[RecordedSite]:
        """The sizes of launches that calls tell."""
        found: dict[tuple[int, Sizes], tuple[int, float]] = {}
        for row in rows:
            works = [
                (number, key, work_of(site, row.dims))
                for number, place in enumerate(self._serving.places)
                for site in place.sites
                if (key := self._serving.key(site, row.dims)) is not None
            ]
            total = sum(work for *_, work in works) or 1.0
            for number, key, work in works:
                count, seconds = found.get((number, key), (0, 0.0))
                more = row.seconds * work / total
                found[number, key] = count + row.count, seconds + more
        for (number, key), (count, seconds) in found.items():
            yield self._row(self._serving.places[number], key, count, seconds)

    def _row(self, place: Place, sizes: Sizes, count: int, seconds: float) -> RecordedSite:
        names = (*place.recipe.sizes, "parallel")
        subject, kernel = place.recipe.subject, place.site.kernel
        body = place.serving(sizes)
        return RecordedSite(self._model, kernel, subject, names, sizes, count, seconds, body)

"""Record launch sizes of a model and the variants that serve them, during a recording.

Launch sizes that the inputs determine follow from the sizes of calls, and cost nothing. Launches
whose sizes depend on data or loops use a table meanwhile, which counts them; native code calls
back to Python once for new sizes.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence

from anydim.compiler.variants.call_sites import CallSite
from anydim.compiler.variants.serving import MISSED, Serving
from anydim.compiler.variants.tuning import determined_launches
from anydim.runtime.program.recording import Recorded
from anydim.runtime.program.site_recording import RecordedSite
from anydim.runtime.variant_tables import Callee, Sizes


class Watch:
    """Counts the launches of a `Serving` for a recording, from `start` to `stop`."""

    def __init__(self, model: str, serving: Serving, determined: Sequence[str]) -> None:
        self._model, self._serving = model, serving
        known = dict.fromkeys(determined, 1)
        self._undetermined = [
            call_site for call_site in serving.call_sites
            if any(serving.key(site, known) is None for site in call_site.sites)
        ]  # fmt: skip
        self._opened: dict[int, CallSite] = {}
        self._counted: dict[tuple[int, Sizes], int] = {}  # counts already written
        self._lock = threading.Lock()
        self._callback = MISSED(self._new)

    def start(self) -> None:
        """Start counting the sizes that inputs do not determine."""
        address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        for number, call_site in enumerate(self._undetermined):
            if call_site.choice is None:
                self._opened[number] = call_site
                call_site.open(Callee(address, number), watching=False)

    def stop(self) -> None:
        """Stop counting, except at call sites that counted before."""
        for call_site in self._opened.values():
            self._serving.retire((call_site.close(), self._callback))
        self._opened = {}

    def _new(self, number: int, address: int) -> int:
        """Callback for new sizes of a launch: count them from now on."""
        try:
            with self._lock:
                call_site = self._opened[number]
                count = len(call_site.recipe.sizes) + 1
                sizes = tuple((ctypes.c_int64 * count).from_address(address))
                self._counted[number, sizes] = self._counted.get((number, sizes), 0) - 1
                self._serving.retire(call_site.leave(sizes))
        except Exception:  # exceptions cannot propagate from a callback: skip it
            return 0
        return 0

    def lines(self, rows: Sequence[Recorded], last: bool) -> Iterator[str]:
        """Lines of counts since the last time; with `last`, also launches determined by calls."""
        for number, call_site in enumerate(self._undetermined):
            with self._lock:
                unserved = call_site.unserved_sizes(0)
                for sizes, hits in unserved.items():
                    before = self._counted.get((number, sizes), 0)
                    count = hits - (before if before <= hits else 0)  # or counts restarted
                    self._counted[number, sizes] = hits
                    if count > 0:
                        yield self._row(call_site, sizes, count, 0.0).line()
        if last:
            yield from (row.line() for row in self.determine_launches(rows))

    def determine_launches(self, rows: Sequence[Recorded]) -> Iterator[RecordedSite]:
        """Launch sizes that follow from the sizes of calls."""
        found: dict[tuple[int, Sizes], tuple[int, float]] = {}
        for row in rows:
            launches = determined_launches(self._serving, row.dims)
            total = sum(work for *_, work in launches) or 1.0
            for number, key, work in launches:
                count, seconds = found.get((number, key), (0, 0.0))
                more = row.seconds * work / total
                found[number, key] = count + row.count, seconds + more
        for (number, key), (count, seconds) in found.items():
            yield self._row(self._serving.call_sites[number], key, count, seconds)

    def _row(self, call_site: CallSite, sizes: Sizes, count: int, seconds: float) -> RecordedSite:
        names = (*call_site.recipe.sizes, "parallel")
        subject, kernel = call_site.recipe.subject, call_site.site.kernel
        body = call_site.serving(sizes)
        return RecordedSite(self._model, kernel, subject, names, sizes, count, seconds, body)

"""Measurements of a served model: outcomes, latency by size, groups, bytes, times of phases."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a start of a language model needs none
    from anydim.serving.requests import Request

BOUNDS = (
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384,
)  # fmt: skip
"""Upper bounds of the latency histogram, seconds."""
SIZES = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 1 << 20)
"""Upper bounds of the sizes by which latency is reported."""
RECENT = 2048  # requests whose latencies are kept


class Histogram:
    """Counts of values up to each bound, and of larger ones; their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)

    def document(self) -> dict[str, Any]:
        """Plain values."""
        return {"bounds": list(self.bounds), "counts": list(self.counts), "sum": self.sum}


class Measures:
    """Counters of one model since it was added. The engine's lock guards them."""

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(("done", "failed", "late"), 0)
        self.refused = self.rejected = self.cancelled = 0
        self.latency = Histogram(BOUNDS)
        self.by_size = [Histogram(BOUNDS) for _ in range(len(SIZES) + 1)]
        self.groups = Histogram((1, 2, 4, 8, 16, 32, 64, 128))  # requests of a call
        self.rows = 0
        self.waiting_seconds = self.call_seconds = self.predicted_seconds = 0.0
        self.most_call_bytes = 0
        self.recent: deque[tuple[float, int, float, float]] = deque(maxlen=RECENT)

    def count_outcome(self, outcome: str, extent: int, request: Request) -> None:
        """Count a finished request, with its latency if it succeeded."""
        self.outcomes[outcome] += 1
        if outcome != "done":
            return
        seconds = request.ended - request.arrived
        self.latency.add(seconds)
        self.by_size[bisect_left(SIZES, extent)].add(seconds)
        self.waiting_seconds += request.started - request.arrived
        self.recent.append((request.ended, extent, seconds, request.started - request.arrived))

    def count_call(
        self, requests: int, rows: int, seconds: float, predicted: float, bytes: int
    ) -> None:
        """Count a call of a group."""
        self.groups.add(requests)
        self.rows += rows
        self.call_seconds += seconds
        self.predicted_seconds += predicted
        self.most_call_bytes = max(self.most_call_bytes, bytes)

    def document(self) -> dict[str, Any]:
        """Plain values: what `metrics()` returns for a model."""
        edges = [*SIZES, None]
        return {
            **self.outcomes,
            "refused": self.refused, "rejected": self.rejected, "cancelled": self.cancelled,
            "rows": self.rows,
            "calls": self.groups.count,
            "latency": self.latency.document(),
            "latency_by_size": [
                {"up_to": edge, **each.document()}
                for edge, each in zip(edges, self.by_size) if each.count
            ],
            "requests_of_a_call": self.groups.document(),
            "seconds": {"waiting": self.waiting_seconds, "calls": self.call_seconds,
                        "predicted": self.predicted_seconds},
            "bytes_of_a_call": {"most": self.most_call_bytes},
            "percentiles": percentiles([seconds for _, _, seconds, _ in self.recent]),
        }  # fmt: skip


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """The 50th, 90th, 99th and largest of some seconds; empty for none."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    last = len(ordered) - 1
    shares = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("most", 1.0))
    return {name: ordered[min(last, int(share * len(ordered)))] for name, share in shares}

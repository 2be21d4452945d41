"""Samples of the last minutes, for the page."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from anydim.serving.process_memory import resident_bytes
from anydim.serving.server.state import State

SECONDS = 1.0
KEPT = 300  # samples


class History:
    """Samples the server once a second. `limit` is the limit of the process's memory, or 0."""

    def __init__(self, state: State, limit: int) -> None:
        self._state, self._limit = state, limit
        self._samples: deque[dict[str, float]] = deque(maxlen=KEPT)
        self._last = (time.perf_counter(), 0, 0.0)
        self._sample()

    async def run(self) -> None:
        """Sample until it is cancelled."""
        while True:
            await asyncio.sleep(SECONDS)
            self._sample()

    def _sample(self) -> None:
        found = self._state.batcher.metrics()
        models = found["models"].values()
        now, done = time.perf_counter(), sum(each["done"] for each in models)
        busy = sum(each["seconds"]["calls"] for each in models)
        before, done_before, busy_before = self._last
        self._last, passed = (now, done, busy), max(now - before, 1e-3)
        memory = found["memory"]
        self._samples.append({
            "time": time.time(), "rate": max(0.0, done - done_before) / passed,
            "busy": max(0.0, busy - busy_before) / passed, "waiting": found["queue"]["waiting"],
            "requests": memory["requests"], "calls": memory["calls"], "kept": memory["kept"],
            "resident": resident_bytes(),
        })  # fmt: skip

    def document(self) -> dict[str, Any]:
        """Samples, latencies of recent requests by size, and the models."""
        engine, repository = self._state.batcher.engine, self._state.repository
        found = self._state.batcher.metrics()
        recent = {
            name: [[size, seconds] for _, size, seconds, _ in list(served.measures.recent)[-600:]]
            for name, served in engine.models.items()
        }
        return {
            "limit": self._limit, "memory": found["memory"], "queue": found["queue"],
            "samples": list(self._samples), "recent": recent, "started": self._state.started,
            "models": {
                name: {
                    "version": loaded.version, "file": loaded.path.name,
                    **{key: found["models"].get(name, {}).get(key) for key in (
                        "done", "failed", "late", "refused", "rejected", "cancelled", "calls",
                        "waiting", "percentiles", "requests_of_a_call", "latency_by_size",
                    )},
                }
                for name, loaded in repository.loaded.items()
            },
        }  # fmt: skip

"""Requests go to the replica whose requests have the least predicted work.

Each router counts the requests that it sent and that are not answered. Work is predicted from the
sizes of inputs; of a request over HTTP, whose body the router does not see, from its bytes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray.serve.request_router import RequestRouter

from anydim.base.errors import UserError
from anydim.serving.predictor import Predictor

_SECONDS_OF_A_BYTE = 1e-6  # of bodies; only sums of them are compared


@dataclass
class _Sent:
    """A request on its way: its replica, and its work in predicted seconds."""

    replica: Any
    work: float
    pending: Any  # until a replica accepted it


class WorkRouter(RequestRouter):
    """Ranks replicas by the predicted work that they have, times how much slower they are."""

    def initialize_state(self, predictor: str) -> None:
        """Called by Ray with the keyword arguments of the deployment."""
        self._predictor = Predictor.of_text(predictor)
        self._sent: dict[str, _Sent] = {}

    async def choose_replicas(
        self, candidate_replicas: list[Any], pending_request: Any = None
    ) -> list[list[Any]]:
        """The replicas, the best first. The request counts as work of the best one at once, so
        that requests that arrive together go to different replicas."""
        work = self._work()
        order = sorted(candidate_replicas, key=lambda each: _score(each, work))
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # if all replicas are full
            if order:
                self._count(pending_request, order[0].replica_id, pending_request)
        return [[replica] for replica in order]

    def on_request_routed(self, pending_request: Any, replica_id: Any, result: Any) -> None:
        """A replica accepted the request."""
        self._count(pending_request, replica_id, None)

    def on_request_completed(self, replica_id: Any, internal_request_id: str) -> None:
        """The request ended."""
        self._sent.pop(internal_request_id, None)

    def update_replicas(self, replicas: list[Any]) -> None:
        """Forget requests of replicas that are gone."""
        super().update_replicas(replicas)
        there = {replica.replica_id for replica in replicas}
        self._sent = {key: sent for key, sent in self._sent.items() if sent.replica in there}

    def _count(self, request: Any, replica: Any, pending: Any) -> None:
        key = request.metadata.internal_request_id
        known = self._sent.get(key)
        work = self._predict_seconds(request) if known is None else known.work
        self._sent[key] = _Sent(replica, work, pending)

    def _work(self) -> dict[Any, float]:
        """Predicted seconds of the requests of each replica."""
        for key, sent in list(self._sent.items()):
            if sent.pending is not None and sent.pending.future.cancelled():
                del self._sent[key]  # its caller left before it was sent
        found: dict[Any, float] = {}
        for sent in self._sent.values():
            found[sent.replica] = found.get(sent.replica, 0.0) + sent.work
        return found

    def _predict_seconds(self, request: Any) -> float:
        given = request.args[0] if request.args else request.kwargs.get("given")
        scope = getattr(given, "_asgi_scope", None) or getattr(given, "scope", None)
        if scope is not None:
            headers = dict(scope.get("headers") or ())
            length = headers.get(b"content-length", b"0")
            return _SECONDS_OF_A_BYTE * (int(length) if length.isdigit() else 0)
        try:
            return self._predictor.seconds(given)
        except UserError:
            return 0.0  # the replica refuses it


def _score(replica: Any, work: Mapping[Any, float]) -> tuple[float, float]:
    stats = getattr(replica, "routing_stats", None) or {}
    return work.get(replica.replica_id, 0.0) * stats.get("ratio", 1.0), random.random()

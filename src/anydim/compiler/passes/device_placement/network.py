"""Minimum cut of a flow network, by Dinic's algorithm.

E. A. Dinic, "Algorithm for solution of a problem of maximum flow in networks with power
estimation", 1970. Networks here have a few edges for each value of a graph.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

SOURCE, SINK = 0, 1
NEVER = float("inf")  # capacity of an edge that is never cut
_MIN_RESIDUAL = 1e-12  # residual capacity treated as 0, as a share of the largest cost


class Network:
    """A network to divide into a side of `SOURCE` and a side of `SINK`; edges from the first to the
    second side cost their capacity."""

    def __init__(self) -> None:
        self._points: dict[Hashable, int] = {}
        self._edges: list[list[int]] = [[], []]  # by point
        self._to: list[int] = []
        self._residual: list[float] = []
        self._largest = 0.0

    def point(self, key: Hashable) -> int:
        """The node with this key, added on first use."""
        if key not in self._points:
            self._points[key] = len(self._edges)
            self._edges.append([])
        return self._points[key]

    def edge(self, start: int, end: int, cost: float) -> None:
        """Add an edge that costs `cost` if `start` is on the source's side and `end` is not."""
        if cost <= 0:
            return
        if cost != NEVER:
            self._largest = max(self._largest, cost)
        for point, other, residual in ((start, end, cost), (end, start, 0.0)):
            self._edges[point].append(len(self._to))
            self._to.append(other)
            self._residual.append(residual)

    def cut(self) -> set[int]:
        """The nodes on the source's side of a minimum cut."""
        while True:
            levels = self._levels()
            if SINK not in levels:
                return set(levels)
            self._fill(levels)

    def _open(self, edge: int) -> bool:
        return self._residual[edge] > _MIN_RESIDUAL * self._largest

    def _levels(self) -> dict[int, int]:
        """Distances from the source in the residual network."""
        levels, waiting = {SOURCE: 0}, deque([SOURCE])
        while waiting:
            point = waiting.popleft()
            for edge in self._edges[point]:
                other = self._to[edge]
                if other not in levels and self._open(edge):
                    levels[other] = levels[point] + 1
                    waiting.append(other)
        return levels

    def _fill(self, levels: dict[int, int]) -> None:
        """Augment a blocking flow along shortest paths."""
        nexts = dict.fromkeys(levels, 0)  # earlier edges are dead ends
        path: list[int] = []
        while True:
            point = self._to[path[-1]] if path else SOURCE
            if point == SINK:
                self._push(path)
                path = []
                continue
            edges = self._edges[point]
            while nexts[point] < len(edges):
                edge = edges[nexts[point]]
                if self._open(edge) and levels.get(self._to[edge]) == levels[point] + 1:
                    path.append(edge)
                    break
                nexts[point] += 1
            else:
                if not path:
                    return
                path.pop()
                nexts[self._to[path[-1]] if path else SOURCE] += 1

    def _push(self, path: list[int]) -> None:
        flow = min(self._residual[edge] for edge in path)
        for edge in path:
            self._residual[edge] -= flow
            self._residual[edge ^ 1] += flow

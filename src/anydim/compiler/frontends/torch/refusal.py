"""The reason why a node of a torch program cannot be imported."""

from __future__ import annotations

from collections.abc import Collection

from anydim.base.errors import ModelError


class Refused(Exception):
    """A node cannot be imported; the text says why, without the node's name."""


class UnsupportedNodes(ModelError):
    """A program has nodes that cannot be imported: `nodes`, by name.

    Internal: torch.compile's backend runs these nodes in torch; users see a plain ModelError.
    """

    def __init__(self, problem: str, hint: str, nodes: Collection[str]) -> None:
        super().__init__(problem, hint)
        self.nodes = frozenset(nodes)

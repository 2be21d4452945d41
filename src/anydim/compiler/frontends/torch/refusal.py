"""The reason why a node of a torch program cannot be imported."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from anydim.base.errors import ModelError


class Refused(Exception):
    """A node cannot be imported; the text says why, without the node's name."""


class Unsupported(ModelError):
    """A program has nodes that cannot be imported: `nodes`, by name."""

    def __init__(self, *texts: Any, nodes: Collection[str] = ()) -> None:
        super().__init__(*texts)
        self.nodes = frozenset(nodes)

"""The reason why a node of a torch program cannot be imported."""

from __future__ import annotations


class Refused(Exception):
    """A node cannot be imported; the text says why, without the node's name."""

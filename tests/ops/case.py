"""One test of an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """`reference` takes the inputs as arrays (floats as float64) and the keywords n and m."""

    inputs: tuple[str, ...]
    reference: Callable[..., Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    low: int = 0  # of integer data
    high: int = 9


def case(*inputs: str, to: Callable[..., Any], low: int = 0, high: int = 9, **attributes: Any):
    return Case(inputs, lambda *a, n, m: to(*a), attributes, low, high)


def sized(*inputs: str, to: Callable[..., Any], low: int = 0, high: int = 9, **attributes: Any):
    """A case whose reference depends on the sizes."""
    return Case(inputs, to, attributes, low, high)

"""Operators that a definition may call by name, like definitions of its own text.

The language itself has none: `graph/operator.py` registers the library's operators here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from anydim.lang.functions import FUNCTIONS
from anydim.lang.surface.syntax import FUNCTION_ALIASES, RESERVED, TYPE_NAMES
from anydim.lang.tree import Group, TensorType
from anydim.lang.tree.composed import COMPOSED
from anydim.sizes import Box


class Callable(Protocol):
    """Interface of a callable operator; `instantiate` raises GraphError for invalid arguments."""

    @property
    def name(self) -> str: ...

    @property
    def attributes(self) -> Mapping[str, Any]: ...

    @property
    def routine(self) -> object | None: ...

    def instantiate(
        self, types: Sequence[TensorType], attributes: Mapping[str, Any], box: Box | None
    ) -> Group: ...


LIBRARY: dict[str, Callable] = {}

DATA_SIZED = ("nonzero", "compress", "unique")
"""Operators whose results have a size that data decides; no record of the library computes them."""


def register_callable(operator: Callable) -> None:
    """Register an operator as callable, unless its name has another meaning in definitions."""
    name = operator.name
    taken = (FUNCTIONS, FUNCTION_ALIASES, COMPOSED, TYPE_NAMES, RESERVED)
    if not any(name in names for names in taken):
        LIBRARY[name] = operator

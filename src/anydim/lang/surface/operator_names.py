"""Operators that a definition may call by name, as it calls definitions of its own text.

The language has none itself: `graph/operator.py` registers those of the library here.
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
    """What a call needs of an operator; `instantiate` raises GraphError for a wrong one."""

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


def offer(operator: Callable) -> None:
    """Let definitions call an operator, unless its name means something else in them."""
    name = operator.name
    taken = (FUNCTIONS, FUNCTION_ALIASES, COMPOSED, TYPE_NAMES, RESERVED)
    if not any(name in names for names in taken):
        LIBRARY[name] = operator

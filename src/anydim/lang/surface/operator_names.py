"""Operators that a definition may call by name, like definitions of its own text.

The language itself has none: `graph/operator.py` registers the library's operators here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from anydim.lang.functions import FUNCTIONS
from anydim.lang.surface.printer import print_term
from anydim.lang.surface.syntax import (
    FUNCTION_ALIASES,
    RESERVED,
    TYPE_NAMES,
    CallTerm,
    Number,
    Operation,
    Setting,
)
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


def settings_hint(call: CallTerm, operator: Callable) -> str:
    """How to write a call whose attributes are among its arguments: `top_k(x; k = 3)`."""
    given = [each for each in call.arguments if not isinstance(each, (Number, Operation))]
    numbers = [each for each in call.arguments if isinstance(each, (Number, Operation))]
    named = {setting.name for setting in call.settings}
    free = [name for name in operator.attributes if name not in named]
    if not given or not numbers or len(numbers) > len(free):
        return ""
    settings = (*call.settings, *(Setting(name, term) for name, term in zip(free, numbers)))
    written = CallTerm(call.name, tuple(given), settings=settings)
    return f"attributes follow a semicolon and have names: {print_term(written)}"


def register_callable(operator: Callable) -> None:
    """Register an operator as callable, unless its name has another meaning in definitions."""
    name = operator.name
    taken = (FUNCTIONS, FUNCTION_ALIASES, COMPOSED, TYPE_NAMES, RESERVED)
    if not any(name in names for names in taken):
        LIBRARY[name] = operator

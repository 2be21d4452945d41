"""Strategies as users give them: values, or texts, whose parser is imported on demand."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from anydim.variants.strategies.strategy import Strategy


def strategy_of(given: Any) -> Strategy:
    """A strategy from a value or its text; raises OptionError for other values."""
    if isinstance(given, Strategy):
        return given
    kinds: Any = import_module("anydim.variants.strategies.kinds")  # the parser
    found: Strategy = kinds.strategy_of_text(given)
    return found

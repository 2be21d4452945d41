"""The kinds of strategies, by their names in texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.text import quote_list
from anydim.base.user_values import short_repr
from anydim.compiler.variants.strategies.blas import Library
from anydim.compiler.variants.strategies.buckets import buckets
from anydim.compiler.variants.strategies.pad import pad
from anydim.compiler.variants.strategies.plain import Adaptive, Exact, Generic
from anydim.compiler.variants.strategies.strategy import Strategy
from anydim.compiler.variants.strategies.text import parse_strategy
from anydim.compiler.variants.strategies.where import Where

KINDS: Mapping[str, Callable[..., Strategy]] = {
    "generic": Generic,
    "exact": Exact,
    "adaptive": Adaptive,
    "buckets": buckets,
    "library": Library,
    "where": Where,
    "pad": pad,
}


def strategy_of_text(given: Any) -> Strategy:
    """Parse a strategy; raises OptionError for an invalid text."""
    if not isinstance(given, str):
        hint = f"give one of {quote_list(KINDS)}, or its text"
        raise OptionError(f"strategy is {short_repr(given)}", hint)
    return parse_strategy(given, KINDS)

"""Strategies of loaded models, which have no compiler.

The file serves `generic` and `buckets`. `adaptive` would compile variants later: generic code and
the variants in the file serve, and one warning says so. `exact` makes a call wait for its code, so
it is rejected at load time, not in a call.
"""

from __future__ import annotations

import warnings
from typing import Any

from anydim.base.errors import OptionError
from anydim.compiler.variants.strategies import GENERIC, Strategy, strategy_of

_warned: set[str] = set()  # kinds that this process has warned about


def strategy_of_loaded(name: str, given: Any, variants: bool) -> tuple[Strategy, bool]:
    """The strategy of a loaded model for a requested one, and whether variants serve.

    `variants`: the file has some. Raises OptionError for a strategy that needs a compiler, or
    variants that the file lacks.
    """
    requested = strategy_of(given)
    for leaf in requested.leaves():
        if leaf.blocking or leaf.formed:
            raise OptionError(
                f"{name}: {leaf} needs a compiler, and this model was loaded",
                "load it under 'generic', or save it with the variants of buckets(...)",
            )
        if leaf.prepared and not variants:
            raise OptionError(
                f"{name}: the file has no variants for {leaf}",
                f"save a model that has them: ad.compile(..., strategy={str(leaf)!r})",
            )
    waiting = any(leaf.background for leaf in requested.leaves())
    if waiting and "adaptive" not in _warned:
        _warned.add("adaptive")
        warnings.warn(
            f"{name}: there is no compiler, so adaptive runs generic code and variants of the file",
            RuntimeWarning, stacklevel=4,
        )  # fmt: skip
    return GENERIC if waiting else requested, requested != GENERIC

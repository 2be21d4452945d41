"""What a strategy means to a model that was loaded: there is no compiler that could make code.

`generic` and `buckets` are served by what the file has. `adaptive` would make bodies later: the
generic ones serve, with what the file has, and a warning says so once. `exact` has a call wait for
its code, so it is refused when a model is loaded, and in no call.
"""

from __future__ import annotations

import warnings
from typing import Any

from anydim.base.errors import OptionError
from anydim.variants.strategies import GENERIC, Adaptive, Buckets, Exact, Strategy, strategy_of

_warned: set[str] = set()  # kinds that were warned of in this process


def served(name: str, given: Any, bodies: bool) -> tuple[Strategy, bool]:
    """The strategy that a loaded model has, of one that is asked for, and whether bodies serve.

    The file may have `bodies`. Raises OptionError for one that needs a compiler, or bodies that
    there are not.
    """
    asked = strategy_of(given)
    for leaf in asked.leaves():
        if isinstance(leaf, Exact) or leaf.formed:
            raise OptionError(
                f"{name}: {leaf} needs a compiler, and this model was loaded",
                "load it under 'generic', or save it with the bodies of buckets(...)",
            )
        if isinstance(leaf, Buckets) and not bodies:
            raise OptionError(
                f"{name}: the file has no bodies for {leaf}",
                f"save a model that has them: ad.compile(..., strategy={str(leaf)!r})",
            )
    waiting = any(isinstance(leaf, Adaptive) for leaf in asked.leaves())
    if waiting and "adaptive" not in _warned:
        _warned.add("adaptive")
        warnings.warn(
            f"{name}: there is no compiler, so that adaptive is generic code here, and bodies that "
            "the file has", RuntimeWarning, stacklevel=4,
        )  # fmt: skip
    return GENERIC if waiting else asked, asked != GENERIC

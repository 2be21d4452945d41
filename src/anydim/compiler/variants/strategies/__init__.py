"""Strategies: which variants of a site exist, and when they are compiled. Small values with a text.

generic()                     one kernel for every size; nothing is compiled after `compile`
exact(limit=64)               a variant for each size, compiled at its first launch, which waits;
                              above `limit`, sizes are served as under `adaptive`
adaptive(limit=8, after=16)   the generic kernel serves; a variant for a size with `after` launches
                              is compiled in the background and kept if measured faster
buckets(seq=[16, 32], batch=[1, 8])
                              variants for seq 1..16 and 17..32, batch 1 and 2..8, compiled with
                              the model; with profile="sizes.jsonl" for the sizes recorded there
library("openblas")           matrix products by a BLAS, the rest as generic; set in `compile`
where("m <= 4", exact(), else_=generic())
                              one strategy or another, by sizes
pad(seq=16)                   loops over dims run to a multiple, a power of 2 or the bound; also
                              set in `compile`

A kind is a class in its own module and a row of `kinds.py`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim.base.lazy_names import late_names

if TYPE_CHECKING:
    from anydim.compiler.variants.strategies.blas import Library
    from anydim.compiler.variants.strategies.buckets import Buckets
    from anydim.compiler.variants.strategies.kinds import KINDS
    from anydim.compiler.variants.strategies.pad import Pad
    from anydim.compiler.variants.strategies.plain import GENERIC, USUAL, Adaptive, Exact, Generic
    from anydim.compiler.variants.strategies.strategy import MOST, Strategy
    from anydim.compiler.variants.strategies.where import Where

__all__ = [
    "GENERIC",
    "KINDS",
    "MOST",
    "USUAL",
    "Adaptive",
    "Buckets",
    "Exact",
    "Generic",
    "Library",
    "Pad",
    "Strategy",
    "Where",
    "strategy_of",
]

_MODULES = {
    "buckets": ("Buckets",),
    "kinds": ("KINDS",),
    "blas": ("Library",),
    "pad": ("Pad",),
    "plain": ("GENERIC", "USUAL", "Adaptive", "Exact", "Generic"),
    "strategy": ("MOST", "Strategy"),
    "where": ("Where",),
}
__getattr__ = late_names(__name__, _MODULES)


def strategy_of(given: Any) -> "Strategy":
    """A strategy from a value or its text; raises OptionError for other values."""
    base: Any = import_module("anydim.compiler.variants.strategies.strategy").Strategy
    if not isinstance(given, base):
        parser: Any = import_module("anydim.compiler.variants.strategies.kinds")
        given = parser.strategy_of_text(given)
    found: Strategy = given
    return found


def __dir__() -> list[str]:
    return sorted(__all__)

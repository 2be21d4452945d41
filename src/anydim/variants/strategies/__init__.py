"""Strategies: which bodies of a site there are, and when they are made. Small values with a text.

generic()                     one body for every size; nothing is compiled after `compile`
exact(limit=64)               a body for each size, made when it is first seen, while it waits; more
                              than `limit` sizes are served as under `adaptive`
adaptive(limit=8, after=16)   the generic body answers; one for a size that came `after` times
                              is made aside, and kept where it is measured to be faster
buckets(seq=[16, 32], batch=[1, 8])
                              bodies for seq 1..16 and 17..32, batch 1 and 2..8, made when the
                              model is; with profile="sizes.jsonl" for the sizes recorded there
library("openblas")           matrix products by a BLAS, the rest as generic; chosen by `compile`
library("cublas")             the same of parts on CUDA devices
where("m <= 4", exact(), else_=generic())
                              one strategy or another, by sizes
pad(seq=16)                   loops over dims run to a multiple, a power of 2 or the bound; so too

A kind is a record in a file of its own and a row of `kinds.py`.
"""

from typing import TYPE_CHECKING

from anydim.base.lazy_names import late_names

if TYPE_CHECKING:
    from anydim.variants.strategies.blas import Library
    from anydim.variants.strategies.buckets import Buckets
    from anydim.variants.strategies.kinds import KINDS
    from anydim.variants.strategies.pad import Pad
    from anydim.variants.strategies.plain import GENERIC, USUAL, Adaptive, Exact, Generic
    from anydim.variants.strategies.strategy import MOST, Strategy, strategy_of
    from anydim.variants.strategies.where import Where

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
    "strategy": ("MOST", "Strategy", "strategy_of"),
    "where": ("Where",),
}
__getattr__ = late_names(__name__, _MODULES)

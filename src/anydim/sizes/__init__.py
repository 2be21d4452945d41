"""Dims, size expressions, their bounds over a box, and proofs about them.

Input: names with bounds, and arithmetic on them. Output: expressions in a normal form, their values
at given sizes, and proofs of relations: proved, refuted or unknown over the whole box.
"""

from typing import TYPE_CHECKING

from anydim.base.lazy_names import late_names
from anydim.sizes import conditions as _conditions  # noqa: F401  the normal forms of all functions

if TYPE_CHECKING:
    from anydim.sizes.atoms import Atom, Factor, Monomial
    from anydim.sizes.box import Box, Dim
    from anydim.sizes.broadcast import broadcast_distance, broadcast_size
    from anydim.sizes.conditions import (
        ALWAYS,
        NEVER,
        Condition,
        at_least,
        at_most,
        condition,
        exactly,
    )
    from anydim.sizes.covering import Covering
    from anydim.sizes.derived import align_up, ceil_div, negated_if_negative, product
    from anydim.sizes.divisors import divisor_guard
    from anydim.sizes.expression import Size
    from anydim.sizes.extremes import maximum, minimum
    from anydim.sizes.guard import Guard, holds, merged_guards
    from anydim.sizes.index_range import ADDRESSABLE, SHORT, USUAL, fits, wrapped
    from anydim.sizes.interval import LARGEST, Interval
    from anydim.sizes.largest import largest_value
    from anydim.sizes.named import SizeNames
    from anydim.sizes.parsing import as_size, parse, parse_condition
    from anydim.sizes.proofs import Truth, bounds, decide, prove, settle, simplify
    from anydim.sizes.relative_sizes import RelativeSizes, own_sizes
    from anydim.sizes.remedies import is_met, remedy
    from anydim.sizes.sampling import Sampled, samples
    from anydim.sizes.user_sizes import given_dims, given_sizes

__all__ = [
    "ADDRESSABLE",
    "ALWAYS",
    "LARGEST",
    "NEVER",
    "SHORT",
    "USUAL",
    "Atom",
    "Box",
    "Condition",
    "Covering",
    "Dim",
    "Factor",
    "Guard",
    "Interval",
    "Monomial",
    "RelativeSizes",
    "Sampled",
    "Size",
    "SizeNames",
    "Truth",
    "align_up",
    "as_size",
    "at_least",
    "at_most",
    "bounds",
    "broadcast_distance",
    "broadcast_size",
    "ceil_div",
    "condition",
    "decide",
    "divisor_guard",
    "exactly",
    "fits",
    "given_dims",
    "given_sizes",
    "holds",
    "is_met",
    "largest_value",
    "maximum",
    "merged_guards",
    "minimum",
    "negated_if_negative",
    "own_sizes",
    "parse",
    "parse_condition",
    "product",
    "prove",
    "remedy",
    "samples",
    "settle",
    "simplify",
    "wrapped",
]

_MODULES = {
    "atoms": ("Atom", "Factor", "Monomial"),
    "box": ("Box", "Dim"),
    "broadcast": ("broadcast_distance", "broadcast_size"),
    "conditions": ("ALWAYS", "NEVER", "Condition", "at_least", "at_most", "condition", "exactly"),
    "covering": ("Covering",),
    "derived": ("align_up", "ceil_div", "negated_if_negative", "product"),
    "divisors": ("divisor_guard",),
    "expression": ("Size",),
    "extremes": ("maximum", "minimum"),
    "index_range": ("ADDRESSABLE", "SHORT", "USUAL", "fits", "wrapped"),
    "user_sizes": ("given_dims", "given_sizes"),
    "guard": ("Guard", "holds", "merged_guards"),
    "interval": ("LARGEST", "Interval"),
    "largest": ("largest_value",),
    "relative_sizes": ("RelativeSizes", "own_sizes"),
    "named": ("SizeNames",),
    "parsing": ("as_size", "parse", "parse_condition"),
    "proofs": ("Truth", "bounds", "decide", "prove", "settle", "simplify"),
    "remedies": ("is_met", "remedy"),
    "sampling": ("Sampled", "samples"),
}
__getattr__ = late_names(__name__, _MODULES)

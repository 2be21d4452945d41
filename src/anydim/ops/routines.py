"""The operators that are no comprehension: one row each; kernels/routines/ does the work."""

from __future__ import annotations

from anydim.base.frozen import FrozenMapping
from anydim.graph.operator import REQUIRED, Operator
from anydim.kernels.routine import Routine
from anydim.kernels.routines.sort import SORT
from anydim.kernels.routines.top_k import TOP_K


def _row(name: str, routine: Routine, doc: str, **attributes: object) -> Operator:
    return Operator(name, routine, "routine", doc, FrozenMapping(attributes), file=f"<{name}>")


ROUTINES = (
    _row(
        "sort", SORT,
        "(values in order, their places) along an axis; stable, NaN counts as the largest.",
        axis=-1, descending=False,
    ),
    _row(
        "top_k", TOP_K,
        "(the k largest or smallest in order, their places) along an axis; NaN counts as the "
        "largest, of equal ones the first is taken.",
        k=REQUIRED, axis=-1, largest=True, sorted=True,
    ),
)  # fmt: skip

"""Operators that are not comprehensions: one row each, implemented in kernels/routines/."""

from __future__ import annotations

from anydim.base.frozen import FrozenMapping
from anydim.compiler.graph.operator import REQUIRED, Operator, RoutineReference


def _row(name: str, location: str, doc: str, **attributes: object) -> Operator:
    """Record of a routine; `location` is "module.NAME" in `kernels/routines/`."""
    routine = RoutineReference(*location.split("."))
    return Operator(name, routine, "routine", doc, FrozenMapping(attributes), file=f"<{name}>")


ROUTINES = (
    _row(
        "sort", "sort.SORT",
        "(sorted values, their indices) along an axis; stable, NaN counts as the largest.",
        axis=-1, descending=False,
    ),
    *(
        _row(
            name, location,
            f"The cumulative {what} of the elements along an axis. `exclusive` leaves the "
            "element itself out, `reverse` counts from the end.",
            axis=0, exclusive=False, reverse=False,
        )
        for name, location, what in (
            ("cum_sum", "cumulative.CUM_SUM", "sum"),
            ("cum_prod", "cumulative.CUM_PROD", "product"),
        )
    ),
    _row(
        "top_k", "top_k.TOP_K",
        "(the k largest or smallest in order, their indices) along an axis; NaN counts as the "
        "largest, among equal elements the first is selected.",
        k=REQUIRED, axis=-1, largest=True, sorted=True,
    ),
    _row(
        "dft", "spectra.DFT",
        "The discrete Fourier transform of `length` elements along an axis, or its inverse. With "
        "`onesided` the frequencies from 0 to length // 2 are computed, or read by an inverse, "
        "whose result is real. Elements past the end count as 0.",
        length=REQUIRED, axis=-2, inverse=False, onesided=False,
    ),
    _row(
        "stft", "spectra.STFT",
        "Discrete Fourier transforms of frames of x[b, n, 1 or 2], `step` elements apart: "
        "[b, frame, f, 2]. The optional second input is the window, one weight per element.",
        step=REQUIRED, length=REQUIRED, onesided=True,
    ),
    _row(
        "unique_fill", "unique.UNIQUE",
        "(distinct elements, or slices along an axis; first index of each; the one each index "
        "holds; the count of each; their number): sorted, or in order of appearance. Entries "
        "beyond that number are undefined; results that are not requested are empty.",
        axis=None, sorted=True, indices=True, inverse=True, counts=True,
    ),
    _row(
        "nonzero_fill", "nonzero.NONZERO_FILL",
        "The indices [axes, count] of the nonzero elements, in order; `count` is known before.",
        count=REQUIRED,
    ),
    _row(
        "compress_fill", "nonzero.COMPRESS_FILL",
        "Slices along an axis (elements, without one) where a condition holds; `count` is known "
        "before.",
        count=REQUIRED, axis=None,
    ),
    _row(
        "non_max_suppression_fill", "suppression.NON_MAX_SUPPRESSION",
        "(rows batch, class, box; their number) of the boxes that overlap no better one: from "
        "boxes, scores, the maximum number of boxes of a class, the overlap threshold and, "
        "optionally, the score threshold. `center`: boxes are centers and sizes, not corners.",
        center=False,
    ),
    _row(
        "ngram_counts", "ngrams.NGRAM_COUNTS",
        "Counts of each of `count` short sequences of integers in each row; the sequences are a "
        "trie stored in tables. `shortest`, `longest`: their lengths; `skips`: the maximum "
        "number of elements between two matched elements.",
        count=REQUIRED, shortest=1, longest=REQUIRED, skips=0,
    ),
    _row(
        "find_keys", "binary_search.FIND_KEYS",
        "The index of each element among sorted keys, or the number of keys where it is not one. "
        "NaN is a key like any other, and the largest.",
    ),
    _row(
        "pairwise_coupling", "pairwise_coupling.PAIRWISE_COUPLING",
        "Probabilities of `count` classes from the pairwise probabilities of the first of two "
        "classes, as libsvm computes them.",
        count=REQUIRED,
    ),
    _row(
        "tree_ensemble", "trees.TREE_ENSEMBLE",
        "`count` results of each row: the weights of the leaves it reaches in decision trees, "
        "which are stored in tables; the weights of a result are combined by sum, min or max. "
        "There are `trees` trees of at most `depth` levels, which test `columns` features; "
        "`width`: the number of weights per leaf, if all have the same.",
        count=REQUIRED, trees=REQUIRED, depth=REQUIRED, columns=REQUIRED, join="sum", width=None,
    ),
    _row(
        "call_levels", "levels.CALL_LEVELS",
        "(sizes, tables of levels, positions of calls and rows of fields) of a recursion over "
        "structures, which are numbered by constructor: `counts` has the number of nodes of each, "
        "`plan` (JSON) the definitions, their cases and calls.",
        plan=REQUIRED, counts=REQUIRED,
    ),
)  # fmt: skip

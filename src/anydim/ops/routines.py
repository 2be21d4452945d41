"""The operators that are no comprehension: one row each; kernels/routines/ does the work."""

from __future__ import annotations

from anydim.base.frozen import FrozenMapping
from anydim.graph.operator import REQUIRED, Operator, RoutinePlace


def _row(name: str, place: str, doc: str, **attributes: object) -> Operator:
    """`place` is "module.NAME" in `kernels/routines/`."""
    routine = RoutinePlace(*place.split("."))
    return Operator(name, routine, "routine", doc, FrozenMapping(attributes), file=f"<{name}>")


ROUTINES = (
    _row(
        "sort", "sort.SORT",
        "(values in order, their places) along an axis; stable, NaN counts as the largest.",
        axis=-1, descending=False,
    ),
    *(
        _row(
            name, place,
            f"The {what} of the elements up to each one along an axis. `exclusive` leaves the "
            "element itself out, `reverse` counts from the end.",
            axis=0, exclusive=False, reverse=False,
        )
        for name, place, what in (
            ("cum_sum", "cumulative.CUM_SUM", "sum"),
            ("cum_prod", "cumulative.CUM_PROD", "product"),
        )
    ),
    _row(
        "top_k", "top_k.TOP_K",
        "(the k largest or smallest in order, their places) along an axis; NaN counts as the "
        "largest, of equal ones the first is taken.",
        k=REQUIRED, axis=-1, largest=True, sorted=True,
    ),
    _row(
        "dft", "spectra.DFT",
        "The discrete Fourier transform of `length` elements along an axis, or its inverse. With "
        "`onesided` the frequencies from 0 to length // 2 are given, or taken by an inverse, whose "
        "result is real. Elements past the end count as 0.",
        length=REQUIRED, axis=-2, inverse=False, onesided=False,
    ),
    _row(
        "stft", "spectra.STFT",
        "Discrete Fourier transforms of frames of x[b, n, 1 or 2], each `step` after the last: "
        "[b, frame, f, 2]. The second input, if given, weighs the elements of a frame.",
        step=REQUIRED, length=REQUIRED, onesided=True,
    ),
    _row(
        "unique_fill", "unique.UNIQUE",
        "(different elements, or slices along an axis; first index of each; which one each index "
        "holds; how often each occurs; how many there are): sorted, or as they come. What lies "
        "beyond that number means nothing; what is not asked for is empty.",
        axis=None, sorted=True, indices=True, inverse=True, counts=True,
    ),
    _row(
        "nonzero_fill", "nonzero.NONZERO_FILL",
        "The indices [axes, count] of what is not zero, in order; `count` is known before.",
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
        "(rows batch, class, box; how many there are) of the boxes that overlap no better one: "
        "from boxes, scores, the most boxes of a class, the overlap that is too much and, where "
        "given, the score that is too low. `center`: boxes are centers and sizes, not corners.",
        center=False,
    ),
    _row(
        "ngram_counts", "ngrams.NGRAM_COUNTS",
        "How often each of `count` short sequences of integers occurs in each row; the sequences "
        "are a trie in tables. `shortest`, `longest`: their lengths; `skips`: how many places may "
        "lie between their elements.",
        count=REQUIRED, shortest=1, longest=REQUIRED, skips=0,
    ),
    _row(
        "find_keys", "binary_search.FIND_KEYS",
        "The place of each element among keys in ascending order; as many as there are keys, where "
        "it is none of them. NaN is a key like any other, and the largest.",
    ),
    _row(
        "pairwise_coupling", "pairwise_coupling.PAIRWISE_COUPLING",
        "Probabilities of `count` classes, from those that the first of two is meant, for all "
        "pairs of classes; as libsvm computes them.",
        count=REQUIRED,
    ),
    _row(
        "tree_ensemble", "trees.TREE_ENSEMBLE",
        "`count` results of each row: what the leaves hold that it comes to in decision trees, "
        "which are tables; the weights of a result are joined by sum, min or max. There are "
        "`trees` of at most `depth` levels, which ask for `columns`; `width`: how many weights "
        "each leaf has, where all have as many.",
        count=REQUIRED, trees=REQUIRED, depth=REQUIRED, columns=REQUIRED, join="sum", width=None,
    ),
)  # fmt: skip

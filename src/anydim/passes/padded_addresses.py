"""Flat addresses in tensors of which some dimensions become longer.

A flat address counts the elements before it. Where dimensions grow, it has to be taken apart at
those: into a position in each of them and in what lies between them, which is possible where no
position is carried over into the next one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from anydim.base.records import dataclass
from anydim.lang.tree.affine import Affine
from anydim.sizes import Box, Size, Truth, as_size, product, prove


@dataclass(frozen=True)
class Part:
    """Neighbouring dimensions of a shape, from `first` to before `last`: one that grows, or some
    that do not; and a position in them, in elements of the last."""

    first: int
    last: int
    grows: bool
    place: Affine


def taken_apart(
    form: Affine, shape: Sequence[Size], growing: Collection[int], extents: Mapping[str, Size],
    box: Box,
) -> tuple[Part, ...] | None:  # fmt: skip
    """An address by the dimensions that grow; None where it cannot be proven to fall into parts.

    `extents` are those of the loops. The box has no sizes at which nothing is read.
    """
    left, constant = dict(form.terms), form.constant
    parts: list[Part] = []
    for first, last, grows in _cuts(len(shape), growing):
        unit = product(shape[last:])
        terms = {}
        for name in list(left):
            share = left[name].divide_exactly(unit)
            if share is not None:
                terms[name] = share
                del left[name]
        share = constant.divide_exactly(unit)
        if share is not None:
            constant = as_size(0)
        place = Affine.of(as_size(0) if share is None else share, terms)
        if first and not _inside(place, product(shape[first:last]), extents, box):
            return None
        parts.append(Part(first, last, grows, place))
    return None if left or constant != 0 else tuple(parts)


def put_together(parts: Sequence[Part], shape: Sequence[Size]) -> Affine:
    """The address in the shape that has grown."""
    total = Affine(as_size(0))
    for part in parts:
        total = total + part.place.scaled(product(shape[part.last :]))
    return total


def _cuts(rank: int, growing: Collection[int]) -> Iterator[tuple[int, int, bool]]:
    begun = 0
    for dimension in sorted(growing):
        if dimension > begun:
            yield begun, dimension, False
        yield dimension, dimension + 1, True
        begun = dimension + 1
    if begun < rank or not rank:
        yield begun, rank, False


def _inside(place: Affine, count: Size, extents: Mapping[str, Size], box: Box) -> bool:
    """Whether a position lies in 0:count wherever its loops stand."""
    last = place.constant
    for name, factor in place.terms:
        if prove(factor, ">=", 0, box) is not Truth.PROVED:
            return False
        last = last + factor * (extents[name] - 1)
    low = prove(place.constant, ">=", 0, box) is Truth.PROVED
    return low and prove(last, "<=", count - 1, box) is Truth.PROVED

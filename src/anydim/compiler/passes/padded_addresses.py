"""Flat addresses in tensors of which some dimensions are padded.

A flat address counts the preceding elements. It is split into a position in each growing dimension
and one in the dimensions between them, which is possible where no position carries into the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from anydim.base.records import dataclass
from anydim.lang.tree.affine import Affine
from anydim.sizes import Box, Size, Truth, as_size, product, prove


@dataclass(frozen=True)
class Part:
    """A position in adjacent dimensions of a shape, `first` to before `last`.

    Either one dimension that grows, or some that do not; in elements of the last dimension.
    """

    first: int
    last: int
    grows: bool
    position: Affine


def split_address(
    form: Affine, shape: Sequence[Size], growing: Collection[int], extents: Mapping[str, Size],
    box: Box,
) -> tuple[Part, ...] | None:  # fmt: skip
    """Split an address at the growing dimensions; None if the split cannot be proven.

    `extents` are those of the loops. The box excludes sizes at which no element is read.
    """
    remaining, constant = dict(form.terms), form.constant
    parts: list[Part] = []
    for first, last, grows in _cuts(len(shape), growing):
        unit = product(shape[last:])
        terms = {}
        for name in list(remaining):
            share = remaining[name].divide_exactly(unit)
            if share is not None:
                terms[name] = share
                del remaining[name]
        share = constant.divide_exactly(unit)
        if share is not None:
            constant = as_size(0)
        position = Affine.of(as_size(0) if share is None else share, terms)
        if first and not _inside(position, product(shape[first:last]), extents, box):
            return None
        parts.append(Part(first, last, grows, position))
    return None if remaining or constant != 0 else tuple(parts)


def joined_address(parts: Sequence[Part], shape: Sequence[Size]) -> Affine:
    """The address in the padded shape."""
    total = Affine(as_size(0))
    for part in parts:
        total = total + part.position.scale(product(shape[part.last :]))
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


def _inside(position: Affine, count: Size, extents: Mapping[str, Size], box: Box) -> bool:
    """Whether a position is in 0:count for all values of its loops."""
    last = position.constant
    for name, factor in position.terms:
        if prove(factor, ">=", 0, box) is not Truth.PROVED:
            return False
        last = last + factor * (extents[name] - 1)
    low = prove(position.constant, ">=", 0, box) is Truth.PROVED
    return low and prove(last, "<=", count - 1, box) is Truth.PROVED

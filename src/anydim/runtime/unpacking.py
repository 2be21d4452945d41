"""Moves packed constants to another layout: the bytes of one packing in the order of another.

All values are moved, none is computed but the sums of `BytesPanels`, so the result has the same
bits on every machine. `dense` packings describe the matrix without the rest of its constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

import numpy

from anydim.base.errors import ArtefactError
from anydim.runtime.packing import pack, strided
from anydim.runtime.panels import BytesPanels, NarrowPanels, Packing, Panels, ProductPanels

Part = tuple[tuple[int, int], ...]  # (size, stride) of some axes
_WIDEST, _DEEPEST = 1 << 10, 1 << 16  # limits on the padding that a file may ask for


def repacked(
    data: numpy.ndarray, given: Packing | None, wanted: Packing | None, dtype: numpy.dtype
) -> numpy.ndarray:
    """Constant bytes in another layout, as a flat array of bytes.

    Args:
        data: uint8 [bytes], the constant as `given` lays it out.
        given: Dense packing of `data`. None: not packed.
        wanted: Dense packing of the result. None: not packed.
        dtype: Element type of panels of values.

    Raises:
        ArtefactError: A packing is not dense, or the two do not describe the same matrix.
    """
    plain = data.view(dtype) if given is None else _unpacked(data, given, dtype)
    if wanted is None:
        return numpy.ascontiguousarray(plain).reshape(-1).view(numpy.uint8)
    if isinstance(wanted, (BytesPanels, NarrowPanels)):
        plain = plain.view(numpy.int8)
    if len(plain) != _count(wanted):
        raise ArtefactError("two layouts of a constant do not have the same elements")
    return pack(plain, wanted).reshape(-1).view(numpy.uint8)


def dense(packing: Packing, *others: Packing) -> tuple[Packing, ...]:
    """The packings with the strides of an array that has the elements of the matrix alone.

    The elements are in the order of the constant; for equal matrices, in the order of the panels.
    Panels of products become panels of the products.
    """
    found = [_of_products(each) if isinstance(each, ProductPanels) else each
             for each in (packing, *others)]  # fmt: skip
    if len(found) > 1 and all(_parts(each) == _parts(found[0]) for each in found):
        return tuple(_in_order(each) for each in found)
    return tuple(_dense(each) for each in found)


def plain_bytes(data: numpy.ndarray, packing: Packing | None, dtype: numpy.dtype) -> numpy.ndarray:
    """uint8: the elements of a packed constant in the order of a dense one."""
    return repacked(data, packing, None, dtype)


# ---- dense packings ------------------------------------------------------------------------------


def _parts(packing: Packing) -> tuple[Part, ...]:
    """The axes of the matrix, outermost first."""
    if isinstance(packing, BytesPanels):
        return packing.batch, packing.own, packing.taps, packing.k
    if isinstance(packing, NarrowPanels):
        return (packing.k,), (packing.n,)
    return packing.batch, packing.k, packing.n


def _with_parts(packing: Packing, parts: Sequence[Part]) -> Packing:
    if isinstance(packing, BytesPanels):
        batch, own, taps, k = parts
        return replace(packing, batch=batch, own=own, taps=taps, k=k, offset=0)
    if isinstance(packing, NarrowPanels):
        ((k,), (n,)) = parts
        return replace(packing, k=k, n=n)
    batch, k, n = parts
    return replace(packing, batch=batch, k=k, n=n, offset=0)


def _of_products(packing: ProductPanels) -> Panels:
    """The products as a constant: [groups, pairs, k, n]."""
    pairs = len(packing.matrix) ** 2
    sizes = (prod(s for s, _ in part) for part in (packing.batch, packing.k, packing.n))
    groups, k, n = sizes
    return Panels(packing.width, ((groups * pairs, k * n),), ((k, n),), ((n, 1),))


def _in_order(packing: Packing) -> Packing:
    """The strides of the axes in the order of the parts; BytesPanels keep k innermost."""
    parts, stride = [], 1
    for part in reversed(_parts(packing)):
        axes = []
        for size, _ in reversed(part):
            axes.append((size, stride))
            stride *= size
        parts.append(tuple(reversed(axes)))
    return _with_parts(packing, parts[::-1])


def _dense(packing: Packing) -> Packing:
    """The strides of the axes in the order that they have in the constant."""
    axes = [(stride, number, place, size) for number, part in enumerate(_parts(packing))
            for place, (size, stride) in enumerate(part)]  # fmt: skip
    found: dict[tuple[int, int], tuple[int, int]] = {}
    at = 1
    for _, number, place, size in sorted(axes):
        found[number, place] = size, at
        at *= size
    parts = [tuple(found[number, place] for place in range(len(part)))
             for number, part in enumerate(_parts(packing))]  # fmt: skip
    return _with_parts(packing, parts)


def _count(packing: Packing) -> int:
    """The elements of a dense packing; raises ArtefactError for another one."""
    axes = sorted((stride, size) for part in _parts(packing) for size, stride in part)
    at = 1
    for stride, size in axes:
        if size < 1 or (size > 1 and stride != at) or not 0 <= stride <= at:
            raise ArtefactError("the layout of a constant is invalid")
        at *= size
    if any(not 1 <= limit <= most for limit, most in _limits(packing)):
        raise ArtefactError("the layout of a constant is invalid")
    return at


def _limits(packing: Packing) -> Iterator[tuple[int, int]]:
    """Numbers of a packing with their maxima."""
    yield packing.width, _WIDEST
    if isinstance(packing, Panels):
        yield 1 + packing.offset, 1
    elif isinstance(packing, BytesPanels):
        yield 1 + packing.offset, 1
        yield packing.depth, _DEEPEST
        yield 1 + packing.spare, _DEEPEST
    else:
        yield packing.depth, _DEEPEST + packing.k[0]
        yield packing.depth - packing.k[0] + 1, _DEEPEST
        yield (1 if packing.bits in (4, 8) else 0), 1
        yield (1 if packing.bits == 8 or packing.depth % 8 == 0 else 0), 1


# ---- out of panels -------------------------------------------------------------------------------


def _unpacked(data: numpy.ndarray, given: Packing, dtype: numpy.dtype) -> numpy.ndarray:
    """The elements of a dense packing, flat."""
    count = _count(given)
    if isinstance(given, ProductPanels):
        raise ArtefactError("the layout of a constant is invalid")
    if isinstance(given, BytesPanels):
        matrix = _of_bytes(data, given)
    elif isinstance(given, NarrowPanels):
        matrix = _of_narrow(data, given)
    else:
        matrix = _of_panels(data.view(dtype), given)
    plain = numpy.empty(count, matrix.dtype)
    into = strided(plain, 0, _parts(given), collapsed=False)
    into[...] = matrix.reshape(into.shape)
    return plain


def _sizes(packing: Packing) -> list[int]:
    return [prod(size for size, _ in part) for part in _parts(packing)]


def _shaped(data: numpy.ndarray, *shape: int) -> numpy.ndarray:
    if data.size != prod(shape):
        raise ArtefactError("a constant does not have the bytes of its layout")
    return data.reshape(shape)


def _of_panels(data: numpy.ndarray, given: Panels) -> numpy.ndarray:
    """[groups, k, n]."""
    (groups, k, n), width = _sizes(given), given.width
    count = -(-n // width)
    panels = _shaped(data, groups, count, k, width)
    return panels.transpose(0, 2, 1, 3).reshape(groups, k, count * width)[:, :, :n]


def _of_bytes(data: numpy.ndarray, given: BytesPanels) -> numpy.ndarray:
    """uint8 [groups, own, taps, k]; see `packing.py` for the layout."""
    (groups, own, taps, k), width, depth = _sizes(given), given.width, given.depth
    count, words = -(-own // width), -(-k // 4)
    every = taps * words
    length = -(-every // depth) * depth + 1 if width > 1 else -(-(every + 1) // depth) * depth
    whole = _shaped(data, groups * count + given.spare, length, width, 4)[: groups * count]
    panels = whole.reshape(groups, count, length, width, 4)[:, :, :every]
    columns = panels.transpose(0, 1, 3, 2, 4).reshape(groups, count * width, taps, words * 4)
    found = columns[:, :own, :, :k]
    return found ^ numpy.uint8(128) if given.flipped else found


def _of_narrow(data: numpy.ndarray, given: NarrowPanels) -> numpy.ndarray:
    """int8 [k, n]."""
    (k, n), width, depth = _sizes(given), given.width, given.depth
    count = -(-n // width)
    if given.bits == 8:
        by_panel = _shaped(data.view(numpy.int8), count, depth, width)
    else:
        words = _shaped(data, count * depth * width // 2).view(numpy.uint32)
        fields = words.reshape(count, depth // 8, 1, width) >> _SHIFTS & numpy.uint32(15)
        by_panel = (fields.astype(numpy.int8) - 8).reshape(count, depth, width)
    return by_panel.transpose(1, 0, 2).reshape(depth, count * width)[:k, :n]


_SHIFTS = numpy.arange(0, 32, 4, dtype=numpy.uint32).reshape(8, 1)

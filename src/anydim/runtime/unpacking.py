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
from anydim.runtime.packing import number_type, pack, view_parts
from anydim.runtime.pages import Pages
from anydim.runtime.panels import BytesPanels, NarrowPanels, Packing, Panels, ProductPanels

Part = tuple[tuple[int, int], ...]  # (size, stride) of some axes
_WIDEST, _DEEPEST = 1 << 10, 1 << 16  # limits on the padding in a file
_MOST_PADDING, _SLACK = 64, 4096  # likewise: the bytes of a result for those of its source


def repack(
    data: numpy.ndarray, given: Packing | None, wanted: Packing | None, dtype: numpy.dtype,
    into: numpy.ndarray,
) -> None:  # fmt: skip
    """Write a constant in another layout into `into`, uint8 [bytes], which is 64-byte aligned.

    Args:
        data: uint8 [bytes], the constant as `given` lays it out.
        given: Dense packing of `data`. None: not packed.
        wanted: Dense packing of the result. None: not packed.
        dtype: Element type of panels of values.
        into: The memory of the result, of its size.

    Raises:
        ArtefactError: A packing is not dense, the two do not describe the same matrix, or the
            result has another size.
    """
    if type(given) is Panels and type(wanted) is Panels and _are_similar(given, wanted):
        _recut(data, given, wanted, dtype, into)
        return
    plain = plain_elements(data, given, dtype)
    if isinstance(wanted, (BytesPanels, NarrowPanels)) and _count(wanted):
        element = 1 if isinstance(wanted, NarrowPanels) else wanted.element
        if plain.nbytes % element:
            raise ArtefactError("two layouts of a constant do not have the same elements")
        plain = plain.view(numpy.int8 if element == 1 else numpy.uint16)
    if wanted is not None and len(plain) != _count(wanted):
        raise ArtefactError("two layouts of a constant do not have the same elements")
    length = plain.nbytes if wanted is None else _bytes(wanted, plain.itemsize)
    if length != into.size:
        raise ArtefactError("a constant does not have the bytes of its layout")
    if wanted is None:
        into[...] = plain.view(numpy.uint8)
    else:
        pack(plain, wanted, _Memory(into))


def _are_similar(given: Panels, wanted: Panels) -> bool:
    """Whether both are panels of one matrix, of which one width divides the other."""
    narrow, wide = sorted((given.width, wanted.width))
    return narrow > 0 and wide % narrow == 0 and _parts(given) == _parts(wanted)


def _recut(
    data: numpy.ndarray, given: Panels, wanted: Panels, dtype: numpy.dtype, into: numpy.ndarray
) -> None:
    """`repack` in one pass: columns of the narrower panels are pieces of the wider ones."""
    _count(given), _count(wanted)
    groups, k, n = _sizes(given)
    wide, narrow = max(given.width, wanted.width), min(given.width, wanted.width)
    item, pieces = dtype.itemsize, wide // narrow
    of_wide = (groups, -(-n // wide), k, pieces, narrow * item)
    of_narrow = (groups, -(-n // narrow), k, narrow * item)
    if given.width == narrow:
        source, target = _reshape(data, *of_narrow), _reshape(into, *of_wide)
    else:
        source, target = _reshape(data, *of_wide), _reshape(into, *of_narrow)
    unit = next(size for size in _UNITS if narrow * item % size.itemsize == 0)
    source, target = source.view(unit), target.view(unit)
    for piece in range(pieces):
        if given.width == narrow:
            columns = source[:, piece::pieces]
            target[:, : columns.shape[1], :, piece] = columns
            target[:, columns.shape[1] :, :, piece] = 0
        else:
            columns = target[:, piece::pieces]
            columns[...] = source[:, : columns.shape[1], :, piece]


_UNITS = [numpy.dtype(name) for name in ("c16", "u8", "u4", "u2", "u1")]  # in which it copies


def most_bytes(source: int) -> int:
    """The maximum size of a constant that is made from one of `source` bytes."""
    return _MOST_PADDING * (source + _SLACK)


class _Memory(Pages):
    """Given memory, for one array."""

    def __init__(self, memory: numpy.ndarray) -> None:
        self._memory = memory

    def take(self, size: int) -> numpy.ndarray:
        return self._memory[:size]


def plain_elements(
    data: numpy.ndarray, packing: Packing | None, dtype: numpy.dtype
) -> numpy.ndarray:
    """The elements of a packed constant, flat, in the order of its dense packing.

    Values of `dtype`, or uint8 or int8 for packings of bytes. Raises ArtefactError as `repack`.
    """
    if packing is None or isinstance(packing, Panels):
        data = _reshape(data, data.size // dtype.itemsize, dtype.itemsize).reshape(-1).view(dtype)
    return data if packing is None else _unpack(data, packing)


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
        own, taps = parts[1:3]
        return replace(packing, batch=parts[0], own=own, taps=taps, k=parts[3], offset=0)
    if isinstance(packing, NarrowPanels):
        ((k,), (n,)) = parts
        return replace(packing, k=k, n=n)
    return replace(packing, batch=parts[0], k=parts[1], n=parts[2], offset=0)


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


def _bytes(packing: Packing, item: int) -> int:
    """The size of a packed constant in bytes, with `item` bytes of a value in panels."""
    width = packing.width
    if isinstance(packing, BytesPanels):
        groups, own, *_ = _sizes(packing)
        return (groups * -(-own // width) + packing.spare) * _length(packing) * width * 4
    if isinstance(packing, NarrowPanels):
        return -(-packing.n[0] // width) * width * packing.depth * packing.bits // 8
    groups, k, n = _sizes(packing)
    return groups * k * -(-n // width) * width * item


def _length(packing: BytesPanels) -> int:
    """The words of a column of a panel, with its sum."""
    _, _, taps, k = _sizes(packing)
    every, depth = packing.parts * packing.part_words(taps, k)[1], packing.depth
    return -(-every // depth) * depth + 1 if packing.width > 1 else -(-(every + 1) // depth) * depth


def _limits(packing: Packing) -> Iterator[tuple[int, int]]:
    """Numbers of a packing with their maxima."""
    yield packing.width, _WIDEST
    if isinstance(packing, Panels):
        yield 1 + packing.offset, 1
    elif isinstance(packing, BytesPanels):
        yield 1 + packing.offset, 1
        yield packing.depth, _DEEPEST
        yield 1 + packing.spare, _DEEPEST
        yield (1 if packing.element in (1, 2) else 0), 1
        whole = 0 < packing.parts <= _DEEPEST and _sizes(packing)[2] % packing.parts == 0
        yield int(whole), 1
    else:
        yield packing.depth, _DEEPEST + packing.k[0]
        yield packing.depth - packing.k[0] + 1, _DEEPEST
        yield (1 if packing.bits in (4, 8) else 0), 1
        yield (1 if packing.bits == 8 or packing.depth % 8 == 0 else 0), 1


# ---- out of panels -------------------------------------------------------------------------------


def _unpack(data: numpy.ndarray, given: Packing) -> numpy.ndarray:
    """The elements of a dense packing, flat."""
    count = _count(given)
    if isinstance(given, ProductPanels):
        raise ArtefactError("the layout of a constant is invalid")
    if isinstance(given, BytesPanels):
        matrix = _of_bytes(data, given)
    elif isinstance(given, NarrowPanels):
        matrix = _of_narrow(data, given)
    else:
        matrix = _of_panels(data, given)
    plain = numpy.empty(count, matrix.dtype)
    into = view_parts(plain, 0, _parts(given), collapsed=False)
    into[...] = matrix.reshape(into.shape)
    return plain


def _sizes(packing: Packing) -> list[int]:
    return [prod(size for size, _ in part) for part in _parts(packing)]


def _reshape(data: numpy.ndarray, *shape: int) -> numpy.ndarray:
    if data.size != prod(shape):
        raise ArtefactError("a constant does not have the bytes of its layout")
    return data.reshape(shape)


def _of_panels(data: numpy.ndarray, given: Panels) -> numpy.ndarray:
    """[groups, k, n]."""
    (groups, k, n), width = _sizes(given), given.width
    count = -(-n // width)
    panels = _reshape(data, groups, count, k, width)
    return panels.transpose(0, 2, 1, 3).reshape(groups, k, count * width)[:, :, :n]


def _of_bytes(data: numpy.ndarray, given: BytesPanels) -> numpy.ndarray:
    """uint8 or uint16 [groups, own, taps, k]; see `packing.py` for the layout."""
    (groups, own, taps, k), width, length = _sizes(given), given.width, _length(given)
    each = 4 // given.element
    count, words = -(-own // width), -(-k // each)
    used, part = given.part_words(taps, k)
    every = given.parts * part
    whole = _reshape(data, groups * count + given.spare, length, width, 4)[: groups * count]
    numbers = whole.reshape(groups, count, length, width, 4).view(number_type(given))
    panels = numbers[:, :, :every]
    columns = panels.transpose(0, 1, 3, 2, 4).reshape(groups, count * width, given.parts, -1)
    columns = columns[..., : used * each].reshape(groups, count * width, taps, words * each)
    found = columns[:, :own, :, :k]
    return found ^ numpy.uint8(128) if given.flipped else found


def _of_narrow(data: numpy.ndarray, given: NarrowPanels) -> numpy.ndarray:
    """int8 [k, n]."""
    (k, n), width, depth = _sizes(given), given.width, given.depth
    count = -(-n // width)
    if given.bits == 8:
        by_panel = _reshape(data.view(numpy.int8), count, depth, width)
    else:
        words = _reshape(data, count * depth * width // 2).view(numpy.uint32)
        fields = words.reshape(count, depth // 8, 1, width) >> _SHIFTS & numpy.uint32(15)
        by_panel = (fields.astype(numpy.int8) - 8).reshape(count, depth, width)
    return by_panel.transpose(1, 0, 2).reshape(depth, count * width)[:k, :n]


_SHIFTS = numpy.arange(0, 32, 4, dtype=numpy.uint32).reshape(8, 1)

"""Promise: a packed constant in another layout has the bytes that packing the constant gives."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from anydim.base.dtypes import bfloat16, convert_array
from anydim.base.errors import ArtefactError
from anydim.runtime.packing import pack
from anydim.runtime.panels import BytesPanels, NarrowPanels, Packing, Panels, ProductPanels
from anydim.runtime.unpacking import dense, plain_elements, repack

SIZES = [(1, 1, 1), (2, 5, 7), (1, 33, 16), (2, 16, 50), (1, 384, 97)]  # groups, k, n


def packed(array: np.ndarray, packing: Packing | None) -> np.ndarray:
    found = array if packing is None else pack(array, packing)
    return np.ascontiguousarray(found).reshape(-1).view(np.uint8)


def moved(array: np.ndarray, given: Packing, wanted: Packing) -> np.ndarray:
    source, expected = packed(array, given), packed(array, wanted)
    into = np.full(expected.size, 7, np.uint8)
    repack(source, *dense(given, wanted), array.dtype, into)
    return into


def floats(groups: int, k: int, n: int) -> np.ndarray:
    return np.random.default_rng(k).standard_normal((groups, n, k)).astype(np.float32)


@pytest.mark.parametrize("groups, k, n", SIZES)
def test_panels_of_any_width(groups: int, k: int, n: int) -> None:
    array = floats(groups, k, n)
    layouts = [Panels(width, ((groups, n * k),), ((k, 1),), ((n, k),)) for width in (4, 8, 12, 16)]
    for given, wanted in permutations(layouts, 2):
        assert (moved(array, given, wanted) == packed(array, wanted)).all()


@pytest.mark.parametrize("groups, k, n", SIZES)
def test_from_and_to_what_is_not_packed(groups: int, k: int, n: int) -> None:
    array = floats(groups, k, n)
    layout = Panels(8, ((groups, n * k),), ((k, 1),), ((n, k),))
    (alone,) = dense(layout)
    made = np.empty(packed(array, layout).size, np.uint8)
    repack(packed(array, None), None, alone, array.dtype, made)
    assert (made == packed(array, layout)).all()
    plain = np.empty(array.nbytes, np.uint8)
    repack(made, alone, None, array.dtype, plain)
    assert plain.tobytes() == array.tobytes()


def test_a_part_of_a_constant() -> None:
    """Columns 8 to 20 of a matrix: the layouts describe a matrix of these columns."""
    array = floats(1, 30, 24)[0].T.copy()  # [k, n]
    layouts = [Panels(width, (), ((30, 24),), ((12, 1),), 8) for width in (4, 16)]
    assert (moved(array, *layouts) == packed(array, layouts[1])).all()
    (alone,) = dense(layouts[0])
    assert isinstance(alone, Panels) and alone.offset == 0
    elements = plain_elements(packed(array, layouts[0]), alone, array.dtype)
    assert (elements.reshape(30, 12) == array[:, 8:20]).all()


@pytest.mark.parametrize("groups, k, n", SIZES)
def test_bytes_with_their_sums(groups: int, k: int, n: int) -> None:
    array = np.random.default_rng(n).integers(-128, 128, (groups, n, k)).astype(np.int8)
    parts = (((groups, n * k),), ((n, k),), ((1, 1),), ((k, 1),))
    layouts = [
        BytesPanels(16, *parts, 0, False, False, 128, 4), BytesPanels(8, *parts, 0, True, True, -1),
        BytesPanels(1, *parts, 0, False, False, 1, 16), BytesPanels(16, *parts, 0, True, True, 3),
        BytesPanels(4, *parts, 0, False, True, 2, 2, 3),
    ]  # fmt: skip
    for given, wanted in permutations(layouts, 2):
        assert (moved(array, given, wanted) == packed(array, wanted)).all()


@pytest.mark.parametrize("groups, k, n", SIZES)
def test_words_of_two_numbers(groups: int, k: int, n: int) -> None:
    array = convert_array(floats(groups, k, n), bfloat16.numpy)
    parts = (((groups, n * k),), ((n, k),), ((1, 1),), ((k, 1),))
    layouts = [
        BytesPanels(width, *parts, 0, False, False, 1, depth, spare, 2)
        for width, depth, spare in ((48, 1, 0), (32, 16, 0), (1, 16, 15), (1, 1, 0))
    ]
    for given, wanted in permutations(layouts, 2):
        assert (moved(array, given, wanted) == packed(array, wanted)).all()
    (alone,) = dense(layouts[0])
    plain = np.empty(array.nbytes, np.uint8)
    repack(packed(array, layouts[0]), alone, None, array.dtype, plain)
    assert plain.tobytes() == array.tobytes()


@pytest.mark.parametrize("taps, k, n", [(2, 5, 3), (3, 33, 70), (6, 32, 32), (6, 64, 1)])
def test_words_of_parts(taps: int, k: int, n: int) -> None:
    array = convert_array(floats(taps, n, k), bfloat16.numpy)
    parts = ((), ((n, k),), ((taps, n * k),), ((k, 1),))
    layouts = [
        BytesPanels(width, *parts, 0, False, False, 1, 16, 0, 2, count)
        for width in (32, 48) for count in (1, 2, 3) if taps % count == 0
    ]  # fmt: skip
    for given, wanted in permutations(layouts, 2):
        assert (moved(array, given, wanted) == packed(array, wanted)).all()


@pytest.mark.parametrize("wrong", [0, -1, 3, 2**40])
def test_unlike_parts_are_refused(wrong: int) -> None:
    array = convert_array(floats(4, 8, 16), bfloat16.numpy)
    parts = ((), ((8, 16),), ((4, 128),), ((16, 1),))
    given = BytesPanels(8, *parts, 0, False, False, 1, 16, 0, 2, 2)
    data = packed(array, given)
    for pair in ((given, replace(given, parts=wrong)), (replace(given, parts=wrong), given)):
        with pytest.raises(ArtefactError):
            repack(data, *pair, array.dtype, np.zeros(data.size, np.uint8))


@pytest.mark.parametrize("element", [0, 2, 3, 4, -1])
def test_words_of_other_numbers_are_refused(element: int) -> None:
    bytes_ = np.arange(15, dtype=np.int8)
    parts = ((), ((3, 5),), (), ((5, 1),))
    given = BytesPanels(8, *parts, 0, False, False, 1)
    data = packed(bytes_, given)
    for pair in (
        (given, replace(given, element=element)),
        (replace(given, element=element), given),
    ):
        with pytest.raises(ArtefactError):
            repack(data, *pair, bytes_.dtype, np.zeros(data.size, np.uint8))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("k, n", [(1, 1), (7, 5), (64, 33), (65, 16)])
def test_narrow_weights(bits: int, k: int, n: int) -> None:
    array = np.random.default_rng(k).integers(-8, 8, (k, n)).astype(np.int8)
    depth = -(-k // 8) * 8
    layouts = [NarrowPanels(width, bits, (k, n), (n, 1), depth + more)
               for width, more in ((4, 0), (8, 8), (16, 0))]  # fmt: skip
    for given, wanted in permutations(layouts, 2):
        assert (moved(array, given, wanted) == packed(array, wanted)).all()


def test_products_are_moved_not_computed() -> None:
    array = floats(1, 20, 9 * 18).reshape(18, 20, 3, 3)
    rows = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
    layouts = [ProductPanels(width, (), ((20, 9),), ((18, 180),), 0, ((3, 3), (3, 1)), rows)
               for width in (8, 16)]  # fmt: skip
    assert (moved(array, *layouts) == packed(array, layouts[1])).all()


def test_layouts_of_unlike_constants_are_refused() -> None:
    array = floats(1, 8, 16)[0]
    layout = Panels(8, (), ((8, 16),), ((16, 1),))
    data, (alone,) = packed(array, layout), dense(layout)
    wrong = [
        replace(alone, n=((15, 1),)), replace(alone, n=((16, 2),)), replace(alone, k=((8, -16),)),
        replace(alone, k=((8, 2**62),)), replace(alone, k=((2**62, 16),)), replace(alone, offset=4),
        replace(alone, width=0), replace(alone, width=-8), replace(alone, width=2**40),
        replace(alone, n=((0, 1),)), replace(alone, width=4, batch=((2, 128),)),
        BytesPanels(8, (), ((16, 1),), (), ((8, 16),), 0, False, False, 1, depth=2**40),
        NarrowPanels(8, 3, (8, 16), (16, 1), 8), NarrowPanels(8, 4, (8, 16), (16, 1), 4),
    ]  # fmt: skip
    for each in wrong:
        into = np.zeros(data.size, np.uint8)
        with pytest.raises(ArtefactError):
            repack(data, alone, each, array.dtype, into)
        with pytest.raises(ArtefactError):
            repack(data, each, alone, array.dtype, into)
    with pytest.raises(ArtefactError):
        repack(data[:-1], alone, None, array.dtype, np.zeros(data.size - 1, np.uint8))

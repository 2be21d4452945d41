"""Promise: results have their shapes and types, large ones begin at a line of the cache, and the
largest lie where others lay that nobody has any more."""

from __future__ import annotations

import threading

import numpy
import pytest

import anydim as ad
from anydim.runtime.results import Results, aligned

MIB = 1 << 20
BYTES = numpy.dtype("uint8")


def make(results: Results, *sizes: int) -> list[numpy.ndarray]:
    """Results of a call."""
    shapes = [(size,) for size in sizes]
    makers = results.makers(shapes, [BYTES] * len(sizes))
    return [make(shape, BYTES) for make, shape in zip(makers, shapes)]


def address(array: numpy.ndarray) -> int:
    return array.ctypes.data


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (3, 5), (513, 257), (1 << 19,), (7, 0, 9)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "bool"])
def test_arrays_are_whole_and_can_be_written(shape: tuple[int, ...], dtype: str) -> None:
    kind = numpy.dtype(dtype)
    (maker,) = Results().makers([shape], [kind])
    made = [maker(shape, kind) for _ in range(5)] + [aligned(shape, kind)]
    for array in made:
        assert array.shape == shape and array.dtype == dtype
        assert array.flags.c_contiguous and array.flags.writeable and array.flags.aligned
        array[...] = 1
        assert array.nbytes < 1 << 19 or array.ctypes.data % 64 == 0
    assert not any(numpy.shares_memory(made[0], other) for other in made[1:])


@pytest.mark.parametrize("shape", [(1 << 40, 1 << 20), (1 << 62, 4), (1 << 48,)])
def test_no_room_is_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises((MemoryError, ValueError)):
        aligned(shape, numpy.dtype("float32"))


def test_large_results_of_calls_are_aligned_and_outlive_the_model() -> None:
    g = ad.Builder("scaled")
    x = g.input("x", "float32", ["n", "m"])
    g.output("y", g.mul(x, 2.0))
    model = ad.compile(g)
    inputs = [numpy.full((rows, 640), rows, numpy.float32) for rows in (203, 1, 512, 0, 203)]
    results = [model(x)["y"] for x in inputs]
    del model
    for x, y in zip(inputs, results):
        numpy.testing.assert_array_equal(y, 2 * x)
        assert y.nbytes < 1 << 19 or y.ctypes.data % 64 == 0


def test_the_largest_lie_where_others_lay() -> None:
    results = Results()
    places = set()
    for size in (42, 41, 43, 42):
        first, second = make(results, size * MIB, 50 * MIB)
        assert first.nbytes == size * MIB and first.flags.writeable
        places.add((address(first), address(second)))
        view = first[5:9]
        del first, second
        assert results.kept < 60 * MIB  # a view is left
        del view
        assert 90 * MIB <= results.kept < 110 * MIB
    assert len(places) == 1
    results.trim()
    assert results.kept == 0


def test_no_more_is_kept_than_the_last_call_took() -> None:
    results = Results()
    several = [make(results, 40 * MIB)[0] for _ in range(5)]
    assert len({address(each) for each in several}) == 5
    del several
    assert 40 * MIB <= results.kept < 50 * MIB
    (other,) = make(results, 100 * MIB)
    assert results.kept == 0  # it did not fit
    make(results, 1000)
    del other
    assert results.kept == 0


def test_results_outlive_what_made_them() -> None:
    results = Results()
    (kept,) = make(results, 40 * MIB)
    kept[:] = 7
    del results
    assert kept[0] == kept[-1] == 7


def test_threads_never_have_the_same_block() -> None:
    results, wrong = Results(), []

    def calls(number: int) -> None:
        for _ in range(300):
            (made,) = make(results, 40 * MIB)
            made[:3] = number
            made[-3:] = number
            if not (made[:3] == number).all() or not (made[-3:] == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=calls, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

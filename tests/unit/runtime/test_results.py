"""Promise: results have their shapes and types, large ones begin at a line of the cache, and the
largest lie where others lay that nobody has any more."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import pairwise

import numpy
import pytest

import anydim as ad
from anydim.runtime.region import RegionExecutable
from anydim.runtime.results import Results, allocate_aligned

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
    made = [maker(shape, kind) for _ in range(5)] + [allocate_aligned(shape, kind)]
    for array in made:
        assert array.shape == shape and array.dtype == dtype
        assert array.flags.c_contiguous and array.flags.writeable and array.flags.aligned
        array[...] = 1
        assert array.nbytes < 1 << 19 or array.ctypes.data % 64 == 0
    assert not any(numpy.shares_memory(made[0], other) for other in made[1:])


@pytest.mark.parametrize("shape", [(1 << 40, 1 << 20), (1 << 62, 4), (1 << 48,)])
def test_no_room_is_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises((MemoryError, ValueError)):
        allocate_aligned(shape, numpy.dtype("float32"))


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


def in_threads(count: int, calls: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=calls, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_never_have_the_same_block() -> None:
    results, wrong = Results(), []

    def calls(number: int) -> None:
        for _ in range(300):
            (made,) = make(results, 40 * MIB)
            made[:3] = number
            made[-3:] = number
            if not (made[:3] == number).all() or not (made[-3:] == number).all():
                wrong.append(number)

    in_threads(6, calls)
    assert not wrong


# ---- of calls of regions -------------------------------------------------------------------------


def found_model() -> ad.Model:
    """Two results of sizes that data finds, with small values beside them."""
    g = ad.Builder("found")
    x = g.input("x", "float32", ["n"])
    places = g.nonzero(x)
    g.output("places", places)
    g.output("y", g.mul(x, 2.0))
    return ad.compile(g)


def places_of(model: ad.Model, size: int) -> numpy.ndarray:
    places: numpy.ndarray = model(numpy.ones(size, numpy.float32))["places"]
    return places


def test_the_largest_of_regions_lie_where_others_lay() -> None:
    model = found_model()
    executable = model.executable
    assert isinstance(executable, RegionExecutable)
    kept = lambda: executable._left.kept  # noqa: E731
    where = set()
    for size in (5 * MIB, 5 * MIB - 7, 5 * MIB, 4 * MIB + 5):
        places = places_of(model, size)
        where.add(address(places))
        numpy.testing.assert_array_equal(places, numpy.arange(size)[None])
        view = places[:, 3:5]
        del places
        assert kept() == 0  # a view is left
        del view
        assert 32 * MIB <= kept() <= 40 * MIB + 64
    assert len(where) == 1
    model.trim()
    assert kept() == 0
    last = places_of(model, 5 * MIB)
    places_of(model, 10)
    del last
    assert kept() == 0  # the last call took none


def faults_of_calls() -> list[int]:
    """Page faults of calls whose rows of unlike lengths need arenas of several sizes before the
    result has its block."""
    g = ad.Builder("rows")
    x = g.input("x", "float32", (g.dim("batch", 1, 64), g.dim("seq", 1, 1 << 13), 8))
    wide = g.constant(numpy.ones((512, 8, 3), numpy.float32))
    y = g.relu(g.conv(g.transpose(x, perm=(0, 2, 1)), wide, pads=(1, 1)))
    y = g.conv(y, g.constant(numpy.ones((8, 512, 3), numpy.float32)), pads=(1, 1))
    y = g.matmul(g.transpose(y, perm=(0, 2, 1)), g.constant(numpy.ones((8, 2048), numpy.float32)))
    g.output("y", g.softmax(y, axis=-1))
    model = ad.compile(g, ragged={"seq": "batch"})
    rows = [numpy.ones((size, 8), numpy.float32) for size in (300, 700, 1900, 600, 900, 50)]
    faults = [0]
    for _ in range(8):
        model(x=rows)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    return [after - before for before, after in pairwise(faults[1:])]


def test_arenas_of_loops_free_no_block_of_a_large_result() -> None:
    """In a process of its own: what other tests leave in the C library's pools changes faults."""
    code = f"from {__name__} import faults_of_calls as f; print(*f())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    fresh = [int(word) for word in done.stdout.split()]
    assert min(fresh) < 2000, fresh  # a block anew has 9000 pages


def test_results_of_regions_are_never_shared() -> None:
    model, wrong = found_model(), []

    def calls(number: int) -> None:
        size = 5 * MIB + 1000 * number
        for _ in range(12):
            places = places_of(model, size)
            places[0, ::4096] = number
            other = places_of(model, size)
            if not (places[0, ::4096] == number).all() or other[0, -1] != size - 1:
                wrong.append(number)

    in_threads(4, calls)
    assert not wrong
    last = places_of(model, 5 * MIB)
    model.trim()
    assert last[0, -1] == 5 * MIB - 1


def test_results_of_regions_outlive_their_model() -> None:
    model = found_model()
    last = places_of(model, 5 * MIB)
    del model
    gc.collect()
    assert last[0, -1] == 5 * MIB - 1

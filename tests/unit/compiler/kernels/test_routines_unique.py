"""Promise: the different elements, or slices along an axis, and where they are, as numpy says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anydim.base.dtypes import DTYPES, float32, int64
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.routines import parallel_sort
from anydim.compiler.kernels.routines.unique import REQUESTED, UNIQUE
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.routine_data import ORDERED, data
from tests.unit.compiler.kernels.routine_running import Running, same

BOX = Box.of(Dim("n", 0, 4096), Dim("m", 0, 4096))
MACHINE = Machine(vector_bytes=64, registers=32)
ALL = dict.fromkeys(REQUESTED, True)


def unique(dtype, shape: str, axis=None, **attributes) -> Running:
    sizes = tuple(as_size(part) for part in shape.split())
    attributes = {**ALL, "sorted": True, "axis": axis, **attributes}
    return Running(UNIQUE, [TensorType(dtype, sizes)], BOX, MACHINE, **attributes)


def filled(results, axis) -> list[np.ndarray]:
    """The part of each result that means something."""
    values, first, inverse, counts, count = results
    some = range(count[0])
    places = values.take(some, axis or 0)
    return [places, first[: len(some)], inverse, counts[: len(some)], count]


def check(running, x, env, compiled, parts=1):
    axis = running.attributes["axis"]
    found, right = running([x], env, parts, compiled), running.expected([x], env)
    same(filled(found, axis), filled(right, axis))
    return found


@pytest.mark.sampled(most=11)
@pytest.mark.parametrize("order", [True, False], ids=["sorted", "as they come"])
@pytest.mark.parametrize("dtype", ORDERED, ids=str)
def test_every_type(dtype, order):
    running = unique(dtype, "n m", sorted=order)
    for seed, (n, m) in enumerate([(0, 3), (1, 1), (4, 8), (3, 30), (20, 30)]):
        x = data(np.random.default_rng(seed), (n, m), dtype.numpy)
        check(running, x, {"n": n, "m": m}, True)
        if x.size < 40:
            check(running, x, {"n": n, "m": m}, False)


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("order", [True, False], ids=["sorted", "as they come"])
@pytest.mark.parametrize(("shape", "axis"), [("n m", 0), ("n m", -1), ("2 n m", 1), ("n", 0)])
def test_every_axis(shape, axis, order):
    running = unique(float32, shape, axis, sorted=order)
    for n, m in [(0, 3), (3, 0), (1, 1), (9, 2), (30, 1), (1, 30), (7, 2)]:
        env = {"n": n, "m": m}
        extents = [env[s] if s in env else int(s) for s in shape.split()]
        x = np.random.default_rng(n).integers(0, 3, extents).astype(np.float32)
        x[x == 2] = np.nan
        check(running, x, env, True)
        if x.size < 40:
            check(running, x, env, False)


@pytest.mark.parametrize("dtype", [float32, int64, DTYPES["bool"]], ids=str)
def test_long_ones_are_sorted_in_parts(dtype, monkeypatch):
    monkeypatch.setattr(parallel_sort, "LONG", 40)
    monkeypatch.setattr(parallel_sort, "PART", 16)
    running = unique(dtype, "n")
    for n in (39, 40, 300):
        x = data(np.random.default_rng(n), (n,), dtype.numpy)
        check(running, x, {"n": n, "m": 0}, True, parts=3)
    if dtype != int64:  # eight passes take long in the evaluator
        x = data(np.random.default_rng(1), (41,), dtype.numpy)
        check(running, x, {"n": 41, "m": 0}, False)


@pytest.mark.parametrize("asked", REQUESTED)
def test_what_is_not_asked_for_is_empty(asked):
    running = unique(float32, "n", **{**dict.fromkeys(REQUESTED, False), asked: True})
    x = data(np.random.default_rng(0), (50,), np.dtype(np.float32))
    found = check(running, x, {"n": 50, "m": 0}, True)
    assert [len(result) for result in found[1:4]] == [50 * (name == asked) for name in REQUESTED]


def test_results_are_numpys():
    x = np.array([2, 1, 1, 3, 4, 3], np.int64)
    for order in (True, False):
        got = filled(UNIQUE.evaluate([x], {**ALL, "axis": None, "sorted": order}, {}), None)
        right = np.unique(x, True, True, True)
        if order:
            same(got[:4], right)
        else:
            same(got[:4], [np.array(a) for a in ([2, 1, 3, 4], [0, 1, 3, 4], [0, 1, 1, 2, 3, 2],
                                                 [1, 2, 2, 1])])  # fmt: skip


ANY = unique(float32, "n")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, float("inf")]), max_size=99))
def test_as_numpy_says(values):
    x = np.array(values, np.float32)
    found = check(ANY, x, {"n": len(x), "m": 0}, True)
    kept = filled(found, None)
    np.testing.assert_array_equal(kept[0], np.unique(x))
    np.testing.assert_array_equal(kept[0][kept[2]], x)

"""Promise: sorting is numpy's stable sort, along any axis, of every type, at every size."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.base.dtypes import DTYPES, float32, int64
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.routines import parallel_sort
from anydim.compiler.kernels.routines.sort import SORT
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.routine_data import DIRECTIONS, data
from tests.unit.compiler.kernels.routine_running import Running, same

BOX = Box.of(Dim("r", 0, 64), Dim("n", 0, 4096))
MACHINE = Machine(vector_bytes=64, registers=32)


def sorting(dtype, shape: str, box: Box = BOX, **attributes) -> Running:
    sizes = tuple(as_size(part) for part in shape.split())
    return Running(SORT, [TensorType(dtype, sizes)], box, MACHINE, **attributes)


@pytest.mark.sampled(most=9)
@pytest.mark.parametrize(("dtype", "descending"), DIRECTIONS, ids=str)
def test_every_type(dtype, descending):
    running = sorting(dtype, "r n", axis=1, descending=descending)
    for seed, (r, n) in enumerate([(3, 0), (0, 3), (2, 1), (2, 33), (3, 70), (1, 300)]):
        x = data(np.random.default_rng(seed), (r, n), dtype.numpy)
        env = {"r": r, "n": n}
        expected = running.expected([x], env)
        same(running([x], env, parts=2, compiled=True), expected)
        if r * n < 150:
            same(running([x], env), expected)


@pytest.mark.parametrize(("shape", "axis"), [("n r", 0), ("r n 3", 1), ("2 r n", -1), ("n", 0)])
def test_every_axis(shape, axis):
    running = sorting(float32, shape, axis=axis, descending=False)
    for r, n in [(3, 5), (1, 1), (4, 40), (0, 7), (7, 0)]:
        sizes = {"r": r, "n": n}
        extents = [sizes[s] if s in sizes else int(s) for s in shape.split()]
        x = data(np.random.default_rng(n), extents, np.dtype(np.float32))
        expected = running.expected([x], sizes)
        same(running([x], sizes), expected)
        same(running([x], sizes, parts=3, compiled=True), expected)


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize(
    ("dtype", "descending"), [(float32, True), (int64, False), (DTYPES["uint8"], True)], ids=str
)
def test_long_rows_are_cut(dtype, descending, monkeypatch):
    monkeypatch.setattr(parallel_sort, "LONG", 40)
    monkeypatch.setattr(parallel_sort, "PART", 16)
    running = sorting(dtype, "r n", axis=-1, descending=descending)
    for seed, (r, n) in enumerate([(1, 41), (3, 40), (2, 39), (8, 50), (0, 50), (2, 257)]):
        x = data(np.random.default_rng(seed), (r, n), dtype.numpy)
        expected = running.expected([x], {"r": r, "n": n})
        same(running([x], {"r": r, "n": n}, parts=3, compiled=True), expected)
        if r * n < 150 and dtype != int64:  # eight passes take long in the evaluator
            same(running([x], {"r": r, "n": n}), expected)


def test_equal_digits_cost_nothing_and_change_nothing():
    running = sorting(int64, "n", axis=0, descending=False)
    for x in (np.full(100, 7), np.arange(100) % 3, np.arange(100)[::-1] << 40):
        same(running([x], {"n": 100}, compiled=True), running.expected([x], {"n": 100}))


def test_results_are_numpys():
    x = np.array([[3, np.nan, -0.0, 0.0, -np.inf]], np.float32)
    up, down = (SORT.evaluate([x], {"axis": 1, "descending": d}, {}) for d in (False, True))
    np.testing.assert_array_equal(up[0], np.sort(x))
    assert up[1].tolist() == [[4, 2, 3, 0, 1]]
    assert down[1].tolist() == [[1, 0, 2, 3, 4]]

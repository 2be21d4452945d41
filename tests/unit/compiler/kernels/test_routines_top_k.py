"""Promise: the best k of every row, in order, ties to the lower index, for every k and size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anydim.base.dtypes import DTYPES, float32, int64
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.routines import top_k
from anydim.compiler.kernels.routines.top_k import TOP_K
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.routine_data import DIRECTIONS, data
from tests.unit.compiler.kernels.routine_running import Running, same

BOX = Box.of(Dim("r", 0, 64), Dim("n", 0, 4096), Dim("k", 0, 4096))
MACHINE = Machine(vector_bytes=64, registers=32)


def best(dtype, shape: str, k="k", **attributes) -> Running:
    sizes = tuple(as_size(part) for part in shape.split())
    attributes = {"axis": -1, "largest": True, "sorted": True, **attributes}
    return Running(TOP_K, [TensorType(dtype, sizes)], BOX, MACHINE, k=as_size(k), **attributes)


@pytest.mark.sampled(most=9)
@pytest.mark.parametrize(("dtype", "largest"), DIRECTIONS, ids=str)
def test_every_type(dtype, largest):
    running = best(dtype, "r n", largest=largest)
    for seed, (r, n, k) in enumerate(
        [(3, 0, 0), (0, 3, 2), (2, 1, 1), (2, 33, 0), (2, 70, 70), (1, 300, 25), (2, 1000, 5)]
    ):
        x = data(np.random.default_rng(seed), (r, n), dtype.numpy)
        env = {"r": r, "n": n, "k": k}
        expected = running.expected([x], env)
        same(running([x], env, parts=2, compiled=True), expected)
        if r * n < 150:
            same(running([x], env), expected)


@pytest.mark.sampled("nan-24", most=6)
@pytest.mark.parametrize("k", [1, 24, 25, 100, 1000, 2999, 3000])
@pytest.mark.parametrize("kind", ["up", "down", "equal", "random", "nan"])
def test_every_k(k, kind):
    n = 3000
    random = np.random.default_rng(k)
    x = {
        "up": np.arange(n), "down": -np.arange(n), "equal": np.zeros(n),
        "random": random.integers(0, 500, n), "nan": np.where(random.random(n) < 0.5, np.nan, 1),
    }[kind].astype(np.float32)  # fmt: skip
    for largest in (True, False):
        for size in (k, "k"):
            running = best(float32, "n", size, largest=largest)
            env = {"n": n, "k": k}
            same(running([x], env, compiled=True), running.expected([x], env))


def test_the_evaluator_sees_no_stray_access():
    random = np.random.default_rng(0)
    for k, n in [(3, 200), (30, 500), (100, 170)]:
        running = best(float32, "n")
        x = random.standard_normal(n).astype(np.float32)
        same(running([x], {"n": n, "k": k}), running.expected([x], {"n": n, "k": k}))
        up = np.arange(n, dtype=np.float32)
        same(running([up], {"n": n, "k": k}), running.expected([up], {"n": n, "k": k}))


@pytest.mark.parametrize(("shape", "axis"), [("n r", 0), ("r n 3", 1), ("2 r n", -1)])
def test_every_axis(shape, axis):
    running = best(float32, shape, axis=axis)
    for r, n, k in [(3, 5, 2), (1, 1, 1), (2, 40, 30), (0, 7, 3), (7, 0, 0)]:
        env = {"r": r, "n": n, "k": k}
        extents = [env[s] if s in env else int(s) for s in shape.split()]
        x = data(np.random.default_rng(n), extents, np.dtype(np.float32))
        expected = running.expected([x], env)
        same(running([x], env), expected)
        same(running([x], env, parts=3, compiled=True), expected)


FEW = [("float32", True), ("float32", False), ("float16", True), ("int64", False)]


@pytest.mark.parametrize(("name", "largest"), FEW, ids=str)
def test_a_few_of_many_rows(name, largest):
    """Columns, and short rows behind each other, have a lane each."""
    for shape, axis, k in (("2 n r", 1, 2), ("r n", 1, 3)):
        running = best(DTYPES[name], shape, k, axis=axis, largest=largest)
        for r, n in ((0, 5), (7, 4), (8, 3), (17, 33), (40, 32)):
            env = {"r": r, "n": n}
            extents = [env[s] if s in env else int(s) for s in shape.split()]
            x = data(np.random.default_rng(n), extents, DTYPES[name].numpy)
            expected = running.expected([x], env)
            same(running([x], env, parts=2, compiled=True), expected)
            if r == 8 and name == "float32":
                same(running([x], env), expected)


@pytest.mark.parametrize(
    ("dtype", "largest"), [(float32, True), (int64, False), (DTYPES["uint8"], True)], ids=str
)
def test_long_rows_are_cut(dtype, largest, monkeypatch):
    monkeypatch.setattr(top_k, "PART", 40)
    running = best(dtype, "r n", largest=largest)
    sizes = [(1, 80, 3), (3, 100, 5), (2, 81, 40), (2, 79, 4), (8, 90, 3), (1, 500, 30), (0, 90, 3)]
    for seed, (r, n, k) in enumerate(sizes):
        x = data(np.random.default_rng(seed), (r, n), dtype.numpy)
        env = {"r": r, "n": n, "k": k}
        expected = running.expected([x], env)
        same(running([x], env, parts=3, compiled=True), expected)
        if r * n < 310:
            same(running([x], env), expected)


ANY = best(float32, "n")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_as_a_sort_says(drawn):
    kind = st.floats(width=32, allow_nan=True) | st.sampled_from([0.0, -0.0, 1.0, float("inf")])
    x = np.array(drawn.draw(st.lists(kind, max_size=120)), np.float32)
    k = drawn.draw(st.integers(0, len(x)))
    env = {"n": len(x), "k": k}
    found = ANY([x], env, compiled=True)
    same(found, ANY.expected([x], env))
    np.testing.assert_array_equal(found[0], np.sort(x)[::-1][:k])

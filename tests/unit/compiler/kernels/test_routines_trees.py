"""Promise: rows walk down trees as the tables say, and tables never lead out of bounds."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.base.dtypes import DTYPES, float32, float64
from anydim.base.errors import GraphError
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.routines.trees import LANES, TABLES, TREE_ENSEMBLE
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.routine_running import Running, same

MACHINE = Machine(vector_bytes=64, registers=32)
BOX = Box.of(*(Dim(name, 0, 4096) for name in ("n", "f")))
INFINITE = float("inf")


def ensemble(tables, trees, depth, dtype=float32, join="sum", count=3, width=None) -> Running:
    types = [TensorType(dtype, (as_size("n"), as_size("f")))]
    types += [
        TensorType(kind or dtype, (as_size(len(table)),))
        for kind, table in zip(TABLES.values(), tables)
    ]
    return Running(TREE_ENSEMBLE, types, BOX, MACHINE, trees=trees, depth=depth, join=join,
                   count=as_size(count), columns=4, width=width)  # fmt: skip


def forest(random, dtype, trees: int, depth: int = 3) -> list[np.ndarray]:
    """Full trees; leaf l holds l % 3 weights. Levels lie one after another, the roots first."""
    count = 1 << (trees * (2 << depth) - 1).bit_length()
    features = np.zeros(count, np.int32)
    splits, following = np.full(count, INFINITE), np.arange(count, dtype=np.int32)
    missing, level, free = np.ones(count, bool), np.arange(trees), trees
    for _ in range(depth):
        following[level] = free + 2 * np.arange(len(level))
        features[level] = random.integers(0, 3, len(level))
        splits[level] = random.integers(-2, 3, len(level))
        missing[level] = random.random(len(level)) < 0.5
        level, free = free + np.arange(2 * len(level)), free + 2 * len(level)
    features[level] = np.arange(len(level))
    held = np.arange(len(level)) % 3
    return [
        np.array([3, 0, 2]), features, splits.astype(dtype.numpy), following, missing,
        np.append(0, held.cumsum()), random.integers(0, 3, held.sum()),
        random.integers(-9, 9, held.sum()).astype(dtype.numpy),
    ]  # fmt: skip


def environment(x):
    return {"n": len(x), "f": x.shape[1]}


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("join", ["sum", "min", "max"])
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_sizes(dtype, join):
    for n, trees in [(0, 2), (1, 1), (3, 1), (LANES - 1, 5), (LANES + 1, 3), (3 * LANES, 2)]:
        random = np.random.default_rng(n)
        tables = forest(random, dtype, trees)
        x = random.integers(-3, 4, (n, 4)).astype(dtype.numpy)
        x[random.random(x.shape) < 0.2] = np.nan
        running = ensemble(tables, trees, 3, dtype, join)
        expected = running.expected([x, *tables], environment(x))
        for compiled in (False, True):
            same(running([x, *tables], environment(x), 2, compiled), expected)


def test_a_tree_by_hand():
    """x0 <= 1.5 ? 10 : (x1 > 0 ? 20 : 30), and NaN goes to the right."""
    tables = [
        np.array([0, 1]), np.array([0, 0, 1, 2, 1, 0, 0, 0], np.int32),
        np.array([1.5, INFINITE, 0, *[INFINITE] * 5], np.float32),
        np.array([1, 1, 3, 3, 4, 5, 6, 7], np.int32),
        np.array([False, True, False, *[True] * 5]), np.arange(4), np.array([0, 1, 2]),
        np.array([10, 20, 30], np.float32),
    ]  # fmt: skip
    x = np.zeros((4, 4), np.float32)
    x[:, :2] = [[1.5, 1], [2, 1], [2, 0], [np.nan, 5]]
    (found,) = ensemble(tables, 1, 2)([x, *tables], environment(x), compiled=True)
    assert found.tolist() == [[10, 0, 0], [0, 20, 0], [0, 0, 30], [0, 20, 0]]


def test_leaves_of_one_width():
    random = np.random.default_rng(1)
    tables = forest(random, float32, 3)
    leaves = 3 * 8
    tables[5] = 2 * np.arange(leaves + 1)
    tables[6] = random.integers(0, 3, 2 * leaves)
    tables[7] = random.integers(-9, 9, 2 * leaves).astype(np.float32)
    x = random.integers(-3, 4, (LANES + 3, 4)).astype(np.float32)
    found = [
        ensemble(tables, 3, 3, width=width)([x, *tables], environment(x), compiled=True)[0]
        for width in (2, None)
    ]
    np.testing.assert_array_equal(*found)


def test_wrong_tables_stay_inside():
    random = np.random.default_rng(1)
    x = random.standard_normal((LANES + 2, 4)).astype(np.float32)
    for _ in range(20):
        lengths = [3, 8, 8, 8, 8, *random.integers(0, 6, 3)]
        tables = [
            random.integers(-9, 9, length).astype((kind or float32).numpy)
            for length, kind in zip(lengths, TABLES.values())
        ]
        ensemble(tables, 2, 3)([x, *tables], environment(x))


def test_misuse():
    tables = forest(np.random.default_rng(0), float32, 1)
    with pytest.raises(GraphError, match="not a matrix of float32 or float64"):
        ensemble(tables, 1, 3, DTYPES["float16"])
    with pytest.raises(GraphError, match="join 'mean' of sum, min, max"):
        ensemble(tables, 1, 3, join="mean")
    with pytest.raises(GraphError, match="not a power of two"):
        ensemble([t[:5] for t in tables], 1, 3)

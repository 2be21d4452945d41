"""Promise: rows walk down trees as the tables say, and tables never lead out of bounds."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.base.dtypes import DTYPES, float32, float64
from anydim.base.errors import GraphError
from anydim.kernels.launch import Machine
from anydim.kernels.routines.trees import MEMBER, TABLES, TREE_ENSEMBLE
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.kernels.routine_running import Running, same

MACHINE = Machine(vector_bytes=64, registers=32)
BOX = Box.of(*(Dim(name, 0, 4096) for name in ("n", "f", *TABLES)))


def ensemble(dtype=float32, join="sum", count=3, mode=None) -> Running:
    types = [TensorType(dtype, (as_size("n"), as_size("f")))]
    types += [TensorType(kind or dtype, (as_size(name),)) for name, kind in TABLES.items()]
    return Running(TREE_ENSEMBLE, types, BOX, MACHINE, join=join, count=as_size(count),
                   mode=mode)  # fmt: skip


def forest(random, dtype, trees: int, features: int, depth: int = 3) -> list[np.ndarray]:
    """Full trees with every mode; leaf l holds l % 3 weights."""
    inner, leaves = 2**depth - 1, 2**depth
    nodes = np.arange(trees * inner)
    tree, local = nodes // inner, nodes % inner
    children = [
        np.where(c < inner, tree * inner + c, -1 - (tree * leaves + c - inner))
        for c in (2 * local + 1, 2 * local + 2)
    ]
    held = np.arange(trees * leaves) % 3
    return [
        np.arange(trees) * inner, random.integers(0, features, len(nodes)),
        random.integers(0, MEMBER + 1, len(nodes)),
        random.integers(-2, 3, len(nodes)).astype(dtype.numpy), *children,
        random.random(len(nodes)) < 0.5, np.arange(len(nodes) + 1),
        random.integers(-2, 3, len(nodes)).astype(dtype.numpy), np.append(0, held.cumsum()),
        random.integers(0, 3, held.sum()), random.integers(-9, 9, held.sum()).astype(dtype.numpy),
    ]  # fmt: skip


def environment(x, tables):
    return {"n": len(x), "f": x.shape[1], **{n: len(t) for n, t in zip(TABLES, tables)}}


@pytest.mark.parametrize("join", ["sum", "min", "max"])
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_sizes(dtype, join):
    running = ensemble(dtype, join)
    for n, trees in [(0, 2), (1, 0), (3, 1), (9, 5)]:
        random = np.random.default_rng(n)
        tables = forest(random, dtype, trees, 4)
        x = random.integers(-3, 4, (n, 4)).astype(dtype.numpy)
        x[random.random(x.shape) < 0.2] = np.nan
        expected = running.expected([x, *tables], environment(x, tables))
        for compiled in (False, True):
            same(running([x, *tables], environment(x, tables), 2, compiled), expected)


def test_a_tree_by_hand():
    """x0 <= 1.5 ? 10 : (x1 > 0 ? 20 : 30), and NaN is on the right."""
    tables = [
        np.array([0]), np.array([0, 1]), np.array([0, 3]), np.array([1.5, 0], np.float32),
        np.array([-1, -2]), np.array([1, -3]), np.array([False, False]), np.zeros(3, np.int64),
        np.zeros(0, np.float32), np.arange(4), np.array([0, 1, 2]),
        np.array([10, 20, 30], np.float32),
    ]  # fmt: skip
    x = np.array([[1.5, 1], [2, 1], [2, 0], [np.nan, 5]], np.float32)
    (found,) = ensemble()([x, *tables], environment(x, tables), compiled=True)
    assert found.tolist() == [[10, 0, 0], [0, 20, 0], [0, 0, 30], [0, 20, 0]]


@pytest.mark.parametrize("mode", range(MEMBER + 1))
def test_one_mode_for_all(mode):
    random = np.random.default_rng(mode)
    tables = forest(random, float32, 3, 4)
    x = random.integers(-3, 4, (6, 4)).astype(np.float32)
    (found,) = ensemble(mode=mode)([x, *tables], environment(x, tables), compiled=True)
    tables[2][:] = mode
    (right,) = ensemble()([x, *tables], environment(x, tables), compiled=True)
    np.testing.assert_array_equal(found, right)


def test_wrong_tables_stay_inside():
    random = np.random.default_rng(1)
    running = ensemble()
    x = random.standard_normal((2, 3)).astype(np.float32)
    for _ in range(100):
        tables = [
            random.integers(-9, 9, random.integers(0, 6)).astype((kind or float32).numpy)
            for kind in TABLES.values()
        ]
        running([x, *tables], environment(x, tables))


def test_misuse():
    with pytest.raises(GraphError, match="no matrix of float32 or float64"):
        ensemble(DTYPES["float16"])
    with pytest.raises(GraphError, match="join 'mean' of sum, min, max"):
        ensemble(join="mean")

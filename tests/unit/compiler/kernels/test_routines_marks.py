"""Promise: positions of what is not zero, and what stands there, as numpy finds them."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.base.dtypes import DTYPES, boolean, float32
from anydim.base.errors import GraphError
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.routines import nonzero
from anydim.compiler.kernels.routines.nonzero import COMPRESS_FILL, NONZERO_FILL
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.routine_data import ORDERED
from tests.unit.compiler.kernels.routine_running import Running, same

BOX = Box.of(*(Dim(name, 0, 4096) for name in ("n", "m", "c", "k")))
MACHINE = Machine(vector_bytes=64, registers=32)


def kind(dtype, shape: str) -> TensorType:
    return TensorType(dtype, tuple(as_size(part) for part in shape.split()))


def flags(random, shape, share: float, dtype) -> np.ndarray:
    """Zeros (also negative ones), and something else in a share of the places."""
    x = np.where(random.random(shape) < share, random.choice([1, 3, 100], shape), 0)
    if dtype.is_float:
        x = np.where(random.random(shape) < 0.1, -0.0, x.astype(float))
        x = np.where(random.random(shape) < 0.05, np.nan, x)
    return x.astype(dtype.numpy)


@pytest.fixture(params=[False, True], ids=["one part", "parts"])
def cut(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(nonzero, "PART", 10)


@pytest.mark.parametrize("dtype", ORDERED, ids=str)
def test_every_type(dtype):
    running = Running(NONZERO_FILL, [kind(dtype, "n m")], BOX, MACHINE, count=as_size("k"))
    for seed, (n, m) in enumerate([(3, 5), (1, 130), (20, 1)]):
        x = flags(np.random.default_rng(seed), (n, m), 0.3, dtype)
        env = {"n": n, "m": m, "k": np.count_nonzero(x)}
        same(running([x], env, compiled=True), [np.stack(np.nonzero(x))])


@pytest.mark.sampled(most=13)
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("shape", ["n", "n m", "m n 3", "2 m 1 n"])
def test_every_rank(shape, share, cut):
    running = Running(NONZERO_FILL, [kind(boolean, shape)], BOX, MACHINE, count=as_size("k"))
    for n, m in [(0, 3), (3, 0), (1, 1), (7, 5), (70, 2), (1100, 1)]:
        env = {"n": n, "m": m}
        extents = [env[s] if s in env else int(s) for s in shape.split()]
        x = flags(np.random.default_rng(n), extents, share, boolean)
        env["k"] = np.count_nonzero(x)
        expected = [np.stack(np.nonzero(x))]
        same(running.expected([x], env), expected)
        same(running([x], env, parts=3, compiled=True), expected)
        if x.size < 250:
            same(running([x], env), expected)


def test_a_wrong_count_stays_inside(cut):
    running = Running(NONZERO_FILL, [kind(float32, "n m")], BOX, MACHINE, count=as_size("k"))
    x = flags(np.random.default_rng(0), (9, 7), 0.5, float32)
    for k in (0, 1, np.count_nonzero(x) - 3, np.count_nonzero(x) + 5, 63):
        env = {"n": 9, "m": 7, "k": k}
        for compiled in (False, True):
            same(running([x], env, parts=2, compiled=compiled), running.expected([x], env))


@pytest.mark.parametrize(("shape", "axis"), [("n m", 0), ("n m", 1), ("m n 3", -2), ("n m", None)])
def test_compress(shape, axis, cut):
    types = [kind(float32, shape), kind(boolean, "c")]
    running = Running(COMPRESS_FILL, types, BOX, MACHINE, count=as_size("k"), axis=axis)
    sizes = [(0, 3, 0), (3, 0, 0), (1, 1, 0), (9, 5, 2), (40, 33, 0)]
    for seed, (n, m, shorter) in enumerate(sizes):
        random, env = np.random.default_rng(seed), {"n": n, "m": m}
        x = random.random([env[s] if s in env else int(s) for s in shape.split()]).astype("f")
        length = x.size if axis is None else x.shape[axis]
        condition = random.random(max(0, length - shorter)) < 0.5
        env |= {"c": len(condition), "k": np.count_nonzero(condition)}
        expected = [np.compress(condition, x, axis)]
        same(running.expected([x, condition], env), expected)
        same(running([x, condition], env, parts=3, compiled=True), expected)
        if x.size < 200:
            same(running([x, condition], env), expected)


def test_compress_of_every_type():
    for dtype in (DTYPES[name] for name in ("float64", "int16", "bool", "bfloat16", "float8_e5m2")):
        types = [kind(dtype, "n"), kind(boolean, "c")]
        running = Running(COMPRESS_FILL, types, BOX, MACHINE, count=as_size("k"), axis=0)
        x = np.arange(7).astype(dtype.numpy)
        condition = np.array([True, False, True, True])
        env = {"n": 7, "c": 4, "k": 3}
        same(running([x, condition], env, compiled=True), [x[[0, 2, 3]]])


def test_misuse():
    with pytest.raises(GraphError, match="scalar has no positions"):
        Running(NONZERO_FILL, [kind(float32, "")], BOX, MACHINE, count=as_size("k"))
    with pytest.raises(GraphError, match="not a vector"):
        two = [kind(float32, "n"), kind(boolean, "n n")]
        Running(COMPRESS_FILL, two, BOX, MACHINE, count=as_size("k"), axis=0)

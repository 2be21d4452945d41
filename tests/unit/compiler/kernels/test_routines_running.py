"""Promise: running sums and products along any axis, either way, with or without the element."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.base.dtypes import DTYPES, float16, float32, float64, int32
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.routines.cumulative import CUM_PROD, CUM_SUM, PIECE, ROWS
from anydim.compiler.kernels.routines.cumulative import LONG as PIECES
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.routine_data import ORDERED
from tests.unit.compiler.kernels.routine_running import Running, same

BOX = Box.of(Dim("n", 0, 4096), Dim("m", 0, 4096))
MACHINE = Machine(vector_bytes=64, registers=32)
WAYS = [(False, False), (True, False), (False, True), (True, True)]


def running(routine, dtype, shape: str, axis=-1, exclusive=False, reverse=False) -> Running:
    sizes = tuple(as_size(part) for part in shape.split())
    attributes = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    return Running(routine, [TensorType(dtype, sizes)], BOX, MACHINE, **attributes)


def whole(random, shape, dtype) -> np.ndarray:
    """Numbers whose sums and products are exact."""
    values = np.asarray(random.choice([1, 1, 1, 2, -1, 0, 3], shape, p=[0.3] * 3 + [0.025] * 4))
    return values.astype(np.int8).astype(dtype.numpy)


@pytest.mark.sampled(most=13)
@pytest.mark.parametrize(("exclusive", "reverse"), WAYS)
@pytest.mark.parametrize(("shape", "axis"), [("n", 0), ("m n", 1), ("n m", 0), ("2 n m", 1)])
@pytest.mark.parametrize("routine", [CUM_SUM, CUM_PROD], ids=["sum", "product"])
def test_every_size(routine, shape, axis, exclusive, reverse):
    code = running(routine, int32, shape, axis, exclusive, reverse)
    for n, m in [(0, 3), (3, 0), (1, 1), (15, 2), (17, 5), (50, 3), (5, 70), (6, 9), (7, 6)]:
        env = {"n": n, "m": m}
        extents = [env[s] if s in env else int(s) for s in shape.split()]
        x = whole(np.random.default_rng(n), extents, int32)
        expected = code.expected([x], env)
        same(code([x], env, parts=3, compiled=True), expected)
        if x.size < 150:
            same(code([x], env), expected)


@pytest.mark.parametrize("dtype", ORDERED, ids=str)
def test_every_type(dtype):
    for routine, shape in ((CUM_SUM, "m n"), (CUM_PROD, "n m")):
        code = running(routine, dtype, shape, shape.split().index("n"))
        for n, m in [(40, 3), (3, 40)]:
            extents = (m, n) if shape == "m n" else (n, m)
            x = whole(np.random.default_rng(n), extents, dtype)
            env = {"n": n, "m": m}
            same(code([x], env, compiled=True), code.expected([x], env))


@pytest.mark.parametrize("axis", [0, 1])
def test_rounding_and_what_is_not_finite(axis):
    random = np.random.default_rng(0)
    x = random.standard_normal((300, 200)).astype(np.float32)
    code = running(CUM_SUM, float32, "n m", axis)
    (found,) = code([x], {"n": 300, "m": 200}, compiled=True)
    exact = np.cumsum(x, axis, dtype=np.float64)
    assert np.abs(found - exact).max() < 300 * np.abs(exact).max() * 2.0**-24
    x[10, 20], x[50, 70], x[60, 80] = np.inf, -np.inf, np.nan
    (found,) = code([x], {"n": 300, "m": 200}, compiled=True)
    right = np.cumsum(x, axis)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(right))
    np.testing.assert_array_equal(found[np.isinf(right)], right[np.isinf(right)])


def test_narrow_floats_add_up_in_single_precision():
    x = np.ones(4000)
    for name in ("float16", "bfloat16"):
        dtype = DTYPES[name]
        code = running(CUM_SUM, dtype, "n", 0)
        (found,) = code([x.astype(dtype.numpy)], {"n": 4000, "m": 0}, compiled=True)
        np.testing.assert_array_equal(found, np.arange(1, 4001).astype("f").astype(dtype.numpy))


def test_results_are_numpys():
    x = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    right = {
        (False, False): [1, 3, 6], (True, False): [0, 1, 3],
        (False, True): [6, 5, 3], (True, True): [5, 3, 0],
    }  # fmt: skip
    for (exclusive, reverse), row in right.items():
        attributes = {"axis": 1, "exclusive": exclusive, "reverse": reverse}
        assert CUM_SUM.evaluate([x], attributes, {})[0][0].tolist() == row


LONG = Box.of(Dim("n", 0, 1 << 20), Dim("m", 0, 4096))


def long(routine, dtype, shape: str, **attributes) -> Running:
    sizes = tuple(as_size(part) for part in shape.split())
    attributes = {"axis": 0, "exclusive": False, "reverse": False} | attributes
    return Running(routine, [TensorType(dtype, sizes)], LONG, MACHINE, **attributes)


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize(("exclusive", "reverse"), WAYS)
@pytest.mark.parametrize(("shape", "axis"), [("m n", 1), ("n m", 0)])
def test_a_row_has_the_same_bits_on_any_number_of_threads_and_beside_others(
    shape, axis, exclusive, reverse
):
    code = long(CUM_SUM, float32, shape, axis=axis, exclusive=exclusive, reverse=reverse)
    piece = PIECE if axis else ROWS
    least = PIECES * piece
    for n in (piece - 1, piece, piece + 1, 2 * piece, least - 1, least, least + 1, 20011):
        one = np.random.default_rng(n).standard_normal((1, n)).astype(np.float32)
        many = np.concatenate([one, np.ones((17, n), np.float32)])
        x, batch = (one, many) if axis else (one.T, np.repeat(one.T, 70, 1))
        env = {"n": n, "m": 1}
        (alone,) = code([x], env, compiled=True)
        for parts in (2, 3, 7):
            same(code([x], env, parts=parts, compiled=True), (alone,))
        env = {"n": n, "m": batch.shape[1 - axis]}
        for parts in (1, 3):
            (beside,) = code([batch], env, parts=parts, compiled=True)
            same((beside[:1] if axis else beside[:, 66:67],), (alone,))
        exact = np.abs(alone - code.expected([x.astype(np.float64)], {})[0]).max()
        assert exact < 1e-6 * n  # sums of n numbers near 1, in pieces


@pytest.mark.parametrize("dtype", [int32, float16, float64], ids=str)
@pytest.mark.parametrize(("shape", "axis"), [("m n", 1), ("n m", 0)])
def test_pieces_of_every_type(dtype, shape, axis):
    code = long(CUM_SUM, dtype, shape, axis=axis)
    n = PIECES * (PIECE if axis else ROWS) + 3
    for m in (1, 3):
        x = np.random.default_rng(m).integers(-1, 2, (m, n) if axis else (n, m))
        x = x.astype(dtype.numpy)
        same(code([x], {"n": n, "m": m}, parts=3, compiled=True), code.expected([x], {}))

"""Promise: what a model computes from tensors without elements, and from axes of size 1, is right.

Every model is compiled once with its sizes free, and run at sizes where ranks and places are odd.
"""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.base.errors import UserError
from tests.unit.compiler.frontends.models import model, node


def test_an_empty_tensor_takes_any_shape_without_elements():
    inputs = ["x f[0, 3, 4]", "s l[3]"]
    f = ad.compile(model([node("y = Reshape(x, s)", allowzero=1)], inputs, ["y"]))
    empty = np.zeros((0, 3, 4), np.float32)
    for shape in ((3, 4, 0), (0, 0, 0), (7, 0, 1)):
        assert f(empty, np.int64(shape))["y"].shape == shape
    with pytest.raises(UserError, match="do not fit at"):
        f(empty, np.int64([3, 4, 1]))


def test_parts_of_nothing_are_empty():
    y = ["a", "b", "c"]
    f = ad.compile(model([node("a, b, c = Split(x, s)", axis=1)], ["x f[n, 0]", "s l[3]"], y))
    for rows in (0, 1, 5):
        parts = f(np.zeros((rows, 0), np.float32), np.int64([0, 0, 0]))
        assert [part.shape for part in parts.values()] == [(rows, 0)] * 3
    with pytest.raises(UserError, match="do not fit at"):
        f(np.zeros((2, 0), np.float32), np.int64([0, 1, 0]))


def test_a_squeeze_without_axes_has_the_rank_of_the_call():
    f = ad.compile(model([node("y = Squeeze(x)")], ["x f[n, 1, m]"], ["y"]))
    for n, m in ((0, 0), (2, 3), (0, 9), (1, 2), (2, 1), (1, 1)):
        x = np.zeros((n, 1, m), np.float32)
        assert f(x)["y"].shape == x.squeeze().shape


# ---- determinants ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def determinant():
    return ad.compile(model([node("y = Det(x)")], ["x f[b, n, k]"], ["y"], opset=22))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 8, 16, 17])
def test_determinants_are_those_of_float64(determinant, size):
    """A backward error of some units of float32 in each of `size` eliminated rows."""
    rng = np.random.default_rng(size)
    for batch in (0, 1, 2, 7):
        x = rng.standard_normal((batch, size, size)).astype(np.float32)
        found = determinant(x)["y"]
        scale = np.prod(np.linalg.norm(x.astype(np.float64), axis=2), axis=1)  # Hadamard's bound
        wrong = np.abs(found - np.linalg.det(x.astype(np.float64)))
        assert found.shape == (batch,)
        assert (wrong <= 1e-6 * (size + 1) * scale).all()


def test_a_determinant_alone_is_that_of_a_batch(determinant):
    """Many small matrices lie in lanes, others along rows."""
    rng = np.random.default_rng(0)
    for size, batch in ((1, 3), (3, 40), (15, 17), (16, 16), (17, 20)):
        x = rng.standard_normal((batch, size, size)).astype(np.float32)
        x[0, :, 0], x[1, 0, 0], x[2] = 0, np.nan, np.round(x[2])
        alone = np.concatenate([determinant(x[n : n + 1])["y"] for n in range(batch)])
        assert determinant(x)["y"].tobytes() == alone.tobytes()


def test_determinants_of_permutations_are_exact(determinant):
    rng = np.random.default_rng(0)
    for size in (1, 2, 4, 9):
        x = np.stack([np.eye(size, dtype=np.float32)[rng.permutation(size)] for _ in range(5)])
        np.testing.assert_array_equal(determinant(x)["y"], np.round(np.linalg.det(x)))


def test_determinants_of_odd_matrices(determinant):
    singular = np.float32([[1, 2, 3], [2, 4, 6], [0, 1, 5]])
    column = np.float32([[0, 2, 3], [0, 4, 6], [0, 1, 5]])
    nan = np.float32([[1, 2, 3], [2, np.nan, 6], [0, 1, 5]])
    found = determinant(np.stack([singular, column, np.zeros_like(nan), nan]))["y"]
    assert (found[:3] == 0).all()
    assert np.isnan(found[3])


def test_a_matrix_that_is_not_square_is_refused(determinant):
    with pytest.raises(UserError, match="N"):
        determinant(np.zeros((2, 3, 4), np.float32))


# ---- unpooling ---------------------------------------------------------------------------------


def unpooled(x, places, shape, wider=None):
    flat = np.zeros(int(np.prod(shape)), x.dtype)
    flat[places.reshape(-1)] = x.reshape(-1)
    result = np.zeros(wider or shape, x.dtype)
    result[tuple(slice(0, size) for size in shape)] = flat.reshape(shape)
    return result


def pooled(rng, n, c, h, w):
    """Numbers, and a place of its own for each in a tensor twice as high and wide."""
    x = rng.standard_normal((n, c, h, w)).astype(np.float32)
    return x, rng.permutation(4 * x.size)[: x.size].reshape(x.shape), (n, c, 2 * h, 2 * w)


SIZES = [(0, 1, 2, 2), (1, 1, 1, 1), (2, 3, 0, 4), (2, 3, 4, 5), (1, 2, 7, 3)]
UNPOOL = {"kernel_shape": [2, 2], "strides": [2, 2]}


def test_unpooling_puts_every_number_back():
    inputs = ["x f[n, c, h, w]", "i l[n, c, h, w]"]
    f = ad.compile(model([node("y = MaxUnpool(x, i)", **UNPOOL)], inputs, ["y"], opset=22))
    rng = np.random.default_rng(0)
    for sizes in SIZES:
        x, places, shape = pooled(rng, *sizes)
        np.testing.assert_array_equal(f(x, places)["y"], unpooled(x, places, shape))
    with pytest.raises(UserError, match="index"):
        f(x, places + 4 * x.size)


def test_unpooling_into_a_larger_shape():
    inputs = ["x f[n, c, h, w]", "i l[n, c, h, w]", "s l[4]"]
    f = ad.compile(model([node("y = MaxUnpool(x, i, s)", **UNPOOL)], inputs, ["y"], opset=22))
    rng = np.random.default_rng(1)
    for sizes in SIZES:
        x, places, shape = pooled(rng, *sizes)
        for more in (0, 1, 3):
            wider = (*shape[:2], shape[2] + more, shape[3] + 2 * more)
            found = f(x, places, np.int64(wider))["y"]
            np.testing.assert_array_equal(found, unpooled(x, places, shape, wider))
    with pytest.raises(UserError, match="output_shape"):
        f(x, places, np.int64([*shape[:3], shape[3] - 1]))


def test_unpooling_undoes_pooling():
    """Places of MaxPool lead back, windows that overlap its padding included."""
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [node("p, i = MaxPool(x)", **window), node("y = MaxUnpool(p, i)", **window)]
    f = ad.compile(model(nodes, ["x f[n, c, h, w]"], ["y"], opset=22))
    rng = np.random.default_rng(2)
    for n, c, h, w in ((1, 1, 2, 2), (2, 3, 6, 8), (0, 2, 4, 4)):
        x = rng.standard_normal((n, c, h, w)).astype(np.float32)
        blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
        kept = blocks == blocks.max((3, 5), keepdims=True)
        np.testing.assert_array_equal(f(x)["y"], np.where(kept, blocks, 0).reshape(x.shape))

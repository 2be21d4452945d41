"""Operators that need random numbers: what holds of the numbers whatever they are."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from tests.unit.compiler.frontends.models import model, node

X = ["x f[n, m]"]


def run(made, **inputs):
    return list(ad.compile(made)(**inputs).values())


@pytest.mark.parametrize("kind", ["Uniform", "Normal"])
def test_numbers_like_a_tensor(kind):
    given = {"low": -2.0, "high": 4.0} if kind == "Uniform" else {"mean": 1.0, "scale": 3.0}
    compiled = {
        seed: ad.compile(model([node(f"y = Random{kind}Like(x)", seed=seed, **given)], X, ["y"]))
        for seed in (1.0, 2.0)
    }
    deviation = 6 / 12**0.5 if kind == "Uniform" else 3
    for shape in ((0, 3), (1, 1), (300, 301)):
        x = np.zeros(shape, np.float32)
        first, again, other = (compiled[seed](x=x)["y"] for seed in (1.0, 1.0, 2.0))
        assert first.shape == shape and first.dtype == np.float32
        np.testing.assert_array_equal(first, again)
        if x.size > 1000:
            assert (first != other).mean() > 0.99
            assert abs(first.mean() - 1) < 0.05 and abs(first.std() - deviation) < 0.05
            assert len(np.unique(first)) > 0.9 * x.size


def test_numbers_of_a_shape():
    for name in ("RandomUniform", "RandomNormal"):
        made = model([node(f"y = {name}()", shape=[40, 50], dtype=11)], [], ["y"])
        (y,) = run(made)
        assert y.shape == (40, 50) and y.dtype == np.float64 and len(np.unique(y)) == y.size


def test_nodes_without_a_seed_differ():
    nodes = [node("y = RandomUniformLike(x)"), node("z = RandomUniformLike(x)")]
    y, z = run(model(nodes, X, ["y", "z"]), x=np.zeros((8, 9), np.float32))
    assert (y != z).any()


def test_multinomial_draws_each_class_as_often_as_its_share():
    made = model([node("y = Multinomial(x)", sample_size=4000, seed=3.0)], X, ["y"])
    shares = np.float32([[0.1, 0.6, 0.0, 0.3], [0.25, 0.25, 0.25, 0.25]])
    with np.errstate(divide="ignore"):
        (y,) = run(made, x=np.log(shares))
    assert y.dtype == np.int32 and y.shape == (2, 4000)
    for row, expected in zip(y, shares):
        counts = np.bincount(row, minlength=4) / 4000
        np.testing.assert_allclose(counts, expected, atol=0.03)


@pytest.mark.parametrize("training", [False, True])
def test_dropout_decides_at_run_time(training):
    part = node("y, kept = Dropout(x, r, t)", seed=5)
    made = model([part], [*X, "r f[]", "t b[]"], ["y", "kept"])
    x = np.random.default_rng(0).uniform(1, 2, (200, 300)).astype(np.float32)
    y, kept = run(made, x=x, r=np.float32(0.25), t=np.bool_(training))
    assert abs(kept.mean() - (0.75 if training else 1)) < 0.01
    expected = np.where(kept, x / np.float32(0.75), 0) if training else x
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize(("opset", "dtype"), [(7, np.float32), (9, np.float32), (10, np.bool_)])
def test_masks_of_old_dropouts_have_the_type_of_the_values(opset, dtype):
    made = model([node("y, mask = Dropout(x)", ratio=0.5)], ["x f[3]"], ["y", "mask"], opset=opset)
    x = np.float32([1, -2, 3])
    y, mask = run(made, x=x)
    np.testing.assert_array_equal(y, x)
    assert mask.dtype == dtype and mask.all()

"""Quantised operators of onnxruntime, compiled, at several sizes, beside onnxruntime itself.

Bytes may be one step off: what is halfway between two is rounded by the last bit of a float sum.
"""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.base.errors import ModelError

pytest.importorskip("onnxruntime")

from tests.unit.compiler.frontends.microsoft.beside import drawn, node, session, written
from tests.unit.compiler.frontends.microsoft.quantised_cases import ALONE, CASES

SIZES = [(0, 1), (1, 1), (3, 2), (8, 5), (17, 3)]


@pytest.mark.sampled(most=10)
@pytest.mark.parametrize("name", sorted(CASES.keys() - ALONE))
def test_each_operator(name):
    inputs, nodes, constants = CASES[name]
    outputs = [output for each in nodes for output in each.output if output]
    proto = written(nodes, inputs, outputs, **constants)
    model, peer = ad.compile(proto), session(proto)
    for n, m in SIZES if inputs else SIZES[:1]:
        if not n and ("LSTM" in name or "Attention" in name):
            continue  # onnxruntime ends the process
        feeds = drawn(proto, {"n": n, "m": m})
        results = model(**feeds)
        for output, expected in zip(outputs, peer.run(outputs, feeds)):
            if expected is not None:  # QLinearSoftmax of nothing
                check(results[output], expected)


def check(found, expected, tolerance=1e-5):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if expected.dtype.kind == "f":
        tolerance = max(tolerance, 1e-3 if expected.dtype == np.float16 else 0)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    else:
        off = np.abs(found.astype(int) - expected.astype(int))
        assert off.max(initial=0) <= 1
        assert (off > 0).sum() <= max(1, off.size / 20)


@pytest.mark.parametrize("keep", [0, 1])
def test_a_mean_along_axes(keep):
    """onnxruntime has the operator's schema, and no kernel for it."""
    _, _, constants = CASES["QLinearReduceMean"]
    mean = node("q = QLinearReduceMean(x, s, z, t, v)", axes=[1], keepdims=keep)
    model = ad.compile(written([mean], ["x u[n, 3, m]"], ["q"], **constants))
    x = np.random.default_rng(1).integers(0, 256, (4, 3, 9), dtype=np.uint8)
    s, z, t, v = (float(constants[name]) for name in "sztv")
    exact = ((x - z) * s).mean(1, keepdims=bool(keep)) / t + v
    assert np.abs(model(x=x)["q"] - np.clip(exact, 0, 255)).max() <= 0.5001


def test_a_number_that_is_zero_throughout_has_a_scale_of_one():
    nodes = [node("y, s, z = DynamicQuantizeLinear(x)", domain="")]
    proto = written(nodes, ["x f[n]"], ["y", "s", "z"])
    model, peer = ad.compile(proto), session(proto)
    for n in (1, 5):
        x = np.zeros(n, np.float32)
        for found, expected in zip(model(x=x).values(), peer.run(None, {"x": x})):
            np.testing.assert_array_equal(found, expected)


def test_groups_of_k_choose_the_scale():
    chance = np.random.default_rng(2)
    w = chance.integers(0, 256, (3, 2, 16), dtype=np.uint8)
    scale = chance.uniform(0.1, 0.2, (3, 2)).astype(np.float32)
    group = chance.integers(0, 2, 64).astype(np.int32)
    product = node("q = MatMulNBits(x, w, s, , g)", K=64, N=3, bits=4, block_size=32)
    model = ad.compile(written([product], ["x f[n, 64]"], ["q"], w=w, s=scale, g=group))
    x = chance.standard_normal((5, 64)).astype(np.float32)
    fields = np.stack([w & 15, w >> 4], -1).reshape(3, 64).astype(np.float32)
    np.testing.assert_allclose(
        model(x=x)["q"], x @ ((fields - 8) * scale[:, group]).T, rtol=1e-5, atol=1e-4
    )


@pytest.mark.parametrize(
    ("text", "attributes", "message"),
    [
        ("q = MatMulNBits(x, w, s)", {"K": 40, "N": 3, "bits": 5, "block_size": 16}, "5 bits"),
        ("q = MatMulNBits(x, w, s)", {"K": 40, "N": 3, "block_size": 32}, "expected"),
        ("q = MatMulNBits(x, w, s)", {"K": 1 << 62, "N": 3, "block_size": 16}, "expected"),
        ("q = MatMulNBits(x, w, s)", {"K": -40, "N": 3, "block_size": 16}, "-40"),
        ("q = QLinearSigmoid(w, s, , s, )", {}, "a single number"),
        ("q = GatherBlockQuantized(w, i, s)", {"block_size": 0}, "blocks of 0"),
        ("q = QLinearConcat(one, w, w)", {"axis": 0}, "3 inputs"),
        ("q = QLinearSoftmax(w, one, , one, w)", {"axis": 7, "opset": 13}, "axis 7"),
    ],
)
def test_what_does_not_fit_is_refused(text, attributes, message):
    constants = {
        "w": np.zeros((3, 3, 8), np.uint8), "s": np.ones((3, 3), np.float32),
        "i": np.zeros(2, np.int64), "one": np.float32(1),
    }  # fmt: skip
    proto = written([node(text, **attributes)], ["x f[n, 40]"], ["q"], **constants)
    with pytest.raises(ModelError, match=message):
        ad.compile(proto)

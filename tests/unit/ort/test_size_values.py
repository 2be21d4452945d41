"""Promise: sessions keep what depends on sizes alone, in every way to run them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from anydim import ort

_MODEL = """
    <ir_version: 9, opset_import: ["" : 20]>
    model (float[batch, seq, 16] x) => (float[batch, seq, 16] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] last = {1}, float[16] rates = {RATES}>
    {
        shape = Shape<start=1, end=2>(x)
        axes = Identity(last)
        first = Constant<value = int64[1] {0}>()
        count = Squeeze(shape, first)
        places = Range(zero, count, one)
        floats = Cast<to=1>(places)
        column = Unsqueeze(floats, axes)
        angles = Mul(column, rates)
        table = Sin(angles)
        y = Add(x, table)
    }
"""


def expected(x: np.ndarray) -> np.ndarray:
    rates = np.float32(1) / np.arange(1, 17, dtype=np.float32)
    return x + np.sin(np.arange(x.shape[1], dtype=np.float32)[:, None] * rates)


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    rates = ", ".join(str(float(np.float32(1) / np.float32(n))) for n in range(1, 17))
    model = onnx.parser.parse_model(_MODEL.replace("RATES", rates))
    return ort.InferenceSession(model.SerializeToString())


SHAPES = [(1, 300), (2, 300), (1, 300), (3, 7), (3, 7), (0, 300), (1, 0), (1, 512), (2, 300)]


@pytest.mark.parametrize("again", range(2))
def test_runs(session: ort.InferenceSession, again: int) -> None:
    for batch, seq in SHAPES:
        x = np.random.default_rng(seq).standard_normal((batch, seq, 16)).astype(np.float32)
        for _ in range(3):
            (y,) = session.run(None, {"x": x})
            np.testing.assert_allclose(y, expected(x), 1e-6, 1e-6)


def test_bound_runs(session: ort.InferenceSession) -> None:
    for batch, seq in SHAPES * 2:
        x = np.random.default_rng(seq).standard_normal((batch, seq, 16)).astype(np.float32)
        bound = session.io_binding()
        bound.bind_cpu_input("x", x)
        bound.bind_output("y")
        for _ in range(3):
            session.run_with_iobinding(bound)
            (y,) = bound.copy_outputs_to_cpu()
            np.testing.assert_allclose(y, expected(x), 1e-6, 1e-6)

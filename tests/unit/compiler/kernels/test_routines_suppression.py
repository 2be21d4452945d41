"""Promise: non-maximum suppression keeps what the ONNX standard keeps, in its order."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.base.dtypes import DTYPES, float32, float64, int64
from anydim.base.errors import GraphError
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.routines.suppression import NON_MAX_SUPPRESSION
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.routine_running import Running, same

BOX = Box.of(Dim("b", 0, 8), Dim("c", 0, 80), Dim("n", 0, 20000))
MACHINE = Machine(vector_bytes=64, registers=32)


def suppression(dtype=float32, center=False, filtered=True, most="", box="b n 4") -> Running:
    shapes = [box, "b c n", most, "1"] + ["1"] * filtered
    dtypes = [dtype, dtype, int64, dtype, dtype]
    types = [
        TensorType(dtype, tuple(as_size(part) for part in shape.split()))
        for dtype, shape in zip(dtypes, shapes)
    ]
    return Running(NON_MAX_SUPPRESSION, types, BOX, MACHINE, center=center)


def detections(random, b: int, c: int, n: int, dtype=np.float32) -> list[np.ndarray]:
    """Boxes in clusters, corners in any order, some without area; scores with ties and NaN."""
    middle = random.integers(0, 4, (b, n, 2)) * 10 + random.standard_normal((b, n, 2))
    size = random.uniform(2, 8, (b, n, 2)) * (random.random((b, n, 1)) > 0.1)
    boxes = np.concatenate([middle - size / 2, middle + size / 2], -1)
    turned = random.random((b, n)) < 0.3
    boxes[turned] = boxes[turned][:, [2, 3, 0, 1]]
    scores = np.round(random.random((b, c, n)), 2)
    scores[random.random((b, c, n)) < 0.05] = np.nan
    return [boxes.astype(dtype), scores.astype(dtype)]


def scalars(most, overlap, *threshold, dtype=np.float32) -> list[np.ndarray]:
    return [np.array(most), np.array([overlap], dtype), *(np.array([t], dtype) for t in threshold)]


def check(running, arrays, env, compiled, parts=1):
    found, right = running(arrays, env, parts, compiled), running.expected(arrays, env)
    count = right[1][0]
    same([found[0][:count], found[1]], [right[0][:count], right[1]])
    return right[0][:count]


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_sizes(dtype, center):
    running = suppression(dtype, center)
    sizes = [(0, 2, 3), (2, 0, 3), (1, 2, 0), (1, 1, 1), (2, 3, 40), (1, 2, 300)]
    for seed, (b, c, n) in enumerate(sizes):
        arrays = detections(np.random.default_rng(seed), b, c, n, dtype.numpy)
        for most, overlap, threshold in [(5, 0.5, 0.2), (1000, 0.1, -1.0), (0, 0.5, 0.0)]:
            given = arrays + scalars(most, overlap, threshold, dtype=dtype.numpy)
            env = {"b": b, "c": c, "n": n}
            check(running, given, env, True, parts=3)
            if b * c * n < 50:
                check(running, given, env, False)


@pytest.mark.sampled(most=6)
@pytest.mark.parametrize("most", [1, 40, 2000])
@pytest.mark.parametrize("steps", [0, 1, 100, 10**6])
def test_scores_are_sorted_some_at_a_time(steps, most):
    """Few unlike scores, so that many are equal, as well as many; more than one round of them."""
    running = suppression()
    random = np.random.default_rng(steps)
    boxes, scores = detections(random, 1, 2, 1501)
    scores[:] = random.integers(0, steps + 1, scores.shape) / np.float32(steps + 1) + 0.1
    given = [boxes, scores, *scalars(most, 0.02 if most == 40 else 0.9, 0.3 if steps else 0.0)]
    check(running, given, {"b": 1, "c": 2, "n": 1501}, True)


def test_without_a_threshold_every_box_counts():
    running = suppression(filtered=False, most="1")
    boxes, scores = detections(np.random.default_rng(1), 1, 2, 30)
    scores = np.where(np.isnan(scores), -np.inf, scores)
    given = [boxes, scores, np.array([100]), np.array([1.0], np.float32)]
    for compiled in (False, True):
        kept = check(running, given, {"b": 1, "c": 2, "n": 30}, compiled)
        assert len(kept) == 60


@pytest.mark.parametrize("most", [-3, 2**62])
def test_odd_numbers_of_boxes(most):
    running = suppression()
    given = detections(np.random.default_rng(2), 1, 1, 20) + scalars(most, 0.3, 0.1)
    for compiled in (False, True):
        check(running, given, {"b": 1, "c": 1, "n": 20}, compiled)


@pytest.mark.parametrize("center", [False, True])
def test_as_the_standard_says(center):
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    names = ["boxes", "scores", "most", "overlap", "threshold"]
    node = helper.make_node("NonMaxSuppression", names, ["y"], center_point_box=int(center))
    kinds = [TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT64, *[TensorProto.FLOAT] * 2]
    inputs = [helper.make_tensor_value_info(n, k, None) for n, k in zip(names, kinds)]
    y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    model = helper.make_model(helper.make_graph([node], "g", inputs, [y]))
    reference = ReferenceEvaluator(model)
    running = suppression(center=center, most="1")
    for seed in range(8):
        boxes, scores = detections(np.random.default_rng(seed), 2, 2, 25)
        scores = np.nan_to_num(scores)
        given = [boxes, scores, *scalars([4 + seed], 0.4, 0.3)]
        (right,) = reference.run(None, dict(zip(names, given)))
        kept = check(running, given, {"b": 2, "c": 2, "n": 25}, True)
        np.testing.assert_array_equal(kept, right)


def test_misuse():
    with pytest.raises(GraphError, match="expected boxes"):
        suppression(box="n 4")
    with pytest.raises(GraphError, match="float32 or float64"):
        suppression(DTYPES["float16"])

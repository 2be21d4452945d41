"""Promise: MaxPool says where each maximum lies, at widths and channels that every kernel takes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper

import anydim as ad

SIZES = [(4, 4), (8, 7), (7, 5), (9, 13), (5, 40), (3, 17)]


def pool(stride: int, order: int) -> onnx.ModelProto:
    node = helper.make_node(
        "MaxPool", ["x"], ["y", "z"], kernel_shape=[2, 2], strides=[stride] * 2, storage_order=order
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["a", "b", "h", "w"])
    results = [
        helper.make_tensor_value_info(name, kind, None)
        for name, kind in (("y", TensorProto.FLOAT), ("z", TensorProto.INT64))
    ]
    graph = helper.make_graph([node], "pool", [x], results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)


def expected(x: np.ndarray, stride: int, order: int) -> np.ndarray:
    """The places of the maxima in all of x; in `order` 1 columns of an image come first."""
    images, (h, w) = x.shape[0] * x.shape[1], x.shape[2:]
    where = np.arange(h * w).reshape((h, w) if order == 0 else (w, h))
    where = np.broadcast_to(where if order == 0 else where.T, (images, h, w))
    where = (where + np.arange(images)[:, None, None] * h * w).reshape(x.shape)
    windows, places = (
        sliding_window_view(each, (2, 2), (2, 3))[:, :, ::stride, ::stride] for each in (x, where)
    )
    best = windows.reshape(*windows.shape[:4], 4).argmax(-1)[..., None]
    return np.take_along_axis(places.reshape(*places.shape[:4], 4), best, -1)[..., 0]


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("stride", [1, 2])
def test_places_of_maxima(stride: int, order: int) -> None:
    model = ad.compile(pool(stride, order), strategy="generic")
    for channels in (1, 16, 19):
        for sizes in SIZES:
            x = np.random.default_rng(channels).standard_normal((2, channels, *sizes))
            x = x.astype(np.float32)
            np.testing.assert_array_equal(model(x=x)["z"], expected(x, stride, order), str(x.shape))

"""Promise: a detector with its backbone on an OpenCL device finds what it finds on the host, with
any batch, height and width, and copies the image and the features alone."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import anydim as ad
from tests.kernel_targets import needs_device
from tests.models.building import graph, model, node

CLASSES, CHANNELS = 3, (3, 8, 12, 4 + 3)
WIDE = {"pads": (1, 1, 1, 1), "strides": (2, 2)}


def detector() -> onnx.ModelProto:
    """image [b, 3, h, w] -> the boxes of all images that are kept: image, class, box; corners."""
    nodes = [
        node("backbone_1 = Conv(image, w1)", **WIDE),
        node("backbone_2 = Relu(backbone_1)"),
        node("backbone_3 = Conv(backbone_2, w2)", **WIDE),
        node("backbone_4 = Relu(backbone_3)"),
        node("backbone_head = Conv(backbone_4, w3)"),
        node("rows = Reshape(backbone_head, flat)"),
        node("raw_boxes, raw_scores = Split(rows, parts)", axis=1),
        node("turned = Transpose(raw_boxes)", perm=(0, 2, 1)),
        node("unit = Sigmoid(turned)"),
        node("boxes = Mul(unit, four)"),
        node("scores = Sigmoid(raw_scores)"),
        node("kept = NonMaxSuppression(boxes, scores, most, overlap, least)"),
        node("where = Gather(kept, image_and_box)", axis=1),
        node("corners = GatherND(boxes, where)"),
    ]
    rng = np.random.default_rng(0)
    constants: dict[str, np.ndarray] = {
        f"w{n + 1}": (rng.standard_normal((CHANNELS[n + 1], CHANNELS[n], k, k)) / k).astype("f")
        for n, k in enumerate((3, 3, 1))
    }
    constants |= {
        "flat": np.array([0, CHANNELS[-1], -1]), "parts": np.array([4, CLASSES]),
        "most": np.array([5]), "image_and_box": np.array([0, 2]),
        "overlap": np.array([0.4], np.float32), "least": np.array([0.6], np.float32),
        "four": np.array(4, np.float32),
    }  # fmt: skip
    made = graph("detector", ["image f[b, 3, h, w]"], nodes, ["kept l[d, 3]", "corners f[d, 4]"],
                 constants)  # fmt: skip
    return model(made)


@pytest.mark.slow  # its kernels take PoCL 15 seconds
@needs_device
def test_detections_are_those_of_the_host() -> None:
    dims = {"b": ad.Dim(0, 4), "h": ad.Dim(1, 64), "w": ad.Dim(1, 64)}
    host = ad.compile(detector(), dims)
    placement = {"backbone*": "accel", "*": "cpu"}
    placed = ad.compile(detector(), dims, devices={"accel": "opencl:0"}, placement=placement)
    rng, device, found = np.random.default_rng(1), placed.devices["accel"], set()
    sizes = [(0, 8, 8), (1, 1, 1), (4, 64, 64), (2, 31, 17), (3, 7, 61)]
    sizes += [tuple(rng.integers((0, 1, 1), (5, 65, 65))) for _ in range(45)]
    before = device.counters.copies_in, device.counters.copies_out
    for b, h, w in sizes:
        image = rng.standard_normal((b, 3, h, w)).astype(np.float32)
        came, expected = placed(image=image), host(image=image)
        np.testing.assert_array_equal(came["kept"], expected["kept"], err_msg=f"{b, h, w}")
        # compilers of devices may round a sum of products apart
        np.testing.assert_allclose(came["corners"], expected["corners"], rtol=1e-5, strict=True)
        found.add(len(came["kept"]))
    after = device.counters.copies_in, device.counters.copies_out
    # none where the device works on inputs where they are
    assert all(now - then <= len(sizes) for now, then in zip(after, before))
    assert len(found) > 10 and 0 in found
    assert placed.executable.leaked == 0

"""Promise: the tail of a detector finds what onnxruntime finds, at any number of boxes."""

from __future__ import annotations

import numpy as np
import onnx

import anydim as ad
from tests.models.building import compare, graph, model, node

CLASSES = 3


def detector() -> onnx.ModelProto:
    """boxes [n, 4], scores [3, n] -> the boxes, scores and classes that are kept, best first."""
    nodes = [
        node("batched = Unsqueeze(boxes, first)"),
        node("ranked = Unsqueeze(scores, first)"),
        node("kept = NonMaxSuppression(batched, ranked, most, overlap, least)"),
        node("class_box = Slice(kept, one, three, second)"),
        node("picked_box = Gather(kept, box_column)", axis=1),
        node("kept_boxes = Gather(boxes, picked_box)", axis=0),
        node("kept_scores = GatherND(scores, class_box)"),
        node("classes = Gather(kept, class_column)", axis=1),
        node("number = Shape(kept_scores)"),
        node("wanted = Min(number, best)"),
        node("top_scores, order = TopK(kept_scores, wanted)", axis=0),
        node("top_boxes = Gather(kept_boxes, order)", axis=0),
        node("top_classes = Gather(classes, order)", axis=0),
    ]
    numbers = {
        "first": [0], "one": [1], "three": [3], "second": [1], "most": [5], "best": [4],
    }  # fmt: skip
    constants = {name: np.array(value, np.int64) for name, value in numbers.items()}
    constants |= {
        "overlap": np.array([0.5], np.float32), "least": np.array([0.3], np.float32),
        "box_column": np.array(2, np.int64), "class_column": np.array(1, np.int64),
    }  # fmt: skip
    outputs = ["top_boxes f[d, 4]", "top_scores f[d]", "top_classes l[d]"]
    inputs = ["boxes f[n, 4]", f"scores f[{CLASSES}, n]"]
    return model(graph("detector", inputs, nodes, outputs, constants))


def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
    count = int(rng.choice([0, 1, 2, 7, 8, 9, 31, int(rng.integers(0, 60))]))
    corners = rng.uniform(0, 4, (count, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(0.5, 3, (count, 2))], axis=1)
    highest = rng.choice([0.2, 1.0])  # at times nothing is found
    scores = rng.uniform(0, highest, (CLASSES, count))
    return {"boxes": boxes.astype(np.float32), "scores": scores.astype(np.float32)}


def test_detections_are_those_of_onnxruntime() -> None:
    found = compare(detector(), {"n": ad.Dim(0, 64)}, draw)
    numbers = {len(scores) for _, scores, _ in found}
    assert 0 in numbers and 4 in numbers

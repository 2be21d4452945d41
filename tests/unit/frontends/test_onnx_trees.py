"""Promise: ensembles of trees give what onnxruntime gives, with any number of rows."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import anydim as ad
from anydim.base.errors import ModelError

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def model_of(operator: str, targets: int, version: int, **attributes) -> onnx.ModelProto:
    node = helper.make_node(operator, ["x"], ["y"], domain="ai.onnx.ml", n_targets=targets,
                            **attributes)  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", targets])
    opsets = [helper.make_opsetid("ai.onnx.ml", version), helper.make_opsetid("", 17)]
    graph = helper.make_graph([node], "trees", [x], [y])
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def grown(random, trees: int, targets: int) -> dict[str, list]:
    """Trees that branch at random, as a regressor lists them."""
    made: dict[str, list] = {
        name: []
        for name in (
            "nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes",
            "nodes_truenodeids", "nodes_falsenodeids", "nodes_missing_value_tracks_true",
            "target_treeids", "target_nodeids", "target_ids", "target_weights",
        )
    }  # fmt: skip

    for tree in range(trees):
        open_nodes, used = [(0, 0)], 1
        while open_nodes:
            node, depth = open_nodes.pop(0)
            branch = depth < 5 and random.random() < 0.8
            children = (used, used + 1) if branch else (0, 0)
            row = {
                "nodes_treeids": tree, "nodes_nodeids": node,
                "nodes_featureids": int(random.integers(4)) if branch else 0,
                "nodes_values": float(random.integers(-2, 3)) if branch else 0.0,
                "nodes_modes": str(random.choice(MODES)) if branch else "LEAF",
                "nodes_truenodeids": children[0], "nodes_falsenodeids": children[1],
                "nodes_missing_value_tracks_true": int(random.integers(2)) if branch else 0,
            }  # fmt: skip
            if branch:
                open_nodes += [(used, depth + 1), (used + 1, depth + 1)]
                used += 2
            else:
                for target in range(targets):
                    made["target_treeids"].append(tree)
                    made["target_nodeids"].append(node)
                    made["target_ids"].append(target)
                    made["target_weights"].append(float(random.integers(-20, 20)))
            for name, value in row.items():
                made[name].append(value)
    return made


def rows(random, count: int) -> np.ndarray:
    x = random.integers(-3, 4, (count, 4)).astype(np.float32)
    return np.where(random.random(x.shape) < 0.1, np.nan, x).astype(np.float32)


@pytest.mark.parametrize("join", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize(("trees", "targets"), [(1, 1), (7, 3)])
def test_regressor(trees, targets, join):
    random = np.random.default_rng(trees)
    given = grown(random, trees, targets)
    base = [float(t) for t in range(targets)]
    model = model_of("TreeEnsembleRegressor", targets, 3, aggregate_function=join,
                     base_values=base, **given)  # fmt: skip
    session = onnxruntime.InferenceSession(model.SerializeToString())
    compiled = ad.compile(model, {"n": ad.Dim("n", 0, 1000)})
    for count in (1, 2, 17, 100):
        x = rows(random, count)
        (right,) = session.run(None, {"x": x})
        np.testing.assert_allclose(compiled(x=x)["y"], right, rtol=1e-6)
    assert compiled(x=np.zeros((0, 4), np.float32))["y"].shape == (0, targets)


def test_strange_trees_are_refused():
    given = grown(np.random.default_rng(0), 2, 1)
    given["nodes_truenodeids"][0] = 999
    with pytest.raises(ModelError, match="node 999 of tree 0, which is not there"):
        ad.compile(model_of("TreeEnsembleRegressor", 1, 3, **given))


def test_a_tree_that_goes_round_in_circles_ends():
    given = grown(np.random.default_rng(1), 1, 1)
    inner = [n for n, mode in enumerate(given["nodes_modes"]) if mode != "LEAF"]
    for n in inner:
        given["nodes_truenodeids"][n] = given["nodes_falsenodeids"][n] = 0
    model = ad.compile(model_of("TreeEnsembleRegressor", 1, 3, **given))
    assert model(x=np.zeros((3, 4), np.float32))["y"].tolist() == [[0], [0], [0]]

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


@pytest.mark.sampled(most=4)
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


def test_trees_that_lead_nowhere_are_refused():
    given = grown(np.random.default_rng(1), 1, 1)
    inner = [n for n, mode in enumerate(given["nodes_modes"]) if mode != "LEAF"]
    changes = {
        "cycle": {"nodes_truenodeids": inner[0]},
        "column below 0": {"nodes_featureids": -1},
        "column 7 of 4": {"nodes_featureids": 7},
        "not of one length": {"nodes_values": None},
        "nodes of mode BRANCH_NO": {"nodes_modes": "BRANCH_NO"},
    }
    for text, change in changes.items():
        strange = {name: list(values) for name, values in given.items()}
        for name, value in change.items():
            if value is None:
                strange[name].pop()
            else:
                strange[name][inner[-1]] = value
        with pytest.raises(ModelError, match=text):
            ad.compile(model_of("TreeEnsembleRegressor", 1, 3, **strange))


def test_free_columns_are_an_error_of_the_call_when_trees_ask_for_more():
    given = grown(np.random.default_rng(2), 3, 1)
    model = model_of("TreeEnsembleRegressor", 1, 3, **given)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "columns"
    compiled = ad.compile(model)
    x = rows(np.random.default_rng(3), 9)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    np.testing.assert_allclose(compiled(x=x)["y"], session.run(None, {"x": x})[0], rtol=1e-6)
    with pytest.raises(ad.DimError, match="columns that the trees use"):
        compiled(x=x[:, :3])


SETS = [[2.0, -1.0, 0.0], [1.0], [-np.inf, 3.0], [np.inf], [-0.0, np.nextafter(np.float32(0), 1)],
        []]  # fmt: skip


def test_members_of_sets_and_every_other_comparison():
    """A tree of one node for each way to compare; the answers are those of numpy's comparisons."""
    ways = [(mode, split, ()) for mode in range(6)
            for split in (0.0, -0.0, 1.5, -np.inf, np.inf, np.nan)]  # fmt: skip
    ways += [(6, 0.0, members) for members in SETS]
    x = np.array([-np.inf, -2, -1, -0.0, 0.0, 1e-45, 1, 1.5, 2, 3, np.inf, np.nan], "f")
    for tracks in (0, 1):
        got = ad.compile(ensemble(ways, tracks))(x=x[:, None])["y"]
        for number, (mode, split, members) in enumerate(ways):
            holds = [x <= split, x < split, x >= split, x > split, x == split, x != split,
                     np.isin(x, np.array(members, "f"))][mode]  # fmt: skip
            right = np.where(holds | (np.isnan(x) & bool(tracks)), 10.0, 20.0)
            np.testing.assert_array_equal(got[:, number], right, f"{ways[number]} {tracks}")


def ensemble(ways, tracks) -> onnx.ModelProto:
    """TreeEnsemble of opset 5: tree k has one node, and gives result k 10 where it holds, else 20.

    `ways` are (mode, split, members).
    """
    count = len(ways)
    members = [v for mode, _, own in ways if mode == 6 for v in (*map(float, own), np.nan)]

    def tensor(name, kind, values):
        return helper.make_tensor(name, kind, [len(values)], values)

    node = helper.make_node(
        "TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", n_targets=count, aggregate_function=1,
        post_transform=0, tree_roots=range(count), nodes_featureids=[0] * count,
        nodes_trueleafs=[1] * count, nodes_falseleafs=[1] * count,
        nodes_truenodeids=range(0, 2 * count, 2), nodes_falsenodeids=range(1, 2 * count, 2),
        nodes_missing_value_tracks_true=[tracks] * count,
        leaf_targetids=[k // 2 for k in range(2 * count)],
        nodes_modes=tensor("modes", TensorProto.UINT8, [mode for mode, _, _ in ways]),
        nodes_splits=tensor("splits", TensorProto.FLOAT, [split for _, split, _ in ways]),
        leaf_weights=tensor("weights", TensorProto.FLOAT, [10.0, 20.0] * count),
        membership_values=tensor("members", TensorProto.FLOAT, members),
    )  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", count])
    opsets = [helper.make_opsetid("ai.onnx.ml", 5), helper.make_opsetid("", 17)]
    graph = helper.make_graph([node], "ways", [x], [y])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)

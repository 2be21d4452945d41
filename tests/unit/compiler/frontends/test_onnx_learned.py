"""Promise: models that were learned, and what feeds them, give what onnxruntime gives.

Converters write files for what onnxruntime makes of them where the standard leaves it open, so it
is the judge here; sums are float32 there too, so results differ by some roundings.
"""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import anydim as ad

TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]
KINDS = {"f": TensorProto.FLOAT, "d": TensorProto.DOUBLE, "l": TensorProto.INT64,
         "i": TensorProto.INT32}  # fmt: skip
ROWS = (0, 1, 7, 8, 9, 33)


def model_of(
    operator: str, columns: int = 4, outputs=("y",), version: int = 3, kind: str = "f", **given
) -> onnx.ModelProto:
    """One node of ai.onnx.ml over rows [n, columns]."""
    node = helper.make_node(operator, ["x"], list(outputs), domain="ai.onnx.ml", **given)
    x = helper.make_tensor_value_info("x", KINDS[kind], ["n", columns])
    opsets = [helper.make_opsetid("ai.onnx.ml", version), helper.make_opsetid("", 17)]
    made = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph([node], operator, [x], made)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def drawn(count: int, columns: int = 4, kind: str = "f", whole: bool = False) -> np.ndarray:
    random = np.random.default_rng(count)
    x = (
        random.integers(-4, 5, (count, columns))
        if whole
        else random.standard_normal((count, columns))
    )
    return x.astype(kind)


def compare(model: onnx.ModelProto, kind: str = "f", whole: bool = False, rows=ROWS) -> ad.Model:
    """The same results of the same types from one compile, at several numbers of rows."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    compiled = ad.compile(model)
    names = [value.name for value in model.graph.output]
    columns = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    for count in rows:
        x = drawn(count, columns, kind, whole)
        if not count:
            assert all(len(value) == 0 for value in compiled(x=x).values())
            continue
        for name, right in zip(names, session.run(None, {"x": x})):
            got = compiled(x=x)[name]
            assert (got.shape, got.dtype) == (right.shape, right.dtype), (name, got.dtype)
            np.testing.assert_allclose(got, right, rtol=2e-5, atol=2e-6, err_msg=f"{name} {count}")
    return compiled


# ---- linear models -----------------------------------------------------------------------------


@pytest.mark.parametrize("transform", TRANSFORMS[:4])
def test_linear_classifier(transform):
    random = np.random.default_rng(0)
    for count in (2, 5):
        compare(model_of(
            "LinearClassifier", outputs=("y", "z"), version=1, post_transform=transform,
            coefficients=random.standard_normal(4 * count), intercepts=random.random(count),
            classlabels_ints=[7, 3, 5, 9, 8][:count],
        ))  # fmt: skip


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_linear_classifier_of_one_score(transform):
    compare(model_of(
        "LinearClassifier", outputs=("y", "z"), version=1, post_transform=transform,
        coefficients=[0.5, -1.0, 2.0, 0.25], intercepts=[0.1], classlabels_ints=[4, 2],
    ))  # fmt: skip


@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressor(targets):
    random = np.random.default_rng(1)
    compare(model_of(
        "LinearRegressor", version=1, targets=targets, intercepts=random.standard_normal(targets),
        coefficients=random.standard_normal(4 * targets),
    ))  # fmt: skip


# ---- trees -------------------------------------------------------------------------------------


def stumps(ids, weights) -> dict:
    """Three trees of one node and two leaves, and what the leaves hold: (tree, side, class)."""
    given = {
        "nodes_treeids": [0, 0, 0, 1, 1, 1, 2, 2, 2], "nodes_nodeids": [0, 1, 2] * 3,
        "nodes_featureids": [0, 0, 0, 1, 0, 0, 3, 0, 0],
        "nodes_values": [0.1, 0.0, 0.0, -0.3, 0.0, 0.0, 0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * 3,
        "nodes_truenodeids": [1, 0, 0] * 3, "nodes_falsenodeids": [2, 0, 0] * 3,
        "class_treeids": [], "class_nodeids": [], "class_ids": [], "class_weights": [],
    }  # fmt: skip
    for number, (tree, side, place) in enumerate(itertools.product(range(3), (1, 2), ids)):
        row = (tree, side, place, float(weights[number % len(weights)]))
        names = ("class_treeids", "class_nodeids", "class_ids", "class_weights")
        for name, value in zip(names, row):
            given[name].append(value)
    return given


CLASSES = [
    # classes, those that leaves speak for, weights, base values
    (2, [0], [0.1, 0.3, 0.25, 0.05], []),
    (2, [0], [0.4, -0.3, 0.25, -0.5], []),
    (2, [0], [0.4, -0.3, 0.25, -0.5], [0.05]),
    (2, [1], [0.1, 0.3, 0.25, 0.05], []),
    (2, [1], [0.4, -0.3, 0.25, -0.5], []),
    (3, [0, 1, 2], [0.1, 0.2, 0.05, 0.02, 0.15], []),
    (3, [0, 1, 2], [0.1, -0.2, 0.3, -0.4, 0.15], [0.1, -0.2, 0.3]),
    (4, [1, 3], [-0.1, -0.2, -0.3], []),
]


@pytest.mark.sampled(
    "2-LOGISTIC",
    "4-SOFTMAX",
    "4-SOFTMAX_ZERO",
    "5-PROBIT",
    "5-SOFTMAX_ZERO",
    "6-LOGISTIC",
    "6-SOFTMAX",
    "6-SOFTMAX_ZERO",
    most=8,
)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("case", range(len(CLASSES)))
def test_tree_classifier(case, transform):
    count, ids, weights, base = CLASSES[case]
    if transform == "PROBIT" and (ids == [0] or min(weights) < 0):
        pytest.skip("scores that are no probabilities")
    given = stumps(ids, weights)
    if base:
        given["base_values"] = base
    compare(model_of(
        "TreeEnsembleClassifier", outputs=("y", "z"), classlabels_int64s=[5, 3, 9, 1][:count],
        post_transform=transform, **given,
    ))  # fmt: skip


def test_trees_of_float64():
    """Thresholds and weights that float32 cannot hold; sums are float64, results float32."""
    split, near = 0.1, np.nextafter(0.1, 1)

    def tensor(name, values):
        return onnx.numpy_helper.from_array(np.array(values, np.float64), name)

    model = model_of(
        "TreeEnsembleRegressor", 1, kind="d", n_targets=1, nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0], nodes_values_as_tensor=tensor("v", [split, 0, 0]),
        target_treeids=[0, 0, 0], target_nodeids=[1, 2, 2], target_ids=[0, 0, 0],
        target_weights_as_tensor=tensor("w", [2.0, 1.0 + 2**-40, -1.0]),
    )  # fmt: skip
    got = ad.compile(model)(x=np.array([[split], [near], [np.float64(np.float32(split))]]))["y"]
    assert got.dtype == np.float32 and got[:, 0].tolist() == [2.0, 2.0**-40, 2.0**-40]


def test_whole_numbers_walk_down_trees():
    for kind in "li":
        compare(model_of("TreeEnsembleClassifier", outputs=("y", "z"), kind=kind,
                         classlabels_int64s=[2, 1, 0], **stumps([0, 1, 2], [0.5, -0.25, 0.125])),
                kind, whole=True)  # fmt: skip


# ---- support vectors ---------------------------------------------------------------------------

KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]


@pytest.mark.parametrize("kernel", KERNELS)
def test_svm_regressor(kernel):
    random = np.random.default_rng(2)
    for one_class, degree in ((0, 3), (1, 2), (0, 4)):
        compare(model_of(
            "SVMRegressor", version=1, kernel_type=kernel, kernel_params=[0.3, 0.2, degree],
            support_vectors=random.standard_normal(20), n_supports=5, rho=[0.25],
            coefficients=random.standard_normal(5), one_class=one_class,
        ))  # fmt: skip


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("classes", [2, 4])
def test_svm_classifier(kernel, classes):
    random = np.random.default_rng(3)
    sizes, pairs = [2, 3, 1, 2][:classes], classes * (classes - 1) // 2
    given = {
        "kernel_type": kernel, "kernel_params": [0.3, 0.2, 3], "vectors_per_class": sizes,
        "support_vectors": random.standard_normal(4 * sum(sizes)),
        "coefficients": random.standard_normal((classes - 1) * sum(sizes)),
        "rho": random.standard_normal(pairs), "classlabels_ints": [3, 8, 1, 5][:classes],
    }  # fmt: skip
    for transform in ("NONE", "LOGISTIC", "SOFTMAX"):
        given["post_transform"] = transform
        compare(model_of("SVMClassifier", outputs=("y", "z"), version=1, **given), rows=(1, 9))
    given["post_transform"] = "NONE"
    model = model_of(
        "SVMClassifier", outputs=("y", "z"), version=1, **given,
        prob_a=-random.random(pairs) - 0.5, prob_b=random.standard_normal(pairs) * 0.1,
    )  # fmt: skip
    session = onnxruntime.InferenceSession(model.SerializeToString())
    x = drawn(40)
    got, right = ad.compile(model)(x=x), session.run(None, {"x": x})
    np.testing.assert_array_equal(got["y"], right[0])
    # rounds of the coupling end when errors are below 0.005 / classes: float32 may end one earlier
    np.testing.assert_allclose(got["z"], right[1], atol=0.005)


def test_svm_classifier_without_support_vectors():
    random = np.random.default_rng(4)
    for classes in (2, 3):
        compare(model_of(
            "SVMClassifier", outputs=("y", "z"), version=1, rho=[0.1], kernel_type="LINEAR",
            coefficients=random.standard_normal(4 * classes), kernel_params=[0.0, 0.0, 0.0],
            classlabels_ints=[3, 8, 1][:classes],
        ))  # fmt: skip


# ---- columns -----------------------------------------------------------------------------------


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("kind", "fdli")
def test_columns_made_ready(kind):
    scale = {"scale": [1.0, 2.0, 0.5, 3.0], "offset": [0.25, 0.0, -1.0, 2.0]}
    compare(model_of("Scaler", version=1, kind=kind, **scale), kind, whole=True)
    compare(model_of("Scaler", version=1, kind=kind, scale=[2.0], offset=[1.0]), kind, whole=True)
    for norm in ("MAX", "L1", "L2"):
        compare(model_of("Normalizer", version=1, kind=kind, norm=norm), kind, whole=True)


def test_missing_values_are_filled():
    filled = {"imputed_value_floats": [9.0, 8.0, 7.0, 6.0]}
    compare(model_of("Imputer", version=1, **filled, replaced_value_float=2.0), whole=True)
    compare(model_of("Imputer", version=1, imputed_value_floats=[5.5], replaced_value_float=-1.0),
            whole=True)  # fmt: skip
    whole = model_of("Imputer", version=1, kind="l", imputed_value_int64s=[9, 8, 7, 6],
                     replaced_value_int64=2)  # fmt: skip
    compare(whole, "l", whole=True)
    model = ad.compile(model_of("Imputer", version=1, **filled, replaced_value_float=np.nan))
    x = drawn(9)
    x[::2, 1] = np.nan
    right = np.where(np.isnan(x), np.float32(8), x)
    np.testing.assert_array_equal(model(x=x)["y"], right)


def test_keys_and_categories():
    def encoder(kind, **given):
        return model_of("LabelEncoder", version=2, kind=kind, **given)

    keys, values = [3, -2, 0, 4], [30, 20, 0, 44]
    floats = [0.5, -1.5, 0.0, 2.5]
    compare(encoder("l", keys_int64s=keys, values_int64s=values, default_int64=-9), "l", whole=True)
    compare(encoder("l", keys_int64s=keys, values_floats=floats), "l", whole=True)
    compare(encoder("f", keys_floats=[0.0, 2.0, -3.0, 1.0], values_int64s=values), whole=True)
    compare(model_of("OneHotEncoder", version=1, kind="l", cats_int64s=[3, -4, 0, 1]), "l", True)
    strict = ad.compile(model_of("OneHotEncoder", 1, version=1, cats_int64s=[3, 1], zeros=0))
    assert strict(x=np.array([[1], [3]], "f"))["y"].tolist() == [[[0, 1]], [[1, 0]]]
    with pytest.raises(ad.InputError):
        strict(x=np.array([[1], [2]], "f"))


def test_keys_of_a_tensor_nan_among_them():
    keys = np.array([np.nan, 1.5, -2.0, 1.5])
    model = model_of(
        "LabelEncoder", version=4, kind="d",
        keys_tensor=onnx.numpy_helper.from_array(keys, "keys"),
        values_tensor=onnx.numpy_helper.from_array(np.arange(4, dtype=np.int16), "values"),
        default_tensor=onnx.numpy_helper.from_array(np.array([-7], np.int16), "default"),
    )  # fmt: skip
    x = np.array([[1.5, np.nan, -2.0, 0.0], [np.inf, -0.0, 1.5, -2.0]])
    got = ad.compile(model)(x=x)["y"]
    assert got.dtype == np.int16 and got.tolist() == [[1, 0, 2, -7], [-7, -7, 1, 2]]


def test_features_side_by_side():
    node = helper.make_node("FeatureVectorizer", ["a", "b"], ["y"], domain="ai.onnx.ml",
                            inputdimensions=[2, 3])  # fmt: skip
    inputs = [helper.make_tensor_value_info("a", TensorProto.FLOAT, ["n", 2]),
              helper.make_tensor_value_info("b", TensorProto.FLOAT, ["n", "m"])]  # fmt: skip
    graph = helper.make_graph([node], "side", inputs, [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("ai.onnx.ml", 1), helper.make_opsetid("", 17)]
    model = ad.compile(helper.make_model(graph, opset_imports=opsets))
    for rows, columns in itertools.product((0, 1, 5), (1, 3, 4)):
        a, b = drawn(rows, 2), drawn(rows, columns)
        wide = np.concatenate([a, b, np.zeros((rows, 3), "f")], 1)[:, :5]
        wide[:, 2:] = np.pad(b, [(0, 0), (0, 3)])[:, :3]
        np.testing.assert_array_equal(model(a=a, b=b)["y"], wide)

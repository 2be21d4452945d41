"""Promise: dims are read however a file writes them, and a user names them as the file does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import onnx
import pytest
from onnx import helper

import anydim as ad
from anydim.compiler.frontends.onnx.importer import import_model
from anydim.compiler.frontends.table import expected_bounds
from anydim.sizes import given_dims

Axes = Sequence[int | str | None]


def model(**inputs: Axes) -> onnx.ModelProto:
    """Every input goes through an operator of its own."""
    float32 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Relu", [name], [f"{name}_out"]) for name in inputs], "g",
        [helper.make_tensor_value_info(name, float32, axes) for name, axes in inputs.items()],
        [helper.make_tensor_value_info(f"{name}_out", float32, None) for name in inputs],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def shapes(proto: onnx.ModelProto, dims: object = None) -> tuple[str, dict[str, str]]:
    graph = import_model(proto, given_dims(dims))
    return str(graph.box), {
        name: ", ".join(map(str, graph.types[name].shape)) for name in graph.inputs
    }


def test_axes_without_a_name_are_dims_of_their_own() -> None:
    box, found = shapes(model(x=[-1, 3, "?", "?"], y=[0, "", None, "None"]))
    assert box == "x_0=0.., x_2=0.., x_3=0.., y_0=0.., y_1=0.., y_2=0.., y_3=0.."
    assert found == {"x": "x_0, 3, x_2, x_3", "y": "y_0, y_1, y_2, y_3"}


def test_names_stay_as_they_are_in_the_file() -> None:
    box, found = shapes(model(x=["p2o.DynamicDimension.0", "a-b", "1st"], y=["a_b", "a-b"]))
    assert found == {"x": "p2o.DynamicDimension.0, a_b, _1st", "y": "a_b_, a_b"}
    assert box == "p2o.DynamicDimension.0=0.., a_b=0.., _1st=0.., a_b_=0.."


def test_expressions_over_other_dims_are_sizes() -> None:
    box, found = shapes(model(mask=["b", "past + seq"], past=["b", "past"], ids=["b", "seq"]))
    assert found["mask"] == "b, past + seq" and box == "b=0.., past=0.., seq=0.."
    box, found = shapes(model(x=["seq - 1"], y=["seq"]))
    assert found["x"] == "seq - 1" and box == "seq=0.., seq - 1 >= 0"


def test_other_expressions_are_open_dims() -> None:
    _, found = shapes(model(x=["past + seq"], y=["floor(n/2)"], past=["past"]))
    assert found == {"x": "past___seq", "y": "floor_n_2_", "past": "past"}


def test_an_expression_with_bounds_is_a_dim_of_its_own() -> None:
    proto = model(mask=["past + seq"], past=["past"], ids=["seq"])
    for name in ("past + seq", "mask.0", "mask.-1"):
        assert shapes(proto, {name: (1, 9)})[0] == "past___seq=1..9, past=0.., seq=0.."


@pytest.mark.parametrize(
    "dims",
    [
        {"x": {2: ad.Dim(32, 736)}}, {"x.2": (32, 736)}, {"x": {-1: (32, 736)}},
        {"x_2": (32, 736)}, {"x": {2: (32, 736), 1: 3}},
    ],
)  # fmt: skip
def test_dims_without_a_name_by_input_and_axis(dims: object) -> None:
    assert shapes(model(x=["p2o.D.0", 3, -1]), dims)[0] == "p2o.D.0=0.., x_2=32..736"


@pytest.mark.parametrize("name", ["p2o.D.0", "p2o_D_0", "x.0", "x.-3"])
def test_dims_with_a_name(name: str) -> None:
    assert shapes(model(x=["p2o.D.0", 3, -1]), {name: 8})[0] == "p2o.D.0=8..8, x_2=0.."


@pytest.mark.parametrize(
    ("dims", "problem"),
    [
        ({"x.3": 1}, "no dim 'x.3'"),
        ({"y": {0: 1}}, "no dim 'y.0'"),
        ({"bach": 1}, "did you mean 'batch'"),
        ({"x.1": 4}, "'x.1' has the size 3"),
        ({"x": {"a": 1}}, "'a' is not an axis"),
        ({"batch": 2, "x.0": 3}, "'batch' is given twice, as 'batch' and as 'x.0'"),
    ],
)
def test_what_names_no_dim(dims: object, problem: str) -> None:
    with pytest.raises(ad.OptionError, match=problem):
        shapes(model(x=["batch", 3, -1]), dims)


def test_names_of_plans_calls_and_growth() -> None:
    proto = model(x=["p2o.D.0", -1])
    compiled = ad.compile(proto, dims={"x.1": (1, 4)})
    assert "p2o.D.0 = 2, x_1 = 3" in str(compiled.plan(**{"p2o.D.0": 2, "x_1": 3}))
    assert compiled(numpy.ones((0, 3), numpy.float32))["x_out"].shape == (0, 3)
    with pytest.raises(ad.DimError, match="dim 'x_1' is 5, above its bound 4"):
        compiled(numpy.ones((1, 5), numpy.float32))
    bounds, expected = expected_bounds(proto, given_dims({"x": {1: (1, 4)}}), "grow")
    assert bounds == {"x.1": ad.Dim(1)} and expected == {"x_1": 4}


def deciding(operator: str, through: str = "") -> onnx.ModelProto:
    """An input with k numbers decides how many axes the result has, also through a node."""
    node, kinds = helper.make_node, onnx.TensorProto
    read = "t" if through else "s"
    given = [read] if operator == "ConstantOfShape" else ["x", read]
    nodes = [node("Add", ["s", "s"], ["t"])] if through else []
    inputs = [helper.make_tensor_value_info("s", kinds.INT64, ["k"])]
    if len(given) == 2:
        inputs.append(helper.make_tensor_value_info("x", kinds.FLOAT, ["n"]))
    result = helper.make_tensor_value_info("y", kinds.FLOAT, None)
    graph = helper.make_graph([*nodes, node(operator, given, ["y"])], "g", inputs, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("through", ["", "Add"])
@pytest.mark.parametrize("operator", ["Reshape", "Expand", "ConstantOfShape"])
def test_a_size_given_for_a_dim_decides_a_rank(operator: str, through: str) -> None:
    proto = deciding(operator, through)
    with pytest.raises(ad.ModelError, match="has k elements, which decide a rank"):
        ad.compile(proto)
    compiled = ad.compile(proto, dims={"k": 3})
    shape = numpy.array([2, 3, 4])
    wanted = tuple(shape * 2 if through else shape)
    count = int(numpy.prod(wanted))
    x = {"Reshape": numpy.arange(count, dtype=numpy.float32), "Expand": numpy.ones(1, "float32")}
    given = {"s": shape} if operator == "ConstantOfShape" else {"s": shape, "x": x[operator]}
    made = compiled(**given)["y"]
    assert made.shape == wanted
    if operator == "Reshape":
        numpy.testing.assert_array_equal(made.reshape(-1), given["x"])


def test_a_size_given_for_the_end_of_indices_decides_a_rank() -> None:
    node, kinds = helper.make_node, onnx.TensorProto
    inputs = [
        helper.make_tensor_value_info("x", kinds.FLOAT, ["a", "b", "c"]),
        helper.make_tensor_value_info("i", kinds.INT64, ["n", "k"]),
    ]
    result = helper.make_tensor_value_info("y", kinds.FLOAT, None)
    graph = helper.make_graph([node("GatherND", ["x", "i"], ["y"])], "g", inputs, [result])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    x = numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4)
    indices = numpy.array([[1, 2], [0, 1]])
    made = ad.compile(proto, dims={"k": 2})(x=x, i=indices)["y"]
    numpy.testing.assert_array_equal(made, x[indices[:, 0], indices[:, 1]])

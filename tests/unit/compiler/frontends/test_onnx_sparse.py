"""Promise: sparse tensors of a file are what their dense forms are; a wrong one says what is wrong.

Initializers of the model and of graphs inside it, the values of Constant; indices of one and of
several axes.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad
from anydim import ort

SHAPES = [(), (0,), (5,), (3, 4), (0, 4), (2, 1, 3)]


def sparse(array: np.ndarray, name: str, flat: bool) -> onnx.SparseTensorProto:
    """The sparse form of an array."""
    places = np.flatnonzero(array)
    values = numpy_helper.from_array(array.reshape(-1)[places], name)
    several = np.stack(np.unravel_index(places, array.shape), 1) if array.ndim else None
    indices = places if flat or several is None else several
    return onnx.SparseTensorProto(
        values=values, indices=numpy_helper.from_array(indices.astype(np.int64), "indices"),
        dims=array.shape,
    )  # fmt: skip


def of(tensor: onnx.SparseTensorProto, how: str = "initializer") -> bytes:
    """y = x + tensor, which is an initializer, that of a branch, or the value of a Constant."""
    kind = tensor.values.data_type
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", kind, None)]
    inputs[0].type.tensor_type.shape.dim.extend(
        onnx.TensorShapeProto.Dimension(dim_param=f"d{axis}") for axis in range(len(tensor.dims))
    )
    inputs[0].type.tensor_type.shape.SetInParent()
    result = helper.make_tensor_value_info("y", kind, None)
    held = [tensor] if how == "initializer" else []
    if how == "constant":
        made = helper.make_node("Constant", [], ["w"])
        made.attribute.append(
            onnx.AttributeProto(
                name="sparse_value", type=onnx.AttributeProto.SPARSE_TENSOR, sparse_tensor=tensor
            )
        )
        nodes.insert(0, made)
    if how == "branch":
        inner = helper.make_graph(nodes, "then", [], [result], sparse_initializer=[tensor])
        other = helper.make_graph(
            [helper.make_node("Identity", ["x"], ["z"])], "else", [],
            [helper.make_tensor_value_info("z", kind, None)],
        )  # fmt: skip
        inputs.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))
        nodes = [helper.make_node("If", ["flag"], ["y"], then_branch=inner, else_branch=other)]
    graph = helper.make_graph(nodes, "sparse", inputs, [result], sparse_initializer=held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return model.SerializeToString()


def drawn(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    random = np.random.default_rng(len(shape))
    return np.asarray(random.integers(1, 9, shape) * (random.random(shape) < 0.4)).astype(dtype)


@pytest.mark.sampled
@pytest.mark.parametrize("flat", [True, False], ids=["places", "indices"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_initializers(shape, flat):
    if shape == () and not flat:
        return
    for dtype in (np.float32, np.int64):
        array = drawn(shape, dtype)
        made = of(sparse(array, "w", flat))
        x = np.ones(shape, dtype)
        np.testing.assert_array_equal(ad.compile(made)(x)["y"], x + array)
    (y,) = ort.InferenceSession(made).run(None, {"x": x})
    np.testing.assert_array_equal(y, x + array)


@pytest.mark.parametrize("how", ["constant", "branch"])
def test_elsewhere(how):
    array = drawn((3, 4), np.float32)
    model = ad.compile(of(sparse(array, "w", False), how))
    x = np.ones((3, 4), np.float32)
    given = {"flag": np.array(True)} if how == "branch" else {}
    np.testing.assert_array_equal(model(x=x, **given)["y"], x + array)
    if given:
        np.testing.assert_array_equal(model(x=x, flag=np.array(False))["y"], x)


def test_a_model_proto_stays_as_it_is():
    proto = onnx.ModelProto.FromString(of(sparse(drawn((3, 4), np.float32), "w", True)))
    before = proto.SerializeToString()
    ad.compile(proto)
    assert proto.SerializeToString() == before


def changed(**fields):
    tensor = sparse(np.float32([[0, 2, 0], [3, 0, 4]]), "w", fields.pop("flat", True))
    for name, value in fields.items():
        if name == "dims":
            del tensor.dims[:]
            tensor.dims.extend(value)
        else:
            getattr(tensor, name).CopyFrom(numpy_helper.from_array(value, "w"))
    return of(tensor)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"indices": np.int64([0, 1, 6])}, "an index is outside of the shape [2, 3]"),
        ({"indices": np.int64([-1, 1, 2])}, "an index is outside"),
        ({"indices": np.int64([[0, 1], [1, 0], [1, 3]])}, "an index is outside"),
        ({"indices": np.int64([0, 1, 1])}, "two values have the same index"),
        ({"indices": np.int64([[0, 1], [1, 0]])}, "its indices are of shape [2, 2], expected [3]"),
        ({"indices": np.int32([0, 1, 2])}, "of type int32"),
        ({"values": np.float32([[1, 2, 3]])}, "its values have 2 axes"),
        ({"dims": (1 << 20, 1 << 20)}, "its dense form takes 4398046511104 bytes"),
        ({"dims": (-2, 3)}, "a tensor of shape [-2, 3] is not valid"),
        ({"values": np.complex64([1, 2, 3])}, "complex64"),
    ],
)
def test_what_is_wrong_is_said(fields, problem):
    with pytest.raises(ad.ModelError) as caught:
        ad.compile(changed(**fields))
    assert problem in str(caught.value) and "'w'" in str(caught.value)

"""Promise: inputs and outputs of types that numpy's files cannot name go through files."""

from __future__ import annotations

import ml_dtypes
import numpy
import pytest
from onnx import TensorProto, helper

import anydim
from anydim.base.errors import InputError
from anydim.cli.arrays import inputs_by_name, read, save

BFLOAT16 = ml_dtypes.bfloat16


@pytest.fixture(scope="module")
def model():
    value = helper.make_tensor_value_info("x", TensorProto.BFLOAT16, ["n"])
    result = helper.make_tensor_value_info("y", TensorProto.BFLOAT16, ["n"])
    node = helper.make_node("Add", ["x", "x"], ["y"])
    graph = helper.make_graph([node], "tiny", [value], [result])
    return anydim.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))


def test_through_files(model, tmp_path) -> None:
    path = str(tmp_path / "x.npz")
    values = numpy.array([1, 0.5, numpy.nan, numpy.inf, -3], BFLOAT16)
    save({"x": values}, path)
    assert numpy.load(path)["x"].dtype == numpy.float32
    again = inputs_by_name(model, read([path]))["x"]
    assert again.dtype == BFLOAT16 and again.tobytes() == values.tobytes()
    made = model(x=again)["y"]
    assert made.astype(numpy.float32)[[0, 1, 4]].tolist() == [2, 1, -6]


def test_the_bytes_that_numpy_writes(model, tmp_path) -> None:
    path = tmp_path / "x.npy"
    numpy.save(path, numpy.array([2, 3], BFLOAT16))
    assert inputs_by_name(model, read([f"x={path}"]))["x"].tolist() == [2, 3]


def test_values_that_do_not_fit(model, tmp_path) -> None:
    path = tmp_path / "x.npy"
    numpy.save(path, numpy.array([0.1], numpy.float32))
    with pytest.raises(InputError, match="bfloat16, which does not hold all"):
        inputs_by_name(model, read([f"x={path}"]))

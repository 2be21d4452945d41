"""Promise: an ONNX file is outlined from its bytes: what it declares, for any kind of value."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import numpy
import onnx
import pytest
from onnx import helper, numpy_helper

import anydim as ad
from anydim.compiler.frontends.onnx.outline import Outline, outline

FLOAT = onnx.TensorProto.FLOAT
WEIGHTS = numpy.ones((3, 4), numpy.float32)


def proto() -> onnx.ModelProto:
    tensor = helper.make_tensor_type_proto(FLOAT, ["n", 4])
    inputs = [
        helper.make_tensor_value_info("x", FLOAT, ["p2o.D.0", 3, -1, "?"]),
        helper.make_tensor_value_info("words", onnx.TensorProto.STRING, ["words"]),
        helper.make_tensor_value_info("w", FLOAT, [3, 4]),
        helper.make_value_info("many", helper.make_sequence_type_proto(tensor)),
        helper.make_value_info("maybe", helper.make_optional_type_proto(tensor)),
        helper.make_tensor_value_info("scalar", onnx.TensorProto.INT64, []),
    ]
    outputs = [
        helper.make_tensor_value_info("y", FLOAT, ["a + b", None, 4]),
        helper.make_tensor_value_info("z", onnx.TensorProto.BFLOAT16, None),
        onnx.ValueInfoProto(name="untyped"),
    ]
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(WEIGHTS[0])),
        helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Relu", ["y"], ["z"]),
        helper.make_node("Gelu", ["y"], ["untyped"], domain="com.microsoft"),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "net", inputs, outputs, [numpy_helper.from_array(WEIGHTS, "w")]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=8, producer_name="tool", producer_version="1.2"
    )


def test_what_a_file_declares(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(proto().SerializeToString())
    found = ad.inspect(path)
    assert isinstance(found, Outline)
    assert str(found).splitlines() == [
        f"{path}: net, 4 nodes",
        "  dims      p2o.D.0=0.., x_2=0.., x_3=0.., words=0..",
        "  inputs    x: float32[p2o.D.0, 3, x_2, x_3]",
        "            words: string[words]",
        "            many: sequence of float32[n, 4]",
        "            maybe: optional of float32[n, 4]",
        "            scalar: int64[]",
        "  outputs   y: float32[a + b, ?, 4]",
        "            z: bfloat16[...]",
        "            untyped: nothing",
        f"  weights   {WEIGHTS.nbytes + WEIGHTS[0].nbytes} bytes in 2 constants",
        "  operators Relu 2, Constant 1, com.microsoft.Gelu 1",
        "  written   tool 1.2, opset 17, com.microsoft 1, IR 8",
    ]
    assert found.opsets == {"": 17, "com.microsoft": 1} and found.constants == 2


def test_it_takes_no_time_and_no_decoder() -> None:
    large = proto()
    large.graph.initializer.add().CopyFrom(
        numpy_helper.from_array(numpy.zeros(10_000_000, numpy.float32), "large")
    )
    data = large.SerializeToString()
    start = time.perf_counter()
    assert outline(data).weight_bytes > 40_000_000
    assert time.perf_counter() - start < 0.3


def test_what_is_no_model_is_an_error_and_never_another() -> None:
    data = proto().SerializeToString()
    whole = str(outline(data))
    for length in range(len(data)):
        with suppress(ad.ModelError):
            assert str(outline(data[:length])) != whole
    for noise in (b"", b"\0", b"\xff" * 40, b"PK\3\4", numpy.random.default_rng(0).bytes(500)):
        with pytest.raises(ad.ModelError):
            outline(noise)


def test_errors_of_paths(tmp_path: Path) -> None:
    with pytest.raises(ad.ModelError, match=r"none\.onnx: cannot be read: No such file"):
        ad.inspect(tmp_path / "none.onnx")
    with pytest.raises(ad.ArtefactError, match=r"none\.anydim cannot be read"):
        ad.inspect(tmp_path / "none.anydim")
    (tmp_path / "net.onnx").write_bytes(proto().SerializeToString())
    with pytest.raises(ad.OptionError, match="verify is for saved models"):
        ad.inspect(tmp_path / "net.onnx", verify=True)

"""Promise: two bidirectional LSTM layers over ragged rows agree with onnxruntime at every size."""

from __future__ import annotations

import numpy
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad

INPUT, HIDDEN = 7, 20  # no multiples of a vector


def weights(random: numpy.random.Generator, inputs: int) -> list[numpy.ndarray]:
    shapes = ((2, 4 * HIDDEN, inputs), (2, 4 * HIDDEN, HIDDEN), (2, 8 * HIDDEN))
    return [(random.standard_normal(shape) / 5).astype(numpy.float32) for shape in shapes]


def model():
    """x [T, B, 7] and lengths [B] -> y [T, B, 40] and the last states of the second layer."""
    random = numpy.random.default_rng(0)
    constants, nodes = [], []
    value = "x"
    for layer, inputs in enumerate((INPUT, 2 * HIDDEN)):
        names = [f"{name}{layer}" for name in "wrb"]
        constants += [
            numpy_helper.from_array(array, name)
            for name, array in zip(names, weights(random, inputs))
        ]
        nodes += [
            helper.make_node(
                "LSTM", [value, *names, "lengths"], [f"y{layer}", f"h{layer}", f"c{layer}"],
                hidden_size=HIDDEN, direction="bidirectional",
            ),
            helper.make_node("Transpose", [f"y{layer}"], [f"t{layer}"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [f"t{layer}", "shape"], [f"z{layer}"]),
        ]  # fmt: skip
        value = f"z{layer}"
    shape = numpy.array([0, 0, 2 * HIDDEN], numpy.int64)
    constants.append(numpy_helper.from_array(shape, "shape"))
    graph = helper.make_graph(
        nodes, "tagger",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", "B", INPUT]),
         helper.make_tensor_value_info("lengths", TensorProto.INT32, ["B"])],
        [helper.make_tensor_value_info("z1", TensorProto.FLOAT, ["T", "B", 2 * HIDDEN]),
         helper.make_tensor_value_info("h1", TensorProto.FLOAT, [2, "B", HIDDEN]),
         helper.make_tensor_value_info("c1", TensorProto.FLOAT, [2, "B", HIDDEN])],
        constants,
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made


@pytest.fixture(scope="module")
def pair():
    made = model()
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return ad.compile(made, dims={"T": ad.Dim(0, 64), "B": ad.Dim(0, 32)}), session


def test_ragged_rows_at_fifty_sizes(pair):
    compiled, session = pair
    random = numpy.random.default_rng(1)
    sizes = [(1, 1), (1, 5), (2, 1), (17, 3)]
    sizes += [tuple(random.integers(1, (33, 17))) for _ in range(46)]
    for time, batch in sizes:
        x = random.standard_normal((time, batch, INPUT)).astype(numpy.float32)
        lengths = random.integers(1, time + 1, batch).astype(numpy.int32)
        lengths[random.integers(batch)] = time
        got = compiled(x=x, lengths=lengths)
        expected = session.run(None, {"x": x, "lengths": lengths})
        for name, right in zip(("z1", "h1", "c1"), expected):
            # outputs are within +-1 and 64 float32 iterations apart at most
            numpy.testing.assert_allclose(got[name], right, rtol=0, atol=2e-5)


def test_no_turns_and_no_rows(pair):
    compiled, _ = pair
    x = numpy.ones((4, 3, INPUT), numpy.float32)
    empty = compiled(x=x[:0], lengths=numpy.zeros(3, numpy.int32))
    assert empty["z1"].shape == (0, 3, 2 * HIDDEN)
    assert not empty["h1"].any() and not empty["c1"].any()
    none = compiled(x=x[:, :0], lengths=numpy.zeros(0, numpy.int32))
    assert none["z1"].shape == (4, 0, 2 * HIDDEN)


def test_a_row_of_no_length_keeps_its_state(pair):
    compiled, _ = pair
    x = numpy.ones((4, 2, INPUT), numpy.float32)
    both = compiled(x=x, lengths=numpy.array([0, 4], numpy.int32))
    alone = compiled(x=x[:, 1:], lengths=numpy.array([4], numpy.int32))
    assert not both["z1"][:, 0].any() and not both["h1"][:, 0].any()
    numpy.testing.assert_allclose(both["z1"][:, 1:], alone["z1"], rtol=0, atol=2e-6)

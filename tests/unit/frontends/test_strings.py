"""Promise: operators on strings run on the host, around native code that serves every size."""

from __future__ import annotations

import numpy
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad

WORDS = ["no", "yes", "perhaps", "never"]
CLASSES = ["bad", "good", "neither"]
OPSETS = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 4)]


def model(nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(nodes, "m", inputs, outputs, list(constants))
    made = helper.make_model(graph, opset_imports=OPSETS)
    made.ir_version = 9
    return made


def classifier():
    """words [N, T] -> names of classes [N]: strings in, strings out, numbers between."""
    random = numpy.random.default_rng(0)
    table = random.standard_normal((5, 6)).astype(numpy.float32)
    weights = random.standard_normal((6, 3)).astype(numpy.float32)
    nodes = [
        helper.make_node("StringNormalizer", ["flat"], ["lower"], case_change_action="LOWER"),
        helper.make_node("LabelEncoder", ["lower"], ["ids"], domain="ai.onnx.ml",
                         keys_strings=WORDS, values_int64s=[0, 1, 2, 3], default_int64=4),
        helper.make_node("Gather", ["table", "ids"], ["e"]),
        helper.make_node("MatMul", ["e", "weights"], ["score"]),
        helper.make_node("ArgMax", ["score"], ["best"], axis=1, keepdims=0),
        helper.make_node("LabelEncoder", ["best"], ["name"], domain="ai.onnx.ml",
                         keys_int64s=[0, 1, 2], values_strings=CLASSES),
    ]  # fmt: skip
    made = model(
        nodes,
        [helper.make_tensor_value_info("flat", TensorProto.STRING, ["N"])],
        [helper.make_tensor_value_info("name", TensorProto.STRING, ["N"]),
         helper.make_tensor_value_info("score", TensorProto.FLOAT, ["N", 3])],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(weights, "weights")],
    )  # fmt: skip
    return made, table, weights


def test_words_become_numbers_and_numbers_names():
    made, table, weights = classifier()
    compiled = ad.compile(made)
    random = numpy.random.default_rng(1)
    for count in (1, 2, 7, 16, 33):
        words = random.choice([*WORDS, "Yes", "what"], count)
        got = compiled(flat=words)
        ids = [WORDS.index(w.lower()) if w.lower() in WORDS else 4 for w in words]
        score = table[ids] @ weights
        numpy.testing.assert_allclose(got["score"], score, rtol=1e-5, atol=1e-6)
        assert got["name"].tolist() == [CLASSES[place] for place in score.argmax(1)]
    assert compiled.core is not None and "N" not in compiled.parts.early.outputs
    assert len(compiled.program.text()) > 0


def test_a_model_of_strings_alone():
    made = model(
        [helper.make_node("StringConcat", ["a", "b"], ["c"])],
        [helper.make_tensor_value_info(name, TensorProto.STRING, ["N"]) for name in "ab"],
        [helper.make_tensor_value_info("c", TensorProto.STRING, ["N"])],
    )
    compiled = ad.compile(made)
    assert compiled(["x", "ä"], ["1", "2"])["c"].tolist() == ["x1", "ä2"]
    with pytest.raises(ad.OptionError, match="no native part"):
        compiled.plan()


def test_numbers_written_as_text():
    made = model(
        [helper.make_node("Add", ["x", "x"], ["y"]),
         helper.make_node("Cast", ["y"], ["text"], to=TensorProto.STRING)],
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["N"])],
        [helper.make_tensor_value_info("text", TensorProto.STRING, ["N"])],
    )  # fmt: skip
    assert ad.compile(made)(x=numpy.array([1, -20]))["text"].tolist() == ["2", "-40"]


def test_what_is_no_string_is_an_error():
    compiled = ad.compile(classifier()[0])
    with pytest.raises(ad.InputError, match="input 'flat' holds int64, expected strings"):
        compiled(flat=numpy.array([1, 2]))
    with pytest.raises(ad.InputError, match="needs input 'flat'"):
        compiled()
    with pytest.raises(ad.InputError, match="has no input 'words'"):
        compiled(flat=["no"], words=["no"])


def test_strings_between_numeric_parts_are_not_supported():
    made = model(
        [helper.make_node("Add", ["x", "x"], ["y"]),
         helper.make_node("Cast", ["y"], ["text"], to=TensorProto.STRING),
         helper.make_node("Cast", ["text"], ["z"], to=TensorProto.FLOAT),
         helper.make_node("Mul", ["z", "z"], ["w"], name="squares")],
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["N"])],
        [helper.make_tensor_value_info("w", TensorProto.FLOAT, ["N"])],
    )  # fmt: skip
    with pytest.raises(ad.ModelError, match=r"squares: Mul \(opset 20\): reads what operators"):
        ad.compile(made)


def test_operators_on_strings_that_the_opset_lacks_are_listed():
    made = model(
        [helper.make_node("StringSplit", ["s"], ["a", "n"], name="split"),
         helper.make_node("StringJoin", ["a"], ["b"], name="join")],
        [helper.make_tensor_value_info("s", TensorProto.STRING, ["N"])],
        [helper.make_tensor_value_info("b", TensorProto.STRING, ["N"])],
    )  # fmt: skip
    with pytest.raises(ad.ModelError, match=r"1 nodes .*\n  join: StringJoin \(opset 20\)"):
        ad.compile(made)

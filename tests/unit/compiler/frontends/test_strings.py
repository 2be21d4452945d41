"""Promise: operators on strings run on the host, around native code that serves every size."""

from __future__ import annotations

import numpy
import onnx
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
    assert "N" not in compiled.adapter.parts.early.outputs
    assert len(compiled.program.text()) > 0


def test_labels_as_they_were_first_written():
    """Classes instead of keys and values (opset 1), of any rank, nodes in any order."""
    made = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Gather", ["classes", "best"], ["names"]),
                helper.make_node("ArgMax", ["e"], ["best"], axis=2, keepdims=0),
                helper.make_node("Gather", ["table", "ids"], ["e"]),
                helper.make_node("LabelEncoder", ["words"], ["ids"], domain="ai.onnx.ml",
                                 classes_strings=WORDS, default_int64=1),
            ],
            "m",
            [helper.make_tensor_value_info("words", TensorProto.STRING, ["N", "T"])],
            [helper.make_tensor_value_info("names", TensorProto.STRING, ["N", "T"])],
            [numpy_helper.from_array(numpy.eye(4, dtype=numpy.float32)[[1, 0, 2, 2]], "table"),
             numpy_helper.from_array(numpy.array([*CLASSES, "none"], object), "classes")],
        ),
        opset_imports=[helper.make_opsetid("", 11), helper.make_opsetid("ai.onnx.ml", 1)],
    )  # fmt: skip
    compiled = ad.compile(made)
    for shape in ((2, 3), (0, 3), (1, 1), (5, 17)):
        words = numpy.random.default_rng(shape).choice([*WORDS, "what"], shape).astype(object)
        ids = [WORDS.index(word) if word in WORDS else 1 for word in words.reshape(-1)]
        expected = numpy.array(CLASSES, object)[numpy.array([1, 0, 2, 2])[ids]].reshape(shape)
        numpy.testing.assert_array_equal(compiled(words=words)["names"], expected, strict=True)


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
    with pytest.raises(ad.ModelError, match=r"1 node .*\n  join: StringJoin \(opset 20\)"):
        ad.compile(made)


# ---- maps --------------------------------------------------------------------------------------


def of_maps(operator, key, value, result, **given):
    """A model of one operator that reads a map and doubles what comes of it."""
    last = ["z"] if result != TensorProto.STRING else ["y"]
    nodes = [helper.make_node(operator, ["m"], ["y"], domain="ai.onnx.ml", **given)]
    if last == ["z"]:
        nodes.append(helper.make_node("Add", ["y", "y"], ["z"]))
    kind = helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, []))
    return model(nodes, [helper.make_value_info("m", kind)],
                 [helper.make_tensor_value_info(last[0], result, None)])  # fmt: skip


def test_maps_become_rows():
    words = ad.compile(of_maps("DictVectorizer", TensorProto.STRING, TensorProto.FLOAT,
                               TensorProto.FLOAT, string_vocabulary=["a", "b", "c"]))  # fmt: skip
    assert words(m={"c": 1.5, "a": 2.0, "?": 9.0})["z"].tolist() == [[4, 0, 3]]
    assert words(m=[{"b": 1.0}, {}])["z"].tolist() == [[0, 2, 0], [0, 0, 0]]
    with pytest.raises(ad.InputError, match="input 'm' is ndarray, expected a dict"):
        words(m=numpy.zeros(3))
    dense = ad.compile(of_maps("CastMap", TensorProto.INT64, TensorProto.FLOAT, TensorProto.INT64,
                               cast_to="TO_INT64"))  # fmt: skip
    assert dense(m={7: 2.5, 3: 1.0})["z"].tolist() == [[2, 4]]
    sparse = ad.compile(of_maps("CastMap", TensorProto.INT64, TensorProto.FLOAT, TensorProto.STRING,
                                cast_to="TO_STRING", map_form="SPARSE", max_map=3))  # fmt: skip
    assert sparse(m={1: 2.5, 5: 1.0})["y"].tolist() == [["", "2.5", ""]]


def test_classes_with_names_and_maps_of_them():
    """The names go with the numbers that native code gives; nothing else is on the host."""
    nodes = [
        helper.make_node("LinearClassifier", ["x"], ["name", "scores"], domain="ai.onnx.ml",
                         coefficients=[1.0, 0.0, 0.0, 1.0], intercepts=[0.0, 0.0],
                         classlabels_strings=["left", "right"]),
        helper.make_node("CategoryMapper", ["name"], ["side"], domain="ai.onnx.ml",
                         cats_strings=["left", "right"], cats_int64s=[-1, 1]),
        helper.make_node("ZipMap", ["scores"], ["map"], domain="ai.onnx.ml",
                         classlabels_strings=["left", "right"]),
    ]  # fmt: skip
    compiled = ad.compile(model(
        nodes, [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])],
        [helper.make_tensor_value_info("name", TensorProto.STRING, ["N"]),
         helper.make_tensor_value_info("side", TensorProto.INT64, ["N"]),
         onnx.ValueInfoProto(name="map")],
    ))  # fmt: skip
    got = compiled(x=numpy.array([[1, 2], [4, 3]], numpy.float32))
    assert got["name"].tolist() == ["right", "left"] and got["side"].tolist() == [1, -1]
    assert got["map"] == [{"left": 1.0, "right": 2.0}, {"left": 4.0, "right": 3.0}]
    none = compiled(x=numpy.zeros((0, 2), numpy.float32))
    assert none["map"] == [] and none["name"].shape == (0,)


def test_a_map_of_other_labels_is_an_error():
    made = ad.compile(model(
        [helper.make_node("ZipMap", ["x"], ["map"], domain="ai.onnx.ml",
                          classlabels_int64s=[3, 4, 5])],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "M"])],
        [onnx.ValueInfoProto(name="map")],
    ))  # fmt: skip
    assert made(x=numpy.ones((1, 3), numpy.float32))["map"] == [{3: 1.0, 4: 1.0, 5: 1.0}]
    with pytest.raises(ad.InputError, match="2 columns for 3 labels"):
        made(x=numpy.ones((1, 2), numpy.float32))


def test_words_are_counted_in_native_code():
    nodes = [
        helper.make_node("StringNormalizer", ["t"], ["lower"], case_change_action="LOWER",
                         stopwords=["no"]),
        helper.make_node("Tokenizer", ["lower"], ["tokens"], domain="com.microsoft", mark=0,
                         mincharnum=2, pad_value="#", tokenexp="[a-z]+"),
        helper.make_node("TfIdfVectorizer", ["tokens"], ["counts"], mode="TF", min_gram_length=1,
                         max_gram_length=1, max_skip_count=0, ngram_counts=[0],
                         ngram_indexes=[0, 1], pool_strings=["good", "bad"]),
    ]  # fmt: skip
    texts = helper.make_tensor_value_info("t", TensorProto.STRING, ["N"])
    made = model(nodes, [texts], [onnx.ValueInfoProto(name="counts")])
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    compiled = ad.compile(made)
    assert compiled(t=["Good good a", "NO", "bad or good!"])["counts"].tolist() == [[2, 0], [1, 1]]
    assert [spec.dtype.name for spec in compiled.bare.inputs] == ["int64"]

"""The sentence encoder imports with both dims free, without a node for shape arithmetic, and its
graph means what onnxruntime computes."""

from __future__ import annotations

import numpy as np
import pytest
from test_minilm_model import feeds, session

from anydim.compiler.frontends.onnx import import_model
from anydim.compiler.frontends.onnx.file.wire import without_weights
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.reader import read_graph
from anydim.compiler.graph.text import print_graph
from anydim.compiler.graph.verify import verify
from anydim.sizes import Dim
from examples.minilm import model as minilm

DIMS = {"batch": Dim(0, 64), "seq": Dim(1, 512)}


@pytest.fixture(scope="module")
def small():
    proto = minilm.build_model(minilm.SMALL, minilm.random_weights(minilm.SMALL))
    seq = Dim(1, minilm.SMALL.positions)
    return import_model(proto, {"batch": Dim(0, 64), "seq": seq}), session(proto)


def test_sizes_are_symbols_and_shape_arithmetic_is_gone(small):
    graph, _ = small
    verify(graph)
    hidden, sentence = (str(graph.types[name]) for name in graph.outputs)
    assert hidden.startswith("float32[batch, seq, ") and sentence.startswith("float32[batch, ")
    operators = {node.operator for node in graph.nodes}
    assert not operators & {"size_tensor", "concat", "where", "range", "fill"}
    assert all(node.source.split(": ")[1].startswith("/") for node in graph.nodes)


def test_text_reads_back(small):
    graph, _ = small
    assert read_graph(print_graph(graph), graph.constants) == graph


@pytest.mark.parametrize(("batch", "seq"), [(0, 1), (0, 7), (1, 1), (2, 15), (3, 16), (1, 17)])
def test_graph_means_what_onnxruntime_computes(small, batch, seq):
    graph, engine = small
    inputs = feeds(batch, seq, minilm.SMALL.vocabulary)
    for got, expected in zip(evaluate(graph, inputs).values(), engine.run(None, inputs)):
        assert got.shape == expected.shape and got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, atol=2e-5)


def test_weights_of_the_file_stay_out_of_the_decoder():
    path = minilm.model_path()
    data = memoryview(path.read_bytes())
    rest, places = without_weights(data)
    assert len(rest) < 1 << 20 and sum(map(len, places.values())) > len(data) * 0.98
    by_path, by_bytes = import_model(path, DIMS), import_model(data, DIMS)
    assert by_path.nodes[0].source.startswith(path.name)
    assert by_path.constants.keys() == by_bytes.constants.keys()
    for name, constant in by_path.constants.items():
        assert constant.array.flags.aligned and not constant.array.flags.writeable
        np.testing.assert_array_equal(constant.array, by_bytes.constants[name].array)

"""Promise: a pickled model is made again, wherever it is unpickled; a notebook shows a table."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import numpy
import onnx
import pytest
from onnx import TensorProto, helper

import anydim as ad
from tests.unit.cli import tiny

X = numpy.arange(6, dtype=numpy.float32).reshape(3, 2)
TEXT = "def scaled(T(N) x; float by = 2.0) -> (y) { y(i) = x(i) * by }"


def sent(model):
    return pickle.loads(pickle.dumps(model))


def weights() -> ad.Builder:
    graph = ad.Builder("weights")
    x = graph.input("x", ad.float32, (graph.dim("n", 0, 99), 2))
    held = graph.constant(numpy.array([[1, 2, 3], [4, 5, 6]], numpy.float32))
    graph.output("y", graph.softmax(graph.matmul(x, held), axis=-1))
    return graph


def test_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.write(tmp_path / "tiny.onnx")
    monkeypatch.chdir(tmp_path)
    model = ad.compile("tiny.onnx", {"n": (0, 50)}, threads=2, precision="fast")
    monkeypatch.chdir("/")
    again = sent(model)
    assert again.dims == model.dims and again.executable.threads == 2
    feeds = tiny.feeds(7)
    numpy.testing.assert_array_equal(again(**feeds)["y"], model(**feeds)["y"])


@pytest.mark.parametrize("form", ["builder", "graph", "bytes", "proto"])
def test_by_what_was_read(form: str, tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "tiny.onnx")
    sources = {
        "builder": weights, "graph": lambda: weights().graph(),
        "bytes": path.read_bytes, "proto": lambda: onnx.load(str(path)),
    }  # fmt: skip
    dims = None if form in ("builder", "graph") else {"n": (0, 60)}
    model = ad.compile(sources[form](), dims)
    path.unlink()
    again = sent(model)
    assert again.dims == model.dims
    feeds = {"x": X} if dims is None else tiny.feeds(5)
    for name, array in model(**feeds).items():
        numpy.testing.assert_array_equal(again(**feeds)[name], array)


def test_texts_and_definitions(tmp_path: Path) -> None:
    (tmp_path / "scaled.tc").write_text(TEXT, "utf-8")
    model = ad.compile(f"{tmp_path}/scaled.tc:scaled")
    assert sent(model)(X[0])["y"].tolist() == [0, 2]
    assert sent(ad.define(TEXT).scaled.model(X[0]))(X[0])["y"].tolist() == [0, 2]


def test_what_was_set_since_goes_along() -> None:
    model = ad.compile(weights(), arenas=2, wait=0.5)
    model.set_sizes(n=3)
    model.limit_time(2.5)
    model.limit_memory(ad.MemoryLimit("1 MiB", per_call=True))
    again = sent(model)
    assert (again.executable.timeout, again.memory_limit) == (2.5, 1 << 20)
    with pytest.raises(ad.DimError):
        again(X[:2])
    assert again(X)["y"].shape == (3, 3)


def test_dims_that_grow() -> None:
    graph = ad.Builder("grown")
    x = graph.input("x", ad.float32, (graph.dim("n"),))
    graph.output("y", graph.neg(x))
    again = sent(ad.compile(graph, {"n": (0, 4)}, on_overflow="grow"))
    with pytest.warns(UserWarning, match="n"):
        assert again(numpy.ones(9, numpy.float32))["y"].shape == (9,)


def test_saved_models(tmp_path: Path) -> None:
    ad.compile(weights()).save(tmp_path / "weights.anydim")
    model = ad.load(tmp_path / "weights.anydim", memory_limit="1 MiB")
    again = sent(model)
    assert again.memory_limit == model.memory_limit
    numpy.testing.assert_array_equal(again(X)["y"], model(X)["y"])


def test_models_with_strings() -> None:
    value = helper.make_tensor_value_info
    node = helper.make_node("Identity", ["text"], ["same"])
    graph = helper.make_graph(
        [node], "strings", [value("text", TensorProto.STRING, ["n"])],
        [value("same", TensorProto.STRING, ["n"])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18)]
    model = ad.compile(helper.make_model(graph, opset_imports=opsets, ir_version=9))
    assert sent(model)(numpy.array(["a", "b"]))["same"].tolist() == ["a", "b"]
    assert model._repr_html_() is None


def test_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "model.pickle").write_bytes(pickle.dumps(ad.compile(weights())))
    script = (
        "import numpy, pickle, sys; model = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(model(numpy.zeros((1, 2), numpy.float32))['y'].sum())"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "model.pickle")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(1, abs=1e-6)


def test_copies_are_models_of_their_own() -> None:
    model = ad.compile(weights())
    for other in (copy.copy(model), copy.deepcopy(model)):
        assert other is not model
        numpy.testing.assert_array_equal(other(X)["y"], model(X)["y"])


def test_a_table_for_notebooks(tmp_path: Path) -> None:
    graph = ad.Builder("<script>")
    x = graph.input("<b>", ad.float32, (graph.dim("n", 0, 99), 2))
    graph.output("y", graph.neg(x))
    model = ad.compile(graph)
    text = model._repr_html_()
    assert "<script>" not in text and "&lt;script&gt;" in text
    for part in ("&lt;b&gt;: float32[n, 2]", "0..99", "memory", "1 launch of 1 kernel"):
        assert part in text, part
    model.save(tmp_path / "saved.anydim")
    assert ad.load(tmp_path / "saved.anydim")._repr_html_() == text

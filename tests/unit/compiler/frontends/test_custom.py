"""Promise: a definition is an operator of a model, a node of a builder, and a model of its own."""

from __future__ import annotations

from pathlib import Path

import numpy
import onnx
import pytest
from onnx import TensorProto, helper

import anydim as ad

GATES = """# domain: my.ops
def gate(T(...s) x, T(...s) y; float slope = 0.5, int power = 1) -> (z) {
  z(...s) = x(...s) > 0 ? x(...s) * y(...s) : slope * y(...s)
}
def running_sum(float(T,C) x) -> (y, last) {
  for t in 0:T { y(t,c) = x(t,c) + (y(t-1,c) else 0) }
  last(c) = y(T - 1, c) else 0 where c in 0:C
}
def rows(float(N,C) x, int64(M) at) -> (y) { y(m,c) = x(at(m),c) }
"""


def draw(*shape: int, seed: int = 0) -> numpy.ndarray:
    return numpy.random.default_rng((seed, *shape)).standard_normal(shape, numpy.float32)


def gated(x: numpy.ndarray, y: numpy.ndarray, slope: float = 0.5) -> numpy.ndarray:
    return numpy.where(x > 0, x * y, numpy.float32(slope) * y)


def model(nodes: list[onnx.NodeProto], outputs: dict[str, list], **inputs: list) -> bytes:
    def values(named: dict[str, list]) -> list[onnx.ValueInfoProto]:
        kinds = {"at": TensorProto.INT64}
        return [
            helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape)
            for name, shape in named.items()
        ]

    graph = helper.make_graph(nodes, "custom", values(inputs), values(outputs))
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("my.ops", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def node(name: str, inputs: list[str], outputs: list[str], **attributes: object) -> onnx.NodeProto:
    return helper.make_node(name, inputs, outputs, domain="my.ops", **attributes)


GATED = model(
    [helper.make_node("Relu", ["x"], ["r"]), node("Gate", ["r", "y"], ["g"], slope=2.0),
     helper.make_node("Add", ["g", "x"], ["z"])],
    {"z": ["n", 4]}, x=["n", 4], y=["n", 4],
)  # fmt: skip


# ---- operators of models -----------------------------------------------------------------------


@pytest.mark.parametrize("way", ("path", "list", "mapping of text", "mapping of path", "function"))
def test_a_definition_implements_an_operator(way: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.tc"
    path.write_text(GATES, "utf-8")
    operators = {
        "path": path,
        "list": [str(path)],
        "mapping of text": {"my.ops": GATES},
        "mapping of path": {"my.ops": str(path)},
        "function": {("my.ops", "Gate"): ad.define(GATES).gate},
    }[way]
    made = ad.compile(GATED, {"n": ad.Dim(0, 64)}, operators=operators)
    for n in (0, 1, 7, 64):
        x, y = draw(n, 4), draw(n, 4, seed=1)
        wanted = gated(numpy.maximum(x, 0), y, 2.0) + x
        numpy.testing.assert_allclose(made(x, y)["z"], wanted, rtol=1e-6)
    assert made.check(samples=10).ok


def test_it_fuses_with_what_is_around_it() -> None:
    made = ad.compile(GATED, operators={"my.ops": GATES})
    assert len(made.program.sites) == 1


def test_ordered_definitions_and_several_results() -> None:
    proto = model(
        [node("RunningSum", ["x"], ["y", "last"]), helper.make_node("Neg", ["y"], ["z"])],
        {"z": ["t", "c"], "last": ["c"]}, x=["t", "c"],
    )  # fmt: skip
    made = ad.compile(proto, operators={"my.ops": GATES})
    for shape in ((0, 3), (1, 1), (9, 17)):
        x = draw(*shape)
        found = made(x)
        numpy.testing.assert_allclose(found["z"], -numpy.cumsum(x, 0), rtol=1e-4, atol=1e-5)
        wanted = x.sum(0) if len(x) else numpy.zeros(shape[1])
        numpy.testing.assert_allclose(found["last"], wanted, rtol=1e-4, atol=1e-5)


def test_an_index_outside_names_the_node() -> None:
    proto = model([node("rows", ["x", "at"], ["y"])], {"y": ["m", "c"]}, x=["n", "c"], at=["m"])
    made = ad.compile(proto, operators={"my.ops": GATES})
    x = draw(3, 4)
    assert (made(x, numpy.array([2, 0]))["y"] == x[[2, 0]]).all()
    with pytest.raises(ad.InputError, match="3"):
        made(x, numpy.array([3]))


@pytest.mark.parametrize(
    ("proto", "words"),
    [
        (model([node("Other", ["x"], ["y"])], {"y": ["n"]}, x=["n"]), "domain 'my.ops'"),
        (model([node("Gate", ["x"], ["z"])], {"z": ["n"]}, x=["n"]), "2 parameters|takes 'x', 'y'"),
        (model([node("Gate", ["x", "x"], ["z"], slant=1.0)], {"z": ["n"]}, x=["n"]), "slant"),
        (model([node("Gate", ["x", "x"], ["z", "w"])], {"z": ["n"]}, x=["n"]), "has fewer"),
        (model([node("Gate", ["x", ""], ["z"])], {"z": ["n"]}, x=["n"]), "missing"),
    ],
)
def test_a_node_that_does_not_fit(proto: bytes, words: str) -> None:
    with pytest.raises(ad.ModelError, match=words):
        ad.compile(proto, operators={"my.ops": GATES})


@pytest.mark.parametrize(
    ("operators", "words"),
    [
        ("nowhere.tc", "cannot read 'nowhere.tc'"),
        (7, "operators is 7"),
        ({"my.ops": 3}, "give a path or a text"),
        ({("my.ops", "Gate"): "gate"}, "is no definition"),
    ],
)
def test_operators_that_cannot_be_used(operators: object, words: str) -> None:
    with pytest.raises(ad.OptionError, match=words):
        ad.compile(GATED, operators=operators)


def test_a_file_without_a_domain(tmp_path: Path) -> None:
    path = tmp_path / "mine.tc"
    path.write_text(GATES.replace("# domain: my.ops\n", ""), "utf-8")
    with pytest.raises(ad.OptionError, match="declares no domain"):
        ad.compile(GATED, operators=path)


# ---- nodes of a builder ------------------------------------------------------------------------


def test_a_definition_in_a_builder() -> None:
    library = ad.define(GATES)
    graph = ad.Builder("mixed")
    n, c = graph.dim("n", 0, 50), graph.dim("c", 0, 20)
    x, y = (graph.input(name, ad.float32, (n, c)) for name in "xy")
    total, last = library.running_sum(graph.call(library.gate, x, y * 2, slope=0.25))
    graph.output("total", total)
    graph.output("last", last)
    graph.output("twice", library.gate(x, x))
    made = ad.compile(graph)
    for shape in ((0, 3), (1, 1), (9, 17)):
        a, b = draw(*shape), draw(*shape, seed=1)
        found = made(a, b)
        wanted = numpy.cumsum(gated(a, b * 2, 0.25), 0)
        numpy.testing.assert_allclose(found["total"], wanted, rtol=1e-4, atol=1e-4)
        numpy.testing.assert_allclose(found["twice"], gated(a, a), rtol=1e-6)
    assert made.check(samples=10).ok


def test_a_definition_that_does_not_fit_a_builder() -> None:
    library = ad.define(GATES)
    graph = ad.Builder("mixed")
    x = graph.input("x", ad.float32, (graph.dim("n"),))
    with pytest.raises(ad.GraphError, match=r"'mixed'.*running_sum"):
        library.running_sum(x)
    with pytest.raises(ad.GraphError, match="takes 'x', 'y'"):
        graph.call(library.gate, x)
    with pytest.raises(ad.GraphError, match="takes a definition, not str"):
        graph.call("gate", x)


# ---- models of their own -----------------------------------------------------------------------


def test_a_file_is_compiled_like_a_model(tmp_path: Path) -> None:
    path = tmp_path / "mine.tc"
    path.write_text(GATES, "utf-8")
    made = ad.compile(f"{path}:running_sum", {"T": ad.Dim(0, 9)})
    assert str(made.dims) == "C=0.., T=0..9"
    assert made.check(samples=10).ok
    x = draw(4, 5)
    numpy.testing.assert_allclose(made(x)["y"], numpy.cumsum(x, 0), rtol=1e-5, atol=1e-5)
    assert "y(t - 1, c) is read 1 iteration after" in made.explain(details=True)


def test_options_in_a_file_hold(tmp_path: Path) -> None:
    path = tmp_path / "mine.tc"
    path.write_text(
        "# option f.y: pointwise(unroll=1)\n# option g.y: pointwise(unroll=2)\n"
        "def f(float(N) x) -> (y) { y(i) = x(i) + 1 }\n"
        "def g(float(N) x) -> (y) { y(i) = x(i) + 2 }\n",
        "utf-8",
    )
    assert "unroll=1" in ad.compile(f"{path}:f").program.sites[0].schedule
    assert "unroll=2" in ad.compile(f"{path}:g").program.sites[0].schedule


@pytest.mark.parametrize(
    ("name", "words"),
    [("", "3 definitions: which"), (":gat", "did you mean 'gate'"), (":q", "no definition 'q'")],
)
def test_a_name_that_is_not_there(name: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.tc"
    path.write_text(GATES, "utf-8")
    with pytest.raises(ad.OptionError, match=words):
        ad.compile(f"{path}{name}")
    with pytest.raises(ad.OptionError, match="has no dim 'Q'"):
        ad.compile(f"{path}:rows", {"Q": ad.Dim(0, 3)})
    with pytest.raises(ad.OptionError, match="cannot read"):
        ad.compile(f"{path}x.tc:rows")

"""Promise: with fallback="onnxruntime", nodes that cannot be imported run there, at every size,
wherever they stand; `explain` names them, and saved models keep them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import ModelProto, TensorProto, helper

import anydim as ad
from anydim.base import peer
from anydim.base.errors import DeviceError, InputError, MissingError, ModelError, OptionError
from anydim.cli.app import main
from anydim.compiler.frontends.onnx.importer import import_model
from anydim.compiler.graph.reader import read_graph
from anydim.compiler.graph.text import constants_of, print_graph
from anydim.runtime.devices.engines import table

onnxruntime = pytest.importorskip("onnxruntime")
MICROSOFT = "com.microsoft"
SIZES = (3, 0, 1, 7, 16, 2, 0, 33)


def value(name: str, kind: int = TensorProto.FLOAT, shape: Sequence[Any] | None = None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(
    nodes: Iterable[Any], inputs: Iterable[Any], outputs: Iterable[Any], opset: int = 21,
    functions: Sequence[Any] = (), domains: Sequence[str] = (MICROSOFT,),
) -> ModelProto:  # fmt: skip
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)


def hashed() -> ModelProto:
    """An operator of onnxruntime that is element work, between two of ours."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["h"]),
        helper.make_node("MurmurHash3", ["h"], ["q"], domain=MICROSOFT, positive=0),
        helper.make_node("Neg", ["q"], ["y"]),
    ]
    whole = TensorProto.INT32
    return model_of(nodes, [value("x", whole, ["n", 3])], [value("y", whole)])


def warped() -> ModelProto:
    """Its result has as many columns as data say."""
    nodes = [
        helper.make_node("Abs", ["x"], ["h"]),
        helper.make_node("DynamicTimeWarping", ["h"], ["q"], domain=MICROSOFT),
        helper.make_node("Add", ["q", "q"], ["y"]),
        helper.make_node("ReduceSum", ["y"], ["s"], keepdims=0),
    ]
    outputs = [value("y", TensorProto.INT32), value("s", TensorProto.INT32)]
    return model_of(nodes, [value("x", shape=["n", "m"])], outputs)


def integers(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(-99, 99, (n, 3)).astype(np.int32)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


class Both:
    """A model here and in onnxruntime."""

    def __init__(self, proto: ModelProto, model: Any = None) -> None:
        self.model = model or ad.compile(proto, fallback="onnxruntime")
        providers = ["CPUExecutionProvider"]
        self.peer = onnxruntime.InferenceSession(proto.SerializeToString(), providers=providers)

    def same(self, **given: np.ndarray) -> None:
        names = [output.name for output in self.peer.get_outputs()]
        right, made = self.peer.run(names, given), self.model(**given)
        for name, expected in zip(names, right):
            assert made[name].dtype == expected.dtype and made[name].shape == expected.shape
            np.testing.assert_allclose(made[name], expected, rtol=1e-6, atol=1e-6)


def test_an_operator_that_anydim_has_not() -> None:
    both = Both(hashed())
    for n in SIZES:
        both.same(x=integers(n))
    told = both.model.explain(details=True)
    assert "q (com.microsoft.MurmurHash3) runs in onnxruntime: no operator of domain" in told
    assert "1 part on onnxruntime, whose own memory is not counted" in told
    assert both.model.check(20).ok
    (shape,) = {str(output.shape) for output in both.model.outputs}
    assert "n" in shape  # sizes that are those of inputs stay these


def test_a_result_whose_size_data_decide() -> None:
    both = Both(warped())
    for n, m in ((4, 5), (1, 1), (2, 9), (1, 6), (17, 3), (4, 5)):
        both.same(x=floats(n, m))
    with pytest.raises(InputError, match="and one is empty at n = 0, m = 4"):
        both.model(x=floats(0, 4))
    both.same(x=floats(3, 3))
    assert both.model.executable.leaked == 0


def test_a_form_that_anydim_refuses() -> None:
    node = helper.make_node(
        "RoiAlign", ["h", "r", "b"], ["q"], output_height=2, output_width=2, sampling_ratio=0
    )
    nodes = [helper.make_node("Relu", ["x"], ["h"]), node, helper.make_node("Exp", ["q"], ["y"])]
    inputs = [value("x", shape=["n", 1, 8, 8]), value("r", shape=["k", 4]),
              value("b", TensorProto.INT64, ["k"])]  # fmt: skip
    proto = model_of(nodes, inputs, [value("y")])
    with pytest.raises(ModelError, match="fallback='onnxruntime' lets onnxruntime run them"):
        ad.compile(proto)
    both = Both(proto)
    for k in (3, 0, 1, 5):
        boxes = np.abs(floats(k, 4)).cumsum(1).astype(np.float32)
        both.same(x=floats(2, 1, 8, 8), r=boxes, b=np.arange(k) % 2)
    assert both.model.check(10).ok


def looped() -> ModelProto:
    """In the body of a loop, with a value from outside; and in a branch."""
    whole = TensorProto.INT32
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "x"], ["t"]),
            helper.make_node("MurmurHash3", ["t"], ["h"], domain=MICROSOFT, positive=0),
            helper.make_node("Identity", ["going"], ["still"]),
            helper.make_node("ReduceMax", ["h"], ["most"], keepdims=0),
        ],
        "body",
        [value("i", TensorProto.INT64, []), value("going", TensorProto.BOOL, []),
         value("state", whole, ["n", 3])],
        [value("still", TensorProto.BOOL, []), value("h", whole, ["n", 3]),
         value("most", whole, [])],
    )  # fmt: skip
    then, other = (
        helper.make_graph([helper.make_node(op, ["end"], [name], **more)], name, [], [value(name)])
        for op, name, more in (
            ("MurmurHash3", "a", {"domain": MICROSOFT, "positive": 0}), ("Neg", "b", {}),
        )
    )  # fmt: skip
    for graph in (then, other):
        graph.output[0].type.tensor_type.elem_type = whole
    nodes = [
        helper.make_node("Loop", ["trips", "", "x"], ["end", "tops"], body=body),
        helper.make_node("If", ["flag"], ["y"], then_branch=then, else_branch=other),
    ]
    inputs = [value("x", whole, ["n", 3]), value("trips", TensorProto.INT64, []),
              value("flag", TensorProto.BOOL, [])]  # fmt: skip
    return model_of(nodes, inputs, [value("y", whole), value("tops", whole)])


def test_in_loops_and_branches() -> None:
    both = Both(looped())
    for n, trips, flag in ((3, 4, True), (1, 0, False), (5, 1, True), (2, 7, False)):
        both.same(x=integers(n), trips=np.array(trips), flag=np.array(flag))


def test_in_a_function_of_the_model() -> None:
    function = helper.make_function(
        "own", "twice", ["a"], ["b"],
        [helper.make_node("MurmurHash3", ["a"], ["m"], domain=MICROSOFT, positive=1),
         helper.make_node("Add", ["m", "m"], ["b"])],
        [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)],
    )  # fmt: skip
    node = helper.make_node("twice", ["x"], ["y"], domain="own")
    inputs = [value("x", TensorProto.INT32, ["n", 3])]
    domains = (MICROSOFT, "own")
    proto = model_of([node], inputs, [value("y", TensorProto.UINT32)], 21, [function], domains)
    both = Both(proto)
    for n in SIZES:
        both.same(x=integers(n))


def test_a_saved_model_keeps_the_part(tmp_path: Path) -> None:
    for number, proto in enumerate((hashed(), warped())):
        path = tmp_path / f"{number}.anydim"
        ad.compile(proto, fallback="onnxruntime").save(path)
        both = Both(proto, ad.load(path))
        for n in (3, 1, 8):
            both.same(x=floats(n, 4) if number else integers(n))


def test_threads_share_a_model() -> None:
    model = ad.compile(warped(), fallback="onnxruntime")
    alone = {n: model(x=floats(n, 4))["s"] for n in range(1, 9)}
    wrong: list[Any] = []

    def calls(n: int) -> None:
        for _ in range(20):
            if model(x=floats(n, 4))["s"] != alone[n]:
                wrong.append(n)

    threads = [threading.Thread(target=calls, args=(n,)) for n in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_text_of_a_graph_is_read_back() -> None:
    graph = import_model(warped(), fallback=True)
    assert read_graph(print_graph(graph), constants_of(graph)) == graph


def reshaped() -> ModelProto:
    """The number of elements of an input is the number of axes of the result."""
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    return model_of(nodes, [value("x", shape=["n"]), value("s", TensorProto.INT64, ["k"])],
                    [value("y")])  # fmt: skip


def test_ranks_that_sizes_decide_are_refused() -> None:
    with pytest.raises(ModelError, match="sizes decide how many axes its results have"):
        ad.compile(reshaped(), fallback="onnxruntime")
    model = ad.compile(reshaped(), dims={"k": 3}, fallback="onnxruntime")
    assert model(x=floats(24), s=np.array([2, 3, 4]))["y"].shape == (2, 3, 4)


def test_what_onnxruntime_has_not_either() -> None:
    nodes = [helper.make_node("Guess", ["x"], ["y"], domain="no.such")]
    proto = model_of(nodes, [value("x", shape=["n"])], [value("y")], domains=("no.such",))
    with pytest.raises(ModelError, match=r"nor by onnxruntime: .*no.such:Guess.*not a registered"):
        ad.compile(proto, fallback="onnxruntime")


def test_errors_of_a_call_name_the_node() -> None:
    nodes = [helper.make_node("DynamicTimeWarping", ["x"], ["y"], domain=MICROSOFT)]
    proto = model_of(nodes, [value("x", shape=[1, "k", "n", "m"])], [value("y", TensorProto.INT32)])
    model = ad.compile(proto, fallback="onnxruntime")
    with pytest.raises(DeviceError, match="g: y: engine 'onnxruntime': run failed"):
        model(x=floats(1, 2, 3, 4))


def test_it_has_to_be_allowed_and_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="fallback is 'openvino'"):
        ad.compile(hashed(), fallback="openvino")

    def absent() -> Any:
        raise MissingError("onnxruntime is not installed", "pip install anydim[onnxruntime]")

    table._open_engine.cache_clear()
    monkeypatch.setattr("anydim.runtime.devices.engines.onnxruntime.peer_module", absent)
    with pytest.raises(MissingError, match=r"pip install anydim\[onnxruntime\]"):
        ad.compile(hashed(), fallback="onnxruntime")
    assert peer.NAME == "onnxruntime"


def test_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "hashed.onnx"
    path.write_bytes(hashed().SerializeToString())
    told = CliRunner().invoke(main, ["explain", str(path), "--fallback", "onnxruntime", "-q"])
    assert "runs in onnxruntime" in told.output, told.output

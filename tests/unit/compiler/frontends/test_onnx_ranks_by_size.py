"""Promise: results whose rank depends on sizes (a Squeeze without axes) are right at every size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import anydim as ad
import anydim.ort as ort
from anydim.compiler.frontends.onnx.graphs import functions

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
SIZES = ((2, 3), (1, 3), (2, 1), (1, 1), (0, 3), (1, 0), (5, 7))


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **more: Any) -> Any:
    return helper.make_node(operator, inputs, outputs, **more)


def model(
    nodes: Sequence[Any], results: Sequence[str], shape: Sequence[Any] = ("a", "b"),
    opset: int = 17, more: Sequence[Any] = (), functions: Sequence[Any] = (), **constants: Any,
) -> onnx.ModelProto:  # fmt: skip
    """A model of x, a float32 tensor of this shape."""
    x = helper.make_tensor_value_info("x", FLOAT, shape)
    graph = helper.make_graph(
        nodes, "squeezed", [x, *more], [onnx.ValueInfoProto(name=name) for name in results],
        [numpy_helper.from_array(numpy.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    for value in graph.output:
        value.type.tensor_type.elem_type = FLOAT
    opsets = [helper.make_opsetid("", opset), *[helper.make_opsetid("own", 1) for _ in functions]]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)


def body(
    nodes: Sequence[Any], results: Sequence[str], inputs: Sequence[Any] = ()
) -> onnx.GraphProto:
    made = [onnx.ValueInfoProto(name=name) for name in results]
    return helper.make_graph(nodes, "body", inputs, made)


def agrees(made: Any, source: onnx.ModelProto, given: Sequence[dict[str, Any]]) -> None:
    """Whether a compiled model has the shapes and numbers of the reference for each call."""
    reference = ReferenceEvaluator(source)
    for feeds in given:
        results = made(**feeds)
        for value, right in zip(source.graph.output, reference.run(None, feeds)):
            assert results[value.name].shape == right.shape, (value.name, feeds["x"].shape)
            # float32 sums of at most some dozen terms, in another order
            numpy.testing.assert_allclose(results[value.name], right, rtol=1e-5, atol=1e-6)


def floats(*shape: int) -> numpy.ndarray:
    return numpy.random.default_rng(sum(shape)).standard_normal(shape).astype(numpy.float32)


def xs(sizes: Sequence[tuple[int, ...]] = SIZES) -> list[dict[str, Any]]:
    return [{"x": floats(*shape)} for shape in sizes]


SQUEEZE = node("Squeeze", ["x"], ["s"])
TAILS: dict[str, tuple[list[Any], tuple[str, ...]]] = {
    "itself": ([], ("s",)),
    "elements": ([node("Relu", ["s"], ["r"]), node("Exp", ["r"], ["y"])], ("y", "r")),
    "a sum": ([node("ReduceSum", ["s"], ["y"], keepdims=0)], ("y",)),
    "its size": ([node("Size", ["s"], ["y"])], ("y",)),
    "its shape": ([node("Shape", ["s"], ["y"])], ("y", "s")),
    "flattened": ([node("Reshape", ["s", "all"], ["y"])], ("y",)),
    "by its shape": (
        [
            node("Shape", ["s"], ["h"]), node("Concat", ["h", "ones"], ["h1"], axis=0),
            node("Expand", ["one", "h1"], ["y"]),
        ],
        ("y",),
    ),
    "with another": (
        [
            node("Neg", ["x"], ["n"]), node("Squeeze", ["n"], ["t"]),
            node("Add", ["s", "t"], ["u"]), node("Flatten", ["u"], ["y"], axis=0),
        ],
        ("y",),
    ),
}  # fmt: skip
CONSTANTS = {"all": [-1], "ones": [1], "one": numpy.ones(1, numpy.float32)}


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("tail", TAILS)
def test_every_size_has_its_rank(tail: str, opset: int) -> None:
    nodes, results = TAILS[tail]
    source = model([SQUEEZE, *nodes], results, opset=opset, **CONSTANTS)
    agrees(ad.compile(source), source, xs())


def test_of_some_axes() -> None:
    source = model([SQUEEZE, node("Exp", ["s"], ["y"])], ["y"], ("batch", 1, "t"))
    agrees(ad.compile(source), source, xs(((2, 1, 5), (1, 1, 5), (1, 1, 1), (0, 1, 2), (3, 1, 1))))
    assert ad.compile(source, dims={"batch": 1, "t": (2, 9)}).lists == {}


def test_files_sessions_and_graphs_as_text(tmp_path: Path) -> None:
    nodes = [SQUEEZE, node("Exp", ["s"], ["y"]), node("Neg", ["x"], ["z"])]
    source = model(nodes, ["y", "z"])
    made = ad.compile(source)
    made.save(tmp_path / "model.anydim")
    loaded = ad.load(tmp_path / "model.anydim")
    agrees(loaded, source, xs())
    session = ort.InferenceSession(source.SerializeToString())
    assert [output.type for output in session.get_outputs()] == ["tensor(float)"] * 2
    for feeds in xs():
        y, z = session.run(None, feeds)
        assert (y.shape, z.shape) == (feeds["x"].squeeze().shape, feeds["x"].shape)
    assert "single y = y.elements, y.shapes" in made.report.stages["import"]()
    assert made.check(5).ok
    with pytest.raises(
        ad.OptionError, match=r"results whose rank depends on the sizes of a call \('y'\)"
    ):
        made(**xs()[0], out={"z": numpy.empty((2, 3), numpy.float32)})


def test_one_dim_of_two_tensors_is_one_choice() -> None:
    z = helper.make_tensor_value_info("z", FLOAT, ["batch", 4, 1])
    nodes = [SQUEEZE, node("Squeeze", ["z"], ["t"]), node("Add", ["s", "t"], ["y"])]
    source = model(nodes, ["y"], ("batch", 1, 4), more=[z])
    made = ad.compile(source)
    agrees(made, source, [{"x": floats(n, 1, 4), "z": floats(n, 4, 1)} for n in (1, 2, 0, 5)])
    assert made.report.stages["import"]().count("branch(") == 1


def test_what_only_one_rank_can_be_is_guarded() -> None:
    gemm = node("Gemm", ["s", "w"], ["y"])
    source = model([SQUEEZE, gemm], ["y"], ("batch", 1, 4), w=floats(4, 2))
    made = ad.compile(source)
    agrees(made, source, xs(((2, 1, 4), (0, 1, 4), (7, 1, 4))))
    with pytest.raises(
        ad.DimError, match=r"at batch = 1[\s\S]*\(Gemm\) is impossible after it[\s\S]*expected 2"
    ):
        made(floats(1, 1, 4))


def test_too_many_open_axes_are_refused() -> None:
    source = model([SQUEEZE, node("Exp", ["s"], ["y"])], ["y"], tuple("abcde"))
    with pytest.raises(ad.ModelError, match=r"more than 4 relations: a == 1, .*e == 1[\s\S]*name"):
        ad.compile(source)
    made = ad.compile(source, dims={"c": (2, 9)})
    agrees(made, source, xs(((2, 1, 3, 1, 1), (1, 1, 2, 1, 1), (2, 2, 2, 2, 2))))


# ---- in graphs inside ----------------------------------------------------------------------------


def test_in_a_branch_that_data_chooses() -> None:
    choice = node(
        "If", ["c"], ["y"], then_branch=body([node("Squeeze", ["x"], ["p"])], ["p"]),
        else_branch=body([node("Neg", ["x"], ["q"])], ["q"]),
    )  # fmt: skip
    flag = helper.make_tensor_value_info("c", BOOL, [])
    given = [{**feeds, "c": numpy.array(c)} for feeds in xs() for c in (True, False)]
    for tail in ([], [node("Exp", ["y"], ["e"]), node("ReduceSum", ["e"], ["z"], keepdims=0)]):
        source = model([choice, *tail], ["z" if tail else "y"], more=[flag])
        agrees(ad.compile(source), source, given)


LOOP_INPUTS = [
    helper.make_tensor_value_info("i", INT64, []), helper.make_tensor_value_info("on", BOOL, []),
    onnx.ValueInfoProto(name="state"),
]  # fmt: skip


@pytest.mark.parametrize("whole", [True, False], ids=["carried", "sums"])
def test_in_a_loop(whole: bool) -> None:
    nodes = [node("Squeeze", ["x"], ["s"]), node("ReduceSum", ["s"], ["t"], keepdims=0)]
    nodes += [node("Add", ["state", "s" if whole else "t"], ["next"])]
    nodes += [node("Identity", ["on"], ["still"])]
    inner = body(nodes, ["still", "next"], LOOP_INPUTS)
    first = [node("Squeeze", ["x"], ["first"])] if whole else []
    loop = node("Loop", ["trips", "yes", "first" if whole else "zero"], ["y"], body=inner)
    source = model([*first, loop], ["y"], trips=3, yes=True, zero=numpy.float32(0))
    agrees(ad.compile(source), source, xs())


def test_slices_that_a_loop_stacks() -> None:
    """The Loop is compiled for either rank of its slices."""
    nodes = [node("Squeeze", ["x"], ["s"]), node("Identity", ["state"], ["next"])]
    nodes += [node("Identity", ["on"], ["still"])]
    inner = body(nodes, ["still", "next", "s"], LOOP_INPUTS)
    loop = node("Loop", ["trips", "yes", "zero"], ["end", "y"], body=inner)
    made = ad.compile(model([loop], ["y"], trips=3, yes=True, zero=numpy.float32(0)))
    for feeds in xs():
        right = numpy.stack([feeds["x"].squeeze()] * 3)
        numpy.testing.assert_array_equal(made(**feeds)["y"], right)


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("smallest", [1, 200], ids=["called", "inlined"])
@pytest.mark.parametrize("whole", [True, False], ids=["result", "sum"])
def test_in_a_function(smallest: int, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "SMALLEST_CALLED", smallest)
    nodes = [node("Squeeze", ["u"], ["s"]), node("Sin", ["s"], ["v"])]
    last = node("Neg", ["v"], ["w"]) if whole else node("ReduceSum", ["v"], ["w"], keepdims=0)
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "Squeezed", ["u"], ["w"], [*nodes, last], opsets)
    calls = [node("Relu", ["x"], ["r"]), node("Squeezed", ["r"], ["q"], domain="own")]
    source = model([*calls, node("Neg", ["q"], ["y"])], ["y"], functions=[function])
    agrees(ad.compile(source), source, xs())


def test_of_a_size_that_data_decides() -> None:
    nodes = [node("NonZero", ["x"], ["found"]), node("Transpose", ["found"], ["rows"], perm=[1, 0])]
    nodes += [node("GatherND", ["x", "rows"], ["v"]), node("Squeeze", ["v"], ["y"])]
    source = model(nodes, ["y"])
    eyes = [numpy.eye(*shape, dtype=numpy.float32) for shape in ((1, 1), (2, 3), (1, 4), (0, 3))]
    agrees(ad.compile(source), source, [{"x": eye} for eye in eyes])


def test_a_rank_that_the_file_asks_for() -> None:
    """`If(rank == 1)` of torch's exporter, after a Squeeze."""
    choice = node(
        "If", ["flat"], ["y"], name="choice",
        then_branch=body([node("Unsqueeze", ["s", "first"], ["p"])], ["p"]),
        else_branch=body([node("Neg", ["s"], ["q"])], ["q"]),
    )  # fmt: skip
    nodes = [SQUEEZE, node("Shape", ["s"], ["h"]), node("Size", ["h"], ["rank"])]
    nodes += [node("Equal", ["rank", "one"], ["flat"]), choice]
    source = model(nodes, ["y"], first=[0], one=1)
    agrees(ad.compile(source), source, xs())

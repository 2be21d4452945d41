"""Each row of the table of onnxruntime's operators, at several sizes, beside onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.base.errors import ModelError
from anydim.compiler.frontends.onnx import import_model
from anydim.compiler.frontends.onnx.file.schema import value_of
from anydim.compiler.frontends.onnx.microsoft.table import ROWS, find
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.verify import verify

pytest.importorskip("onnxruntime")
from onnxruntime.capi import onnxruntime_pybind11_state as bindings

from tests.unit.compiler.frontends.microsoft import (
    attention_cases,
    element_cases,
    fused_cases,
    grouped_cases,
    image_cases,
    norm_cases,
    position_cases,
    quantised_cases,
    shape_cases,
)
from tests.unit.compiler.frontends.microsoft.beside import beside, drawn, node, typed, written

SIZES = [(0, 1), (1, 1), (3, 2), (8, 5)]
CASES = {
    **attention_cases.CASES, **element_cases.CASES, **fused_cases.CASES, **grouped_cases.CASES,
    **norm_cases.CASES, **shape_cases.CASES,
}  # fmt: skip
EQUAL = {
    **attention_cases.EQUAL, **element_cases.EQUAL, **fused_cases.EQUAL, **image_cases.EQUAL,
    **shape_cases.EQUAL,
}  # fmt: skip
NUMPY = {**image_cases.NUMPY, **position_cases.NUMPY, **shape_cases.NUMPY}


@pytest.mark.sampled(most=28)
@pytest.mark.parametrize("name", CASES)
def test_each_operator(name):
    inputs, nodes, constants = CASES[name]
    outputs = [output for each in nodes for output in each.output if output]
    proto = written(nodes, inputs, outputs, 11 if name.endswith("11") else 18, **constants)
    graph = verify(import_model(proto.SerializeToString()))
    for n, m in SIZES:
        beside(typed(proto, graph), {"n": n, "m": m}, graph)


@pytest.mark.parametrize("name", EQUAL)
def test_operators_without_a_kernel_there(name):
    inputs, ours, theirs, constants = EQUAL[name]
    outputs = [output for output in ours[-1].output if output]
    own, standard = (written(nodes, inputs, outputs, **constants) for nodes in (ours, theirs))
    graph = verify(import_model(own.SerializeToString()))
    for n, m in SIZES:
        beside(standard, {"n": n, "m": m}, graph)


@pytest.mark.parametrize("name", NUMPY)
def test_operators_that_numpy_knows(name):
    inputs, nodes, constants, meaning = NUMPY[name]
    proto = written(nodes, inputs, ["z"], **constants)
    graph = verify(import_model(proto.SerializeToString()))
    for n, m in [*SIZES, (1, 31)]:
        feeds = drawn(proto, {"n": n, "m": m})
        expected = meaning(**feeds)
        got = evaluate(graph, feeds)["z"]
        allowed = 2e-3 if got.dtype == np.float16 else 2e-5
        np.testing.assert_allclose(got, expected, rtol=allowed, atol=allowed)


def test_every_operator_has_a_case():
    cases = [*CASES.values(), *EQUAL.values(), *NUMPY.values()]
    cases += quantised_cases.CASES.values()  # compared in test_quantised.py
    used = {each.op_type for _, nodes, *_ in cases for each in nodes}
    assert {name for _, name in ROWS} <= used | {"GroupQueryAttention"}  # test_gpu.py


def test_a_file_for_one_machine_is_refused_with_what_to_do():
    reorder = node("y = ReorderInput(x)", "com.microsoft.nchwc")
    proto = written([reorder], ["x f[n, 8, h, w]"], ["y"])
    with pytest.raises(ModelError, match="ORT_ENABLE_EXTENDED"):
        import_model(proto)


WRONG = {
    "Attention(x, w)": {"num_heads": 2}, "Attention(w, x)": {"num_heads": 2},
    "MultiHeadAttention(w, w, w)": {"num_heads": 2}, "RotaryEmbedding(w, i, w, w)": {},
    "EmbedLayerNormalization(i, , x, w, , w, w)": {}, "ExpandDims(x, i)": {},
    "RelativePositionBias(x, i, i)": {"max_distance": 9},
    "GatedRelativePositionBias(w, w, w, w, w, w)": {"num_heads": 2},
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_inputs_of_other_ranks_are_refused(text):
    made = node(f"z = {text}", **WRONG[text])
    proto = written([made], ["x f[n, 3, 4, m]", "w f[8]", "i l[0]"], ["z"])
    with pytest.raises(ModelError, match="1 node that is not supported"):
        import_model(proto)


# ---- what the rows say -------------------------------------------------------------------------

SCHEMAS = {(s.domain, s.name): s for s in bindings.get_all_operator_schema()}


@pytest.mark.parametrize("key", sorted(ROWS), ids=lambda key: key[1])
def test_inputs_results_and_attributes_are_those_of_onnxruntime(key):
    if key not in SCHEMAS:
        pytest.skip("this onnxruntime does not have it")
    theirs, (_, ours) = SCHEMAS[key], find(*key)
    for side in ("inputs", "outputs"):
        mine, right = getattr(ours, side), getattr(theirs, side)
        assert [str(p.option).split(".")[-1] for p in mine] == [
            str(p.option).split(".")[-1] for p in right[: len(mine)]
        ]
    assert set(ours.attributes) <= set(theirs.attributes)
    for name, declared in ours.attributes.items():
        right = theirs.attributes[name]
        assert str(declared.type).split(".")[-1] == str(right.type).split(".")[-1], name
        assert declared.required == right.required, name
        found = type(declared.default_value).FromString(right._default_value)
        assert _default(declared.default_value) == _default(found), name


def _default(attribute):
    return value_of(attribute) if attribute.type else None

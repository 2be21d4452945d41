"""The tests that come with onnx pass with every size free, and with the sizes they declare.

What is known to fail stands in backend_failures.txt; anything else that fails is news.
"""

from __future__ import annotations

import os
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.backend.test.loader import DATA_DIR, load_model_tests
from onnx.reference.ops import op_pool_common

from anydim.api.backend import Backend, free_dims_of_inputs
from anydim.base.errors import ModelError, OptionError
from anydim.compiler.frontends.onnx import import_model
from anydim.compiler.frontends.onnx.file.strings import StringsInside
from anydim.compiler.frontends.onnx.operators.table import OPERATORS
from tests.conformance import onnx_backend, reference_pools
from tests.unit.compiler.frontends.models import model, node
from tests.unit.compiler.frontends.test_onnx_operators import ELSEWHERE, ROWS

SHARDS = 8
KINDS_ELSEWHERE = {
    "light": "architectures without weights: test_light_architectures.py",
    "real": "models that would have to be downloaded",
}


def check(chosen, dims):
    """What is known to fail is not run: `python -m tests.conformance.onnx_backend` does that."""
    known = onnx_backend.known_failures()
    run = [case for case in chosen if (dims, case.name) not in known]
    outcomes = [onnx_backend.run(case, dims) for case in run]
    failed = [f"{o.case}: {o.reason}" for o in outcomes if o.state == "failed"]
    assert not failed, "\n".join([onnx_backend.summary(outcomes), *failed])
    assert any(outcome.state == "passed" for outcome in outcomes)


@pytest.mark.slow  # `make conformance` runs these among all, tests/ops the operators
@pytest.mark.parametrize("expanded", [False, True])
@pytest.mark.parametrize("dims", onnx_backend.PASSES)
def test_one_test_of_each_operator(dims, expanded):
    chosen = [c for c in onnx_backend.quick(dims) if ("_expanded" in c.name) == expanded]
    check(chosen, dims)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("dims", onnx_backend.PASSES)
def test_all_of_the_tests(dims, shard):
    check(onnx_backend.cases()[shard::SHARDS], dims)


def test_every_test_is_run_or_has_a_reason():
    """Of what onnx has, each test is run here, or named with what keeps it from passing."""
    assert set(os.listdir(DATA_DIR)) <= {*onnx_backend.KINDS, *KINDS_ELSEWHERE}
    run = [case for shard in range(SHARDS) for case in onnx_backend.cases()[shard::SHARDS]]
    names = [test.name for kind in onnx_backend.KINDS for test in load_model_tests(kind=kind)]
    assert sorted(names) == sorted(case.name for case in run)
    for case in run:
        reason = onnx_backend.excluded(case)
        assert not reason or len(reason.split()) > 3
    known = onnx_backend.known_failures()
    assert {name for _, name in known} <= set(names)
    assert {dims for dims, _ in known} <= set(onnx_backend.PASSES)
    assert all(known.values())


def test_every_row_of_the_table_is_tested():
    """By a test that comes with onnx, or by one of ours."""
    tested = {each.op_type for _, _, nodes, _ in ROWS.values() for each in nodes}
    for each in (each for case in onnx_backend.cases() for each in case.model.graph.node):
        tested.add(f"{each.domain}.{each.op_type}" if each.domain else each.op_type)
    assert tested | ELSEWHERE >= set(OPERATORS)


def test_what_is_known_to_fail_does_so_as_noted():
    named = {case.name: case for case in onnx_backend.cases()}
    for (dims, name), reason in onnx_backend.known_failures().items():
        outcome = onnx_backend.run(named[name], dims)
        assert outcome.state == "failed", f"{dims} {name} passes: take it off the list"
        assert reason.startswith(outcome.reason), f"{dims} {name}: {outcome.reason}"


def test_a_test_of_each_operator_is_quick():
    operators = {case.operator for case in onnx_backend.cases()}
    for dims in onnx_backend.PASSES:
        assert {case.operator for case in onnx_backend.quick(dims)} == operators
    free, static = ({case.name for case in onnx_backend.quick(d)} for d in onnx_backend.PASSES)
    assert len(free & static) < len(free) // 4  # only where an operator has few tests


def test_no_dim_is_fixed_without_a_word():
    """Every axis of every input stays a dim from 0 up, or is named with the reason."""
    known = onnx_backend.known_failures()
    seen = 0
    for case in onnx_backend.quick("free"):
        if ("free", case.name) in known or onnx_backend.excluded(case):
            continue
        model, _ = onnx_backend.bound(case)
        opened, fixed = free_dims_of_inputs(model)
        assert all(fixed.values())
        try:
            graph = import_model(opened)
        except StringsInside:
            continue  # parts of it run on the host
        for name in graph.inputs:
            for axis, size in enumerate(graph.types[name].shape):
                if (name, axis) not in fixed and name not in _parts(graph):
                    (symbol,) = size.symbols
                    dim = graph.box.dim(symbol)
                    assert (dim.lo, dim.hi) == (0, None), f"{case.name}: {name}[{axis}] {dim}"
                    seen += 1
    assert seen > 300


def _parts(graph):
    """The inputs that are the two arrays of a list."""
    return {part for listed in graph.lists.values() for part in (listed.elements, listed.shapes)}


# ---- pools -------------------------------------------------------------------------------------

POOLS = [
    {"kernel_shape": [3], "pads": [1, 2], "strides": [2]},
    {"kernel_shape": [2, 3], "pads": [1, 0, 0, 2], "ceil_mode": 1, "strides": [3, 2]},
    {"kernel_shape": [3, 2], "auto_pad": "SAME_LOWER", "strides": [2, 2]},
    {"kernel_shape": [2, 2, 3], "pads": [0] * 6, "dilations": [2, 1, 2]},
]


@pytest.mark.parametrize("attributes", POOLS, ids=str)
@pytest.mark.parametrize("kind, counted", [("MAX", 0), ("AVG", 0), ("AVG", 1), ("LPPOOL", 1)])
def test_pools_of_all_windows_at_once_are_those_of_onnx(kind, counted, attributes):
    x = np.random.default_rng(0).standard_normal(
        (2, 3, *(7, 8, 9)[: len(attributes["kernel_shape"])])
    )
    run = op_pool_common.CommonPool._run
    found = {}
    for pool in (op_pool_common.pool, reference_pools.pool):
        with mock.patch.object(op_pool_common, "pool", pool):
            given = {"count_include_pad": counted, "dilations": None, "p": 3, **attributes}
            (found[pool],) = run(None, kind, x=x, **given)
    expected, made = found.values()
    np.testing.assert_allclose(made, expected, 1e-12)


# ---- the interface -----------------------------------------------------------------------------


def test_run_model_and_run_node():
    x = np.float32([[1, -2], [3, -4]])
    made = model([node("y = Relu(x)")], ["x f[2, 2]"], ["y"])
    for inputs in (x, [x], {"x": x}):
        np.testing.assert_array_equal(Backend.run_model(made, inputs)[0], np.maximum(x, 0))
    np.testing.assert_array_equal(Backend.run_node(node("y = Add(a, b)"), [x, x])[0], x + x)
    assert Backend.supports_device("CPU") and not Backend.supports_device("TPU")
    assert Backend.is_compatible(made)


def test_one_prepared_model_runs_at_every_size():
    made = model([node("y = MatMul(x, w)")], ["x f[2, 3]", "w f[3, 4]"], ["y"])
    prepared = Backend.prepare(made, dims="free")
    assert not prepared.fixed
    for rows, inner, columns in ((0, 1, 1), (1, 0, 3), (5, 7, 2)):
        x = np.ones((rows, inner), np.float32)
        w = np.ones((inner, columns), np.float32)
        np.testing.assert_array_equal(prepared.run([x, w])[0], x @ w)


def test_axes_that_keep_their_size_are_named_with_the_reason():
    made = model([node("y = GatherND(x, i)")], ["x f[4, 5]", "i l[3, 1]"], ["y"])
    copy, fixed = free_dims_of_inputs(made)
    assert set(fixed) == {("i", 1)}
    assert "constant size" in fixed["i", 1] or "does not index" in fixed["i", 1]
    kept = copy.graph.input[1].type.tensor_type.shape.dim[1]
    assert kept.dim_value == 1


def test_what_cannot_be_prepared_says_why():
    made = model([node("y = Relu(x)")], ["x f[2]"], ["y"])
    with pytest.raises(OptionError, match="device"):
        Backend.prepare(made, device="TPU")
    with pytest.raises(OptionError, match="dims"):
        Backend.prepare(made, dims="some")
    value = helper.make_tensor_value_info("x", TensorProto.COMPLEX64, [2])
    result = onnx.ValueInfoProto(name="y")
    graph = helper.make_graph([node("y = Identity(x)")], "g", [value], [result])
    strange = helper.make_model(graph)
    assert not Backend.is_compatible(strange)
    with pytest.raises(ModelError, match="complex64"):
        Backend.prepare(strange, dims="free")

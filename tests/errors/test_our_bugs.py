"""Promise: an exception that nobody expects is an InternalError with what a report needs.

A bug is planted: a pass, an operator or the code of a worker raises what it never should.
"""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from onnx import TensorProto, helper

import anydim as ad
from anydim import ort
from anydim.base.errors import InternalError
from anydim.base.reports import report_unexpected, user_callback
from anydim.compiler.graph.operator import Operator
from anydim.compiler.passes.lower import Lower
from anydim.compiler.passes.simplify import Simplify

PLANTED = (AssertionError(), KeyError("x"), ZeroDivisionError("two"), OSError(5, "odd"),
           TypeError("of ours"), RecursionError(), InternalError("two and two"))  # fmt: skip
X = np.arange(6, dtype=np.float32).reshape(3, 2)


def model(opset: int = 22) -> bytes:
    """y [n, 2] = x [n, 2] @ w + 1"""
    w, one = (np.eye(2, dtype=np.float32) * 2, np.float32([1]))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["t"]),
         helper.make_node("Add", ["t", "one"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor(name, TensorProto.FLOAT, array.shape, array.tobytes(), raw=True)
         for name, array in (("w", w), ("one", one))],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def plant(monkeypatch: pytest.MonkeyPatch, fault: Exception, where: type = Simplify) -> None:
    def run(*given: object, **named: object) -> None:
        raise fault

    monkeypatch.setattr(where, "run", run)


def check(caught: InternalError, fault: Exception) -> None:
    """The text says what, where and what to do; the cause is the exception itself."""
    text = str(caught)
    assert f"anydim {ad.__version__}" in text and "please report it" in text
    if isinstance(fault, InternalError):
        assert caught is fault and text.startswith("two and two\n")
    else:
        assert caught.__cause__ is fault and text.startswith(type(fault).__name__)
        assert "pipeline.py:" in text.split("\n")[0] or "graph_builder.py:" in text.split("\n")[0]
    assert str(pickle.loads(pickle.dumps(caught))) == text


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: type(fault).__name__)
def test_in_a_pass(fault, monkeypatch):
    plant(monkeypatch, fault)
    with pytest.raises(InternalError) as caught:
        ad.compile(model())
    check(caught.value, fault)


@pytest.mark.parametrize("settled", [{}, {"fallback": "onnxruntime"}], ids=["alone", "fallback"])
def test_in_a_session(settled, monkeypatch):
    plant(monkeypatch, fault := AssertionError("planted"))
    with ad.settings.override(use_cache=False):
        if not settled:
            with pytest.raises(InternalError) as caught:
                ort.InferenceSession(model())
            check(caught.value, fault)
            return
        pytest.importorskip("onnxruntime")
        with pytest.warns(RuntimeWarning, match="onnxruntime: a bug of anydim: .*: planted"):
            session = ort.InferenceSession(model(), **settled)
    for rows in (0, 1, 3):
        (y,) = session.run(None, {"x": X[:rows]})
        np.testing.assert_array_equal(y, X[:rows] * 2 + 1)


def test_the_fallback_runs_the_model(monkeypatch, tmp_path):
    pytest.importorskip("onnxruntime")
    plant(monkeypatch, AssertionError("planted"), Lower)
    path = tmp_path / "small.onnx"
    path.write_bytes(model())
    for source in (model(), path):
        with pytest.warns(RuntimeWarning, match="runs on onnxruntime: .*: planted") as said:
            compiled = ad.compile(source, {"n": (0, 9)}, fallback="onnxruntime")
        assert said[0].filename == __file__
        assert "the whole model" in compiled.explain(details=True)
        for rows in (0, 1, 3):
            np.testing.assert_array_equal(compiled(X[:rows])["y"], X[:rows] * 2 + 1)
        with pytest.raises(ad.DimError):
            compiled(np.zeros((10, 2), np.float32))


def test_where_the_fallback_cannot_run_it_either(monkeypatch):
    """A graph of a builder is no ONNX model."""
    pytest.importorskip("onnxruntime")
    plant(monkeypatch, AssertionError("planted"))
    g = ad.Builder("own")
    g.output("y", g.relu(g.input("x", ad.float32, (g.dim("n"),))))
    with pytest.raises(InternalError, match="planted"):
        ad.compile(g, fallback="onnxruntime")


def test_in_a_definition(monkeypatch):
    plant(monkeypatch, fault := AssertionError())
    lib = ad.define("def f(float(M,K) A) -> (C) { C(m) +=! A(m,k) }")
    with pytest.raises(InternalError) as caught:
        lib.f(X)
    check(caught.value, fault)


def test_in_a_builder(monkeypatch):
    def infer(*given: object) -> None:
        raise fault

    fault = AssertionError()
    g = ad.Builder("own")
    x = g.input("x", ad.float32, (g.dim("n"),))
    monkeypatch.setattr(Operator, "infer", infer)
    flag = g.input("flag", ad.boolean, ())
    inside = lambda: g.branch(flag, lambda b: b.relu(x), lambda b: x)  # noqa: E731
    for make in (lambda: g.relu(x), lambda: x + x, inside):
        with pytest.raises(InternalError) as caught:
            make()
        check(caught.value, fault)


def test_what_functions_of_the_user_raise_is_their_own():
    g = ad.Builder("own")
    n = g.dim("n")
    x = g.input("x", ad.float32, (n,))

    def odd(*given: object) -> None:
        raise KeyError("mine")

    flag = g.input("flag", ad.boolean, ())
    for make in (
        lambda: g.loop(odd, x, trips=n),
        lambda: g.branch(flag, odd, odd),
        lambda: ad.compile(model(), progress=odd),
    ):
        with pytest.raises(KeyError, match="mine"):
            make()


def test_what_passes_as_it_is(monkeypatch):
    for fault in (MemoryError("none left"), ad.OptionError("no"), RuntimeWarning("said"),
                  KeyboardInterrupt()):  # fmt: skip
        plant(monkeypatch, fault)
        with pytest.raises(type(fault)) as caught:
            ad.compile(model())
        assert caught.value is fault


def test_the_report_is_made_once():
    """However many public functions an exception goes through."""

    @report_unexpected
    def inner() -> None:
        raise KeyError("x")

    with pytest.raises(InternalError) as caught:
        report_unexpected(report_unexpected(inner))()
    assert str(caught.value).count("please report it") == 1
    assert user_callback(None) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="loud"):
            report_unexpected(lambda: warnings.warn("loud", stacklevel=1))()

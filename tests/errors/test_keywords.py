"""Promise: an argument that no parameter takes is a UserError that names the nearest one."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

import anydim as ad
from anydim.base.keywords import public
from tests.unit.compiler.frontends.models import model, node

RELU = model([node("y = Relu(x)")], ["x f[batch, 4]"], ["y"])
TEXT = "def f(float(N) x; int times = 1) -> (y) { y(i) = times * x(i) }"


@pytest.fixture(scope="module")
def relu() -> ad.Model:
    return ad.compile(RELU, {"batch": (0, 64)})


CALLS = {
    "compile": (lambda m: ad.compile(RELU, dim={}), "did you mean 'dims'?"),
    "two unknown": (lambda m: ad.compile(RELU, bounds={}, tread=1), "'bounds'\n  it takes source"),
    "cached": (lambda m: ad.cached(RELU, thread=1), "did you mean 'threads'?"),
    "define": (lambda m: ad.define(TEXT, option={}), "did you mean 'options'?"),
    "load": (lambda m: ad.load("no.anydim", verfy=True), "did you mean 'verify'?"),
    "inspect": (lambda m: ad.inspect(), r"inspect\(\) missing 1 .*\n  it takes path, verify"),
    "Dim": (lambda m: ad.Dim("n", low=1), "did you mean 'lo'?"),
    "MemoryLimit": (lambda m: ad.MemoryLimit(9, percall=True), "did you mean 'per_call'?"),
    "Builder": (lambda m: ad.Builder(nme="g"), r"Builder\(\) got .*\n  did you mean 'name'?"),
    "input": (lambda m: ad.Builder().input("x", type="float32"), "did you mean 'dtype'?"),
    "check": (lambda m: m.check(sample=5), "did you mean 'samples'?"),
    "map": (lambda m: m.map([], bath="n"), "did you mean 'batch'?"),
    "record": (lambda m: m.record("x", site=True), "did you mean 'sites'?"),
    "trim": (lambda m: m.trim(3), "it takes nothing"),
}


@pytest.mark.parametrize("case", CALLS)
def test_keywords(relu, case):
    call, told = CALLS[case]
    with pytest.raises(ad.ArgumentError, match=told.replace("?", r"\?")) as caught:
        call(relu)
    assert isinstance(caught.value, TypeError)


DIMS = {
    "largest": (lambda m: m.largest("batch", memry=9), "no dim 'memry'\n  did you mean 'memory'?"),
    "largest of": (lambda m: m.largest("bach"), "no dim 'bach'\n  did you mean 'batch'?"),
    "profile": (lambda m: m.profile(repeats=3, batch=1), "did you mean 'repeat'?"),
    "trace": (lambda m: m.trace(call=3, batch=1), "did you mean 'calls'?"),
    "prepare": (lambda m: m.prepare(bach=3), "did you mean 'batch'?"),
}


@pytest.mark.parametrize("case", DIMS)
def test_keywords_beside_sizes(relu, case):
    call, told = DIMS[case]
    with pytest.raises(ad.DimError, match=told.replace("?", r"\?")):
        call(relu)


def test_keywords_of_definitions():
    x = np.ones(3, np.float32)
    with pytest.raises(ad.InputError, match="attributes are 'times', in addition to out="):
        ad.define(TEXT).f(x, oot=x)


def test_errors_from_inside_are_left_alone():
    @public
    def given(value: object) -> object:
        return value + 1  # type: ignore[operator]

    assert given(2) == 3
    with pytest.raises(TypeError) as caught:
        given("a")
    assert not isinstance(caught.value, ad.AnydimError)


def test_names_of_the_module():
    with pytest.raises(AttributeError) as caught:
        ad.compil  # noqa: B018
    assert caught.value.name == "compil" and caught.value.obj is sys.modules["anydim"]


@pytest.mark.parametrize(
    ("library", "told"), [("torch", "torch.export.Dim"), ("sklearn", "skl2onnx.to_onnx")]
)
def test_what_is_no_model_yet(library, told):
    theirs = types.new_class("Net", exec_body=lambda body: body.update(__module__=f"{library}.nn"))
    with pytest.raises(ad.OptionError, match=f"type Mine\n  .*{told}") as caught:
        ad.compile(type("Mine", (theirs,), {})())
    assert "docs/" not in str(caught.value) and '(documentation: "From ' in str(caught.value)


@pytest.mark.parametrize("given", [np.ones(3), 3, b"mine.tc"])
def test_operators_are_texts_or_paths(given):
    with pytest.raises(ad.OptionError, match="operators is"):
        ad.compile(RELU, operators=given)

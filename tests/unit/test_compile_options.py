"""Promise: `ad.Options` is what `ad.compile` accepts, and what others pass on to it."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import re
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import anydim as ad
import anydim.ort as ort
from anydim.api import program_cache
from anydim.api.compile_options import Options, Request
from anydim.base.errors import ArgumentError, OptionError
from anydim.base.records import fields_of
from anydim.cli import compiling
from anydim.cli.app import main
from anydim.compiler.passes.options import KernelOptions
from anydim.compiler.variants.strategies import GENERIC

FIELDS = [field.name for field in fields_of(Options)]
X = numpy.linspace(-3, 3, 12, dtype=numpy.float32).reshape(3, 4)


@pytest.fixture
def model_file(tmp_path: Path) -> str:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "negated", [x], [y])
    path = tmp_path / "negated.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return str(path)


def graph() -> ad.Builder:
    g = ad.Builder("halved")
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 4))
    g.output("y", x / 3.0)
    return g


def test_the_signature_is_that_of_the_record() -> None:
    own = inspect.signature(Options).parameters
    shown = inspect.signature(ad.compile).parameters
    assert list(shown) == ["source", "dims", "options", *FIELDS[1:]]
    for name in FIELDS:
        assert (shown[name].kind, shown[name].default) == (own[name].kind, own[name].default)


def test_every_field_is_documented_once_and_shown_by_help() -> None:
    shown = re.findall(r"^    (\w+): ", inspect.getdoc(ad.compile) or "", re.MULTILINE)
    assert [name for name in shown if name in FIELDS] == FIELDS


def test_a_record_and_keywords_compile_the_same() -> None:
    options = ad.Options(threads=2, precision="fast")
    first = ad.compile(graph(), options=options)
    second = ad.compile(graph(), threads=2, precision="fast")
    numpy.testing.assert_array_equal(first(x=X)["y"], second(x=X)["y"])
    assert first.program.threads == second.program.threads == 2


def test_keywords_override_the_record(model_file: str) -> None:
    options = ad.Options({"n": (0, 64)}, threads=2)
    model = ad.compile(model_file, {"n": (1, 8)}, options=options, threads=1)
    assert (model.dims.dim("n").lo, model.dims.dim("n").hi) == (1, 8)
    assert model.program.threads == 1
    assert ad.compile(model_file, options=options).dims.dim("n").hi == 64


def test_a_record_is_frozen_and_compares_by_its_fields() -> None:
    options = ad.Options({"n": 3}, devices={"a": "cpu:0"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.threads = 3  # type: ignore[misc]
    same = ad.Options({"n": 3}, devices={"a": "cpu:0"}, progress=lambda *_: None)
    assert options == same and hash(options) == hash(same)  # progress is no part of it
    assert options != dataclasses.replace(options, threads=3)
    assert dataclasses.replace(options, threads=3).dims == {"n": 3}
    with pytest.raises(TypeError, match="positional"):
        ad.Options(None, 2)  # type: ignore[misc]


def test_schedules_are_still_given_as_options() -> None:
    schedules = KernelOptions(fuse=False)
    first = ad.compile(graph(), options=schedules)
    second = ad.compile(graph(), schedules=schedules)
    third = ad.compile(graph(), options=ad.Options(schedules=schedules))
    assert first.explain(details=True) == second.explain(details=True)
    assert first.explain(details=True) == third.explain(details=True)
    with pytest.raises(OptionError, match="options is 3"):
        ad.compile(graph(), options=3)  # type: ignore[call-arg]


def test_a_wrong_name_is_refused() -> None:
    with pytest.raises(ArgumentError, match="unexpected keyword argument 'thread'"):
        ad.compile(graph(), thread=3)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match="thread"):
        ad.compile(graph(), options=ad.Options(), thread=3)
    with pytest.raises(ArgumentError, match="missing 1 required positional argument: 'source'"):
        ad.compile()  # type: ignore[call-arg]


OTHER: dict[str, Any] = {
    "dims": {"n": (0, 9)}, "threads": 3, "schedules": KernelOptions(fuse=False),
    "operators": {"my.ops": "def f(float(N) x) -> (y) { y(i) = x(i) }"}, "precision": "fast",
    "on_overflow": "grow", "ragged": {"n": "b"}, "external_data": "follow",
}  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
def test_programs_on_disk_depend_on_each_field_but_those_of_service(
    model_file: str, name: str
) -> None:
    def key(**fields: Any) -> str | None:
        with ad.settings.override(keep_programs=True):
            entry = program_cache.entry(Request(model_file, Options(**fields), GENERIC))
        return None if entry is None else entry._request

    if name in Options.AFTERWARDS:
        assert key(**{name: object()}) == key()
    elif name in Options.UNKEPT or name == "target":
        assert key(**{name: "c"}) is None
    else:
        assert key(**{name: OTHER[name]}) not in (None, key())


def test_an_object_without_a_text_of_its_own_is_not_looked_up(model_file: str) -> None:
    with ad.settings.override(keep_programs=True):
        request = Request(model_file, Options(operators={"my.ops": object()}), GENERIC)
        assert program_cache.entry(request) is None


def test_pickled_models_are_made_with_the_same_options(model_file: str) -> None:
    options = ad.Options({"n": (0, 9)}, threads=2, progress=lambda *_: None)
    for source in (model_file, Path(model_file).read_bytes()):
        other = pickle.loads(pickle.dumps(ad.compile(source, options=options)))
        assert other.dims.dim("n").hi == 9 and other.program.threads == 2
    other = pickle.loads(pickle.dumps(ad.compile(graph(), options=ad.Options(threads=2))))
    assert other.program.threads == 2


def test_sessions_take_it(model_file: str) -> None:
    options = ad.Options({"n": (0, 5)}, threads=2)
    session = ort.InferenceSession(model_file, compile_options=options)
    numpy.testing.assert_array_equal(session.run(None, {"x": X})[0], -X)
    with pytest.raises(Exception, match="above its bound 5"):
        session.run(None, {"x": numpy.zeros((6, 4), numpy.float32)})
    session_options = ort.SessionOptions()
    session_options.compile_options = options
    assert session_options.threads == 2
    session_options.intra_op_num_threads = 1
    assert session_options.copy().threads == 1
    assert session_options.copy().compile_options is options
    with pytest.raises(Exception, match=r"compile_options: got 3, expected Options"):
        session_options.compile_options = 3  # type: ignore[assignment]


def test_definitions_take_it() -> None:
    text = "def f(float(N) x) -> (y) { y(i) = x(i) / 3 }"
    x = numpy.linspace(0, 9, 31, dtype=numpy.float32)
    for options in (
        ad.Options(threads=2, precision="fast"),
        ad.Options(threads=2, schedules="f: precision=fast"),
    ):
        function = ad.define(text, options=options).f
        numpy.testing.assert_array_equal(function(x), x * numpy.float32(1 / 3))
        assert function.model(x).program.threads == 2
    assert ad.define(text, threads=1, options=ad.Options(threads=2)).f.model(x).program.threads == 1


def test_models_with_caches_take_it() -> None:
    g = ad.Builder("decoder")
    past, new = g.dim("past", 0, 64), g.dim("new", 0, 8)
    cache = g.input("cache", ad.float32, (past, 4))
    x = g.input("x", ad.float32, (new, 4))
    present = g.concat(cache, x, axis=0)
    g.output("present", present)
    g.output("y", g.reduce_sum(present, axes=(0,)))
    step = ad.cached(g, options=ad.Options(threads=2))
    assert step.model.program.threads == 2
    numpy.testing.assert_allclose(step(x=X)["y"], X.sum(0), rtol=1e-6)


def test_the_command_line_passes_it_on(model_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Options] = []

    def noted(source: Any, *, options: Options) -> ad.Model:
        seen.append(options)
        return ad.compile(source, options=options)

    monkeypatch.setattr(compiling, "compile", noted)
    line = f"explain {model_file} --dim n=1..7 --threads 2 --precision fast --strategy exact"
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code == 0, done.output
    (options,) = seen
    assert options.dims is not None and options.dims["n"] == ad.Dim(1, 7)
    assert (options.threads, options.precision, options.strategy) == (2, "fast", "exact")

"""Promise: what is anydim's own in a session: notices, fallback, profiles, kept models."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnxruntime
import pytest

import anydim
import anydim.ort as ort
from anydim.base import settings
from anydim.ort import notices
from anydim.ort.errors import InvalidArgument, Unimplemented
from anydim.runtime.variations import PLAIN
from tests.unit.ort import tiny
from tests.unit.ort.tiny import FLOAT, INT64, X, node, value

ROIS = tiny.model(  # refused: the number of samples depends on data
    [node("RoiAlign", ["x", "rois", "batch"], ["y"], output_height=2, output_width=2)],
    [value("x", FLOAT, [1, 1, 6, 6]), value("rois", FLOAT, ["n", 4]), value("batch", INT64, ["n"])],
    [value("y", FLOAT, ["n", 1, 2, 2])],
)  # fmt: skip
ROIS_FEED = {
    "x": numpy.arange(36, dtype=numpy.float32).reshape(1, 1, 6, 6),
    "rois": numpy.array([[0, 0, 4, 4]], numpy.float32),
    "batch": numpy.zeros(1, numpy.int64),
}


def warned(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What was said beside what is told of compiles, where another test asked for that."""
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


# ---- what is not honoured ----------------------------------------------------------------------


def test_what_is_not_honoured_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    notices._warn.cache_clear()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = "optimised.onnx"
    with caplog.at_level(logging.WARNING, "anydim.ort"):
        for _ in range(2):
            ort.InferenceSession(tiny.ADD, options)
    said = [record.getMessage().split(":")[0] for record in warned(caplog)]
    assert said == ["graph_optimization_level ORT_DISABLE_ALL", "optimized_model_filepath"]


def test_a_session_of_higher_severity_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    notices._warn.cache_clear()
    options = ort.SessionOptions()
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.log_severity_level = 3
    with caplog.at_level(logging.WARNING, "anydim.ort"):
        ort.InferenceSession(tiny.ADD, options)
    assert not warned(caplog)


def test_threads_are_those_that_were_asked_for() -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    served = ort.InferenceSession(tiny.ADD, options)._served
    assert served._engines[PLAIN].model.executable.threads == 2  # type: ignore[attr-defined]


def test_libraries_of_operators_are_refused() -> None:
    with pytest.raises(Unimplemented, match="definitions"):
        ort.SessionOptions().register_custom_ops_library("ops.so")


def test_a_session_is_not_changed_by_its_options_afterwards() -> None:
    options = ort.SessionOptions()
    session = ort.InferenceSession(tiny.ADD, options)
    options.add_session_config_entry("a", "b")
    options.logid = "later"
    assert session.get_session_options().logid == ""
    with pytest.raises(RuntimeError, match="key: a"):
        session.get_session_options().get_session_config_entry("a")


def test_dims_called_question_mark_may_differ(caplog: pytest.LogCaptureFixture) -> None:
    made = tiny.model(
        [node("Relu", ["x"], ["y"])],
        [value("x", FLOAT, ["?", "?"])], [value("y", FLOAT, ["?", "?"])],
    )  # fmt: skip
    session = ort.InferenceSession(made)
    assert session.run(None, {"x": X})[0].shape == (2, 3)
    assert len(session._served._engines) == 1 and not warned(caplog)


# ---- fallback ----------------------------------------------------------------------------------


def test_a_refused_model_says_why() -> None:
    with pytest.raises(Unimplemented, match="sampling_ratio"):
        ort.InferenceSession(ROIS)


@pytest.mark.parametrize("operator", ["Expand", "Reshape"])
@pytest.mark.parametrize("from_file", [False, True])
def test_a_valid_model_of_any_rank_is_not_implemented(
    tmp_path: Path, operator: str, from_file: bool
) -> None:
    """Its result has no shape in the file, which onnxruntime takes as any rank."""
    data = tiny.model(
        [node(operator, ["x", "s"], ["y"])],
        [value("x", FLOAT, ["n", 1]), value("s", INT64, ["k"])], [value("y", FLOAT, None)],
    )  # fmt: skip
    source: Any = data
    if from_file:
        source = str(tmp_path / "m.onnx")
        Path(source).write_bytes(data)
    assert onnxruntime.InferenceSession(data).get_inputs()[1].shape == ["k"]
    with pytest.raises(Unimplemented, match="has k elements, which decide a rank"):
        ort.InferenceSession(source)


def test_an_invalid_model_of_any_rank_is_invalid() -> None:
    data = tiny.model(
        [node("Expand", ["x", "s"], ["y"]), node("Neg", ["absent"], ["z"])],
        [value("x", FLOAT, ["n", 1]), value("s", INT64, ["k"])], [value("y", FLOAT, None)],
    )  # fmt: skip
    with pytest.raises(InvalidArgument, match="topologically sorted"):
        ort.InferenceSession(data)


@pytest.mark.parametrize("way", ["argument", "entry", "setting"])
def test_onnxruntime_runs_what_is_refused_and_a_warning_says_why(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, more = ort.SessionOptions(), {}
    if way == "argument":
        more["fallback"] = "onnxruntime"
    elif way == "entry":
        options.add_session_config_entry("anydim.fallback", "onnxruntime")
    else:
        monkeypatch.setenv("ANYDIM_ORT_FALLBACK", "onnxruntime")
    with pytest.warns(RuntimeWarning, match="(?s)runs on onnxruntime: anydim refuses.*sampling"):
        session = ort.InferenceSession(ROIS, options, **more)
    expected = onnxruntime.InferenceSession(ROIS).run(None, ROIS_FEED)[0]
    assert numpy.array_equal(session.run(["y"], ROIS_FEED)[0], expected)
    with pytest.raises(InvalidArgument, match="Invalid rank"):
        session.run(None, {**ROIS_FEED, "batch": numpy.zeros((1, 1), numpy.int64)})


def test_a_call_that_is_refused_falls_back_alone() -> None:
    chosen = tiny.model(  # a condition may not be longer than the axis; onnxruntime cuts it
        [node("Compress", ["x", "c"], ["y"], axis=0)],
        [value("x", FLOAT, ["n", 3]), value("c", onnx.TensorProto.BOOL, [2])],
        [value("y", FLOAT, None)],
    )  # fmt: skip
    session, c = ort.InferenceSession(chosen, fallback="onnxruntime"), numpy.array([True, False])
    assert session.run(None, {"x": X, "c": c})[0].shape == (1, 3)
    with pytest.warns(RuntimeWarning, match="anydim refuses a call"):
        assert session.run(None, {"x": X[:1], "c": c})[0].shape == (1, 3)
    assert session.run(None, {"x": X, "c": c})[0].shape == (1, 3)


def test_where_onnxruntime_refuses_too_the_error_is_ours() -> None:
    session = ort.InferenceSession(tiny.GATHER, fallback="onnxruntime")
    with pytest.warns(RuntimeWarning), pytest.raises(InvalidArgument, match="index"):
        session.run(None, {"x": X[0], "i": numpy.array([7])})


def test_another_fallback_is_refused() -> None:
    with pytest.raises(ValueError, match="onnxruntime"):
        ort.InferenceSession(tiny.ADD, fallback="tensorrt")


# ---- profiles ----------------------------------------------------------------------------------


def events(o: Any, prefix: Path) -> list[dict[str, Any]]:
    options = o.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(prefix)
    session = o.InferenceSession(tiny.ADD, options)
    for _ in range(2):
        session.run(None, {"x": X})
    path = Path(session.end_profiling())
    assert path.name.startswith(f"{prefix.name}_20") and session.end_profiling() == ""
    assert session.get_profiling_start_time_ns() > 0
    return list(json.loads(path.read_text("utf-8")))


def test_a_profile_has_the_events_of_onnxruntime(tmp_path: Path) -> None:
    theirs, ours = events(onnxruntime, tmp_path / "theirs"), events(ort, tmp_path / "ours")
    assert set(ours[0]) == set(theirs[0])
    for found in (theirs, ours):
        assert sum(event["name"] == "model_run" for event in found) == 2
        assert sum(event["name"] == "session_initialization" for event in found) == 1
    assert all(event["ph"] == "X" and event["dur"] >= 0 for event in ours)
    runs = [event for event in ours if event["name"] == "model_run"]
    nodes = [event for event in ours if event["cat"] == "Node"]
    assert len(nodes) >= 2 and all(event["args"]["provider"] for event in nodes)
    for event in nodes:  # to a microsecond, each launch lies inside a run
        begin, end = event["ts"], event["ts"] + event["dur"]
        assert any(r["ts"] - 2 <= begin and end <= r["ts"] + r["dur"] + 2 for r in runs)


# ---- kept and saved models ---------------------------------------------------------------------


def denied(*_: object, **__: object) -> None:
    raise PermissionError


def test_the_next_session_of_a_file_compiles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with settings.override(cache_dir=tmp_path, use_cache=True):
        first = ort.InferenceSession(tiny.ADD).run(None, {"x": X})
        (path,) = (tmp_path / "models").glob("*/*")
        monkeypatch.setattr(
            "anydim.ort.cached_compile.compile", lambda *_, **__: pytest.fail("compiled")
        )
        monkeypatch.setattr(os, "utime", denied)  # files of another user
        second = ort.InferenceSession(tiny.ADD).run(None, {"x": X})
        assert all(map(numpy.array_equal, first, second))
        monkeypatch.undo()
        path.write_bytes(b"damaged")
        third = ort.InferenceSession(tiny.ADD).run(None, {"x": X})
        assert all(map(numpy.array_equal, first, third))


def test_another_weight_is_another_model(tmp_path: Path) -> None:
    other = ort.SessionOptions()
    other.add_initializer("w", ort.OrtValue.ortvalue_from_numpy(numpy.zeros(3, numpy.float32)))
    with settings.override(cache_dir=tmp_path, use_cache=True):
        results = [ort.InferenceSession(tiny.ADD, o).run(["y"], {"x": X}) for o in (None, other)]
    assert not numpy.array_equal(results[0], results[1])
    assert numpy.array_equal(results[1][0], X)


def test_a_saved_model_is_a_session(tmp_path: Path) -> None:
    path = tmp_path / "add.anydim"
    anydim.compile(tiny.ADD).save(path)
    session = ort.InferenceSession(path)
    onnx = ort.InferenceSession(tiny.ADD)
    assert session.get_inputs() == onnx.get_inputs()
    assert session.get_outputs() == onnx.get_outputs()
    assert all(map(numpy.array_equal, session.run(None, {"x": X}), onnx.run(None, {"x": X})))


def test_a_saved_model_of_sequences_is_a_session(tmp_path: Path) -> None:
    path = tmp_path / "sequence.anydim"
    anydim.compile(tiny.SEQUENCE).save(path)
    session = ort.InferenceSession(path)
    assert [arg.type for arg in session.get_inputs()] == ["seq(tensor(float))"]
    count, arrays = session.run(None, {"x": [X, X[:1]]})
    assert count == 2 and [array.shape for array in arrays] == [(2, 3), (1, 3)]

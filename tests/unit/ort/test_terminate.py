"""Promise: `RunOptions.terminate`, set by another thread, ends a run with onnxruntime's error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import anydim as ad
import anydim.ort as ort
from anydim.ort.errors import Fail
from anydim.runtime.variations import PLAIN
from tests.unit.ort import tiny
from tests.unit.ort.tiny import BOOL, FLOAT, INT64, node, value

TEXT = "[ONNXRuntimeError] : 1 : FAIL : Exiting due to terminate flag being set to true."
PRODUCTS = 400  # of 300 x 300, some ms each
LARGE, SMALL = np.eye(300, dtype=np.float32), np.eye(3, dtype=np.float32)
Feed = dict[str, np.ndarray]


def powers(names: list[str]) -> list[Any]:
    return [node("MatMul", [names[0], "x"], [names[1]])] + [
        node("MatMul", [a, "x"], [b]) for a, b in pairwise(names[1:])
    ]


def straight() -> bytes:
    names = ["x", *(f"v{n}" for n in range(PRODUCTS)), "y"]
    square = [value("x", FLOAT, ["n", "n"])]
    return tiny.model(powers(names), square, [value("y", FLOAT, ["n", "n"])])


def branch() -> bytes:
    names = ["x", *(f"v{n}" for n in range(PRODUCTS)), "then"]
    then = helper.make_graph(powers(names), "then", [], [value("then", FLOAT, ["n", "n"])])
    other = helper.make_graph(
        [node("Neg", ["x"], ["else"])], "else", [], [value("else", FLOAT, ["n", "n"])]
    )
    return tiny.model(
        [node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        [value("x", FLOAT, ["n", "n"]), value("c", BOOL, [])], [value("y", FLOAT, ["n", "n"])],
    )  # fmt: skip


def loop() -> bytes:
    body = helper.make_graph(
        [node("Add", ["s", "x"], ["s2"]), node("Identity", ["c"], ["c2"])], "body",
        [value("i", INT64, []), value("c", BOOL, []), value("s", FLOAT, ["n", "n"])],
        [value("c2", BOOL, []), value("s2", FLOAT, ["n", "n"])],
    )  # fmt: skip
    return tiny.model(
        [node("Loop", ["m", "", "x"], ["y"], body=body)],
        [value("m", INT64, []), value("x", FLOAT, ["n", "n"])], [value("y", FLOAT, ["n", "n"])],
    )  # fmt: skip


def strings() -> bytes:
    """A model that is partly on strings around products."""
    names = ["x", *(f"v{n}" for n in range(PRODUCTS)), "y"]
    return tiny.model(
        [*powers(names), node("Identity", ["s"], ["t"])],
        [value("x", FLOAT, ["n", "n"]), value("s", tiny.STRING, ["m"])],
        [value("y", FLOAT, ["n", "n"]), value("t", tiny.STRING, ["m"])],
    )


MODELS: dict[str, tuple[Callable[[], bytes], Feed, Feed]] = {
    "straight": (straight, {"x": LARGE}, {"x": SMALL}),
    "branch": (branch, {"x": LARGE, "c": np.array(True)}, {"x": SMALL, "c": np.array(True)}),
    "loop": (loop, {"x": LARGE, "m": np.array(2**40)}, {"x": SMALL, "m": np.array(0)}),
    "strings": (
        strings, {"x": LARGE, "s": np.array(["a"])}, {"x": SMALL, "s": np.array(["a"])},
    ),
}  # fmt: skip
_made: dict[tuple[str, int], ort.InferenceSession] = {}


def session(name: str, threads: int) -> ort.InferenceSession:
    if (name, threads) not in _made:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        _made[name, threads] = ort.InferenceSession(MODELS[name][0](), options)
    return _made[name, threads]


def terminated(
    run: Callable[[ort.RunOptions], object], kind: type[Exception] = Fail, text: str = TEXT
) -> float:
    """Have another thread end a run; the seconds from then on."""
    options, moments = ort.RunOptions(), []

    def end() -> None:
        moments.append(time.monotonic())
        options.terminate = True

    timer = threading.Timer(0.05, end)
    timer.start()
    try:
        with pytest.raises(kind) as caught:
            run(options)
        came = time.monotonic()
    finally:
        timer.join()
    assert str(caught.value) == text
    return came - moments[0]


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_another_thread_ends_a_run(name: str, threads: int) -> None:
    made, (_, large, small) = session(name, threads), MODELS[name]
    for _ in range(2):
        terminated(lambda options: made.run(["y"], large, options))
        assert (made.run(["y"], small)[0] == SMALL).all()


def test_options_are_reset_by_the_program() -> None:
    made, (_, large, small) = session("loop", 1), MODELS["loop"]
    options = ort.RunOptions()
    options.terminate = True
    for feed in (small, large, small):
        with pytest.raises(Fail) as caught:
            made.run(None, feed, options)
        assert str(caught.value) == TEXT
    options.terminate = False
    for _ in range(3):
        assert (made.run(None, small, options)[0] == SMALL).all()


def test_one_flag_ends_all_runs_that_have_it_and_no_others() -> None:
    made, (_, large, small) = session("loop", 1), MODELS["loop"]
    options, ended = ort.RunOptions(), []

    def run() -> None:
        with pytest.raises(Fail):
            made.run(None, large, options)
        ended.append(True)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    other = ort.RunOptions()
    assert (made.run(None, small, other)[0] == SMALL).all()
    options.terminate = True
    for thread in threads:
        thread.join()
    assert len(ended) == 3
    assert (made.run(None, small, other)[0] == SMALL).all()


def test_a_binding_and_a_run_in_the_background_end_too() -> None:
    made, (_, large, _) = session("loop", 1), MODELS["loop"]
    binding = made.io_binding()
    for name, array in large.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("y")
    said = TEXT.replace("[ONNXRuntimeError] : 1 : FAIL :", "Error in execution:")
    terminated(lambda options: made.run_with_iobinding(binding, options), RuntimeError, said)
    options, came, texts = ort.RunOptions(), threading.Event(), []

    def callback(results: list[Any], data: Any, error: str) -> None:
        texts.append(error)
        came.set()

    made.run_async(None, large, callback, None, options)
    time.sleep(0.05)
    options.terminate = True
    assert came.wait(30) and texts == [TEXT]


def test_a_profiled_session_ends(tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    made = ort.InferenceSession(loop(), options)
    terminated(lambda run: made.run(None, MODELS["loop"][1], run))
    made.end_profiling()


def test_a_saved_model_ends(tmp_path: Path) -> None:
    ad.compile(straight(), threads=2).save(tmp_path / "powers.anydim")
    made = ort.InferenceSession(str(tmp_path / "powers.anydim"))
    terminated(lambda options: made.run(None, {"x": LARGE}, options))
    assert (made.run(None, {"x": SMALL})[0] == SMALL).all()


def test_a_fallback_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    from anydim.base.errors import ModelError
    from anydim.ort import cached_compile

    def refuse(*_: Any) -> Any:
        raise ModelError("for a test")

    monkeypatch.setattr(cached_compile, "compile_or_load", refuse)
    with pytest.warns(RuntimeWarning, match="runs on onnxruntime"):
        made = ort.InferenceSession(straight(), fallback="onnxruntime")
    terminated(lambda options: made.run(None, {"x": LARGE}, options))
    assert (made.run(None, {"x": SMALL})[0] == SMALL).all()


def test_a_time_limit_is_no_termination() -> None:
    made, (_, large, small) = session("loop", 1), MODELS["loop"]
    model = made._served._engines[PLAIN].model  # type: ignore[attr-defined]
    model.limit_time(0.03)
    try:
        with pytest.raises(Fail, match="time limit"):
            made.run(None, large, ort.RunOptions())
    finally:
        model.limit_time(None)
    assert (made.run(None, small, ort.RunOptions())[0] == SMALL).all()


def test_the_error_is_that_of_onnxruntime() -> None:
    made = onnxruntime.InferenceSession(straight(), providers=["CPUExecutionProvider"])
    options = onnxruntime.RunOptions()
    options.terminate = True
    with pytest.raises(Exception, match="Exiting due to terminate") as caught:
        made.run(None, {"x": SMALL}, options)
    assert type(caught.value).__name__ == Fail.__name__ and str(caught.value) == TEXT

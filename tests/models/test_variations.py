"""Promise: a call decides the rank of an input without a shape, and may override initializers."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import anydim as ad
import anydim.ort as ort
from anydim.cli.app import main
from tests.unit.ort import tiny
from tests.unit.ort.tiny import FLOAT, INT64, STRING, W, node, value

SHAPES = [(), (0,), (1,), (7,), (13,), (0, 3), (2, 0), (1, 1), (5, 11), (2, 3, 1), (1, 0, 2, 3)]
SIZES = (0, 1, 2, 7, 13, 31)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32).reshape(shape)


# ---- ranks -----------------------------------------------------------------------------------

SUMS = tiny.model(  # two inputs without a shape, of which one is broadcast over the other
    [node("Add", ["a", "b"], ["c"]), node("ReduceSum", ["c"], ["y"], keepdims=0)],
    [value("a", FLOAT, None), value("b", FLOAT, None)], [value("y", FLOAT, None)],
)  # fmt: skip


@pytest.fixture(scope="module")
def relu() -> Any:
    return ad.compile(tiny.RANKLESS)


def test_each_call_brings_its_rank(relu: Any) -> None:
    for shape in [*SHAPES, *reversed(SHAPES)]:
        x = floats(*shape)
        for given in (relu(x), relu(x=x)):
            assert given["y"].shape == shape
            assert (given["y"] == np.maximum(x, 0)).all()


def test_sessions_take_any_rank_too() -> None:
    session = ort.InferenceSession(tiny.RANKLESS)
    for shape in SHAPES:
        x = floats(*shape)
        (y,) = session.run(None, {"x": x})
        assert y.shape == shape and (y == np.maximum(x, 0)).all()


def test_lists_and_results_of_the_caller(relu: Any) -> None:
    assert relu([[1.0, -1.0], [2.0, 0.0]])["y"].tolist() == [[1, 0], [2, 0]]
    assert relu(-1.0)["y"] == 0
    y = np.zeros((2, 3), np.float32)
    assert relu(floats(2, 3), out=y)["y"] is y and (y == np.maximum(floats(2, 3), 0)).all()


def test_two_inputs_of_unlike_ranks() -> None:
    model = ad.compile(SUMS)
    for shape, other in (((3, 4), (4,)), ((), (5,)), ((2, 1, 3), (7, 1)), ((0, 3), (3,))):
        a, b = floats(*shape), floats(*other)
        np.testing.assert_allclose(model(a=a, b=b)["y"], (a + b).sum(), 1e-5, 1e-5)
        np.testing.assert_allclose(model(a=b, b=a)["y"], (a + b).sum(), 1e-5, 1e-5)


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_a_rank_may_be_given(rank: int) -> None:
    model = ad.compile(tiny.RANKLESS, {"x": rank})
    assert len(model.inputs) == 1
    assert model.dims.names == tuple(f"x_{axis}" for axis in range(rank))
    for size in SIZES:
        x = floats(*[size] * rank)
        assert (model(x)["y"] == np.maximum(x, 0)).all()
    with pytest.raises(ad.InputError, match="x"):
        model(floats(*[1] * (rank + 1)))


def test_axes_have_bounds_as_ever() -> None:
    model = ad.compile(tiny.RANKLESS, {"x": 2, "x.0": (1, 5)})
    assert str(model.dims.dim("x_0")) == "x_0=1..5"
    later = ad.compile(tiny.RANKLESS, {"x.0": (1, 5)})
    for each in (model, later):
        assert each(floats(5, 2))["y"].shape == (5, 2)
        with pytest.raises(ad.DimError, match="'x_0' is 6, above its bound 5"):
            each(floats(6, 2))


def test_what_needs_a_rank_says_so_before_the_first_call() -> None:
    model = ad.compile(tiny.RANKLESS)
    for ask in (
        lambda: model.memory, lambda: model.plan(), lambda: model.inputs, lambda: model.explain(),
        lambda: model.save("none.anydim"), lambda: model.limit_time(1.0), lambda: model.dims,
    ):  # fmt: skip
        with pytest.raises(ad.OptionError, match=r"rank of input 'x' .*\n.*dims=\{'x': 3\}"):
            ask()
    assert model.name == "tiny" and "first call" in repr(model)
    model(floats(2, 3))
    assert [spec.rank for spec in model.inputs] == [2]
    assert model.plan(x_0=3, x_1=4) and "launch" in model.explain(details=True)


def test_limits_hold_for_all_ranks() -> None:
    model = ad.compile(tiny.RANKLESS)
    model(floats(2, 3))
    model.limit_time(30.0)
    model(floats(2))
    assert model.serving({"x": floats(2)}).executable.timeout == 30.0


@pytest.mark.parametrize(
    "dims, text",
    [
        ({"x": (1, 2)}, "'x' has no shape, and .* is no rank"), ({"x": 40}, "no rank"),
        ({"y": 2, "x": 1}, "no dim 'y'"), ({"x": 1, "x.3": 2}, "no dim 'x.3'"),
    ],
)  # fmt: skip
def test_what_is_no_rank(dims: dict[str, Any], text: str) -> None:
    with pytest.raises(ad.OptionError, match=text):
        ad.compile(tiny.RANKLESS, dims)


def test_wrong_calls(relu: Any) -> None:
    for call, text in (
        (lambda: relu(), "tiny needs input 'x'"), (lambda: relu(z=1.0), "needs input 'x'"),
        (lambda: relu(1.0, 2.0), "2 positional inputs"),
        (lambda: relu([[1, 2], [3]]), "differ in length"),
        (lambda: relu(x=1.0, z=2.0), "has no input 'z'"), (lambda: relu("a"), "x"),
    ):  # fmt: skip
        with pytest.raises(ad.InputError, match=text):
            call()


def test_threads_compile_a_rank_once() -> None:
    model, found = ad.compile(tiny.RANKLESS), []
    threads = [threading.Thread(target=lambda: found.append(model.serving({"x": floats(3)})))
               for _ in range(4)]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1


def test_it_can_be_pickled_and_saved(relu: Any, tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(relu))
    assert (again(floats(3, 2))["y"] == np.maximum(floats(3, 2), 0)).all()
    again.save(tmp_path / "relu.anydim")
    loaded = ad.load(tmp_path / "relu.anydim")
    assert (loaded(floats(5, 7))["y"] == np.maximum(floats(5, 7), 0)).all()


# ---- initializers that are inputs ------------------------------------------------------------


@pytest.fixture(scope="module")
def sums() -> Any:
    return ad.compile(tiny.OVERRIDABLE)


def test_an_initializer_may_be_given_and_left_out(sums: Any) -> None:
    for size in (*SIZES, *reversed(SIZES)):
        x, w = floats(size, 3), floats(3)
        np.testing.assert_allclose(sums(x)["z"], (x + W) * (2 * W), 1e-5, 1e-5)
        np.testing.assert_allclose(sums(x=x, w=w)["z"], (x + w) * (2 * W), 1e-5, 1e-5)
    z = np.zeros((2, 3), np.float32)
    assert sums(floats(2, 3), w=0 * W, out=z)["z"] is z and (z == floats(2, 3) * (2 * W)).all()


def test_sessions_agree(sums: Any) -> None:
    session = ort.InferenceSession(tiny.OVERRIDABLE)
    assert [arg.name for arg in session.get_overridable_initializers()] == ["w"]
    for size in SIZES:
        feed = {"x": floats(size, 3), "w": floats(3)}
        assert (session.run(None, feed)[0] == sums(**feed)["z"]).all()


def test_what_is_given_is_checked(sums: Any) -> None:
    x = floats(2, 3)
    for given, text in (
        ({"w": floats(2)}, "w"), ({"w": floats(1, 3)}, "w"), ({"w": floats(3).astype(int)}, "w"),
        ({"v": floats(3)}, "has no input 'v'"), ({"w": floats(3), "u": x}, "has no input 'u'"),
    ):  # fmt: skip
        with pytest.raises(ad.InputError, match=text):
            sums(x=x, **given)
    with pytest.raises(ad.InputError, match="x"):
        sums(w=floats(3))


def test_shapes_that_were_constants_may_come() -> None:
    data = tiny.model(
        [node("Reshape", ["x", "shape"], ["y"])],
        [value("x", FLOAT, ["n"]), value("shape", INT64, [2])], [value("y", FLOAT, None)],
        {"shape": np.array([-1, 1])},
    )  # fmt: skip
    model = ad.compile(data)
    for size in (0, 1, 6, 7):
        x = floats(size)
        assert model(x)["y"].shape == (size, 1)
        if size:  # a 0 stands for the size of an axis that x has not
            assert model(x=x, shape=np.array([1, size]))["y"].shape == (1, size)


def test_files_of_before_overriding_take_no_initializers() -> None:
    data = tiny.model(
        [node("Add", ["x", "w"], ["y"])],
        [value("x", FLOAT, ["n", 3]), value("w", FLOAT, [3])], [value("y", FLOAT, ["n", 3])],
        {"w": W}, ir=3,
    )  # fmt: skip
    model, x = ad.compile(data), floats(2, 3)
    assert (model(x)["y"] == x + W).all()
    with pytest.raises(ad.InputError, match="has no input 'w'"):
        model(x=x, w=W)
    assert ort.InferenceSession(data).get_overridable_initializers() == []


def test_a_model_of_strings() -> None:
    data = tiny.model(
        [node("Identity", ["s"], ["t"]), node("Add", ["x", "w"], ["y"])],
        [value("x", FLOAT, ["n", 3]), value("s", STRING, ["m"]), value("w", FLOAT, [3])],
        [value("y", FLOAT, ["n", 3]), value("t", STRING, ["m"])], {"w": W},
    )  # fmt: skip
    model, x, s = ad.compile(data), floats(2, 3), np.array(["a", "b"])
    assert (model(x=x, s=s)["y"] == x + W).all()
    found = model(x=x, s=s, w=2 * W)
    assert (found["y"] == x + 2 * W).all() and list(found["t"]) == ["a", "b"]


def test_limits_hold_when_they_are_overridden(sums: Any) -> None:
    sums.limit_time(20.0)
    try:
        assert sums.serving({"x": 0, "w": 0}).executable.timeout == 20.0
    finally:
        sums.limit_time(None)
    assert sums.serving({"x": 0, "w": 0}).executable.timeout is None


@pytest.mark.parametrize("by", ["path", "bytes"])
def test_pickled_models_take_them(by: str, tmp_path: Path) -> None:
    path = tmp_path / "sums.onnx"
    path.write_bytes(tiny.OVERRIDABLE)
    model = ad.compile(path if by == "path" else tiny.OVERRIDABLE)
    again, x = pickle.loads(pickle.dumps(model)), floats(2, 3)
    assert (again(x=x, w=0 * W)["z"] == x * (2 * W)).all()


def test_a_file_that_changed_is_not_read_again(tmp_path: Path) -> None:
    x, big = floats(640, 3), floats(640, 3)
    path = tmp_path / "sums.onnx"

    def written(times: int) -> bytes:
        proto = onnx.load_from_string(tiny.OVERRIDABLE)
        proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(times * big, "v"))
        return bytes(proto.SerializeToString())

    path.write_bytes(written(1))
    model = ad.compile(path)
    path.unlink()
    path.write_bytes(written(2))
    np.testing.assert_allclose(model(x)["z"], (x + W) * big, 1e-5, 1e-5)
    with pytest.raises(ad.ModelError, match="has changed since it was opened"):
        model(x=x, w=W)


# ---- the command line ------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "relu.onnx").write_bytes(tiny.RANKLESS)
    (tmp_path / "sums.onnx").write_bytes(tiny.OVERRIDABLE)
    np.save(tmp_path / "x.npy", floats(2, 3))
    np.save(tmp_path / "w.npy", 0 * W)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "words, result",
    [
        ("relu.onnx --input x.npy", lambda x: np.maximum(x, 0)),
        ("relu.onnx --input x=x.npy --dim x.0=1..4", lambda x: np.maximum(x, 0)),
        ("relu.onnx --input x.npy --dim x=2", lambda x: np.maximum(x, 0)),
        ("relu.onnx --input x=-0.5", lambda x: np.float32(0)),
        ("sums.onnx --input x.npy", lambda x: (x + W) * (2 * W)),
        ("sums.onnx --input x=x.npy --input w=w.npy", lambda x: x * (2 * W)),
    ],
)
def test_the_command_run(folder: Path, words: str, result: Any) -> None:
    done = CliRunner().invoke(main, ["run", *words.split(), "--output", "y.npz"])
    assert done.exit_code == 0, done.output
    with np.load("y.npz") as found:
        (array,) = found.values()
    np.testing.assert_allclose(array, result(floats(2, 3)), 1e-5, 1e-5)
    assert array.shape == result(floats(2, 3)).shape


def test_the_command_needs_a_rank(folder: Path) -> None:
    done = CliRunner().invoke(main, ["run", "relu.onnx", "--at", "n=2"])
    assert done.exit_code != 0 and "--dim x=3" in done.output
    done = CliRunner().invoke(main, ["run", "relu.onnx", "--dim", "x=2", "--at", "x_0=0,x_1=7"])
    assert done.exit_code == 0 and "[0, 7]" in done.output

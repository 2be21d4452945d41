"""Promise: parts handed to other engines give the same results at every size, without a copy at
the border, in branches, loops and saved models; what goes wrong there is an error of ours."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.base.errors import DeviceError, InputError, MissingError, OptionError
from anydim.runtime.delegated import Port
from anydim.runtime.devices.engines import table
from anydim.runtime.devices.engines.engine import Tensor
from anydim.runtime.devices.engines.openvino import OpenVino
from anydim.runtime.devices.engines.table import open_engine
from bench.light import light_model

ENGINES = ("onnxruntime", "openvino")
SIZES = (3, 0, 1, 8, 17, 2, 0, 64, 5)  # a sequence on one model

each_engine = pytest.mark.parametrize("engine", ENGINES)


@pytest.fixture(autouse=True)
def _installed(request: pytest.FixtureRequest) -> None:
    if "engine" in request.fixturenames:
        pytest.importorskip(request.getfixturevalue("engine"))


def scorer(engine: str, last: str = "") -> ad.Builder:
    g = ad.Builder("scorer")
    n = g.dim("n", 0, 1 << 20)
    x = g.input("x", ad.float32, (n, 4))
    w = g.constant(np.arange(32, dtype=np.float32).reshape(4, 8) - 16)
    with g.on(engine):
        h = g.reshape(g.relu(g.matmul(x, w)), shape=(4, n * 2))
    with g.on(last):
        y = g.exp(h * -0.01)
    g.output("y", y)
    return g


def expected(x: np.ndarray) -> np.ndarray:
    w = np.arange(32, dtype=np.float32).reshape(4, 8) - 16
    return np.exp(np.maximum(x @ w, 0).reshape(4, 2 * len(x)) * np.float32(-0.01))


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 4), np.float32)


def close(made: Any, right: np.ndarray) -> None:
    made = made["y"] if isinstance(made, dict) else made
    assert made.shape == right.shape
    np.testing.assert_allclose(made, right, rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(most=2)
@each_engine
@pytest.mark.parametrize("last", ["", "same", "cpu:0"])
def test_a_part_in_a_builder(engine: str, last: str) -> None:
    last = engine if last == "same" else last
    devices = {"cpu:0": "cpu:0"} if last == "cpu:0" else None
    model = ad.compile(scorer(engine, last), devices=devices)
    assert model.program.engines == (engine,)
    for n in SIZES:
        close(model(x=rows(n)), expected(rows(n)))
    assert f"= {engine} runs" in model.explain(details=True)
    assert "0 copies" in model.explain(details=True) or last == "cpu:0"
    assert model.check(10).ok


@each_engine
def test_names_stand_for_engines(engine: str) -> None:
    for devices, placement in (
        ({"accel": engine}, {"matmul": "accel", "relu": "accel"}),
        ({"accel": open_engine(engine)}, "matmul=accel,relu=accel"),
        (None, {"matmul": engine, "re*": engine}),
    ):
        model = ad.compile(scorer(""), devices=devices, placement=placement)
        assert len(model.program.engines) == 1
        close(model(x=rows(5)), expected(rows(5)))


class Spy:
    """A part that notes where what it is given lies."""

    def __init__(self, part: Any) -> None:
        self.part = part
        self.seen: list[tuple[list[Tensor], list[Tensor | None]]] = []

    def run(self, inputs: Any, outputs: Any) -> Any:
        self.seen.append((list(inputs), list(outputs)))
        return self.part.run(inputs, outputs)


@each_engine
def test_nothing_is_copied_at_the_border(engine: str) -> None:
    """The engine reads the caller's array, and writes what the caller gets."""
    model = ad.compile(scorer(engine, engine))
    (run,) = model.executable.handed._runs
    run.loaded = spy = Spy(run.loaded)
    for n in (4096, 8192):
        x = rows(n)
        made = model(x=x)
        made = made["y"] if isinstance(made, dict) else made
        (inputs, outputs) = spy.seen[-1]
        assert inputs[0].address == x.ctypes.data and inputs[0].shape == x.shape
        assert outputs[0].address == made.ctypes.data and outputs[0].shape == made.shape
        close(made, expected(x))


def test_onnxruntime_is_bound_to_our_memory() -> None:
    """What it says its inputs and results are is where ours lie."""
    pytest.importorskip("onnxruntime")
    engine, model = open_engine("onnxruntime"), relu_model()
    part = engine.load(model, [Port("x", ad.float32, 1)], [Port("y", ad.float32, 1)], 1)
    x, y = np.float32([-1, 2, 3]), np.empty(3, np.float32)
    part.run([Tensor(x.ctypes.data, ad.float32, (3,))], [Tensor(y.ctypes.data, ad.float32, (3,))])
    assert part._binding().get_outputs()[0].data_ptr() == y.ctypes.data
    assert y.tolist() == [0, 2, 3]


def test_openvino_is_bound_to_our_memory() -> None:
    pytest.importorskip("openvino")
    engine, model = open_engine("openvino"), relu_model()
    part = engine.load(model, [Port("x", ad.float32, 1)], [Port("y", ad.float32, 1)], 1)
    x, y = np.float32([-1, 2, 3]), np.empty(3, np.float32)
    part.run([Tensor(x.ctypes.data, ad.float32, (3,))], [Tensor(y.ctypes.data, ad.float32, (3,))])
    (request,) = part._idle
    assert request.get_input_tensor(0).data.ctypes.data == x.ctypes.data
    assert request.get_output_tensor(0).data.ctypes.data == y.ctypes.data
    assert y.tolist() == [0, 2, 3]


def relu_model() -> bytes:
    from onnx import helper

    x, y = (helper.make_tensor_value_info(name, 1, ["n"]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    opset = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()


@each_engine
def test_parts_in_loops_and_branches(engine: str) -> None:
    def graph(device: str) -> ad.Builder:
        g = ad.Builder("iterated")
        n = g.dim("n", 0, 64)
        x = g.input("x", ad.float32, (n, 4))
        w = g.constant(np.eye(4, dtype=np.float32) * 0.5)

        def body(b: Any, t: Any, state: Any) -> Any:
            with b.on(device):
                made = b.relu(b.matmul(state, w))
            b.stack(b.reduce_sum(made, axes=(0, 1)))
            return b.concat(made, x, axis=0)

        end, sums = g.loop(body, x, trips=n)

        def then(b: Any) -> Any:
            with b.on(device):
                return b.tanh(end)

        below = g.less(g.reduce_sum(x), g.constant(np.float32(0)))
        g.output("y", g.branch(below, then, lambda b: b.neg(end)))
        g.output("s", sums)
        return g

    host = ad.compile(graph(""))
    model = ad.compile(graph(engine))
    assert model.program.engines == (engine,)
    for n in (2, 0, 1, 5, 3):
        made, right = model(x=rows(n)), host(x=rows(n))
        for name in ("y", "s"):
            np.testing.assert_allclose(made[name], right[name], rtol=1e-5, atol=1e-6)


@each_engine
def test_what_an_engine_does_not_take_stays(engine: str) -> None:
    g = ad.Builder("sorted")
    n = g.dim("n", 0, 64)
    x = g.input("x", ad.float32, (n, 4))
    with g.on(engine):
        y = g.neg(x)
        values, _ = g.top_k(y, k=2, axis=1)
        total = g.reduce_mean(values, axes=(0,))
    g.output("y", total)
    model = ad.compile(g)
    told = model.show("placed")
    assert "but onnxruntime" in told.replace("openvino", "onnxruntime") and "'top_k'" in told
    assert "it does not support empty tensors, and n may be 0: give dims a lower bound of 1" in told
    right = -np.sort(rows(9), 1)[:, :2]
    close(model(x=rows(9)), right.mean(0))


@each_engine
def test_a_saved_model_has_its_parts(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "scorer.anydim"
    ad.compile(scorer("accel"), devices={"accel": engine}).save(path)
    for devices in ({"accel": engine}, *({"accel": e} for e in ENGINES if _here(e))):
        model = ad.load(path, devices=devices)
        for n in SIZES:
            close(model(x=rows(n)), expected(rows(n)))
    with pytest.raises(DeviceError, match="has parts on 'accel', which is bound to no engine"):
        ad.load(path)
    assert "engines   accel" in str(ad.inspect(path))
    assert "accel runs" in ad.load(path, devices={"accel": engine}).explain(details=True)


def _here(engine: str) -> bool:
    return importlib.util.find_spec(engine) is not None


@each_engine
def test_a_file_without_a_virtual_name_needs_none(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "scorer.anydim"
    ad.compile(scorer(engine)).save(path)
    close(ad.load(path)(x=rows(5)), expected(rows(5)))


@each_engine
def test_threads_call_one_model(engine: str) -> None:
    model = ad.compile(scorer(engine))
    failed: list[BaseException] = []

    def calls(seed: int) -> None:
        try:
            for n in (seed, 0, 33, 1, 2 * seed):
                close(model(x=rows(n)), expected(rows(n)))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=calls, args=(seed,)) for seed in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]


def test_an_error_of_an_engine_is_ours() -> None:
    pytest.importorskip("onnxruntime")
    g = ad.Builder("lookup")
    n = g.dim("n", 1, 64)
    x, places = g.input("x", ad.float32, (n, 4)), g.input("i", ad.int64, (3,))
    with g.on("onnxruntime"):
        y = g.gather(x, places)
    g.output("y", y)
    model = ad.compile(g)
    for _ in range(3):
        with pytest.raises(DeviceError, match=r"gather.*'onnxruntime': run failed.*out of data"):
            model(x=rows(5), i=np.int64([0, 7, 1]))
        close(model(x=rows(5), i=np.int64([0, 4, 1])), rows(5)[[0, 4, 1]])
    assert model.executable.leaked == 0


def test_an_engine_that_is_not_there_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingError, match=r"pip install anydim\[openvino\]"):
        OpenVino()
    monkeypatch.setattr(table.util, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match=r"pip install anydim\[onnxruntime\]"):
        table.ENGINES["onnxruntime"].here()


def test_an_empty_tensor_where_some_result_is_not_is_refused() -> None:
    pytest.importorskip("onnxruntime")
    g = ad.Builder("mixed")
    n, m = g.dim("n", 0, 64), g.dim("m", 0, 64)
    x, z = g.input("x", ad.float32, (n, 4)), g.input("z", ad.float32, (m, 4))
    with g.on("onnxruntime"):
        a, b = g.softmax(x), g.softmax(z)
    g.output("a", a)
    g.output("b", b)
    model = ad.compile(g)
    assert model(x=rows(0), z=rows(0))["a"].shape == (0, 4)
    assert model(x=rows(1), z=rows(2))["b"].shape == (2, 4)
    with pytest.raises(InputError, match="and one is empty at n = 0, m = 3"):
        model(x=rows(0), z=rows(3))


def test_an_engine_that_nothing_is_put_on_is_told_of() -> None:
    pytest.importorskip("onnxruntime")
    model = ad.compile(scorer(""), devices={"accel": "onnxruntime"})
    assert not model.program.engines
    assert "no node is on 'accel': use placement= or g.on" in model.explain(details=True)


def test_rules_of_placement() -> None:
    with pytest.raises(OptionError, match="placement without devices"):
        ad.compile(scorer(""), placement={"matmul": "accel"})
    with pytest.raises(OptionError, match="which is not a device"):
        ad.compile(scorer(""), placement={"matmul": "accel", "relu": "onnxruntime"})
    with pytest.raises(OptionError, match="exported"):
        ad.compile(scorer("onnxruntime")).export("/nowhere")


@pytest.mark.slow
@each_engine
def test_a_part_of_resnet50(engine: str, tmp_path: Path) -> None:
    """The convolutions and what is between them, with a free batch: right, and nothing copied."""
    path = tmp_path / "resnet50.onnx"
    path.write_bytes(light_model("resnet50").SerializeToString())
    rules = {"conv": engine, "relu": engine, "add": engine, "batch_norm": engine}
    model, host = ad.compile(path, placement=rules), ad.compile(path)
    steps = [step for region in model.program.regions for step in region.handed]
    assert len(steps) == 2  # the pools stay, and part the first convolution from the others
    spies = []
    for run in model.executable.handed._runs:
        run.loaded = Spy(run.loaded)
        spies.append(run.loaded)
    for batch in (1, 0, 3, 2):
        x = np.random.default_rng(batch).standard_normal((batch, 3, 224, 224), np.float32)
        (made,), (right,) = (each(x).values() for each in (model, host))
        # sums of some thousand products in other orders, fifty times one after the other
        np.testing.assert_allclose(
            made, right, rtol=1e-3, atol=1e-4 * max(1, abs(right).max(initial=0))
        )
        if batch:
            assert spies[0].seen[-1][0][0].address == x.ctypes.data
            assert spies[1].seen[-1][0][0].shape == (batch, 64, 56, 56)


def test_openvino_is_not_given_what_it_computes_otherwise() -> None:
    """Its CPU plugin computes int64 as int32, and gives 0 for an index outside its axis."""
    pytest.importorskip("openvino")
    g = ad.Builder("integers")
    n = g.dim("n", 0, 64)
    x, w = g.input("x", ad.int64, (n,)), g.constant(np.ones((5, 4), np.float32))
    with g.on("openvino"):
        g.output("sums", x + x)
        g.output("rows", g.gather(w, x))
        g.output("floats", g.neg(g.constant(np.ones(3, np.float32)) * 2.0))
    model = ad.compile(g)
    told = model.explain(details=True)
    assert "openvino does not support it: it computes int64 as int32" in told
    assert "openvino does not support it: indices out of bounds are not errors there" in told
    assert model(x=np.int64([4]))["sums"] == [8]
    with pytest.raises(InputError, match="index 5"):
        model(x=np.int64([5]))


def test_a_program_with_parts_is_profiled_and_traced() -> None:
    pytest.importorskip("onnxruntime")
    model = ad.compile(scorer("onnxruntime"))
    assert "launches" in str(model.profile(n=8, repeat=3))
    assert model.trace(n=8)

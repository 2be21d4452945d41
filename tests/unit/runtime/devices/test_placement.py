"""Promise: `placement=` puts nodes where it says, the rest where time is least, and says why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.base.errors import DeviceError, OptionError, UserError
from anydim.cli.app import main
from anydim.compiler.targets.targets import target
from anydim.runtime.devices.null import NullDevice, TimeModel

SIZES = (0, 1, 2, 7, 31, 64)
AT_ONCE = TimeModel()  # nothing takes any time
SLOW = TimeModel(latency=1.0)  # a second for each launch
GROWING = TimeModel(copy_latency=1e-3, bandwidth=1e12, flops={"": 1e15})


def net(columns: int = 16) -> ad.Builder:
    """Two dense layers and a softmax, rows free."""
    g = ad.Builder("net")
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), columns))
    w = g.constant(numpy.random.default_rng(0).normal(size=(columns, columns)).astype("f"))
    for _ in range(2):
        x = g.relu(g.matmul(x, w))
    g.output("y", g.softmax(x, axis=-1))
    return g


def given(rows: int, columns: int = 16) -> numpy.ndarray:
    return numpy.random.default_rng(rows).normal(size=(rows, columns)).astype(numpy.float32)


def devices_of(model: ad.Model) -> set[str]:
    return {segment.device for segment in model.program.segments}


def test_rules_place_nodes_and_results_are_those_of_the_host() -> None:
    alone = ad.compile(net())
    rules = {"matmul": "accel", "softmax": "other", "*": "cpu"}
    model = ad.compile(net(), devices={"accel": "cpu:1", "other": "cpu:2"}, placement=rules)
    assert devices_of(model) == {"", "accel", "other"}
    for rows in SIZES:
        assert (model(x=given(rows))["y"] == alone(x=given(rows))["y"]).all()
    shown = model.show("placed")
    assert "accel: 'matmul_2' = matmul  # placement matmul=accel" in shown
    assert "copy 'x', cpu to accel" in shown
    assert "placement: 2 nodes on accel" in model.explain(details=True)


@pytest.mark.parametrize(("time", "expected"), [(AT_ONCE, {"accel"}), (SLOW, {""})])
def test_what_no_rule_speaks_of_goes_where_time_is_least(
    time: TimeModel, expected: set[str]
) -> None:
    model = ad.compile(net(), devices={"accel": NullDevice(time=time)})
    assert devices_of(model) == expected


def test_a_rule_leaves_the_rest_to_time() -> None:
    device = NullDevice(time=AT_ONCE)
    model = ad.compile(net(256), devices={"accel": device}, placement={"softmax": "cpu"})
    assert devices_of(model) == {"", "accel"}
    before = device.counters.copies_in, device.counters.copies_out
    model(x=given(5, 256))
    counters = device.counters
    assert (counters.copies_in - before[0], counters.copies_out - before[1]) == (1, 1)


def test_what_the_graph_says_stays() -> None:
    g = ad.Builder("said")
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 4))
    with g.on("accel"):
        x = g.softmax(x, axis=-1)
    g.output("y", g.reduce_sum(x, axes=(1,)))
    model = ad.compile(g, devices={"accel": NullDevice(time=AT_ONCE)})
    assert devices_of(model) == {"", "accel"}


def test_sizes_choose_between_placements() -> None:
    """Copies cost a millisecond: small sizes are the host's, large ones the device's."""
    g = ad.Builder("large")
    x = g.input("x", ad.float32, (g.dim("n", 0, 4096), 256))
    w = g.constant(numpy.ones((256, 256), numpy.float32))
    for _ in range(6):
        x = g.relu(g.matmul(x, w))
    g.output("y", x)
    device = NullDevice(time=GROWING)
    with settings.override(placing_seconds=0):
        model = ad.compile(g, devices={"accel": device})
    assert devices_of(model) == {"", "accel"}
    assert "placement by size" in model.explain(details=True)
    before = device.counters.launches
    assert model(x=abs(given(1, 256)))["y"].any()
    assert device.counters.launches == before
    model(x=given(4096, 256))
    assert device.counters.launches > before
    with settings.override(placed_twice_mb=0, placing_seconds=0):
        single = ad.compile(g, devices={"accel": device})
    assert "of weights twice: setting placed_twice_mb" in single.explain(details=True)


class Late(NullDevice):
    """A device that takes no time, but ten seconds for a copy of more than 32 rows of `net`."""

    def _copy_in(self, target: int, source: int, bytes: int) -> None:
        super()._copy_in(target, source, bytes)
        if 32 * 16 * 4 < bytes <= 64 * 16 * 4:
            self.seconds += 10.0


def test_measured_times_choose_between_placements() -> None:
    """Nobody has estimated what the device does with copies of more than 32 rows."""
    device = Late()
    model = ad.compile(net(), devices={"accel": device})
    told = model.explain(details=True)
    assert "placements measured at" in told and "estimates alone: up to" in told
    assert "lowest measured time" in model.show("placed")
    for rows in (1, 7, 31, 32, 33, 34, 64):
        before = device.counters.launches
        model(x=given(rows))
        assert (device.counters.launches > before) == (rows <= 32), rows


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        ({"sofmax": "accel"}, "no node matches 'sofmax'"),
        ({"softmax": "accl"}, "on 'accl', which is not a device"),
        ("softmax", "cannot be read"),
    ],
)
def test_wrong_rules(placement: object, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        ad.compile(net(), devices={"accel": "cpu:1"}, placement=placement)


@pytest.mark.parametrize(
    ("devices", "placement", "words"),
    [
        ({"accel": "gpu"}, None, "'cuda' for an NVIDIA graphics card, 'opencl' for any"),
        ({"accel": "opncl"}, None, "did you mean 'opencl'"),
        ({"accel": "fpga"}, None, "there are 'cpu', 'opencl', 'cuda'"),
        ({"accel": 0}, None, "expected the name of a device, such as 'opencl:0'"),
        ("opencl", None, r"devices=\{'accel': 'opencl'\}"),
        ({"cpu": "cpu:1"}, None, "choose another name"),
        ({"accel": "cpu:1"}, {"*": "cpu:1"}, r"devices=\{'accel': 'cpu:1'\}, placement="),
        ({"accel": "cpu:1"}, "automatic", "or auto"),
    ],
)
def test_errors_say_what_to_do(devices: object, placement: object, words: str) -> None:
    with pytest.raises(UserError, match=words):
        ad.compile(net(), devices=devices, placement=placement)


@pytest.mark.parametrize("placement", [None, "auto", {"softmax": "accel"}])
def test_a_graph_may_name_a_device_that_nobody_says(placement: object) -> None:
    g = ad.Builder("said")
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 4))
    with g.on("gpu"):
        x = g.tanh(x)
    with g.on("cpu"):  # the host
        x = g.neg(x)
    g.output("y", g.softmax(x, axis=-1))
    with pytest.raises(DeviceError, match=r"parts on 'gpu'.*\n.*'gpu': 'cpu:0'"):
        ad.compile(g, devices={"accel": "cpu:1"}, placement=placement)
    model = ad.compile(g, devices={"accel": "cpu:1"}, placement={"tanh": "accel", "*": "cpu"})
    assert devices_of(model) == {"", "accel"}


def test_rules_without_devices() -> None:
    with pytest.raises(OptionError, match="placement without devices"):
        ad.compile(net(), placement={"softmax": "accel"})


def test_a_saved_model_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It needs its devices there, too."""
    path = str(tmp_path / "m.anydim")
    ad.compile(net(), devices={"accel": "cpu:1"}, placement={"*": "accel"}).save(path)
    for given, code, words in (
        (["--device", "accel=cpu:2"], 0, "accel: cpu:2"),
        ([], 2, "net has parts on 'accel'"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["trace", path, "--at", "n=5", *given])
        printed = capsys.readouterr()
        assert ended.value.code == code
        assert words in (printed.err if code else printed.out)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "k.tc"
    text.write_text("def double(float(N) x) -> (y) { y(n) = x(n) * 2 }\n", "utf-8")
    asked = ["--device", "accel=cpu:1", "--placement", "*=accel"]
    shown = ["show", f"{text}:double", "--stage", "placed", "-q"]
    for given, code, words in (
        (asked, 0, "copy 'x', cpu to accel"),
        (["--device", "accel"], 2, "such as --device accel=opencl:0"),
    ):
        with pytest.raises(SystemExit) as ended:
            main([*shown, *given])
        printed = capsys.readouterr()
        assert ended.value.code == code
        assert words in (printed.err if code else printed.out)


def test_devices_of_groups_leave_routines_and_loops_in_order_to_the_host() -> None:
    device = NullDevice()
    device.made_by = replace(target("llvm"), ordered=False)
    g = ad.Builder("sorted")
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 4))
    values, order = g.sort(g.exp(x), axis=0)
    g.output("y", g.scatter_elements(x, order, values, axis=0, reduction="add"))
    model = ad.compile(g, devices={"accel": device}, placement={"*": "accel"})
    told = model.explain(details=True)
    assert "placement *=accel, but accel has no such routine" in told
    assert "placement *=accel, but accel runs no loops in order" in told
    assert [s.device for s in model.program.segments if s.sites] == ["accel", "", ""]
    other = ad.compile(g, devices={"accel": NullDevice()}, placement={"*": "accel"})
    assert {s.device for s in other.program.segments if s.sites} == {"accel"}

"""Promise: a saved model with parts on devices runs on what its names stand for at `load`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from platform import machine

import numpy
import pytest

import anydim as ad
from anydim.runtime.devices.cpu import CpuDevice
from anydim.runtime.devices.null import NullDevice
from tests.unit.runtime.devices.test_placed_programs import arrays, diamond, graph_of, iterated


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("placed") / "diamond.anydim"
    model = ad.compile(graph_of(diamond, "a", "b", "", "a"), devices={"a": "cpu:0", "b": "null"})
    model.save(path, ["native", "x86-64-v2"] if machine() in ("x86_64", "AMD64") else "native")
    return path


def test_names_stand_for_what_load_says(saved: Path) -> None:
    host = ad.compile(graph_of(diamond, "", "", "", ""))
    for devices in ({"a": "cpu:0", "b": "cpu:1"}, {"a": "cpu", "b": "cpu"}, {"a": CpuDevice("x"),
                    "b": CpuDevice("y")}):  # fmt: skip
        model = ad.load(saved, devices=devices)
        for n in (0, 1, 7, 64):
            given = arrays(n)
            numpy.testing.assert_allclose(
                model(**given)["y"], host(**given)["y"], rtol=1e-6, atol=1e-6
            )
        assert model.executable.leaked == 0


def test_a_file_says_which_devices_it_wants(saved: Path) -> None:
    found = ad.inspect(saved, verify=True)
    assert [(each.name, each.target) for each in found.devices] == [("a", "llvm"), ("b", "llvm")]
    assert "devices   a (llvm code)\n            b (llvm code)" in str(found)
    model = ad.load(saved, devices={"a": "cpu", "b": "cpu"})
    assert "copy 'x@a' = 'x', host to 'a'" in model.explain(details=True)
    assert model.plan(n=3).launches


def test_code_for_another_processor_holds_the_kernels_of_devices(saved: Path) -> None:
    levels = [level.name for level in ad.load(saved, devices={"a": "cpu", "b": "cpu"}).levels]
    given = arrays(9)
    results = [
        ad.load(saved, level=level, devices={"a": "cpu", "b": "cpu"})(**given)["y"]
        for level in levels
    ]
    for each in results:
        numpy.testing.assert_allclose(each, results[0], rtol=1e-5, atol=1e-5)


class Elsewhere(NullDevice):
    target = "c"


def test_devices_that_do_not_fit(saved: Path) -> None:
    with pytest.raises(ad.DeviceError, match="has parts on 'a', 'b'"):
        ad.load(saved)
    with pytest.raises(ad.DeviceError, match="parts on 'b'; devices= names 'a'"):
        ad.load(saved, devices={"a": "cpu"})
    with pytest.raises(ad.DeviceError, match="there is no device 'tpu'"):
        ad.load(saved, devices={"a": "cpu", "b": "tpu"})
    with pytest.raises(ad.DeviceError, match="llvm code for 'b', and device 'null' runs c code"):
        ad.load(saved, devices={"a": "cpu", "b": Elsewhere()})
    larger = NullDevice("large")
    larger.workers = 8
    with pytest.raises(
        ad.DeviceError, match="memory for 1 workers on 'b', and device 'large' has 8"
    ):
        ad.load(saved, devices={"a": "cpu", "b": larger})


def test_code_that_is_no_host_code_is_saved_as_objects(tmp_path: Path) -> None:
    kept = []

    class Keeping(Elsewhere):
        def _load(self, code: dict[str, bytes], symbols: list[str]) -> dict[str, int]:
            kept.append((code, list(symbols)))
            return dict(super()._load(code, symbols))

    model = ad.compile(graph_of(iterated, "a"), devices={"a": Keeping()})
    model.save(tmp_path / "m.anydim")
    loaded = ad.load(tmp_path / "m.anydim", devices={"a": Keeping()})
    assert kept[0] == kept[1] and kept[0][0] and kept[0][1]
    assert loaded(**arrays(3))["end"].shape == (3, 4)


def test_a_process_without_compiler_runs_it(saved: Path) -> None:
    script = (
        "import sys, numpy, anydim;"
        f"m = anydim.load({str(saved)!r}, devices={{'a': 'cpu', 'b': 'cpu:1'}});"
        "print(m(x=numpy.ones((3, 4), numpy.float32))['y'].shape);"
        "print(*sorted({n.split('.')[1] for n in sys.modules if n.startswith('anydim.')}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["(3, 4)", "base deploy runtime sizes"], done.stderr

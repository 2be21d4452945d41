"""Promise: `make bench-gpu` says so where there is no device, and measures what there is."""

from __future__ import annotations

import re

import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import bfloat16, float32
from anydim.runtime.devices.libcuda import Library
from bench import gpu
from tests.cuda_on_host import cuda_on_host, has_cxx
from tests.unit.runtime.devices.fake_cuda import FakeCuda


def test_without_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--device", "cuda:65000"]) == 1
    assert gpu.main(["--device", "cpu:0"]) == 1
    first, *_, last, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("no device: ")
    assert last == "no device: 'cpu:0' is no CUDA device"


def test_rows_are_graphs_with_inputs() -> None:
    models = gpu.models()
    for name, row in gpu.rows().items():
        if name not in models:
            assert row.source().graph().outputs == ("y",)


@pytest.mark.slow
@pytest.mark.skipif(not has_cxx(), reason="no C++ compiler")
@pytest.mark.parametrize("graphs", [0, 2])
def test_lines_of_figures(graphs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "ROWS", (3,))
    with cuda_on_host():
        device = gpu.Repeating("cuda:0", 0, graphs, Library(FakeCuda(1, 1 << 28, 128)))
        row = gpu.product(bfloat16, 16)
        placed = {"devices": {"accel": device}, "placement": {"*": "accel"}}
        model, host = ad.compile(row.source(), **placed), ad.compile(row.source())
        for given in row.inputs().values():
            right = gpu.results(host, given)
            line = gpu.measured(row, device, model, given, right, 1)
            found = re.fullmatch(
                r"call +[\d.]+  kernels +[\d.]+  +[\d.]+ Tflop/s  difference (.*)", line
            )
            assert found is not None
            assert float(found[1]) < 2.0**-7  # of bfloat16
            assert len(device.last) == 1
    assert gpu.drawn(float32, 2, 3).dtype == numpy.float32

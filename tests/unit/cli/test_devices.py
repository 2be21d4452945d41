"""Promise: `anydim devices` lists what is here, and says why something is not."""

from __future__ import annotations

import re

import pytest

from anydim.base import settings
from anydim.cli.app import main
from anydim.runtime.devices.cuda import Library, list_cuda_devices
from anydim.runtime.devices.opencl import inventory
from anydim.runtime.devices.opencl.libopencl import ClError
from tests.unit.runtime.devices.fake_cuda import FakeCuda


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["devices"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_what_is_here_and_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with settings.override(opencl_library="/nowhere/libOpenCL.so"):
        text = printed(capsys)
    assert re.search(r"^cpu:0 +\S.*, one thread each, any number", text, re.MULTILINE)
    assert re.search(r"^opencl +none: .*nowhere(.*\n +)*.*anydim\[opencl\]", text, re.MULTILINE)
    assert re.search(r"^null:0 +simulated", text, re.MULTILINE)


def test_a_driver_that_fails_is_no_crash(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        def handles(self, function: str) -> list[int]:
            raise ClError(function, -6)

    monkeypatch.setattr(inventory, "library", Failing)
    assert re.search(r"^opencl +none: OpenCL cannot list its devices", printed(capsys), re.M)


def test_devices_of_nvidia_say_what_they_are() -> None:
    (shown,) = list_cuda_devices(Library(FakeCuda()))
    assert shown.about == "Fake, sm_90, 4 multiprocessors, 16 MiB"

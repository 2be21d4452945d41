"""Promise: `anydim devices` lists what is here, and says why something is not."""

from __future__ import annotations

import re

import pytest

from anydim.base import settings
from anydim.cli.app import main
from anydim.devices.cuda import Library, found
from tests.unit.devices.fake_cuda import FakeCuda


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["devices"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_what_is_here_and_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with settings.override(opencl_library="/nowhere/libOpenCL.so"):
        text = printed(capsys)
    assert re.search(r"^cpu:0 +\S", text, re.MULTILINE)
    assert re.search(r"^opencl +none: .*nowhere.*\n.*anydim\[opencl\]", text, re.MULTILINE)
    assert re.search(r"^null:0 +computes nothing", text, re.MULTILINE)


def test_devices_of_nvidia_say_what_they_are() -> None:
    (shown,) = found(Library(FakeCuda()))
    assert shown.about == "Fake, sm_90, 4 multiprocessors, 16777216 bytes (16 MiB)"

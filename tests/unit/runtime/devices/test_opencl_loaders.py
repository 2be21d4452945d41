"""Promise: a loader that lists no device is an error in words, and the model works on the host.

The loaders are made here: what this machine and its packages have decides nothing.
"""

from __future__ import annotations

import pathlib
import subprocess

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.compiler.targets.c.compilers import compiler
from anydim.runtime.devices.opencl import inventory
from anydim.runtime.devices.opencl.libopencl import _FUNCTIONS, _MAKERS, NO_PLATFORM
from tests.kernel_targets import needs_compiler

_LISTED = """
int clGetPlatformIDs(unsigned most, void **found, unsigned *count) {
  if (count) *count = PLATFORMS;
  if (found && most) *found = "a platform";
  return PLATFORMS || !MISSING ? 0 : MISSING;
}
int clGetDeviceIDs(void *p, unsigned long long kind, unsigned most, void **found, unsigned *count) {
  if (count) *count = 0;
  return -1;
}
"""
_FORMS = {  # definitions of the text above
    "no platform": {"PLATFORMS": 0, "MISSING": NO_PLATFORM},
    "an empty list": {"PLATFORMS": 0, "MISSING": 0},
    "a platform without devices": {"PLATFORMS": 1, "MISSING": 0},
}


def loader(folder: pathlib.Path, values: dict[str, int]) -> str:
    """The path of a libOpenCL whose functions fail, but for the two that list devices."""
    rest = (_FUNCTIONS.keys() | _MAKERS.keys()) - {"clGetPlatformIDs", "clGetDeviceIDs"}
    failing = "".join(f"int {name}(void) {{ return -30; }}\n" for name in sorted(rest))
    source, made = folder / "loader.c", folder / "libOpenCL.so"
    source.write_text(_LISTED + failing, "utf-8")
    defined = [f"-D{name}={value}" for name, value in values.items()]
    command = [*compiler().command, "-shared", "-fPIC", *defined, str(source), "-o", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    return str(made)


@needs_compiler
@pytest.mark.parametrize("form", _FORMS)
def test_a_loader_without_devices(form: str, tmp_path: pathlib.Path) -> None:
    g = ad.Builder("one")
    g.output("y", g.exp(g.input("x", ad.float32, [g.dim("n", 0, 8)])))
    path, rules = loader(tmp_path, _FORMS[form]), {"*": "accel"}
    with settings.override(opencl_library=path):
        assert inventory.devices() == []
        with pytest.raises(ad.DeviceError) as refused:
            ad.compile(g, devices={"accel": "opencl:0"}, placement=rules)
        model = ad.compile(g, devices={"accel": "cpu"}, placement=rules)
    said = str(refused.value)
    assert f"there is no device 'opencl:0': the OpenCL loader {path} has 0 devices" in said
    assert "pip install anydim[opencl]" in said
    for n in (0, 1, 3, 7):
        numpy.testing.assert_array_equal(
            model(x=numpy.zeros(n, numpy.float32))["y"], numpy.ones(n, numpy.float32)
        )

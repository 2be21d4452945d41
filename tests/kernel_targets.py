"""Runs tests once for each target that makes code of kernels.

They use the fixture `kernel_target`, which a conftest.py imports. For C and OpenCL they are slow: a
compiler works for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pytest

from anydim.base import settings
from anydim.base.errors import DeviceError, OptionError
from anydim.compiler.targets.c.compilers import compiler
from anydim.runtime.devices.opencl.inventory import devices
from anydim.runtime.devices.opencl.opened import open_opencl


def has_compiler(name: str = "") -> bool:
    """Whether this machine has that C compiler, or any."""
    try:
        with settings.override(c_compiler=name):
            return bool(compiler())
    except OptionError:
        return False


@lru_cache(maxsize=1)
def device_count() -> int:
    """How many OpenCL devices this machine has that compile; PoCL shows two in tests.

    A PoCL whose LLVM is older than the processor compiles nothing.
    """
    try:
        open_opencl().load({"nothing": b"__kernel void nothing(const long w) {}"}, ["nothing"])
        return len(devices())
    except DeviceError:
        return 0


def has_device() -> bool:
    """Whether this machine has an OpenCL device that compiles."""
    return bool(device_count())


needs_device = pytest.mark.skipif(not has_device(), reason="no OpenCL device that compiles")
needs_two_devices = pytest.mark.skipif(device_count() < 2, reason="no two OpenCL devices")
needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C compiler")


# the targets of this machine's processor, for a test that is quick with each
HOST_TARGETS = ["llvm", pytest.param("c", marks=needs_compiler)]
_SLOW = {"c": needs_compiler, "opencl": needs_device}


@pytest.fixture(
    params=["llvm", *(pytest.param(n, marks=[pytest.mark.slow, m]) for n, m in _SLOW.items())]
)
def kernel_target(request: pytest.FixtureRequest) -> Iterator[str]:
    """The target that kernels are compiled by, in all that the test runs."""
    with settings.override(target=request.param):
        yield request.param

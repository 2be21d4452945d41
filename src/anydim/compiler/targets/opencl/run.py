"""Runs single kernels on the first OpenCL device, for `targets/run.py`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy

from anydim.compiler.kernels.ir import Kernel
from anydim.compiler.targets.target import Code, Target
from anydim.runtime.devices.device import Launch
from anydim.runtime.devices.opencl.device import OpenClDevice
from anydim.runtime.devices.opencl.opened import open_opencl

_ALIGNMENT = 64


@lru_cache(maxsize=1)
def first_device() -> OpenClDevice:
    """Return device 'opencl:0', opened once; raises DeviceError if there is none."""
    return open_opencl()


class OnDevice(Code):
    """A kernel on the device; its address is negative, as `run_on_device` expects.

    It is released with the device.
    """

    def __init__(self, kernel: Kernel, target: Target) -> None:
        objects = target.compile(target.sources([kernel], target.processor))
        entries = first_device().load(objects.code, [kernel.name])
        super().__init__({name: -entry for name, entry in entries.items()})


def run_on_device(
    entry: int, arrays: Sequence[numpy.ndarray], sizes: Sequence[int], start: int, stop: int,
    scratch_bytes: int,
) -> None:  # fmt: skip
    """Run a kernel on copies of arrays, and copy writable ones back."""
    device = first_device()
    stride = -(-scratch_bytes // _ALIGNMENT) * _ALIGNMENT
    scratch = device.allocate(max(_ALIGNMENT, stride * device.workers))
    blocks = {}
    for array in arrays:
        if array.ctypes.data not in blocks:
            block = blocks[array.ctypes.data] = device.allocate(max(_ALIGNMENT, array.nbytes))
            device.copy_in(block, array.ctypes.data, array.nbytes)
    words = numpy.array([*(blocks[a.ctypes.data] for a in arrays), *map(int, sizes)], numpy.int64)
    given = (len(arrays), len(sizes), stop, max(1, stop - start), scratch, stride)  # one part
    device.launch_part(Launch(entry, words.ctypes.data, *given), start)
    for array in arrays:
        if array.flags.writeable:
            device.copy_out(array.ctypes.data, blocks[array.ctypes.data], array.nbytes)
    device.wait(device.record())
    for block in (scratch, *blocks.values()):
        device.free(block)

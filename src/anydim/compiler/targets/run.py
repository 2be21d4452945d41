"""Compiles single kernels and calls them on numpy arrays, for tests and experiments."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace

import numpy

from anydim.base import settings
from anydim.compiler.kernels.ir import Kernel
from anydim.compiler.targets.opencl.run import OnDevice, run_on_device
from anydim.compiler.targets.processor import Processor
from anydim.compiler.targets.target import Code
from anydim.compiler.targets.targets import target

ENTRY = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)  # fmt: skip


def build(kernel: Kernel, vector_bytes: int = 64, processor: Processor | None = None) -> Code:
    """Compile and load the kernel and its libraries by the target in the settings.

    Its entry is `address(kernel.name)`. A `processor` must be a subset of this one.
    """
    made = target(settings.target)
    if made.launch == "device":
        return OnDevice(kernel, made)
    processor = replace(processor or made.processor, vector_bytes=vector_bytes)
    assert made.load is not None
    objects = replace(made, processor=processor).compile(made.sources([kernel], processor))
    return made.load(objects.code.values(), [kernel.name])


def launch(
    kernel: Kernel,
    arrays: Sequence[numpy.ndarray],
    sizes: Sequence[int],
    start: int = 0,
    stop: int = 1,
    scratch: int = 0,
    vector_bytes: int = 64,
    processor: Processor | None = None,
) -> None:
    """Run a kernel once on C-contiguous arrays, which match its operands and may be written."""
    with build(kernel, vector_bytes, processor) as loaded:
        call(loaded.address(kernel.name), arrays, sizes, start, stop, scratch)


def call(
    address: int,
    arrays: Sequence[numpy.ndarray],
    sizes: Sequence[int],
    start: int,
    stop: int,
    scratch: int | numpy.ndarray = 0,
) -> None:
    """Call a loaded kernel: pack the argument block; scratch is allocated or given."""
    if address < 0:
        assert isinstance(scratch, int)
        run_on_device(-address, arrays, sizes, start, stop, scratch)
        return
    slots = [array.ctypes.data for array in arrays] + [int(size) for size in sizes]
    block = (ctypes.c_int64 * max(1, len(slots)))(*slots)
    if isinstance(scratch, int):
        scratch = numpy.zeros(scratch + 64, numpy.uint8)
    aligned = -(-scratch.ctypes.data // 64) * 64
    ENTRY(address)(ctypes.addressof(block), start, stop, aligned)

"""Compile one kernel and call it on numpy arrays: for tests and experiments."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace

import numpy

from anydim.kernels.ir import Kernel
from anydim.targets.llvm.compiler import compile_modules
from anydim.targets.llvm.host import this_machine
from anydim.targets.llvm.loader import Loaded, load
from anydim.targets.llvm.render import sources

ENTRY = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)  # fmt: skip


def build(kernel: Kernel, vector_bytes: int = 64) -> Loaded:
    """The kernel and its libraries, compiled and loaded; its entry is `address(kernel.name)`."""
    processor = replace(this_machine(), vector_bytes=vector_bytes)
    modules = sources([kernel], processor)
    return load(compile_modules(modules, processor).code.values(), [kernel.name])


def launch(
    kernel: Kernel,
    arrays: Sequence[numpy.ndarray],
    sizes: Sequence[int],
    start: int = 0,
    stop: int = 1,
    scratch_bytes: int = 0,
    vector_bytes: int = 64,
) -> None:
    """Run a kernel once on C-contiguous arrays, which match its operands and may be written."""
    with build(kernel, vector_bytes) as loaded:
        call(loaded.address(kernel.name), arrays, sizes, start, stop, scratch_bytes)


def call(
    address: int,
    arrays: Sequence[numpy.ndarray],
    sizes: Sequence[int],
    start: int,
    stop: int,
    scratch_bytes: int = 0,
) -> None:
    """Call a loaded kernel: pack the argument block, give it aligned scratch."""
    slots = [array.ctypes.data for array in arrays] + [int(size) for size in sizes]
    block = (ctypes.c_int64 * max(1, len(slots)))(*slots)
    scratch = numpy.zeros(scratch_bytes + 64, numpy.uint8)
    aligned = -(-scratch.ctypes.data // 64) * 64
    ENTRY(address)(ctypes.addressof(block), start, stop, aligned)

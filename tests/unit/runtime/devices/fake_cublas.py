"""cuBLAS in Python: products of matrices in memory of the host, column by column.

It refuses what the real one refuses: a stride below the rows of a matrix, numbers below 0, types
that do not go together, calls without a handle.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy
from numpy.lib.stride_tricks import as_strided

from anydim.runtime.devices.cublas import CALLS
from tests.unit.runtime.devices.fake_cuda import c_function, put

OK, INVALID, UNSUPPORTED = 0, 7, 15
TYPES: dict[int, Any] = {
    0: numpy.float32, 1: numpy.float64, 2: numpy.float16, 14: ml_dtypes.bfloat16
}  # fmt: skip
NAMES = {INVALID: b"CUBLAS_STATUS_INVALID_VALUE"}
TOGETHER = {
    (0, 0, 68), (0, 0, 77), (1, 1, 70), (2, 2, 68), (2, 0, 68), (14, 14, 68), (14, 0, 68),
}  # factors, results, how sums are computed  # fmt: skip


class FakeCublas:
    """The library; attributes are its functions."""

    def __init__(self, inside: Callable[[int, int], bool] = lambda address, bytes: True) -> None:
        self.inside = inside
        self.handles: dict[int, int] = {}  # to their streams
        self.calls: list[tuple[int, ...]] = []
        self.cublasGetStatusName = lambda status: NAMES.get(status, b"CUBLAS_STATUS_NOT_SUPPORTED")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        work = getattr(type(self), f"do_{name.removesuffix('_v2')}", None)
        if work is None:
            raise AttributeError(name)

        def function(*given: Any) -> Any:
            return work(self, *given) or OK

        made = c_function(CALLS[name], function)
        setattr(self, name, made)
        return made

    def do_cublasCreate(self, handle: int) -> None:
        self.handles[made := 0x100 + len(self.handles)] = 0
        put(handle, made)

    def do_cublasDestroy(self, handle: Any) -> None:
        del self.handles[handle]

    def do_cublasSetStream(self, handle: int, stream: int) -> None:
        self.handles[handle] = stream

    def do_cublasGemmStridedBatchedEx(self, handle: int, *given: Any) -> int:
        (turn_a, turn_b, m, n, k, alpha, a, kind, lda, step_a, b, other, ldb, step_b, beta, c,
         result, ldc, step_c, count, computed, best) = given  # fmt: skip
        of_a, of_b = ((k, m) if turn_a else (m, k)), ((n, k) if turn_b else (k, n))
        if min(m, n, k, count) < 0 or handle not in self.handles or best != -1:
            return INVALID
        if any(
            stride < max(1, rows) for stride, rows in ((lda, of_a[0]), (ldb, of_b[0]), (ldc, m))
        ):
            return INVALID
        if kind != other or (kind, result, computed) not in TOGETHER:
            return UNSUPPORTED
        self.calls.append((m, n, k, count))
        real = ctypes.c_double if computed == 70 else ctypes.c_float
        for number in range(count):
            left = self.matrix(a, kind, number * step_a, of_a, lda)
            right = self.matrix(b, kind, number * step_b, of_b, ldb)
            left, right = (x.T if turn else x for x, turn in ((left, turn_a), (right, turn_b)))
            made = self.matrix(c, result, number * step_c, (m, n), ldc)
            scale, kept = (real.from_address(of).value for of in (alpha, beta))
            before = kept * made if kept else 0
            wide = numpy.float64 if kind == 1 else numpy.float32
            made[:] = scale * (left.astype(wide) @ right.astype(wide)) + before
        return OK

    def matrix(
        self, address: int, kind: int, first: int, shape: tuple[int, int], stride: int
    ) -> numpy.ndarray:
        dtype = numpy.dtype(TYPES[kind])
        size, (rows, columns) = dtype.itemsize, shape
        bytes = size * ((columns - 1) * stride + rows) if rows and columns else 0
        start = address + size * first
        assert not bytes or self.inside(start, bytes), "outside of the device's memory"
        data = (ctypes.c_ubyte * max(bytes, 1)).from_address(start) if bytes else bytearray(size)
        flat = numpy.frombuffer(data, numpy.uint8)[: bytes // size * size].view(dtype)
        return as_strided(flat, shape, (size, size * stride))

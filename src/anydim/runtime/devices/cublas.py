"""cuBLAS, NVIDIA's matrix multiply library, for plain matmul kernels.

The functions are those of `cublas_api.h` (cuBLAS Library User Guide, version 12). The library comes
with the wheel `nvidia-cublas-cu12`, or with a toolkit. Its matrices are column-major: ours,
row-major, are their transposes, so operands are passed in reverse order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.runtime.devices.wheels import library_paths

PREFIX = "cublas"  # names of plain matmul kernels: PREFIX, operand types, result type, a number
# parameters of a launch: extents, then offset and strides of each operand
WORDS = (
    "m", "n", "k", "batch", "a_start", "a_m", "a_k", "a_batch", "b_start", "b_k", "b_n", "b_batch",
    "c_m", "c_batch",
)  # fmt: skip
_LARGEST = (1 << 31) - 1  # maximum of an int
_PLAIN, _TRANSPOSED = 0, 1  # cublasOperation_t
_BEST = -1  # cublasGemmAlgo_t: CUBLAS_GEMM_DEFAULT


@dataclass(frozen=True)
class _Kind:
    """An element type: cudaDataType_t, bytes, and cublasComputeType_t of the accumulator."""

    data: int
    bytes: int
    computed: int


# float32 accumulates by CUBLAS_COMPUTE_32F, with tf32 by _32F_FAST_TF32; float64 by _64F
_KINDS: Mapping[str, _Kind] = {
    "float32": _Kind(0, 4, 68), "tf32": _Kind(0, 4, 77), "float64": _Kind(1, 8, 70),
    "float16": _Kind(2, 2, 68), "bfloat16": _Kind(14, 2, 68),
}  # fmt: skip
_INT, _LONG, _ANY = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
_CALLS: Mapping[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (_ANY,),
    "cublasDestroy_v2": (_ANY,),
    "cublasSetStream_v2": (_ANY, _ANY),
    "cublasGetStatusName": (_INT,),
    "cublasGemmStridedBatchedEx": (
        _ANY, *(_INT,) * 5, _ANY, *(_ANY, _INT, _INT, _LONG) * 2, _ANY, _ANY, _INT, _INT, _LONG,
        *(_INT,) * 3,
    ),
}  # fmt: skip


class CublasError(Exception):
    """A failed call."""


@dataclass(frozen=True)
class _Matrix:
    """The layout of an operand: whether it is transposed, and its leading dimension."""

    operation: int
    stride: int


class Cublas:
    """The library; a call that fails raises CublasError."""

    def __init__(self, library: Any) -> None:
        self._functions = {}
        for name, types in _CALLS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, ctypes.c_int
            self._functions[name] = function
        self._functions["cublasGetStatusName"].restype = ctypes.c_char_p

    def _do(self, name: str, *given: Any) -> None:
        code = self._functions[name](*given)
        if code:
            status = self._functions["cublasGetStatusName"](code) or b"an unknown status"
            raise CublasError(f"{name}: {status.decode(errors='replace')}")

    def handle(self, stream: int) -> int:
        """Return a handle for matmuls on a stream, in the current context."""
        made = ctypes.c_void_p()
        self._do("cublasCreate_v2", ctypes.byref(made))
        self._do("cublasSetStream_v2", made, stream)
        return made.value or 0

    def multiply(self, handle: int, symbol: str, words: Sequence[int]) -> bool:
        """Start the matmul of a kernel by its name; False if the library does not support it.

        `words` are the addresses of both operands and of the result, then `WORDS`.
        """
        _, factors, results, _ = symbol.split("_")
        one, other = _KINDS[factors], _KINDS[results]
        a, b, c, *numbers = words
        of = dict(zip(WORDS, numbers, strict=True))
        m, n, k, batch = (of[name] for name in WORDS[:4])
        left = _matrix(m, k, of["a_m"], of["a_k"])
        right = _matrix(k, n, of["b_k"], of["b_n"])
        width = max(of["c_m"], n) if m <= 1 else of["c_m"]
        if left is None or right is None or width < n or max(m, n, k, batch, width) > _LARGEST:
            return False
        real = ctypes.c_double if factors == "float64" else ctypes.c_float
        scale, zero = real(1), real(0)
        self._do(
            "cublasGemmStridedBatchedEx", handle, right.operation, left.operation, n, m, k,
            ctypes.byref(scale),
            b + one.bytes * of["b_start"], one.data, right.stride, of["b_batch"],
            a + one.bytes * of["a_start"], one.data, left.stride, of["a_batch"],
            ctypes.byref(zero), c, other.data, width, of["c_batch"], batch, one.computed, _BEST,
        )  # fmt: skip
        return True


def _matrix(rows: int, columns: int, row: int, column: int) -> _Matrix | None:
    """Return the layout of a matrix with unit stride along one axis, otherwise None."""
    if column == 1 or columns <= 1:
        stride = max(row, columns, 1) if rows <= 1 or not columns else row
        if max(columns, 1) <= stride <= _LARGEST:
            return _Matrix(_PLAIN, stride)
    if row == 1 or rows <= 1:
        stride = max(column, rows, 1) if columns <= 1 or not rows else column
        if max(rows, 1) <= stride <= _LARGEST:
            return _Matrix(_TRANSPOSED, stride)
    return None


@lru_cache(maxsize=1)
def cublas() -> Cublas:
    """Return the installed library. Raises OptionError if there is none."""
    problem = "no library"
    packages = ("nvidia.cublas", "nvidia.cu13")
    for path in library_paths(packages, "cublas", "cublas64_{}.dll", ("12", "13")):
        try:
            return Cublas(ctypes.CDLL(path))
        except (OSError, AttributeError) as error:
            problem = str(error)
    raise OptionError(f"cuBLAS is missing: {problem}", "pip install nvidia-cublas-cu12")

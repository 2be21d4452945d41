"""cuBLAS, NVIDIA's matrix multiply library, for plain matmul kernels.

The functions are those of `cublas_api.h` (cuBLAS Library User Guide, version 12). The library comes
with the wheel `nvidia-cublas-cu12`, or with a toolkit. Its matrices are column-major: ours,
row-major, are their transposes, so operands are passed in reverse order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
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
_MULTIPLY = "cublasGemmStridedBatchedEx"
_ONES = 0x3F800000, 0x3FF << 52  # bits of 1 in float32 and float64


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
CALLS: Mapping[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (_ANY,),
    "cublasDestroy_v2": (_ANY,),
    "cublasSetStream_v2": (_ANY, _ANY),
    "cublasGetStatusName": (_INT,),
    _MULTIPLY: (
        _ANY, *(_INT,) * 5, _ANY, *(_ANY, _INT, _INT, _LONG) * 2, _ANY, _ANY, _INT, _INT, _LONG,
        *(_INT,) * 3,
    ),
}  # fmt: skip


class CublasError(Exception):
    """A failed call."""


class Cublas:
    """The library; a call that fails raises CublasError."""

    def __init__(self, library: Any) -> None:
        self._functions = {}
        for name, types in CALLS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, ctypes.c_int
            self._functions[name] = function
        self._functions["cublasGetStatusName"].restype = ctypes.c_char_p

    def _do(self, name: str, *given: Any) -> None:
        code = self._functions[name](*given)
        if code:
            self.raise_error(code, name)

    def raise_error(self, code: int, name: str = _MULTIPLY) -> None:
        """Raise the exception for an error code of a function."""
        status = self._functions["cublasGetStatusName"](code) or b"an unknown status"
        raise CublasError(f"{name}: {status.decode(errors='replace')}")

    def handle(self, stream: int) -> int:
        """Return a handle for matmuls on a stream, in the current context."""
        made = ctypes.c_void_p()
        self._do("cublasCreate_v2", ctypes.byref(made))
        self._do("cublasSetStream_v2", made, stream)
        return made.value or 0

    @property
    def address(self) -> int:
        """The address of the function that multiplies, for native code."""
        return ctypes.cast(self._functions[_MULTIPLY], ctypes.c_void_p).value or 0

    def types(self, symbol: str) -> tuple[int, ...]:
        """Return the types of a matmul kernel by its name, for its record (`cuda_state.py`)."""
        _, factors, results, _ = symbol.split("_")
        one, other = _KINDS[factors], _KINDS[results]
        return one.data, one.bytes, other.data, one.computed, _ONES[factors == "float64"]


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

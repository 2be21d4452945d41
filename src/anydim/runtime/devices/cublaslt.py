"""cuBLASLt, NVIDIA's library of matrix products with epilogues.

The functions are those of `cublasLt.h` (cuBLAS Library User Guide, version 12). The library comes
with the wheel `nvidia-cublas-cu12`, or with a toolkit. Its matrices are column-major: ours,
row-major, are their transposes, so factors are passed in reverse order, and a bias per column is
its bias per row.

    D = activation(A @ B + R + bias)        R: a residual; the bias has an element per column

The library chooses an algorithm once per class of sizes: equal powers of two, layouts, alignment.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.runtime.devices.wheels import library_paths

PREFIX = "cublaslt"  # names of kernels: PREFIX, operand types, result type, activation, a number
# the last sizes of such a kernel: extents, offset and strides of each matrix and of the bias, the
# operand of each (-1: none), and 1 where the library may compute the product
WORDS = (
    "m", "n", "k", "batch", "a_start", "a_m", "a_k", "a_batch", "b_start", "b_k", "b_n", "b_batch",
    "c_m", "c_batch", "r_start", "r_m", "r_batch", "bias_start", "a", "b", "c", "r", "bias",
    "usable",
)  # fmt: skip
ACTIVATIONS = {"none": 0, "relu": 2, "gelu": 32}  # cublasLtEpilogue_t; GELU is the one of tanh
_DEFAULT, _BIAS = 1, 4  # neither activation nor bias; a bias, with or without an activation
LARGEST = (1 << 31) - 1  # extent
_PLAIN, _TRANSPOSED = 0, 1  # cublasOperation_t
_UNSUPPORTED = 15  # CUBLAS_STATUS_NOT_SUPPORTED
_TRANSA, _TRANSB, _EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8  # cublasLtMatmulDescAttributes_t
_BATCH_COUNT, _BATCH_OFFSET = 5, 6  # cublasLtMatrixLayoutAttribute_t
_WORKSPACE, _ALIGNMENTS = 1, (5, 6, 7, 8)  # cublasLtMatmulPreferenceAttributes_t; of A, B, C, D
_WORKSPACE_ALIGNMENT = 256
_ALIGNMENT = 16  # bytes; alignment above it has no effect on the class
_PLANS = 256  # descriptors of products that are kept


@dataclass(frozen=True)
class _Kind:
    """An element type: cudaDataType_t, bytes, cublasComputeType_t, cudaDataType_t of factors."""

    data: int
    bytes: int
    computed: int
    scale: int = 0


# float32 accumulates by CUBLAS_COMPUTE_32F, with tf32 by _32F_FAST_TF32; float64 by _64F
_KINDS: Mapping[str, _Kind] = {
    "float32": _Kind(0, 4, 68), "tf32": _Kind(0, 4, 77), "float64": _Kind(1, 8, 70, 1),
    "float16": _Kind(2, 2, 68), "bfloat16": _Kind(14, 2, 68),
}  # fmt: skip
_INT, _ANY, _COUNT, _LONG = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_longlong
_ULONG = ctypes.c_ulonglong
CALLS: Mapping[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_ANY,),
    "cublasLtGetStatusName": (_INT,),
    "cublasLtMatmulDescCreate": (_ANY, _INT, _INT),
    "cublasLtMatmulDescSetAttribute": (_ANY, _INT, _ANY, _COUNT),
    "cublasLtMatmulDescDestroy": (_ANY,),
    "cublasLtMatrixLayoutCreate": (_ANY, _INT, _ULONG, _ULONG, _LONG),
    "cublasLtMatrixLayoutSetAttribute": (_ANY, _INT, _ANY, _COUNT),
    "cublasLtMatrixLayoutDestroy": (_ANY,),
    "cublasLtMatmulPreferenceCreate": (_ANY,),
    "cublasLtMatmulPreferenceSetAttribute": (_ANY, _INT, _ANY, _COUNT),
    "cublasLtMatmulPreferenceDestroy": (_ANY,),
    "cublasLtMatmulAlgoGetHeuristic": (*(_ANY,) * 7, _INT, _ANY, _ANY),
    "cublasLtMatmul": (*(_ANY,) * 14, _COUNT, _ANY),
}  # fmt: skip


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t, which begins with a cublasLtMatmulAlgo_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8), ("workspace", _COUNT), ("state", _INT),
        ("waves", ctypes.c_float), ("reserved", _INT * 4),
    )  # fmt: skip


class CublasError(Exception):
    """A failed call, with its status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class _Matrix:
    """The layout of an operand: whether it is transposed, and its leading dimension."""

    operation: int
    stride: int


@dataclass(frozen=True)
class _Plan:
    """The descriptors of a product: of the product, and of A, B, C, D of the library."""

    product: int
    layouts: tuple[int, ...]


class CublasLt:
    """The library; a call that fails raises CublasError."""

    def __init__(self, library: Any) -> None:
        self._functions = {}
        for name, types in CALLS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, ctypes.c_int
            self._functions[name] = function
        self._functions["cublasLtGetStatusName"].restype = ctypes.c_char_p

    def call(self, name: str, *given: Any) -> None:
        code = self._functions[name](*given)
        if code:
            status = self._functions["cublasLtGetStatusName"](code) or b"an unknown status"
            raise CublasError(f"{name}: {status.decode(errors='replace')}", code)

    def create(self, name: str, *given: Any) -> int:
        """Return a new object, by the name of its function."""
        made = ctypes.c_void_p()
        self.call(name, ctypes.byref(made), *given)
        return made.value or 0

    def set(self, kind: str, of: int, attribute: int, value: Any) -> None:
        """Set an attribute of an object."""
        self.call(f"cublasLt{kind}SetAttribute", of, attribute, ctypes.byref(value),
                  ctypes.sizeof(value))  # fmt: skip

    def products(self, stream: int) -> Products:
        """Return the products of a stream, in the current context."""
        return Products(self, stream)


class Products:
    """The products of one stream, with their descriptors and algorithms."""

    def __init__(self, library: CublasLt, stream: int) -> None:
        self._library, self._stream = library, stream
        self._handle = library.create("cublasLtCreate")
        self._plans: OrderedDict[tuple[object, ...], _Plan] = OrderedDict()
        self._algorithms: dict[tuple[object, ...], ctypes.Array[ctypes.c_uint64] | None] = {}

    def multiply(self, symbol: str, words: Sequence[int], workspace: int, bytes: int) -> bool:
        """Start the product of a kernel by its name; False if the kernel has to compute it.

        `words` are the addresses of the operands, then sizes that end with `WORDS`; `bytes` are
        those of the workspace.
        """
        _, factors, results, activation, _ = symbol.split("_")
        one, other = _KINDS[factors], _KINDS[results]
        of = dict(zip(WORDS, words[-len(WORDS) :], strict=True))
        m, n, k, batch = (of[name] for name in WORDS[:4])
        left = _matrix(m, k, of["a_m"], of["a_k"])
        right = _matrix(k, n, of["b_k"], of["b_n"])
        if not of["usable"] or left is None or right is None:
            return False
        width, more = (max(of[name], n) if m <= 1 else of[name] for name in ("c_m", "r_m"))
        residual, bias = of["r"] >= 0, 0
        if of["bias"] >= 0:
            bias = words[of["bias"]] + other.bytes * of["bias_start"]
        if width < n or (residual and more < n) or bias % _ALIGNMENT:
            return False
        a, b = (
            words[of[name]] + one.bytes * of[f"{name}_start"] for name in ("a", "b")
        )  # fmt: skip
        d = words[of["c"]]
        c = words[of["r"]] + other.bytes * of["r_start"] if residual else d
        epilogue = ACTIVATIONS[activation] + _BIAS * (bias > 0) or _DEFAULT
        rows = (more, of["r_batch"]) if residual else (width, of["c_batch"])
        shapes = (
            (right, k, n, one.data, of["b_batch"]), (left, m, k, one.data, of["a_batch"]),
            (_Matrix(_PLAIN, rows[0]), m, n, other.data, rows[1]),
            (_Matrix(_PLAIN, width), m, n, other.data, of["c_batch"]),
        )  # fmt: skip
        widths = (one.bytes, one.bytes, other.bytes, other.bytes)
        aligned = _alignments((b, a, c, d), shapes, widths)
        plan = self._plan(one, epilogue, shapes, batch)
        if bias:
            self._library.set("MatmulDesc", plan.product, _BIAS_POINTER, ctypes.c_uint64(bias))
        start = -(-workspace // _WORKSPACE_ALIGNMENT) * _WORKSPACE_ALIGNMENT
        bytes = max(0, bytes - (start - workspace))
        sizes = tuple(number.bit_length() for number in (m, n, k, batch))
        kind = (factors, results, epilogue, residual, left.operation, right.operation)
        key = (*kind, *sizes, *aligned, bytes)
        real = ctypes.c_double if one.scale else ctypes.c_float
        scale, beta = real(1), real(1 if residual else 0)

        def start_product() -> bool:
            """Start the product by the algorithm of its class; False if that has none."""
            algorithm = self._algorithms[key]
            if algorithm is None:
                return False
            self._library.call(
                "cublasLtMatmul", self._handle, plan.product, ctypes.byref(scale), b,
                plan.layouts[0], a, plan.layouts[1], ctypes.byref(beta), c, plan.layouts[2], d,
                plan.layouts[3], ctypes.byref(algorithm), start, bytes, self._stream,
            )  # fmt: skip
            return True

        known = key in self._algorithms
        for _ in range(1 + known):  # a known algorithm may not support these sizes of its class
            if not known:
                self._algorithms[key] = self._choose(plan, aligned, bytes)
            try:
                return start_product()
            except CublasError as error:
                if error.status != _UNSUPPORTED:
                    raise
            known = False
        return False

    def _plan(
        self, one: _Kind, epilogue: int, shapes: Sequence[tuple[_Matrix, int, int, int, int]],
        batch: int,
    ) -> _Plan:  # fmt: skip
        """Return the descriptors of a product."""
        key = (one, epilogue, *shapes, batch)
        if key in self._plans:
            self._plans.move_to_end(key)
            return self._plans[key]
        library = self._library
        product = library.create("cublasLtMatmulDescCreate", one.computed, one.scale)
        for attribute, (matrix, *_) in zip((_TRANSA, _TRANSB), shapes):
            library.set("MatmulDesc", product, attribute, ctypes.c_int32(matrix.operation))
        library.set("MatmulDesc", product, _EPILOGUE, ctypes.c_uint32(epilogue))
        layouts = []
        for matrix, rows, columns, data, step in shapes:
            if matrix.operation == _PLAIN:
                rows, columns = columns, rows
            layout = library.create(
                "cublasLtMatrixLayoutCreate", data, rows, columns, matrix.stride
            )
            if batch > 1:
                library.set("MatrixLayout", layout, _BATCH_COUNT, ctypes.c_int32(batch))
                library.set("MatrixLayout", layout, _BATCH_OFFSET, ctypes.c_int64(step))
            layouts.append(layout)
        self._plans[key] = _Plan(product, tuple(layouts))
        if len(self._plans) > _PLANS:
            self._destroy(self._plans.popitem(last=False)[1])
        return self._plans[key]

    def _destroy(self, plan: _Plan) -> None:
        for layout in plan.layouts:
            self._library.call("cublasLtMatrixLayoutDestroy", layout)
        self._library.call("cublasLtMatmulDescDestroy", plan.product)

    def _choose(
        self, plan: _Plan, aligned: Sequence[int], bytes: int
    ) -> ctypes.Array[ctypes.c_uint64] | None:  # fmt: skip
        """Return the library's algorithm for a product, None if it has none."""
        library, found, count = self._library, _Heuristic(), ctypes.c_int()
        preference = library.create("cublasLtMatmulPreferenceCreate")
        try:
            library.set("MatmulPreference", preference, _WORKSPACE, ctypes.c_uint64(bytes))
            for attribute, least in zip(_ALIGNMENTS, aligned):
                library.set("MatmulPreference", preference, attribute, ctypes.c_uint32(least))
            library.call(
                "cublasLtMatmulAlgoGetHeuristic", self._handle, plan.product, *plan.layouts,
                preference, 1, ctypes.byref(found), ctypes.byref(count),
            )  # fmt: skip
        except CublasError as error:
            if error.status != _UNSUPPORTED:
                raise
            return None
        finally:
            library.call("cublasLtMatmulPreferenceDestroy", preference)
        return found.algorithm if count.value and not found.state else None


def _alignments(
    addresses: Sequence[int], shapes: Sequence[tuple[_Matrix, int, int, int, int]],
    bytes: Sequence[int],
) -> tuple[int, ...]:  # fmt: skip
    """Return the bytes that the columns of each matrix are aligned to, at most `_ALIGNMENT`."""
    bits = (
        address | (matrix.stride * size) | (step * size) | _ALIGNMENT
        for address, (matrix, *_, step), size in zip(addresses, shapes, bytes)
    )
    return tuple(number & -number for number in bits)


def _matrix(rows: int, columns: int, row: int, column: int) -> _Matrix | None:
    """Return the layout of a matrix with unit stride along one axis, otherwise None."""
    if column == 1 or columns <= 1:
        stride = max(row, columns, 1) if rows <= 1 or not columns else row
        if stride >= max(columns, 1):
            return _Matrix(_PLAIN, stride)
    if row == 1 or rows <= 1:
        stride = max(column, rows, 1) if columns <= 1 or not rows else column
        if stride >= max(rows, 1):
            return _Matrix(_TRANSPOSED, stride)
    return None


@lru_cache(maxsize=1)
def cublaslt() -> CublasLt:
    """Return the installed library. Raises OptionError if there is none."""
    problem = "no library"
    packages = ("nvidia.cublas", "nvidia.cu13")
    for path in library_paths(packages, "cublasLt", "cublasLt64_{}.dll", ("12", "13")):
        try:
            return CublasLt(ctypes.CDLL(path))
        except (OSError, AttributeError) as error:
            problem = str(error)
    raise OptionError(f"cuBLASLt is missing: {problem}", "pip install nvidia-cublas-cu12")

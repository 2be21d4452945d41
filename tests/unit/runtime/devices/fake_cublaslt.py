"""cuBLASLt in Python: products of matrices in memory of the host, column by column.

It refuses what the real one refuses: a stride below the rows of a matrix, types that do not go
together, unknown objects, an epilogue without its bias, an algorithm for other sizes or a stricter
alignment, a workspace that is too small or not aligned. `calls` are the products.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy
from numpy.lib.stride_tricks import as_strided

from anydim.runtime.devices.cublaslt import CALLS
from tests.unit.runtime.devices.fake_cuda import c_function, put, put_int

OK, INVALID, UNSUPPORTED = 0, 7, 15
TYPES: dict[int, Any] = {
    0: numpy.float32, 1: numpy.float64, 2: numpy.float16, 14: ml_dtypes.bfloat16
}  # fmt: skip
NAMES = {INVALID: b"CUBLAS_STATUS_INVALID_VALUE"}
TOGETHER = {
    (0, 0, 68), (0, 0, 77), (1, 1, 70), (2, 2, 68), (2, 0, 68), (14, 14, 68), (14, 0, 68),
}  # factors, results, how sums are computed  # fmt: skip
SIZES = {"MatmulDesc": {3: 4, 4: 4, 7: 4, 8: 8}, "MatrixLayout": {5: 4, 6: 8},
         "MatmulPreference": {1: 8, 5: 4, 6: 4, 7: 4, 8: 4}}  # bytes of attributes  # fmt: skip
EPILOGUES = {1: ("none", False), 2: ("relu", False), 4: ("none", True), 6: ("relu", True),
             32: ("gelu", False), 36: ("gelu", True)}  # fmt: skip
NEEDS = 512  # bytes of workspace of algorithms


def gelu(x: numpy.ndarray) -> numpy.ndarray:
    inner: numpy.ndarray = numpy.sqrt(2 / numpy.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + numpy.tanh(inner))


class FakeCublasLt:
    """The library; attributes are its functions."""

    def __init__(self, inside: Callable[[int, int], bool] = lambda address, bytes: True) -> None:
        self.inside = inside
        self.objects: dict[int, dict[Any, int]] = {}
        self.made = 0
        self.calls: list[tuple[Any, ...]] = []
        self.asked: list[tuple[int, int]] = []
        self.algorithms: list[tuple[tuple[int, ...], int]] = []  # alignment, columns
        self.exact = False  # whether an algorithm serves only its own sizes
        self.streams: set[int] = set()
        other = b"CUBLAS_STATUS_NOT_SUPPORTED"
        self.cublasLtGetStatusName = lambda status: NAMES.get(status, other)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        work = self.work(name)
        made = c_function(CALLS[name], lambda *given: work(*given) or OK)
        setattr(self, name, made)
        return made

    def work(self, name: str) -> Callable[..., Any]:
        for kind in SIZES:
            if name == f"cublasLt{kind}SetAttribute":
                return partial(self.set, kind)
            if name == f"cublasLt{kind}Destroy":
                return self.destroy
        found = getattr(type(self), f"do_{name}", None)
        if found is None:
            raise AttributeError(name)
        return partial(found, self)

    def create(self, address: int, **values: int) -> None:
        self.made += 1
        self.objects[self.made] = dict(values)
        put(address, self.made)

    def destroy(self, of: int) -> int:
        return OK if self.objects.pop(of, None) is not None else INVALID

    def set(self, kind: str, of: int, attribute: int, value: int, bytes: int) -> int:
        if of not in self.objects or SIZES[kind].get(attribute) != bytes:
            return INVALID
        real = ctypes.c_uint32 if bytes == 4 else ctypes.c_uint64
        self.objects[of][attribute] = real.from_address(value).value
        return OK

    def do_cublasLtCreate(self, handle: int) -> None:
        self.create(handle, handle=1)

    def do_cublasLtMatmulDescCreate(self, made: int, computed: int, scale: int) -> None:
        self.create(made, computed=computed, scale=scale)

    def do_cublasLtMatrixLayoutCreate(
        self, made: int, kind: int, rows: int, columns: int, stride: int
    ) -> int:
        if stride < max(1, rows):
            return INVALID
        self.create(made, kind=kind, rows=rows, columns=columns, stride=stride)
        return OK

    def do_cublasLtMatmulPreferenceCreate(self, made: int) -> None:
        self.create(made)

    def sizes(self, product: int, layouts: list[int]) -> tuple[int, ...] | None:
        """Rows and columns of D, the depth, the number of products; None if they do not fit."""
        desc, (a, b, c, d) = self.objects[product], (self.objects[each] for each in layouts)
        kinds = (a["kind"], d["kind"], desc["computed"])
        if a["kind"] != b["kind"] or c["kind"] != d["kind"] or kinds not in TOGETHER:
            return None
        of_a, of_b = (
            (x["columns"], x["rows"]) if desc.get(turn) else (x["rows"], x["columns"])
            for x, turn in ((a, 3), (b, 4))
        )  # fmt: skip
        m, n, k = d["rows"], d["columns"], of_a[1]
        counts = {x.get(5, 1) for x in (a, b, c, d)}
        if of_a != (m, k) or of_b != (k, n) or (c["rows"], c["columns"]) != (m, n):
            return None
        return (m, n, k, counts.pop()) if len(counts) == 1 and min(m, n, k) > 0 else None

    def do_cublasLtMatmulAlgoGetHeuristic(
        self, handle: int, product: int, a: int, b: int, c: int, d: int, preference: int,
        wanted: int, result: int, count: int,
    ) -> int:  # fmt: skip
        sizes = self.sizes(product, [a, b, c, d])
        if sizes is None or handle not in self.objects:
            return INVALID
        given = self.objects[preference]
        if given.get(1, 0) < NEEDS:
            return UNSUPPORTED
        self.asked.append(sizes[:2])
        self.algorithms.append((tuple(given[each] for each in (5, 6, 7, 8)), sizes[1]))
        put(result, len(self.algorithms))
        put(result + 64, NEEDS)
        put_int(result + 72, OK)
        put_int(count, 1)
        return OK

    def do_cublasLtMatmul(
        self, handle: int, product: int, alpha: int, a: int, of_a: int, b: int, of_b: int,
        beta: int, c: int, of_c: int, d: int, of_d: int, algorithm: int, workspace: int,
        bytes: int, stream: int,
    ) -> int:  # fmt: skip
        sizes = self.sizes(product, [of_a, of_b, of_c, of_d])
        if handle not in self.objects or sizes is None or workspace % 256 or bytes < NEEDS:
            return INVALID
        if not self.inside(workspace, bytes):
            return INVALID
        number = ctypes.c_uint64.from_address(algorithm).value
        aligned, columns = self.algorithms[number - 1]
        if self.exact and columns != sizes[1]:
            return UNSUPPORTED
        desc = self.objects[product]
        activation, biased = EPILOGUES[desc[7]]
        layouts = [self.objects[each] for each in (of_a, of_b, of_c, of_d)]
        for address, layout, least in zip((a, b, c, d), layouts, aligned):
            width = numpy.dtype(TYPES[layout["kind"]]).itemsize
            if address % least or layout["stride"] * width % least:
                return INVALID
        if biased and (not desc.get(8) or desc[8] % 16):
            return INVALID
        self.calls.append((*sizes, activation, biased, c != d))
        self.streams.add(stream)
        real = ctypes.c_double if desc["scale"] == 1 else ctypes.c_float
        scale, kept = (real.from_address(each).value for each in (alpha, beta))
        for item in range(sizes[3]):
            left, right, before, result = (
                self.matrix(x, layout, item) for x, layout in zip((a, b, c, d), layouts)
            )
            left, right = (x.T if desc.get(turn) else x for x, turn in ((left, 3), (right, 4)))
            wide = numpy.float64 if desc["scale"] == 1 else numpy.float32
            total = scale * (left.astype(wide) @ right.astype(wide))
            total = total + kept * before.astype(wide) if kept else total
            if biased:
                of_bias = {"kind": layouts[3]["kind"], "rows": sizes[0], "columns": 1, "stride": 1}
                of_bias["stride"] = sizes[0]
                total = total + self.matrix(desc[8], of_bias, 0).astype(wide)
            if activation != "none":
                total = gelu(total) if activation == "gelu" else numpy.maximum(total, 0)
            result[:] = total
        return OK

    def matrix(self, address: int, layout: dict[Any, int], item: int) -> numpy.ndarray:
        dtype = numpy.dtype(TYPES[layout["kind"]])
        size, rows, columns, stride = (
            dtype.itemsize, layout["rows"], layout["columns"], layout["stride"]
        )  # fmt: skip
        bytes = size * ((columns - 1) * stride + rows)
        start = address + size * item * layout.get(6, 0)
        assert self.inside(start, bytes), "outside of the device's memory"
        data = (ctypes.c_ubyte * bytes).from_address(start)
        flat = numpy.frombuffer(data, numpy.uint8).view(dtype)
        return as_strided(flat, (rows, columns), (size, size * stride))

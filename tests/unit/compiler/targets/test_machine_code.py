"""Promise: hot loops of the standard kernels are tight machine code, on each described processor.

Innermost loops that are there for multiply-adds hold all they sum in registers, fuse every product
with its sum and call nothing. Kernels are made by the templates for the vectors of the processor,
and their assembly is read; it need not be this machine's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from unittest.mock import patch

import numpy
import pytest

import anydim as ad
from anydim.compiler.kernels.ir import Kernel, Library
from anydim.compiler.targets.llvm.compiler import assembly
from anydim.compiler.targets.llvm.host import this_machine
from anydim.compiler.targets.llvm.render import render
from anydim.compiler.targets.processor import describe_processor
from anydim.compiler.targets.targets import TARGETS
from tests.golden.files import CASES
from tests.unit.compiler.targets.machine_code import (
    apart,
    calls,
    fused,
    innermost_loops,
    on_the_stack,
    spilled,
    sums,
)

PROCESSORS = ("x86-64-v3", "x86-64-v4", "aarch64")
WITH_DOTS = ("x86-64-v3+vnni", "x86-64-v4+vnni")
SUMMING = {
    "dense_gelu": "product_", "convolution": "windows_", "transposed_convolution": "windows_",
    "winograd": "windows_", "attention": "attention_",
    "double_precision": "product_", "bytes_product": "bytes_", "bytes_convolution": "bytes_",
}  # fmt: skip
ON_THE_STACK = {(case, "aarch64") for case in SUMMING if SUMMING[case] == "windows_"}
"""LLVM keeps two to four vectors of a tile of 24 on the stack there; no such machine was timed."""
CASES_OF_SUMS = [
    pytest.param(
        case, processor,
        marks=[pytest.mark.xfail(strict=True)] if (case, processor) in ON_THE_STACK else [],
    )
    for case in SUMMING
    for processor in (WITH_DOTS if case.startswith("bytes") else PROCESSORS)
]  # fmt: skip
ROWS = {
    "depthwise": "window_reduction_",
    "dense_gelu": "contraction_",
    "residual_norm": "rows_",
    "log_softmax_rows": "rows_",
}
RELOADED = 2  # vectors that do not change in a loop may be read from the stack, of 16 registers


@cache
def modules(case: str, processor: str) -> dict[str, Kernel | Library]:
    """The kernels of a program and their libraries, made for vectors of the processor."""
    return _made(CASES[case].source(), CASES[case].dims, processor)


def _made(
    source: object, dims: Mapping[str, ad.Dim], processor: str
) -> dict[str, Kernel | Library]:
    """The kernels of a model and their libraries, made for vectors of the processor."""
    kind, llvm = describe_processor(processor), TARGETS["llvm"]
    sizes = {"vector_bytes": kind.vector_bytes, "registers": kind.registers}
    seen = replace(this_machine().as_plain, **sizes)
    with patch.dict(TARGETS, {"llvm": replace(llvm, make=lambda _: llvm.make(seen))}):
        model = ad.compile(source, dims=dims, threads=1)
    kernels = model.report.kernels.values()
    return {one.name: one for kernel in kernels for one in (*kernel.libraries, kernel)}


def loops(case: str, prefix: str, processor: str) -> Iterator[list[str]]:
    """The innermost loops of those whose name begins so."""
    kind = describe_processor(processor)
    for name, made in modules(case, processor).items():
        if name.startswith(prefix):
            yield from innermost_loops(assembly(render(made, kind), kind))


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("case, processor", CASES_OF_SUMS)
def test_loops_that_sum_stay_in_registers(case: str, processor: str) -> None:
    found = [loop for loop in loops(case, SUMMING[case], processor) if sums(loop)]
    assert found
    most = RELOADED if describe_processor(processor).registers == 16 else 0
    for loop in found:
        text = "\n".join(loop)
        assert not calls(loop), text
        assert not apart(loop), text
        assert not spilled(loop), text
        assert len(on_the_stack(loop)) <= most, text


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("case, prefix", ROWS.items())
def test_loops_over_elements_call_nothing(case: str, prefix: str, processor: str) -> None:
    found = [loop for loop in loops(case, prefix, processor) if fused(loop)]
    assert found
    for loop in found:
        assert not calls(loop), "\n".join(loop)


DEPTHWISE = """
def layer(float(N,H,V,M) x, float(R,Q,M) w) -> (y) {
  y(n,a,b,m) +=! (x(n,a + r - 1,b + q - 1,m) else 0) * w(r,q,m)
    where n in 0:N, a in 0:H, b in 0:V, m in 0:M, r in 0:R, q in 0:Q
}"""


@pytest.mark.parametrize("processor", ["x86-64-v4", "aarch64"])
def test_depthwise_sums_of_channels_stay_in_registers(processor: str) -> None:
    """Four places a step; rows of a window that may be outside may stand elsewhere."""
    g = ad.Builder("depthwise")
    n, h, v = (g.dim(name, 0, 64) for name in "nhv")
    x = g.input("x", ad.float32, (n, h, v, 32))
    weights = numpy.random.default_rng(0).standard_normal((3, 3, 32)).astype(numpy.float32)
    g.output("y", g.call(ad.define(DEPTHWISE).layer, x, g.constant(weights)))
    kind, found = describe_processor(processor), list[list[str]]()
    for name, made in _made(g.graph(), {}, processor).items():
        if name.startswith("window_reduction_"):
            found += innermost_loops(assembly(render(made, kind), kind))
    loop = max(found, key=lambda one: len(fused(one)))
    text = "\n".join(loop)
    assert len(fused(loop)) >= 24, text
    assert not calls(loop) and not apart(loop) and not on_the_stack(loop), text
    assert len(loop) < 3 * len(fused(loop)), text


def test_what_is_looked_for_is_found() -> None:
    text = """
.LBB0_1:
    vmovups 64(%rsp), %zmm3
    vmulps %zmm1, %zmm2, %zmm4
    vfmadd231ps %zmm1, %zmm2, %zmm0
    vmovaps %zmm0, 128(%rsp)
    callq exp@PLT
    jne .LBB0_1
"""
    (loop,) = innermost_loops(text)
    counts = [len(find(loop)) for find in (fused, apart, calls, on_the_stack, spilled)]
    assert counts == [1, 1, 1, 2, 1]
    assert not sums(loop)

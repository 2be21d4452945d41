"""What this machine can do at most on one thread: fused multiply-adds, and bytes to and fro."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from math import log
from time import perf_counter

import llvmlite.binding as llvm
import numpy

SIZES = tuple(1 << power for power in range(13, 28, 2))
CHAINS = 12  # independent sums: more than latency times units, few enough for 16 registers
ACCUMULATORS = 2_000_000
ROUNDS = 7
STEP = 1e-9  # seconds of what is done to one element after the other: a branch, a store


@dataclass(frozen=True)
class Limits:
    """Flops in a second, and bytes (read or written) in a second by how many a call touches."""

    flops: float
    rates: tuple[tuple[int, float], ...]

    def seconds(self, flops: int, touched: int, steps: float = 0.0) -> float:
        """The least time for so much work; `steps` are a nanosecond each, beside the rest."""
        return max(flops / self.flops, touched / self.rate(touched)) + steps * STEP

    def rate(self, touched: int) -> float:
        """Bytes in a second, between the sizes that were measured as both ends say.

        A small copy is no slower than a large one: where it seems so, the call is what takes long.
        """
        sizes = [log(size) for size, _ in self.rates]
        rates = list(accumulate([rate for _, rate in reversed(self.rates)], max))[::-1]
        return float(numpy.interp(log(max(touched, 1)), sizes, rates))


def measured() -> Limits:
    """Both limits, now."""
    return Limits(fused_peak(), tuple((size, copied(size)) for size in SIZES))


def best(call: Callable[[], object]) -> float:
    """The least seconds of some rounds."""
    found = []
    for _ in range(ROUNDS):
        start = perf_counter()
        call()
        found.append(perf_counter() - start)
    return min(found)


def copied(size: int) -> float:
    """Bytes a second of a copy that touches `size` bytes, half of them read, half written."""
    source, target = numpy.ones(size // 2, numpy.uint8), numpy.ones(size // 2, numpy.uint8)
    times = max(1, (1 << 24) // size)

    def call() -> None:
        for _ in range(times):
            numpy.copyto(target, source)

    return size * times / best(call)


def fused_peak() -> float:
    """Flops a second of float32 multiply-adds in registers."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    lanes = 16 if features.get("avx512f") else 8 if features.get("fma") else 4
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features.flatten(), opt=2
    )
    module = llvm.parse_assembly(_loop(f"<{lanes} x float>", f"v{lanes}f32", lanes))
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)
    run, kept = kind(engine.get_function_address("peak")), numpy.zeros(64 * CHAINS, numpy.float32)
    seconds = best(lambda: run(ACCUMULATORS, kept.ctypes.data))
    return 2.0 * lanes * CHAINS * ACCUMULATORS / seconds


def _loop(vector: str, suffix: str, lanes: int) -> str:
    """LLVM text of a loop around CHAINS independent multiply-adds."""
    chains = range(CHAINS)
    same = ", ".join(["float 0.5"] * lanes)
    lines = [
        f"declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})",
        "define void @peak(i64 %count, ptr %out) {", "entry:", "  br label %loop", "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
        *(f"  %a{c} = phi {vector} [ zeroinitializer, %entry ], [ %b{c}, %loop ]" for c in chains),
        *(
            f"  %b{c} = call {vector} @llvm.fma.{suffix}({vector} %a{c}, {vector} <{same}>, "
            f"{vector} <{same}>)" for c in chains
        ),
        "  %next = add i64 %i, 1", "  %more = icmp ult i64 %next, %count",
        "  br i1 %more, label %loop, label %done", "done:",
    ]  # fmt: skip
    for c in chains:
        lines.append(f"  %p{c} = getelementptr {vector}, ptr %out, i64 {c}")
        lines.append(f"  store {vector} %b{c}, ptr %p{c}, align 4")
    return "\n".join([*lines, "  ret void", "}"])

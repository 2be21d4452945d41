"""Matrix products with bias beside onnxruntime and numpy: python -m bench.kernels.contraction

Each call goes through several matrices of weights in turn, as the layers of a model do, so that
weights come from where they come from in a model and not from the first cache. onnxruntime runs
MatMul and Add nodes in one bound session; numpy runs `x @ w + b` with OpenBLAS on one thread.
All are called in turn, and what counts is the median of the ratios of neighbours.

`--grid` takes 133 sizes, products alone, of one matrix each, beside onnxruntime. It prints how they
do and, from 16 rows on, the share of the multiply-adds that this processor does in registers.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from anydim.base.dtypes import float32
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.kernels.matmul.contraction.contraction_template import TEMPLATE
from anydim.compiler.targets.llvm.compiler import compile_modules
from anydim.compiler.targets.llvm.host import machine, this_machine
from anydim.compiler.targets.llvm.loader import load
from anydim.compiler.targets.run import build
from anydim.compiler.targets.target import Source
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import TensorType
from anydim.runtime.packing import pack
from anydim.sizes import Box, Dim, as_size
from bench.cliffs.machine import fused_peak

SHAPES = ((384, 384), (384, 1536), (1536, 384))  # k, n of MiniLM's layers
ROWS = (1, 2, 4, 8, 12, 16, 22, 32, 48, 64, 128, 256, 512, 1024, 2048)
LAYERS = 6
GRID_SHAPES = (*SHAPES, (768, 768), (768, 3072), (3072, 768), (1024, 1024))
GRID_ROWS = (1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 22, 32, 48, 64, 128, 256, 512, 1024, 2048)
FILLED = 16  # rows from which on a product should be limited by multiply-adds alone
EPILOGUES = {
    "none": "t(m,n)",
    "bias": "t(m,n) + b(n)",
    "gelu": "0.5 * (t(m,n) + b(n)) * (1.0 + erf((t(m,n) + b(n)) * 0.7071067811865476))",
}


# calls a kernel for each of `count` argument blocks, as the host program of a model does
LOOP = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p
)
LOOP_TEXT = """
define void @layers(ptr %kernel, ptr %blocks, i64 %count, i64 %start, i64 %stop, ptr %scratch) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %following, %next ]
  %place = getelementptr ptr, ptr %blocks, i64 %i
  %block = load ptr, ptr %place
  call void %kernel(ptr %block, i64 %start, i64 %stop, ptr %scratch)
  %following = add i64 %i, 1
  %again = icmp ult i64 %following, %count
  br i1 %again, label %next, label %done
done:
  ret void
}
"""


@dataclass(frozen=True)
class Layers:
    """The weights of the layers at one shape, and an input and outputs for some rows."""

    x: np.ndarray
    weights: list[np.ndarray]
    biases: list[np.ndarray]
    results: list[np.ndarray]


@dataclass(frozen=True)
class Row:
    """One line of the table: GFLOP/s of the best round, how many times as fast as the peers."""

    k: int
    n: int
    m: int
    anydim: float
    onnxruntime: float
    over_onnxruntime: float
    numpy: float = 0.0
    over_numpy: float = 0.0


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    """float32 zeros that begin at a cache line, as the arena's do."""
    count = int(np.prod(shape))
    raw = np.zeros(4 * count + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + 4 * count].view(np.float32).reshape(shape)


def make_weights(k: int, n: int, layers: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Random weights and biases of the layers."""
    random = np.random.default_rng(k + n)
    weights = [random.standard_normal((k, n), dtype=np.float32) for _ in range(layers)]
    return weights, [random.standard_normal(n, dtype=np.float32) for _ in range(layers)]


# ---- anydim ------------------------------------------------------------------------------------


def make_launch(k: int, n: int, epilogue: str) -> Launch:
    """The launch for this machine, with constant weights."""
    text = (
        "def linear(float(M,K) x, float(K,N) w, float(N) b) -> (y) {\n"
        f"  t(m,n) +=! x(m,k) * w(k,n)\n  y(m,n) = {EPILOGUES[epilogue]}\n}}"
    )
    box, constants = Box.of(Dim("M", 0, 32768)), frozenset({"w", "b"})
    shapes = (("M", k), (k, n), (n,))
    types = [TensorType(float32, tuple(as_size(s) for s in shape)) for shape in shapes]
    group = instantiate(parse_definition(text), types, box=box)
    schedule = TEMPLATE.match(group, box, machine(), constants)
    return TEMPLATE.lower(group, schedule, box, machine(), constants)


def anydim_call(
    launch: Launch,
    address: int,
    loop: int,
    layers: Layers,
    packed: list[np.ndarray],
    threads: int,
) -> Callable[[], None]:
    """A call of the kernel for every layer, everything prepared; threads meet at the end."""
    sizes = {"M": len(layers.x)}
    values = [size.evaluate(sizes) for size in launch.sizes]
    blocks = []
    for weight, bias, result in zip(packed, layers.biases, layers.results):
        arrays = {"x": layers.x, "w": weight, "b": bias, "y": result}
        slots = [arrays[argument.tensor].ctypes.data for argument in launch.arguments]
        blocks.append((ctypes.c_int64 * len(slots + values))(*slots, *values))
    scratch = [aligned((launch.scratch.evaluate(sizes) // 4 + 1,)) for _ in range(threads)]
    units = launch.parallel.evaluate(sizes)
    places = (ctypes.c_void_p * len(blocks))(*(ctypes.addressof(block) for block in blocks))
    cuts = [units * part // threads for part in range(threads + 1)]
    run, at = LOOP(loop), ctypes.addressof(places)
    pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None
    own = [aside.ctypes.data for aside in scratch]

    def part(number: int) -> None:
        run(address, at, len(blocks), cuts[number], cuts[number + 1], own[number])

    def call() -> None:
        others = [pool.submit(part, number) for number in range(1, threads)] if pool else []
        part(0)
        for other in others:
            other.result()

    call.kept = (blocks, places, scratch)  # type: ignore[attr-defined]
    return call


# ---- peers -------------------------------------------------------------------------------------


def onnxruntime_session(weights, biases, epilogue: str, threads: int):  # type: ignore[no-untyped-def]
    """A session with the nodes of every layer on one input of dynamic rows."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants, results = [], [], []
    for layer, (weight, bias) in enumerate(zip(weights, biases)):
        constants.append(numpy_helper.from_array(weight, f"w{layer}"))
        if epilogue != "none":
            constants.append(numpy_helper.from_array(bias, f"b{layer}"))
        made = [("MatMul", ["x", f"w{layer}"]), ("Add", [f"t{layer}", f"b{layer}"])]
        made.append(("Gelu", [f"u{layer}"]))
        count = list(EPILOGUES).index(epilogue) + 1
        for (operator, operands), name in zip(made[:count], [*"tu"[: count - 1], "y"]):
            nodes.append(helper.make_node(operator, operands, [f"{name}{layer}"]))
        shape = ["rows", weight.shape[1]]
        results.append(helper.make_tensor_value_info(f"y{layer}", TensorProto.FLOAT, shape))
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", len(weights[0])])
    graph = helper.make_graph(nodes, "layers", [given], results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def onnxruntime_call(session, x: np.ndarray, results: list[np.ndarray]) -> Callable[[], None]:  # type: ignore[no-untyped-def]
    """A call of the session, input and outputs bound."""
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    for layer, result in enumerate(results):
        binding.bind_output(f"y{layer}", "cpu", 0, np.float32, result.shape, result.ctypes.data)
    return lambda: session.run_with_iobinding(binding)


def numpy_call(layers: Layers, results: list[np.ndarray]) -> Callable[[], None]:
    """numpy's product into the same kind of arrays, then the bias in place."""

    def call() -> None:
        for weight, bias, result in zip(layers.weights, layers.biases, results):
            np.matmul(layers.x, weight, out=result)
            np.add(result, bias, out=result)

    return call


# ---- measurement -------------------------------------------------------------------------------


def in_turn(calls: list[Callable[[], None]], seconds: float, each: int) -> list[list[float]]:
    """Seconds per call, round by round; each is called once untimed before its turn."""
    rounds: list[list[float]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(rounds) < 5:
        times = []
        for call in calls:
            call()
            start = time.perf_counter()
            for _ in range(each):
                call()
            times.append((time.perf_counter() - start) / each)
        rounds.append(times)
    return rounds


def measure(k: int, n: int, options: argparse.Namespace) -> list[Row]:
    """One shape at every number of rows."""
    weights, biases = make_weights(k, n, options.layers)
    launch = make_launch(k, n, options.epilogue)
    packing = next(a.packing for a in launch.arguments if a.packing is not None)
    packed = [pack(weight, packing) for weight in weights]
    session = onnxruntime_session(weights, biases, options.epilogue, options.threads)
    rows = []
    objects = compile_modules({"layers": Source.of(LOOP_TEXT)}, this_machine()).code.values()
    with build(launch.kernel, machine().vector_bytes) as loaded, load(objects, ["layers"]) as loop:
        for m in options.rows:
            x = aligned((m, k))
            x[...] = np.random.default_rng(m).standard_normal((m, k))
            mine, theirs, last = ([aligned((m, n)) for _ in weights] for _ in range(3))
            layers = Layers(x, weights, biases, mine)
            addresses = loaded.address(launch.kernel.name), loop.address("layers")
            calls = [
                anydim_call(launch, *addresses, layers, packed, options.threads),
                onnxruntime_call(session, x, theirs),
            ]
            if not options.grid:
                calls.append(numpy_call(layers, last))
            calls[0](), calls[1]()
            assert all(np.allclose(a, b, atol=2e-3) for a, b in zip(mine, theirs)), (k, n, m)
            flops = launch.flops.evaluate({"M": m}) * options.layers
            times = in_turn(calls, options.seconds, max(1, int(1e8 / flops)))
            rows.append(_row(k, n, m, flops, times))
            sys.stdout.write(_line(rows[-1]))
            sys.stdout.flush()
    return rows


def _row(k: int, n: int, m: int, flops: int, times: list[list[float]]) -> Row:
    engines = range(len(times[0]))
    speeds = [flops / min(t[i] for t in times) / 1e9 for i in engines]
    ratios = [statistics.median(t[i] / t[0] for t in times) for i in engines[1:]]
    mine, *others = speeds
    peers = [number for pair in zip(others, ratios) for number in pair]
    return Row(k, n, m, mine, *peers)


def _line(row: Row) -> str:
    return (
        f"{row.k:5} x {row.n:<5} {row.m:6} {row.anydim:8.1f} {row.onnxruntime:12.1f} "
        f"{row.numpy:8.1f} {row.over_onnxruntime:12.2f} {row.over_numpy:8.2f}\n"
    )


def _summary(rows: list[Row], peak: float) -> str:
    """Means and worst cases by numbers of rows, and shares of the peak."""
    lines = []
    for least, most in ((1, 8), (9, 64), (65, 1 << 30), (1, 1 << 30)):
        some = [row for row in rows if least <= row.m <= most]
        if not some:
            continue
        low = min(some, key=lambda row: row.over_onnxruntime)
        mean = statistics.geometric_mean(row.over_onnxruntime for row in some)
        span = f"{min(row.m for row in some)} to {max(row.m for row in some)} rows"
        lines.append(
            f"{span}: geometric mean {mean:.3f}, "
            f"worst {low.over_onnxruntime:.2f} ({low.m} rows, {low.k} x {low.n})"
        )
    shares = [(row.anydim / peak, row) for row in rows if row.m >= FILLED]
    if shares:
        least_share, row = min(shares, key=lambda each: each[0])
        middle = statistics.median(share for share, _ in shares)
        lines.append(
            f"share of {peak:.0f} GFLOP/s from {FILLED} rows on: median {middle:.3f}, "
            f"least {least_share:.3f} ({row.m} rows, {row.k} x {row.n})"
        )
    if rows[0].numpy:
        mean = statistics.geometric_mean(row.over_numpy for row in rows)
        lines.append(f"numpy: geometric mean {mean:.3f}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure every shape and write a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grid", action="store_true", help="133 sizes, products alone")
    parser.add_argument("--shapes", nargs="*", help="k and n, like 384x1536")
    parser.add_argument("--rows", type=int, nargs="*")
    parser.add_argument("--layers", type=int, help="matrices of weights in turn")
    parser.add_argument("--epilogue", choices=list(EPILOGUES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.8, help="per line")
    parser.add_argument("--cpu", type=int, default=1, help="the core to stay on with one thread")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    if options.threads == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {options.cpu % (os.cpu_count() or 1)})
    grid = options.grid
    options.rows = options.rows or (GRID_ROWS if grid else ROWS)
    options.layers = options.layers or (1 if grid else LAYERS)
    options.epilogue = options.epilogue or ("none" if grid else "bias")
    shapes = [tuple(map(int, shape.split("x"))) for shape in options.shapes or ()]
    sys.stdout.write(
        "    k x n      rows   anydim  onnxruntime    numpy   times: onnxruntime   numpy\n"
    )
    peaks = [fused_peak()]
    rows = []
    for k, n in shapes or (GRID_SHAPES if grid else SHAPES):
        rows += measure(k, n, options)
        peaks.append(fused_peak())
    sys.stdout.write(_summary(rows, statistics.median(peaks) / 1e9 * options.threads))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1), "utf-8")


if __name__ == "__main__":
    main()

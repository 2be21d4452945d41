"""Matrix products with bias beside onnxruntime and numpy: python -m bench.kernels.contraction

Each call goes through several matrices of weights in turn, as the layers of a model do, so that
weights come from where they come from in a model and not from the first cache. onnxruntime runs
MatMul and Add nodes in one bound session; numpy runs `x @ w + b` with OpenBLAS on one thread.
All are called in turn, and what counts is the median of the ratios of neighbours.
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
from anydim.kernels.launch import Launch
from anydim.kernels.product.contraction.template import TEMPLATE
from anydim.kernels.product.packing import pack
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from anydim.targets.llvm.compiler import compile_modules
from anydim.targets.llvm.host import machine, this_machine
from anydim.targets.llvm.loader import load
from anydim.targets.run import build
from anydim.targets.target import Source

SHAPES = ((384, 384), (384, 1536), (1536, 384))  # k, n of MiniLM's layers
ROWS = (1, 2, 4, 8, 12, 16, 22, 32, 48, 64, 128, 256, 512, 1024, 2048)
LAYERS = 6
EPILOGUES = {
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
    """One line of the table: GFLOP/s, and how many times as fast as the peers."""

    k: int
    n: int
    m: int
    anydim: float
    onnxruntime: float
    numpy: float
    over_onnxruntime: float
    over_numpy: float


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    """float32 zeros that begin at a cache line, as the arena's do."""
    count = int(np.prod(shape))
    raw = np.zeros(4 * count + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + 4 * count].view(np.float32).reshape(shape)


def make_weights(k: int, n: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Random weights and biases of the layers."""
    random = np.random.default_rng(k + n)
    weights = [random.standard_normal((k, n), dtype=np.float32) for _ in range(LAYERS)]
    return weights, [random.standard_normal(n, dtype=np.float32) for _ in range(LAYERS)]


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

    def part(number: int) -> None:
        place = scratch[number].ctypes.data
        run(address, at, len(blocks), cuts[number], cuts[number + 1], place)

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
        constants.append(numpy_helper.from_array(bias, f"b{layer}"))
        nodes.append(helper.make_node("MatMul", ["x", f"w{layer}"], [f"t{layer}"]))
        last = f"y{layer}" if epilogue == "bias" else f"u{layer}"
        nodes.append(helper.make_node("Add", [f"t{layer}", f"b{layer}"], [last]))
        if epilogue == "gelu":
            nodes.append(helper.make_node("Gelu", [last], [f"y{layer}"]))
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
    weights, biases = make_weights(k, n)
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
                numpy_call(layers, last),
            ]
            calls[0](), calls[1]()
            assert all(np.allclose(a, b, atol=2e-3) for a, b in zip(mine, theirs)), (k, n, m)
            flops = launch.flops.evaluate({"M": m}) * LAYERS
            times = in_turn(calls, options.seconds, max(1, int(1e8 / flops)))
            rows.append(_row(k, n, m, flops, times))
            sys.stdout.write(_line(rows[-1]))
            sys.stdout.flush()
    return rows


def _row(k: int, n: int, m: int, flops: int, times: list[list[float]]) -> Row:
    speeds = [flops / statistics.median(t[i] for t in times) / 1e9 for i in range(3)]
    ratios = [statistics.median(t[i] / t[0] for t in times) for i in (1, 2)]
    return Row(k, n, m, *speeds, *ratios)


def _line(row: Row) -> str:
    return (
        f"{row.k:5} x {row.n:<5} {row.m:6} {row.anydim:8.1f} {row.onnxruntime:12.1f} "
        f"{row.numpy:8.1f} {row.over_onnxruntime:12.2f} {row.over_numpy:8.2f}\n"
    )


def main() -> None:
    """Measure every shape and write a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    parser.add_argument("--epilogue", choices=sorted(EPILOGUES), default="bias")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.8, help="per line")
    parser.add_argument("--cpu", type=int, default=1, help="the core to stay on with one thread")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    if options.threads == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {options.cpu % (os.cpu_count() or 1)})
    sys.stdout.write(
        "    k x n      rows   anydim  onnxruntime    numpy   times: onnxruntime   numpy\n"
    )
    rows = [row for k, n in SHAPES for row in measure(k, n, options)]
    ratios = [row.over_onnxruntime for row in rows]
    mean, worst = statistics.geometric_mean(ratios), min(ratios)
    numpys = statistics.geometric_mean(row.over_numpy for row in rows)
    sys.stdout.write(f"geometric mean {mean:.3f} (worst {worst:.2f}), numpy {numpys:.3f}\n")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()

"""BERT's attention beside onnxruntime's nodes for it: python -m bench.kernels.attention

onnxruntime runs Reshape, Transpose, MatMul, Div, Add, Softmax, MatMul, Transpose, Reshape on the
same arrays, bound once; anydim runs its one kernel. Both are called in turn on one thread, and
what counts is the median of the ratios of neighbours. Results are compared first.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from anydim.base.dtypes import float32
from anydim.compiler.kernels.attention.attention_template import TEMPLATE
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.targets.llvm.host import machine
from anydim.compiler.targets.run import ENTRY, build
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Box, Dim, as_size

SHAPES = (
    (1, 7), (1, 16), (1, 22), (1, 32), (1, 48), (1, 61), (1, 96), (1, 128), (1, 256), (1, 512),
    (8, 22), (8, 128), (32, 64), (64, 128),
)  # fmt: skip

TEXT = """
def attention(float(B,S,W) q, float(B,S,W) key, float(B,S,W) value, float scale, float(B,S) bias)
  -> (o)
{{
  s(b,h,i,k) +=! q(b, i, h*{depth} + d) * key(b, k, h*{depth} + d)
      where h in 0:{heads}, d in 0:{depth}
  x(b,h,i,k) = s(b,h,i,k) {scaled} + bias(b,k)
  top(b,h,i) max=! x(b,h,i,k)
  e(b,h,i,k) = exp(x(b,h,i,k) - top(b,h,i))
  total(b,h,i) +=! e(b,h,i,k)
  p(b,h,i,k) = e(b,h,i,k) / total(b,h,i)
  o(b,i,h,v) +=! p(b,h,i,k) * value(b, k, h*{depth} + v) where v in 0:{depth}
}}
"""


@dataclass(frozen=True)
class Inputs:
    """The arrays of one size."""

    arrays: dict[str, np.ndarray]
    sizes: dict[str, int]


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    """float32 zeros that begin at a cache line, as the arena's do."""
    raw = np.zeros(4 * int(np.prod(shape)) + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + 4 * int(np.prod(shape))].view(np.float32).reshape(shape)


def make_inputs(batch: int, seq: int, heads: int, depth: int) -> Inputs:
    """Random queries, keys, values; the last tenth of the keys is masked."""
    random = np.random.default_rng(batch * 1000 + seq)
    arrays: dict[str, np.ndarray] = {}
    for name in ("q", "key", "value"):
        arrays[name] = aligned((batch, seq, heads * depth))
        arrays[name][...] = random.standard_normal((batch, seq, heads * depth))
    arrays["scale"] = np.array(np.sqrt(depth), np.float32)
    arrays["bias"] = aligned((batch, seq))
    arrays["bias"][:, seq - seq // 10 :] = np.finfo(np.float32).min
    arrays["o"] = aligned((batch, seq, heads, depth))
    return Inputs(arrays, {"B": batch, "S": seq})


# ---- anydim ------------------------------------------------------------------------------------


def attention_group(heads: int, depth: int, box: Box, scaled: str = "/ scale") -> Group:
    """The statements of the kernel."""
    definition = parse_definition(TEXT.format(heads=heads, depth=depth, scaled=scaled))
    wide = f"B S {heads * depth}"
    shapes = (wide, wide, wide, "", "B S")
    types = [TensorType(float32, tuple(as_size(s) for s in shape.split())) for shape in shapes]
    return instantiate(definition, types, box=box)


def make_launch(heads: int, depth: int, scaled: str = "/ scale") -> Launch:
    """The launch for this machine."""
    box = Box.of(Dim("B", 0, 64), Dim("S", 0, 512))
    group = attention_group(heads, depth, box, scaled)
    schedule = TEMPLATE.match(group, box, machine(), frozenset())
    return TEMPLATE.lower(group, schedule, box, machine(), frozenset())


def anydim_call(launch: Launch, address: int, inputs: Inputs) -> Callable[[], None]:
    """A call of the kernel at one size, everything prepared."""
    arrays, sizes = inputs.arrays, inputs.sizes
    slots = [arrays[a.tensor].ctypes.data for a in launch.arguments]
    slots += [size.evaluate(sizes) for size in launch.sizes]
    block = (ctypes.c_int64 * len(slots))(*slots)
    scratch = aligned((launch.scratch.evaluate(sizes) // 4 + 1,))
    entry, stop = ENTRY(address), launch.parallel.evaluate(sizes)
    at, place = ctypes.addressof(block), scratch.ctypes.data

    def call() -> None:
        entry(at, 0, stop, place)

    call.kept = (block, scratch)  # type: ignore[attr-defined]
    return call


# ---- onnxruntime -------------------------------------------------------------------------------


def onnxruntime_session(heads: int, depth: int):  # type: ignore[no-untyped-def]
    """A session with the nodes of one attention, dims batch and seq."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    nodes = []

    def node(operator: str, *inputs: str, output: str, **attributes: object) -> str:
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def head(name: str, order: tuple[int, ...]) -> str:
        split = node("Reshape", name, "split", output=f"{name}_split")
        return node("Transpose", split, output=f"{name}_heads", perm=order)

    scores = node("MatMul", head("q", (0, 2, 1, 3)), head("key", (0, 2, 3, 1)), output="scores")
    scaled = node("Div", scores, "scale", output="scaled")
    masked = node("Add", scaled, "bias", output="masked")
    shares = node("Softmax", masked, output="shares", axis=-1)
    mixed = node("MatMul", shares, head("value", (0, 2, 1, 3)), output="mixed")
    moved = node("Transpose", mixed, output="moved", perm=(0, 2, 1, 3))
    node("Reshape", moved, "merge", output="o")
    wide = ["batch", "seq", heads * depth]
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "attention",
        [
            *(helper.make_tensor_value_info(name, kind, wide) for name in ("q", "key", "value")),
            helper.make_tensor_value_info("bias", kind, ["batch", 1, 1, "seq"]),
        ],
        [helper.make_tensor_value_info("o", kind, wide)],
        [
            numpy_helper.from_array(np.array([0, 0, heads, depth]), "split"),
            numpy_helper.from_array(np.array([0, 0, heads * depth]), "merge"),
            numpy_helper.from_array(np.array(np.sqrt(depth), np.float32), "scale"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def onnxruntime_call(session, inputs: Inputs, result: np.ndarray) -> Callable[[], None]:  # type: ignore[no-untyped-def]
    """A call of the session at one size, inputs and output bound."""
    import onnxruntime

    binding = session.io_binding()
    batch, seq = inputs.sizes["B"], inputs.sizes["S"]
    for name in ("q", "key", "value", "bias"):
        array = inputs.arrays[name]
        array = array.reshape(batch, 1, 1, seq) if name == "bias" else array
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    binding.bind_output("o", "cpu", 0, np.float32, result.shape, result.ctypes.data)

    def call() -> None:
        session.run_with_iobinding(binding)

    return call


# ---- measurement -------------------------------------------------------------------------------


def in_turn(calls: list[Callable[[], None]], seconds: float, each: int) -> list[list[float]]:
    """Seconds per call, round by round."""
    rounds: list[list[float]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(rounds) < 5:
        times = []
        for call in calls:
            start = time.perf_counter()
            for _ in range(each):
                call()
            times.append((time.perf_counter() - start) / each)
        rounds.append(times)
    return rounds


def main() -> None:
    """Measure every shape and write a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=1.5, help="per shape")
    parser.add_argument("--cpu", type=int, default=1, help="the core to stay on")
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.cpu % (os.cpu_count() or 1)})
    launch = make_launch(options.heads, options.depth)
    session = onnxruntime_session(options.heads, options.depth)
    write = sys.stdout.write
    write(f"{launch.schedule}: {launch.reason}\n")
    write("batch x seq    anydim us  GFLOP/s   onnxruntime us  GFLOP/s   times   difference\n")
    ratios = []
    with build(launch.kernel, machine().vector_bytes) as loaded:
        for batch, seq in SHAPES:
            inputs = make_inputs(batch, seq, options.heads, options.depth)
            flops = launch.flops.evaluate(inputs.sizes)
            result = aligned((batch, seq, options.heads * options.depth))
            own = anydim_call(launch, loaded.address(launch.kernel.name), inputs)
            peer = onnxruntime_call(session, inputs, result)
            own(), peer()
            off = np.abs(inputs.arrays["o"].reshape(result.shape) - result).max()
            rounds = in_turn([own, peer], options.seconds, max(1, int(5e6 / flops)))
            mine, theirs = (statistics.median(r[i] for r in rounds) for i in (0, 1))
            ratio = statistics.median(r[1] / r[0] for r in rounds)
            ratios.append(ratio)
            write(
                f"{batch:5} x {seq:<4} {mine * 1e6:11.1f} {flops / mine / 1e9:8.1f}"
                f" {theirs * 1e6:16.1f} {flops / theirs / 1e9:8.1f} {ratio:7.2f}   {off:.1e}\n"
            )
    write(f"geometric mean {statistics.geometric_mean(ratios):.2f}\n")


if __name__ == "__main__":
    main()

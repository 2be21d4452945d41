"""An LSTM of 256 hidden units beside onnxruntime's operator: python -m bench.kernels.recurrent

Two forms of it: the ONNX operator, its weights constants of the model, and the same layer written
in the language, its weights arguments of every call. onnxruntime runs its operator in both cases,
with weights as constants (packed before the first call) and as inputs. All are called in turn on
one thread; what counts is the median of the ratios of neighbours. Results are compared first.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import anydim as ad

WIDTH = 256  # of inputs and of the state
TEXT = """
def lstm(float(T,B,I) x, float(4*H,I) w, float(4*H,H) r, float(8*H) bias,
         float(B,H) h0, float(B,H) c0) -> (y, h, c)
{
  h(b,j) = h0(b,j)
  c(b,j) = c0(b,j)
  for t in 0:T {
    own(b,g) +=! x(t,b,i) * w(g,i)
    past(b,g) +=! h(b,k) * r(g,k)
    gate(b,g) = own(b,g) + past(b,g) + bias(g) + bias(4*H + g)
    c(b,j) = sigmoid(gate(b,2*H + j)) * c(b,j) + sigmoid(gate(b,j)) * tanh(gate(b,3*H + j))
    h(b,j) = sigmoid(gate(b,H + j)) * tanh(c(b,j)) where j in 0:H
    y(t,b,j) = h(b,j)
  }
}
"""


def model(weights: dict[str, np.ndarray], constant: bool):
    """The operator alone; weights are constants or inputs."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", "B", WIDTH])]
    if not constant:
        inputs += [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
            for name, array in weights.items()
        ]
    node = helper.make_node("LSTM", ["x", *weights], ["y", "h", "c"], hidden_size=WIDTH)
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["T", 1, "B", WIDTH]),
        helper.make_tensor_value_info("h", TensorProto.FLOAT, [1, "B", WIDTH]),
        helper.make_tensor_value_info("c", TensorProto.FLOAT, [1, "B", WIDTH]),
    ]
    held = [numpy_helper.from_array(a, n) for n, a in weights.items()] if constant else []
    graph = helper.make_graph([node], "lstm", inputs, outputs, held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made


def peer(made) -> Callable[[dict[str, np.ndarray]], list[np.ndarray]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda arrays: session.run(None, arrays)


def timed(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call, all of them in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {0})
    random = np.random.default_rng(0)
    shapes = {"w": (1, 4 * WIDTH, WIDTH), "r": (1, 4 * WIDTH, WIDTH), "bias": (1, 8 * WIDTH)}
    weights = {
        name: (random.standard_normal(shape) / 20).astype(np.float32)
        for name, shape in shapes.items()
    }
    written = ad.define(TEXT).lstm
    operator = ad.compile(model(weights, True), threads=1)
    packed, unpacked = peer(model(weights, True)), peer(model(weights, False))
    flat = [array[0] for array in weights.values()]
    print(f"{given.turns} turns; milliseconds, ratios to onnxruntime")
    print("batch  operator  language  | packed peer  peer | operator/packed  language/packed"
          "  language/peer")  # fmt: skip
    for batch in given.batches:
        x = random.standard_normal((given.turns, batch, WIDTH)).astype(np.float32)
        zero = np.zeros((batch, WIDTH), np.float32)
        calls: dict[str, Callable[[], object]] = {
            "operator": lambda x=x: operator(x=x)["y"],
            "language": lambda x=x, zero=zero: written(x, *flat, zero, zero)[0],
            "packed": lambda x=x: packed({"x": x})[0],
            "peer": lambda x=x: unpacked({"x": x, **weights})[0],
        }
        right = np.asarray(calls["peer"]()).reshape(given.turns, batch, WIDTH)
        for name, call in calls.items():
            got = np.asarray(call()).reshape(right.shape)
            assert abs(got - right).max() < 1e-5, name  # |y| < 1, float32
        seconds = timed(calls, given.rounds)
        median = {name: statistics.median(values) * 1e3 for name, values in seconds.items()}
        ratio = [
            statistics.median(a / b for a, b in zip(seconds[own], seconds[other]))
            for own, other in (("operator", "packed"), ("language", "packed"), ("language", "peer"))
        ]
        print(f"{batch:5}  {median['operator']:8.3f}  {median['language']:8.3f}  | "
              f"{median['packed']:11.3f} {median['peer']:5.3f} | "
              + "  ".join(f"{value:13.2f}" for value in ratio))  # fmt: skip


if __name__ == "__main__":
    main()

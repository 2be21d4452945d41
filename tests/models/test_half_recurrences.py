"""Promise: LSTM, GRU and RNN of float16 and bfloat16 mean what float64 says, at every size.

States are rounded to the type in every iteration, as the results of a node are; what lies between
is float32. Beside onnx: equations of the standard in float64, with states that are rounded.
"""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import anydim as ad
from tests.ops.recurrent_cases import sigmoid

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
HALVES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
DIRECTIONS = ("forward", "reverse", "bidirectional")
SIZES = ((3, 2), (0, 2), (1, 1), (7, 0), (1, 5), (13, 3))
ALL = list(product(GATES, HALVES, DIRECTIONS, (False, True), (1, 2), (8, 20)))
QUICK = [  # each value of each of them, as constants and as inputs
    ("LSTM", "float16", "forward", False, 1, 8),
    ("GRU", "bfloat16", "bidirectional", True, 2, 20),
    ("RNN", "float16", "reverse", True, 2, 8),
]
SLOW = [pytest.param(*each, marks=pytest.mark.slow) for each in ALL if each not in QUICK]


def arrays(operator: str, dtype: str, directions: int, width: int, hidden: int, biased: bool):
    random = np.random.default_rng(0)
    gates = GATES[operator]
    shapes = [(gates * hidden, width), (gates * hidden, hidden), (2 * gates * hidden,)]
    made = [random.standard_normal((directions, *shape)) * 0.2 for shape in shapes]
    return [array.astype(HALVES[dtype]) for array in made[: 3 if biased else 2]]


def model(operator, dtype, direction, biased, layers, hidden, inputs=False):
    """x [time, batch, 4] -> y; `inputs`: weights are given by each call. With the weights."""
    directions = 2 if direction == "bidirectional" else 1
    kind = TensorProto.FLOAT16 if dtype == "float16" else TensorProto.BFLOAT16
    weights, nodes, value, width = {}, [], "x", 4
    for layer in range(layers):
        made = arrays(operator, dtype, directions, width, hidden, biased)
        names = [f"{name}{layer}" for name in "wrb"[: len(made)]]
        weights.update(zip(names, made))
        y = f"y{layer}"
        nodes += [
            helper.make_node(
                operator, [value, *names], [y], hidden_size=hidden, direction=direction
            ),
            helper.make_node("Transpose", [y], [f"t{layer}"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [f"t{layer}", f"s{layer}"], [f"z{layer}"]),
        ]
        value, width = f"z{layer}", directions * hidden
    shapes = [helper.make_tensor(f"s{n}", 7, [3], [0, 0, width]) for n in range(layers)]
    held = [
        helper.make_tensor(name, kind, array.shape, array.tobytes(), raw=True)
        for name, array in weights.items()
    ]
    declared = [helper.make_tensor_value_info("x", kind, ["time", "batch", 4])]
    if inputs:
        declared += [
            helper.make_tensor_value_info(name, kind, array.shape)
            for name, array in weights.items()
        ]
    result = helper.make_tensor_value_info(value, kind, None)
    graph = helper.make_graph(nodes, "half", declared, [result], shapes + ([] if inputs else held))
    opsets = [helper.make_opsetid("", 22)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), weights


def layer(operator, x, w, r, b, dtype):
    """One direction of a layer: y [time, batch, hidden] in float64, states rounded to a type."""
    hidden = r.shape[1]

    def rounded(value):
        return value.astype(HALVES[dtype]).astype(np.float64)

    own, past = b.reshape(2, -1)
    h = c = np.zeros((x.shape[1], hidden))
    y = np.zeros((*x.shape[:2], hidden))
    for t, part in enumerate(x):
        gates, again = part @ w.T + own, h @ r.T + past
        if operator == "RNN":
            h = np.tanh(gates + again)
        elif operator == "LSTM":
            enter, leave, keep, cell = np.split(gates + again, 4, 1)
            new = sigmoid(keep) * c + sigmoid(enter) * np.tanh(cell)
            h, c = sigmoid(leave) * np.tanh(new), rounded(new)
        else:
            z, reset = (sigmoid(each) for each in np.split((gates + again)[:, : 2 * hidden], 2, 1))
            late = (reset * h) @ r[2 * hidden :].T + past[2 * hidden :]
            h = (1 - z) * np.tanh(gates[:, 2 * hidden :] + late) + z * h
        h = y[t] = rounded(h)
    return y


def expected(operator, dtype, direction, x, weights):
    for n in range(sum(name[0] == "w" for name in weights)):
        w, r, b = (
            weights[f"{name}{n}"].astype(np.float64) if f"{name}{n}" in weights
            else np.zeros((len(weights[f"w{n}"]), 2 * weights[f"w{n}"].shape[1]))
            for name in "wrb"
        )  # fmt: skip
        parts = []
        for number in range(len(w)):
            backwards = direction == "reverse" or number == 1
            given = x[::-1] if backwards else x
            y = layer(operator, given, w[number], r[number], b[number], dtype)
            parts.append(y[::-1] if backwards else y)
        x = np.concatenate(parts, 2)
    return x


@pytest.mark.parametrize(
    ("operator", "dtype", "direction", "biased", "layers", "hidden"), [*QUICK, *SLOW]
)
def test_every_variant_compiles_and_is_right(operator, dtype, direction, biased, layers, hidden):
    inputs = biased and layers == 2
    proto, weights = model(operator, dtype, direction, biased, layers, hidden, inputs)
    compiled = ad.compile(proto)
    unit = float(ml_dtypes.finfo(HALVES[dtype]).eps)
    for time, batch in SIZES:
        random = np.random.default_rng(time * 17 + batch)
        x = random.standard_normal((time, batch, 4)).astype(HALVES[dtype])
        made = compiled(x, *(weights.values() if inputs else ()))
        (got,) = made.values()
        assert got.dtype == HALVES[dtype]
        right = expected(operator, dtype, direction, x.astype(np.float64), weights)
        # a state that is rounded the other way is one unit off, and so is what follows from it
        np.testing.assert_allclose(got.astype(np.float64), right, rtol=0, atol=4 * unit)


@pytest.mark.parametrize("dtype", HALVES)
def test_values(dtype):
    """An LSTM of ones, hidden 8."""
    proto, _ = model("LSTM", dtype, "forward", False, 1, 8)
    (made,) = ad.compile(proto)(np.ones((3, 2, 4), HALVES[dtype])).values()
    unit = float(ml_dtypes.finfo(HALVES[dtype]).eps)
    first = made[0, 0, :3].astype(np.float64)
    np.testing.assert_allclose(first, (-0.1599, 0.01755, -0.02304), atol=unit / 4)

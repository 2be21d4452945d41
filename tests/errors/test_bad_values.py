"""Promise: values of a call that an operator has no meaning for are an InputError; the next call
works."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import anydim as ad


@dataclass(frozen=True)
class Mistake:
    """A node, good inputs for it, and values of one of them that are wrong."""

    operator: str
    inputs: dict[str, Any]
    name: str
    wrong: list[Any]
    outputs: int = 1
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 22


F, I64, I32 = np.float32, np.int64, np.int32
X = np.arange(10, dtype=F)
ROWS = np.arange(12, dtype=F).reshape(4, 3, 1)  # time, batch, features


def weights(gates: int) -> dict[str, Any]:
    return {
        "x": ROWS, "w": np.ones((1, gates * 2, 1), F), "r": np.ones((1, gates * 2, 2), F),
        "b": np.ones((1, gates * 4), F),
    }  # fmt: skip


def lengths(*values: int) -> np.ndarray:
    return np.array(values, I32)


WRONG_LENGTHS = [lengths(4, -1, 2), lengths(5, 1, 1), lengths(0, 0, 2**31 - 1)]
KEYS = np.ones((2, 1, 5, 4), F)
MISTAKES = [
    Mistake(
        "Slice",
        {"x": X, "starts": np.array([1]), "ends": np.array([7]), "axes": np.array([0]),
         "steps": np.array([2])},
        "steps", [np.array([0])],
    ),
    Mistake("Range", {"a": I64(0), "b": I64(9), "d": I64(2)}, "d", [I64(0)]),
    Mistake("Range", {"a": F(0), "b": F(9), "d": F(2)}, "d", [F(0), F(-0.0)]),
    Mistake("Range", {"a": I64(0), "b": I64(9), "d": I64(2)}, "b", [I64(2**63 - 1)]),
    Mistake("Range", {"a": I64(-(2**62)), "b": I64(9 - 2**62), "d": I64(2)}, "b", [I64(2**63 - 1)]),
    Mistake(
        "MaxUnpool", {"x": np.ones((1, 1, 2), F), "i": np.array([[[0, 3]]])}, "i",
        [np.array([[[0, -1]]]), np.array([[[4, 0]]])],
        attributes={"kernel_shape": [2], "strides": [2]},
    ),
    Mistake("LSTM", {**weights(4), "n": lengths(4, 0, 2)}, "n", WRONG_LENGTHS, 3,
            {"hidden_size": 2}),
    Mistake("GRU", {**weights(3), "n": lengths(4, 0, 2)}, "n", WRONG_LENGTHS, 2,
            {"hidden_size": 2}),
    Mistake("RNN", {**weights(1), "n": lengths(4, 0, 2)}, "n", WRONG_LENGTHS, 2,
            {"hidden_size": 2}),
    Mistake("ReverseSequence", {"x": ROWS, "n": np.array([4, 0, 2])}, "n",
            [np.array([5, 1, 1]), np.array([1, -1, 1])]),
    Mistake(
        "Attention",
        {"q": np.ones((2, 1, 3, 4), F), "k": KEYS, "v": KEYS, "": None, "_1": None, "_2": None,
         "n": np.array([5, 1])},
        "n", [np.array([6, 1]), np.array([-1, 1])], opset=24,
    ),
]  # fmt: skip


def model_of(mistake: Mistake) -> ad.Model:
    """The node alone, with inputs of these shapes."""
    given = {name: np.asarray(value) for name, value in mistake.inputs.items() if value is not None}
    names = ["" if value is None else name for name, value in mistake.inputs.items()]
    node = helper.make_node(
        mistake.operator, names, [f"y{n}" for n in range(mistake.outputs)], name="node",
        **mistake.attributes,
    )  # fmt: skip
    kinds = helper.np_dtype_to_tensor_dtype
    infos = [
        helper.make_tensor_value_info(name, kinds(value.dtype), value.shape)
        for name, value in given.items()
    ]
    outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
    if mistake.operator == "Range":
        outs = [helper.make_tensor_value_info("y0", kinds(given["a"].dtype), ["n"])]
    graph = helper.make_graph([node], "g", infos, outs)
    opsets = [helper.make_opsetid("", mistake.opset)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return ad.compile(made)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: f"{m.operator}-{m.name}")
def test_wrong_values(mistake: Mistake) -> None:
    model = model_of(mistake)
    good = {name: np.asarray(v) for name, v in mistake.inputs.items() if v is not None}
    before = model(**good)
    for value in mistake.wrong:
        with pytest.raises(ad.InputError):
            model(**{**good, mistake.name: np.asarray(value)})
    for name, array in model(**good).items():
        np.testing.assert_array_equal(array, before[name])


TEXTS = {
    "Slice": r"dim 'y0.length' is -1, below its bound 0\n.*; -1 results from a step of 0",
    "Range": r"dim 'y0.count' is -1, below its bound 0\n.*; -1 results from a step of 0",
    "ReverseSequence": r"node of g: value 5 is outside 0\.\.4\n *give values from 0 to 4; "
    "they come from input 'n'",
}


@pytest.mark.parametrize("operator", TEXTS)
def test_texts_say_what_values_mean(operator: str) -> None:
    mistake = next(m for m in MISTAKES if m.operator == operator)
    good = {name: np.asarray(v) for name, v in mistake.inputs.items() if v is not None}
    with pytest.raises(ad.InputError, match=TEXTS[operator]):
        model_of(mistake)(**{**good, mistake.name: np.asarray(mistake.wrong[0])})


def test_the_least_number_as_a_diagonal_and_as_a_bound() -> None:
    """Its opposite is itself in 64 bits."""
    x, least = np.arange(6, dtype=F).reshape(2, 3), np.int64(-(2**63))
    model = model_of(Mistake("Trilu", {"x": x, "k": I64(0)}, "k", []))
    np.testing.assert_array_equal(model(x=x, k=least)["y0"], x)
    count = model_of(Mistake("Range", {"a": I64(0), "b": I64(9), "d": I64(2)}, "b", []))
    assert count(a=I64(2**63 - 1), b=least, d=I64(2))["y0"].size == 0


@pytest.mark.parametrize("operator", ["MaxPool", "Conv"])
def test_negative_pads_of_a_window(operator: str) -> None:
    w = {"w": np.ones((1, 1, 3), F)} if operator == "Conv" else {}
    attributes = {"kernel_shape": [3], "pads": [-1, 0]}
    with pytest.raises(ad.ModelError, match="expected 0 and above"):
        model_of(Mistake(operator, {"x": np.ones((1, 1, 8), F), **w}, "x", [], 1, attributes))

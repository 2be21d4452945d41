"""A small model of each kind, with inputs of any count and the plain meaning of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import anydim as ad

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
value = helper.make_tensor_value_info
WORDS = ["no", "yes", "maybe"]
W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


@dataclass(frozen=True)
class Kind:
    """`make` compiles; `draw(count)` are inputs by name; `plain(inputs, state)` are the results
    by name, and changes the arrays of the state as a call does."""

    make: Callable[[], Any]
    draw: Callable[[int], dict[str, Any]]
    plain: Callable[[Mapping[str, Any], dict[str, Any]], dict[str, Any]]
    sizes: Mapping[str, int] = field(default_factory=lambda: {"n": 3})  # of draw(3)
    state: Mapping[str, Any] = field(default_factory=dict)  # at the beginning
    lengths: Any = None


def floats(count: int, *shape: int) -> np.ndarray:
    made = np.random.default_rng((count, *shape)).standard_normal((count, *shape))
    return made.astype(np.float32)


def complexes(count: int, *shape: int) -> np.ndarray:
    return (floats(count, *shape) + 1j * floats(count, *shape)[::-1]).astype(np.complex64)


def words(count: int) -> np.ndarray:
    return np.random.default_rng(count).choice([*WORDS, "other"], count).astype(object)


def file(nodes: Any, inputs: Any, outputs: Any, weights: Any = ()) -> bytes:
    graph = helper.make_graph(nodes, "m", inputs, outputs, list(weights))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return bytes(made.SerializeToString())


def product(**options: Any) -> Any:
    g = ad.Builder("product")
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 4))
    g.output("y", g.tanh(g.matmul(x, g.constant(W))))
    return ad.compile(g, threads=1, **options)


def rows() -> Any:
    g = ad.Builder("rows")
    x = g.input("x", ad.float32, (g.dim("b"), g.dim("n", 0, 64)))
    g.output("y", x * 2.0)
    g.output("total", g.reduce_sum(x, axes=(1,)))
    return ad.compile(g, ragged={"n": "b"}, threads=1)


def several_rows(count: int) -> dict[str, Any]:
    return {"x": [floats(size) for size in range(1, count + 1)]}


def of_rows(given: Mapping[str, Any], _: Any) -> dict[str, Any]:
    return {"y": [2 * row for row in given["x"]], "total": [row.sum() for row in given["x"]]}


def labels() -> Any:
    learned = {"domain": "ai.onnx.ml"}
    nodes = [
        helper.make_node("LabelEncoder", ["words"], ["ids"], keys_strings=WORDS,
                         values_floats=[1.0, 2.0, 3.0], default_float=-1.0, **learned),
        helper.make_node("Mul", ["ids", "ids"], ["y"]),
    ]  # fmt: skip
    return ad.compile(
        file(nodes, [value("words", STRING, ["n"])], [value("y", FLOAT, ["n"])]), threads=1
    )


def of_labels(given: Mapping[str, Any], _: Any) -> dict[str, Any]:
    found = [WORDS.index(word) + 1.0 if word in WORDS else -1.0 for word in given["words"]]
    return {"y": np.array(found, np.float32) ** 2}


def joined() -> Any:
    nodes = [helper.make_node("StringConcat", ["a", "b"], ["c"])]
    strings = [value(name, STRING, [axis]) for name, axis in zip("abc", ("2 n", None, "?"))]
    made = onnx.load_from_string(file(nodes, strings[:2], strings[2:]))
    made.opset_import[0].version = 20
    return ad.compile(made)


def unranked() -> Any:
    made = onnx.load_from_string(
        file([helper.make_node("Relu", ["x"], ["y"])], [value("x", FLOAT, None)],
             [value("y", FLOAT, None)])
    )  # fmt: skip
    return ad.compile(made.SerializeToString(), threads=1)


def sequence() -> Any:
    nodes = [helper.make_node("Exp", ["x"], ["e"]),
             helper.make_node("SplitToSequence", ["e"], ["parts"], axis=0, keepdims=1)]  # fmt: skip
    out = helper.make_tensor_sequence_value_info("parts", FLOAT, ["k", 4])
    return ad.compile(file(nodes, [value("x", FLOAT, ["n", 4])], [out]), threads=1)


def joins() -> Any:
    nodes = [helper.make_node("ConcatFromSequence", ["parts"], ["j"], axis=0),
             helper.make_node("Exp", ["j"], ["y"])]  # fmt: skip
    given = helper.make_tensor_sequence_value_info("parts", FLOAT, ["k", 4])
    return ad.compile(file(nodes, [given], [value("y", FLOAT, ["n", 4])]), threads=1)


def torch_models() -> Any:
    """The modules; torch is imported by tests that have it."""
    import torch

    class Conjugate(torch.nn.Module):
        def forward(self, z: Any) -> Any:
            return z * 2 + z.conj(), z.abs()

    class Total(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x: Any) -> Any:
            self.total.add_(x.sum(0))
            return x - self.total

    class Phase(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, z: Any) -> Any:
            self.calls.add_(1)
            return z * self.calls

    class Increment(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            x.add_(1)
            return x * 2

    return {"complex": Conjugate, "stateful": Total, "both": Phase, "writes": Increment}


def of_torch(name: str, example: Callable[[], np.ndarray], **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        import torch

        arguments = (torch.from_numpy(example()),)
        shapes = ({0: torch.export.Dim("n", max=64)},)
        return ad.compile(
            torch_models()[name](), arguments, dynamic_shapes=shapes, threads=1, **options
        )

    return make


def of_total(given: Mapping[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    state["total"] += given["x"].sum(0)
    return {"output": given["x"] - state["total"]}


def of_phase(given: Mapping[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    state["calls"] += 1
    return {"output": given["z"] * state["calls"]}


def of_increment(given: Mapping[str, Any], _: Any) -> dict[str, Any]:
    given["x"][...] += 1
    return {"output": given["x"] * 2}


def of_product(given: Mapping[str, Any], _: Any) -> dict[str, Any]:
    return {"y": np.tanh(given["x"] @ W)}


def of_complex(given: Mapping[str, Any], _: Any) -> dict[str, Any]:
    return {"output_0": given["z"] * 2 + given["z"].conj(), "output_1": np.abs(given["z"])}


KINDS: Mapping[str, Kind] = {
    "plain": Kind(product, lambda n: {"x": floats(n, 4)}, of_product),
    "device": Kind(
        lambda: product(devices={"a": "cpu"}, placement={"*": "a"}),
        lambda n: {"x": floats(n, 4)}, of_product,
    ),
    "ragged": Kind(rows, several_rows, of_rows, {"b": 3, "n.total": 6}, lengths=[1, 2, 3]),
    "complex": Kind(
        of_torch("complex", lambda: complexes(3, 4)), lambda n: {"z": complexes(n, 4)}, of_complex
    ),
    "stateful": Kind(
        of_torch("stateful", lambda: floats(3, 4)), lambda n: {"x": floats(n, 4)}, of_total,
        state={"total": np.zeros(4, np.float32)},
    ),
    "stateful complex": Kind(
        of_torch("both", lambda: complexes(3, 4)), lambda n: {"z": complexes(n, 4)}, of_phase,
        state={"calls": np.zeros(1, np.float32)},
    ),
    "writes": Kind(
        of_torch("writes", lambda: floats(3, 4)), lambda n: {"x": floats(n, 4)}, of_increment
    ),
    "strings": Kind(labels, lambda n: {"words": words(n)}, of_labels),
    "strings alone": Kind(
        joined, lambda n: {"a": words(n), "b": words(n)},
        lambda given, _: {"c": given["a"] + given["b"]}, {},
    ),
    "unranked": Kind(
        unranked, lambda n: {"x": floats(n, 4)},
        lambda given, _: {"y": np.maximum(given["x"], 0)}, {"x_0": 3, "x_1": 4},
    ),
    "lists out": Kind(
        sequence, lambda n: {"x": floats(n, 4)},
        lambda given, _: {"parts": list(np.exp(given["x"])[:, None])},
    ),
    "lists in": Kind(
        joins, lambda n: {"parts": [floats(2, 4) for _ in range(n)]},
        lambda given, _: {"y": np.exp(np.concatenate(given["parts"]))}, {},
    ),
}  # fmt: skip
OF_TORCH = {"complex", "stateful", "stateful complex", "writes"}


@cache
def made(kind: str) -> Any:
    """The compiled model, one for all tests."""
    return KINDS[kind].make()


def fresh(kind: str, form: str, folder: Path) -> Any:
    """The model, compiled or loaded, with the state of the beginning."""
    model = made(kind)
    for name, array in KINDS[kind].state.items():
        model.state[name][...] = 0 * model.state[name]
        assert not array.any()
    if kind == "unranked":
        model(**KINDS[kind].draw(3))  # queries are about the ranks of the first call
    if form == "compiled":
        return model
    model.save(folder / "model.anydim")
    return loaded(folder / "model.anydim", kind)


def loaded(path: Path, kind: str) -> Any:
    """The model of a file, on its devices."""
    return ad.load(path, devices={"a": "cpu"} if kind == "device" else None)

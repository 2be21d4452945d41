"""Cuts of real models: a few connected nodes, at random values and several sizes.

What goes into the nodes are inputs (weights stay constants), and every value that they make is a
result: once of a model that gives them all, once of one that gives the last ones alone, as fusion
sees other graphs there. onnxruntime, which optimises nothing here, says what they are. Sizes are
those of runs of the whole model: axes that vary alike are one dim, the others are fixed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper

import anydim as ad
from bench.light import light_model
from examples.minilm.model import model_path
from tests.fuzz.case import Arrays
from tests.fuzz.judge import Failure, said
from tests.fuzz.runner import BEGIN, SECONDS, Outcome, run_each, stop_after

CLOSE = 1e-4  # of the largest element of a result: sums of up to 25,088 terms in another order
SIDE = 224
MOST_NODES = 12
CALLS = 4
SMALL = 4096  # elements of whole numbers that a run keeps; others are drawn
Shapes = dict[str, tuple[int, ...]]


def images(name: str, *shapes: tuple[int, ...]) -> Callable[[], tuple[onnx.ModelProto, list]]:
    """A light architecture and inputs for some runs."""

    def made() -> tuple[onnx.ModelProto, list[Arrays]]:
        model = light_model(name, ("batch", 3, "height", "width"))
        (value,) = (v for v in model.graph.input if v.name not in weights(model))
        return model, [{value.name: numpy.zeros(shape, numpy.float32)} for shape in shapes]

    return made


def sentences() -> tuple[onnx.ModelProto, list[Arrays]]:
    """MiniLM and batches of tokens."""
    model, feeds, numbers = onnx.load(model_path()), [], numpy.random.default_rng(0)
    for shape in ((2, 7), (1, 12), (3, 1), (5, 33), (1, 1)):
        tokens = numbers.integers(0, 1000, shape)
        held = {
            "input_ids": tokens,
            "attention_mask": tokens % 4 != 0,
            "token_type_ids": tokens % 2,
        }
        feeds.append({v.name: held[v.name].astype(numpy.int64) for v in model.graph.input})
    return model, feeds


SIDES = ((1, 3, 64, 64), (2, 3, 33, 97), (3, 3, 48, 80), (1, 3, 100, 35))
BATCHES = ((2, 3, SIDE, SIDE), (1, 3, SIDE, SIDE), (3, 3, SIDE, SIDE))
MODELS: dict[str, Callable[[], tuple[onnx.ModelProto, list[Arrays]]]] = {
    "squeezenet": images("squeezenet", *SIDES),
    "densenet121": images("densenet121", *SIDES),
    "minilm": sentences,
    "shufflenet": images("shufflenet", *BATCHES),
    "inception_v1": images("inception_v1", *BATCHES),
    "inception_v2": images("inception_v2", *BATCHES),
    "resnet50": images("resnet50", *BATCHES),
}


def weights(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    return {tensor.name: tensor for tensor in model.graph.initializer}


@dataclass(frozen=True)
class Whole:
    """A model, and what values were in some runs: shapes, types, whole numbers if there are few."""

    model: onnx.ModelProto
    kinds: Mapping[str, numpy.dtype]
    shapes: list[Shapes]
    kept: list[Arrays]

    @staticmethod
    @lru_cache(maxsize=1)
    def of(name: str) -> Whole:
        model, feeds = MODELS[name]()
        names = [name for node in model.graph.node for name in node.output if name]
        kinds: dict[str, numpy.dtype] = {}
        shapes: list[Shapes] = []
        kept: list[Arrays] = []
        session = running(with_results(model, names))
        for feed in feeds:
            values = {**feed, **dict(zip(names, session.run(names, feed)))}
            kinds = {name: array.dtype for name, array in values.items()}
            shapes.append({name: array.shape for name, array in values.items()})
            kept.append(
                {n: a for n, a in values.items() if a.dtype.kind != "f" and a.size <= SMALL}
            )
        return Whole(model, kinds, shapes, kept)

    def dims(self, name: str) -> list[int | str]:
        """The axes of a value: sizes that are always alike, and names of those that vary."""
        together = zip(*(shapes[name] for shapes in self.shapes))
        return [s[0] if len(set(s)) == 1 else "d" + "_".join(map(str, s)) for s in together]


def with_results(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """The model with other results."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.output[:]
    changed.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    return changed


def running(model: onnx.ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data, providers = model.SerializeToString(), ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(data, options, providers=providers)


# ---- one cut -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """Nodes of a model as a model of their own."""

    whole: Whole
    nodes: tuple[onnx.NodeProto, ...]

    @staticmethod
    def of(name: str, chance: random.Random) -> Cut:
        """Random nodes that hang together, in the order of the model."""
        whole = Whole.of(name)
        nodes = [node for node in whole.model.graph.node if node.op_type != "Constant"]
        beside = neighbours(nodes)
        chosen = {chance.randrange(len(nodes))}
        for _ in range(chance.randint(1, MOST_NODES)):
            near = sorted({other for number in chosen for other in beside[number]} - chosen)
            if near:
                chosen.add(chance.choice(near))
        return Cut(whole, tuple(nodes[number] for number in sorted(chosen)))

    @property
    def made(self) -> list[str]:
        """What nodes make; the standard says not what a mask holds of which nothing is dropped."""
        kept = {"Dropout": 1}
        return [name for n in self.nodes for name in n.output[: kept.get(n.op_type)] if name]

    @property
    def last(self) -> list[str]:
        read = {name for node in self.nodes for name in node.input}
        return [name for name in self.made if name not in read]

    @property
    def given(self) -> list[str]:
        """The inputs: what nodes read that is no constant and not made here."""
        read = dict.fromkeys(name for node in self.nodes for name in node.input if name)
        other = {*self.made, *weights(self.whole.model), *map(_first, self.constants)}
        return [name for name in read if name not in other]

    @property
    def constants(self) -> list[onnx.NodeProto]:
        read = {name for node in self.nodes for name in node.input}
        nodes = self.whole.model.graph.node
        return [node for node in nodes if node.op_type == "Constant" and node.output[0] in read]

    def model(self, results: list[str]) -> onnx.ModelProto:
        """The model of some of the values that are made."""
        whole = self.whole.model
        kinds = {name: helper.np_dtype_to_tensor_dtype(t) for name, t in self.whole.kinds.items()}
        read = {name for node in self.nodes for name in node.input}
        held = [tensor for name, tensor in weights(whole).items() if name in read]
        graph = helper.make_graph(
            [*self.constants, *self.nodes], "cut",
            [helper.make_tensor_value_info(n, kinds[n], self.whole.dims(n)) for n in self.given],
            [helper.make_tensor_value_info(n, kinds[n], None) for n in results],
            held,
        )  # fmt: skip
        return helper.make_model(
            graph, opset_imports=whole.opset_import, ir_version=max(4, whole.ir_version)
        )

    def inputs(self, run: int, numbers: numpy.random.Generator) -> Arrays:
        """Random floats of the shapes of a run; whole numbers are what they were, or small."""
        return {name: self._drawn(name, run, numbers) for name in self.given}

    def _drawn(self, name: str, run: int, numbers: numpy.random.Generator) -> numpy.ndarray:
        if name in self.whole.kept[run]:
            return self.whole.kept[run][name]
        shape, kind = self.whole.shapes[run][name], self.whole.kinds[name]
        if kind.kind == "f":
            return numpy.asarray(numbers.standard_normal(shape)).astype(kind)
        return numpy.asarray(numbers.integers(0, 2, shape)).astype(kind)

    def text(self) -> str:
        bare = self.model(self.last)
        for tensor in bare.graph.initializer:
            if numpy.prod(tensor.dims) > 16:
                tensor.CopyFrom(TensorProto(name=tensor.name, dims=tensor.dims, data_type=1))
        return str(onnx.printer.to_text(bare))


def _first(node: onnx.NodeProto) -> str:
    return str(node.output[0])


def neighbours(nodes: list[onnx.NodeProto]) -> list[set[int]]:
    """The nodes that read what a node makes, or make what it reads."""
    makers = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    beside: list[set[int]] = [set() for _ in nodes]
    for number, node in enumerate(nodes):
        for name in node.input:
            if name in makers:
                beside[number].add(makers[name])
                beside[makers[name]].add(number)
    return beside


def judged(seed: int) -> tuple[str, str]:
    """What is wrong with the cut of a seed, and its text; twice '' where nothing is."""
    chance, numbers = random.Random(seed), numpy.random.default_rng(seed)
    names = list(MODELS)
    cut = Cut.of(names[seed // 100 % len(names)], chance)
    found = judge(cut, chance, numbers)
    return (str(found), cut.text()) if found else ("", "")


def judge(cut: Cut, chance: random.Random, numbers: numpy.random.Generator) -> Failure | None:
    session = running(cut.model(cut.made))
    try:
        every, few = (ad.compile(cut.model(results)) for results in (cut.made, cut.last))
    except Exception as error:
        return Failure("compile", said(error))
    for _ in range(CALLS):
        run = chance.randrange(len(cut.whole.shapes))
        inputs = cut.inputs(run, numbers)
        expected = dict(zip(cut.made, session.run(cut.made, inputs)))
        for model in (every, few):
            held = {value.name: inputs[value.name] for value in model.inputs}
            try:
                came = model(**held)
            except Exception as error:
                return Failure("call", said(error), {"run": run})
            reason = next(filter(None, (far(n, a, expected[n]) for n, a in came.items())), "")
            if reason:
                which = "all values" if model is every else "last values"
                return Failure("value", f"{reason} ({which})", {"run": run})
    return None


def far(name: str, came: numpy.ndarray, expected: numpy.ndarray) -> str:
    """What is wrong with a result; '' for nothing."""
    if came.shape != expected.shape or came.dtype != expected.dtype:
        return f"'{name}' is {came.dtype}{came.shape}, expected {expected.dtype}{expected.shape}"
    if expected.dtype.kind != "f":
        wrong = came != expected
    else:
        scale = float(numpy.abs(expected[numpy.isfinite(expected)]).max(initial=0.0))
        wrong = ~numpy.isclose(came, expected, CLOSE, CLOSE * scale, equal_nan=True)
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in numpy.argwhere(wrong)[0])
    values = f"{came[at]!r}, expected {expected[at]!r}"
    return f"'{name}': {int(wrong.sum())} of {wrong.size} elements differ, at {at} {values}"


# ---- many --------------------------------------------------------------------------------------


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the cuts of these seeds, in order; 100 seeds are of one model."""
    return run_each(seeds, small, _one, _crashed)


def _one(seed: int, small: bool) -> Iterator[Outcome]:
    yield Outcome(seed, BEGIN)
    stop_after(SECONDS * 3)
    yield Outcome(seed, *judged(seed))


def _crashed(seed: int, end: str, small: bool) -> Outcome:
    return Outcome(seed, f"crash: {end}")

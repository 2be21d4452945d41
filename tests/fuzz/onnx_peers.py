"""Random ONNX models against what they mean, and against other engines.

A model is imported, compiled once and called at several sizes. Its results must be those of the
imported graph in float64, as far as rounding allows (`judge.Expected`), and those of onnxruntime
must be too; where onnxruntime refuses, those of onnx's own reference, if it takes the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

import anydim as ad
from anydim.base.errors import DimError
from anydim.compiler.frontends.onnx import import_model
from tests.fuzz.case import Arrays
from tests.fuzz.fences import fences, watched
from tests.fuzz.judge import Expected, Failure
from tests.fuzz.onnx_models import DIMS, Known, Models
from tests.fuzz.onnx_nodes import random_model
from tests.fuzz.runner import BEGIN, SECONDS, Outcome, run_each, stop_after

# onnx's reference takes the largest of three axes over the channels as well, and calls the largest
# of nothing the lowest number, not minus infinity.
WRONG_IN_REFERENCE = ("GlobalMaxPool", "LRN", "ReduceMax", "ReduceMin")
SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 23, 33)
CALLS = 5
Judge = Callable[[int, bool], tuple[str, str]]  # of a seed, and whether to look for less
Maker = Callable[[int], Models]
Asked = Callable[[dict[str, int]], bool]  # whether onnx's reference is asked at some sizes


def always(sizes: dict[str, int]) -> bool:
    return True


@dataclass(frozen=True)
class Peers:
    """The engines of one model."""

    graph: Any
    model: ad.Model
    session: Any
    reference: Any

    @staticmethod
    def of(proto: onnx.ModelProto) -> Peers:
        data = proto.SerializeToString()
        session = _session(data)
        graph = import_model(data)
        wrong = any(node.op_type in WRONG_IN_REFERENCE for node in proto.graph.node)
        reference = None if wrong else ReferenceEvaluator(proto)
        return Peers(graph, ad.compile(graph), session, reference)

    def judge(self, feeds: Arrays, sizes: dict[str, int], asked: Asked = always) -> Failure | None:
        """What is wrong at some sizes; onnx's reference is a peer where it is `asked`."""
        try:
            expected: Expected | None = Expected.of(self.graph, given(self.graph.inputs, feeds))
        except DimError:
            expected = None
        other = self.others(feeds, asked(sizes))
        names = [value.name for value in self.model.inputs]
        try:
            with watched(), fences(low=sum(sizes.values()) % 2 == 1) as held:
                came = self.model(**held.copies(given(names, feeds)))
        except DimError as error:
            if expected is None and other is None:
                return None
            return Failure("refusal", f"{error}", sizes)
        if expected is None:
            reason = "the imported graph refuses these sizes, the model does not"
            return Failure("refusal", reason, sizes)
        if reason := expected.difference(came):
            return Failure("value", reason, sizes)
        if other is not None and (reason := expected.difference(other[1])):
            return Failure("peer", f"{other[0]}: {reason}", sizes)
        return None

    def others(self, feeds: Arrays, reference: bool) -> tuple[str, Arrays] | None:
        """Which engine took these sizes, and its results."""
        names = [output.name for output in self.session.get_outputs()]
        if all(array.size for array in feeds.values()):  # empty ones may end its process
            try:
                return "onnxruntime", dict(zip(names, self.session.run(None, feeds)))
            except Exception:  # as some sizes are refused by it
                pass
        if self.reference is None or not reference:
            return None
        try:
            with numpy.errstate(all="ignore"):
                made = self.reference.run(None, feeds)
        except Exception:
            return None
        return "onnx.reference", {name: numpy.asarray(a) for name, a in zip(names, made)}


def _session(data: bytes) -> Any:
    """A session without onnxruntime's optimisations: some make other graphs, or invalid ones."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def given(names: Any, feeds: Arrays) -> Arrays:
    return {name: feeds[name] for name in names}


def points(m: Models) -> Iterator[dict[str, int]]:
    """Sizes for a few calls; those of many axes stay small."""
    rank = max(value.rank for value in m.inputs)
    fitting = [size for size in SIZES if size <= 8] if rank > 3 else SIZES
    for _ in range(CALLS):
        yield {name: m.random.choice(fitting) for name in DIMS}


def feeds_of(m: Models, sizes: dict[str, int]) -> Arrays:
    return {value.name: drawn(value, sizes, m.numbers) for value in m.inputs}


def drawn(value: Known, sizes: dict[str, int], numbers: numpy.random.Generator) -> numpy.ndarray:
    shape = tuple(size.evaluate(sizes) for size in value.shape)
    if value.kind == "l":
        return numpy.asarray(numbers.integers(-4, 9, shape))
    return numpy.asarray(numbers.standard_normal(shape)).astype(numpy.float32)


def run(
    seeds: range, small: bool = True, judge: Judge | None = None, made: Maker = random_model
) -> Iterator[Outcome]:
    """The outcomes of the models of these seeds, in order."""

    def one(seed: int, small: bool) -> Iterator[Outcome]:
        yield Outcome(seed, BEGIN)
        stop_after(SECONDS * 3)
        yield Outcome(seed, *(judge or judged)(seed, small))

    def crashed(seed: int, end: str, small: bool) -> Outcome:
        return Outcome(seed, f"crash: {end}", text(made(seed).model()))

    return run_each(seeds, small, one, crashed)


def judged(seed: int, small: bool) -> tuple[str, str]:
    """What is wrong with the model of a seed, and its text; twice '' where nothing is."""
    m = random_model(seed)
    return judged_model(m, points(m), small)


def judged_model(
    m: Models, calls: Iterable[dict[str, int]], small: bool, asked: Asked = always
) -> tuple[str, str]:
    """The same of a model, called at some sizes."""
    proto = m.model()
    try:
        peers = Peers.of(proto)
    except Exception as error:
        return f"compile: {type(error).__name__}: {error}", text(proto)
    for sizes in calls:
        feeds = feeds_of(m, sizes)
        found = peers.judge(feeds, sizes, asked)
        if found is not None:
            proto, found = smallest(m, found, feeds, asked) if small else (proto, found)
            return str(found), text(proto)
    return "", ""


def smallest(
    m: Models, found: Failure, feeds: Arrays, asked: Asked = always
) -> tuple[onnx.ModelProto, Failure]:
    """The first value whose part of the model fails alone, at the sizes of a failure."""
    for node in m.nodes:
        for name in node.output:
            part = part_of(m, name)
            try:
                used = {value.name for value in part.graph.input}
                held = {n: array for n, array in feeds.items() if n in used}
                again = Peers.of(part).judge(held, dict(found.sizes or {}), asked)
            except Exception:
                continue
            if again is not None and again.kind == found.kind:
                return part, again
    return m.model(), found


def part_of(m: Models, result: str) -> onnx.ModelProto:
    """The model of one value."""
    needed, nodes = {result}, []
    for node in reversed(m.nodes):
        if needed & set(node.output):
            nodes.insert(0, node)
            needed |= set(node.input)
    part = Models(0)
    part.nodes = nodes
    part.inputs = [value for value in m.inputs if value.name in needed]
    part.constants = [constant for constant in m.constants if constant.name in needed]
    made = [value for value in m.values if value.name == result]
    part.values = [*part.inputs, *made]
    return part.model()


def text(proto: onnx.ModelProto) -> str:
    return str(onnx.printer.to_text(proto))

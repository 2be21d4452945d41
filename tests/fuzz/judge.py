"""Whether a compiled case does what its graph says, and which pass is to blame if not.

What is expected is the graph in float64. How far off a result may be comes from the graph itself:
it is evaluated again with every value shaken by a few units in the last place of its own type.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest import mock

import ml_dtypes
import numpy

import anydim as ad
from anydim.base.dtypes import float64, from_numpy
from anydim.base.errors import DimError
from anydim.compiler.graph import evaluate as evaluation
from anydim.compiler.graph.evaluate import bind, check_guards, evaluate, group_of
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.graph.reader import read_graph
from anydim.compiler.graph.text import constants_of, print_graph
from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.passes import assemble
from anydim.compiler.passes.options import PLAIN
from anydim.compiler.pipeline import PASSES
from anydim.compiler.targets.llvm.host import machine
from anydim.lang.meaning.evaluate import _Evaluator
from anydim.lang.meaning.evaluate import evaluate as evaluate_group
from anydim.lang.tree import TensorType
from anydim.runtime.program.segment import Site
from anydim.sizes import as_size, negated_if_negative
from tests.fuzz.case import Arrays, Case
from tests.fuzz.fences import fences, watched
from tests.fuzz.points import whole

_EXACT = ("min", "max", "neg", "abs", "select", "floor", "ceil", "round", "trunc", "sign")
_PLACES = ("resize",)  # compute in float64 which elements they read
SHAKES = 3
_ONE_SHAKES = threading.Lock()  # shaking changes the evaluator
SLACK = 24.0  # how much worse than shaken results a result may be
LEAST_EXP = 1.9e-38  # exp of float32 is 0 below, and 0 * inf is not what little * inf is
WINOGRAD = 1e-5  # of the largest result: what the algorithm's transforms lose in float32
GREAT = 1e-9  # of the largest number: from there on parts of a sum may overflow
BASE = {"bfloat16": 2.4e-2, "float16": 3e-3, "float32": 2e-5, "float64": 2e-13}


@dataclass(frozen=True)
class Failure:
    """What went wrong: `kind` is 'reference', 'compile', 'text', 'call', 'refusal', 'value',
    'crash', or a law of metamorphic.py."""

    kind: str
    reason: str
    sizes: Mapping[str, int] | None = None

    @property
    def family(self) -> tuple[str, str]:
        """What stays the same while a case shrinks."""
        return self.kind, "" if self.reason.startswith("'") else self.reason[:24]

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}" + (f" at {self.sizes}" if self.sizes else "")


def judge(case: Case) -> Failure | None:
    """Compile a case and call it at all its points; the first thing that goes wrong."""
    try:
        model = compiled(case)
    except Exception as error:
        return Failure("compile", said(error))
    if read_graph(print_graph(case.graph), constants_of(case.graph)) != case.graph:
        return Failure("text", "the text of the graph reads as another graph")
    calls = list(_calls(case))
    with watched(), ThreadPoolExecutor(3 if case.crowd else 1) as crowd:
        found = crowd.map(lambda call: call.made(model), calls)
        return next((failure for failure in found if failure is not None), None)


def _calls(case: Case) -> Iterator[Call]:
    """The calls of a case; what sizes give is computed once, however often they come."""
    known: dict[tuple[tuple[str, int], ...], Call | None] = {}
    for number, sizes in enumerate(case.points):
        key = tuple(sizes.items())
        if key not in known:
            known[key] = Call.of(case, sizes)
        call = known[key]
        if call is not None:
            yield replace(call, low=bool(number % 2))


@contextmanager
def eager_launches() -> Iterator[None]:
    """Let threads share even little work in programs that are compiled meanwhile.

    A grain below 0 says which elements a stage has, all of which come before those of the next one.
    """

    def eager(**fields: Any) -> Site:
        staged = negated_if_negative(fields["grain"]) is not None
        return Site(**fields if staged else {**fields, "grain": as_size(1)})

    with mock.patch.object(assemble, "Site", eager):
        yield


def compiled(case: Case) -> ad.Model:
    """The model of a case; with `eager`, even little work is shared between threads."""
    with eager_launches() if case.eager else nullcontext():
        return ad.compile(case.graph, threads=case.threads)


@dataclass(frozen=True)
class Call:
    """A call to be made: its sizes and inputs, and what the graph says about them."""

    sizes: Mapping[str, int]
    inputs: Arrays
    expected: Expected | Failure | None  # None: the sizes are refused
    low: bool = False  # whether fences stand before the arrays, not behind

    @staticmethod
    def of(case: Case, sizes: Mapping[str, int]) -> Call | None:
        """None where there are no inputs of these sizes."""
        inputs = case.inputs(sizes)
        if inputs is None:
            return None
        expected: Expected | Failure | None
        try:
            expected = Expected.of(case.graph, inputs)
        except DimError:
            expected = None
        except Exception as error:
            expected = Failure("reference", said(error), sizes)
        return Call(sizes, inputs, expected)

    def made(self, model: ad.Model) -> Failure | None:
        """Call the model; what is wrong with what it does."""
        if isinstance(self.expected, Failure):
            return self.expected
        with fences(self.low) as held:
            try:
                came = model(**held.copies(self.inputs))
            except Exception as error:
                if self.expected is None and isinstance(error, DimError):
                    return None
                return Failure("call", said(error), self.sizes)
        if self.expected is None:
            reason = "the reference refuses these sizes, the model does not"
            return Failure("refusal", reason, self.sizes)
        reason = self.expected.difference(came)
        return Failure("value", reason, self.sizes) if reason else None


def said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


@dataclass(frozen=True)
class Expected:
    """Results by name, the distance allowed to each element, and the types.

    `least` is allowed whatever the graph; how far rounding may move results is what `others` say,
    those of float32 and of values a little off: four more evaluations, so nobody asks before
    something is farther off than `least`. With `great`, what is not finite may stand anywhere, 0
    too, its reciprocal, and anything where that is expected.
    """

    types: Mapping[str, TensorType]
    values: Arrays
    least: Arrays
    others: Callable[[], list[Arrays]]
    great: bool = False

    @staticmethod
    def of(graph: Graph, inputs: Arrays) -> Expected:
        """The results of a graph, and how far rounding may move them."""
        exact = evaluate(graph, inputs, precision=float64)
        operators = {node.operator for node in graph.nodes}
        least = {
            name: _least(value, graph.types[name]) + _lost(value, operators)
            for name, value in exact.items()
            if graph.types[name].dtype.is_float
        }

        @cache
        def others() -> list[Arrays]:
            with _ONE_SHAKES:
                drawn = map(numpy.random.default_rng, range(SHAKES))
                moved = [shaken(graph, inputs, numbers) for numbers in drawn]
                return [evaluate(graph, inputs), *moved]

        types = {name: graph.types[name] for name in graph.outputs}
        return Expected(types, exact, least, others, _great(graph, inputs))

    def only(self, names: Collection[str]) -> Expected:
        """What is expected of some of the results."""
        types, values = (
            {name: of[name] for name in names if name in of} for of in (self.types, self.values)
        )
        return replace(self, types=types, values=values)

    def difference(
        self, came: Mapping[str, numpy.ndarray], rounded: bool = False, beside: Arrays | None = None
    ) -> str:
        """What is wrong with some results; '' for nothing.

        With `rounded`, whole numbers come of rounded ones: anything may stand where those of
        `others` differ, as the place of the least of equal numbers. What is as near to the results
        `beside` of another engine is not wrong either.
        """
        if set(came) != set(self.values):
            return f"the outputs are {sorted(came)}, expected {sorted(self.values)}"
        for name, value in self.values.items():
            kind, got = self.types[name], came[name]
            if got.shape != value.shape or got.dtype != kind.dtype.numpy:
                return f"'{name}' is {got.dtype}{got.shape}, expected {kind.dtype}{value.shape}"
            wrong = self._wrong(name, got, rounded)
            if wrong.any() and beside is not None and beside[name].shape == got.shape:
                wrong &= _differs(got, beside[name], self.least.get(name))
            if wrong.any():
                at = tuple(int(i) for i in numpy.argwhere(wrong)[0])
                return (
                    f"'{name}': {int(wrong.sum())} of {wrong.size} elements differ, at {at} "
                    f"{got[at]!r}, expected {value[at]!r}"
                )
        return ""

    def _wrong(self, name: str, got: numpy.ndarray, rounded: bool) -> numpy.ndarray:
        """Which elements of a result are."""
        kind, value, least = self.types[name], self.values[name], self.least.get(name)
        wrong = _differs(got, value, least)
        if wrong.any() and least is not None:
            moved = _moved(value, [other[name] for other in self.others()])
            wrong = _differs(got, value, least + moved)
        if self.great and kind.dtype.is_float:
            wrong &= numpy.isfinite(got) & (got != 0) & (numpy.abs(value) < _edge(kind))
        if wrong.any() and rounded:
            for other in self.others():
                moves = _differs(other[name], value, None) if least is None else False
                wrong &= _differs(got, other[name], least) & ~numpy.asarray(moves)
        return wrong


def shaken(graph: Graph, inputs: Arrays, numbers: numpy.random.Generator) -> Arrays:
    """The results in float64 where each value, and each function of a number inside an operator,
    is off by a few units in the last place."""
    sizes = bind(graph, inputs)
    check_guards(graph, sizes)
    values = {name: numpy.asarray(inputs[name]) for name in graph.inputs}
    values.update({name: constant.array for name, constant in graph.constants.items()})
    for node in graph.nodes:
        if node.operator == "identity":  # moves nothing, so it must not shake either
            values[node.outputs[0]] = values[node.given[0]]
            continue
        if whole(node):
            made = _shaken_whole(graph, node, values, sizes, numbers)
            values.update(made)
            sizes = evaluation._after(graph, node, values, sizes) if node.region else sizes
            continue
        units = [_unit(graph.types[name]) for name in (*node.given, *node.outputs)]
        inside = 0.0 if node.operator in _PLACES else max(units)
        with mock.patch.object(_Evaluator, "_apply", _shaking(inside, numbers)):
            group = group_of(graph, node)
            given = {
                tensor.name: _shake(values[name], 0.0 if _is_number(graph, name) else unit, numbers)
                for tensor, name, unit in zip(group.inputs, node.given, units)
            }
            made = evaluate_group(group, given, sizes, float64)
            values.update((n, made[tensor.name]) for n, tensor in zip(node.outputs, group.outputs))
    return {name: values[name] for name in graph.outputs}


def _shaken_whole(
    graph: Graph, node: Node, values: Arrays, sizes: Mapping[str, int],
    numbers: numpy.random.Generator,
) -> Arrays:  # fmt: skip
    """The results of a routine or of held graphs, with inputs and functions a little off."""
    units = {name: _unit(graph.types[name]) for name in (*node.given, *node.outputs)}
    given = {name: _shake(values[name], units[name], numbers) for name in node.given}
    with mock.patch.object(_Evaluator, "_apply", _shaking(max(units.values()), numbers)):
        made = evaluation.evaluate_node(graph, node, given, sizes, float64)
    return {name: _shake(value, units[name], numbers) for name, value in made.items()}


def _is_number(graph: Graph, name: str) -> bool:
    """One number: an exponent of 3 that is not quite 3 would be something else."""
    return name in graph.constants and graph.constants[name].array.size == 1


def _unit(kind: TensorType) -> float:
    return 2 * float(ml_dtypes.finfo(kind.dtype.numpy).eps) if kind.dtype.is_float else 0.0


def _shake(array: numpy.ndarray, unit: float, numbers: numpy.random.Generator) -> numpy.ndarray:
    if not unit or not from_numpy(array.dtype).is_float:
        return array
    with numpy.errstate(all="ignore"):
        return array.astype(numpy.float64) * (1 + unit * numbers.uniform(-1, 1, array.shape))


def _shaking(unit: float, numbers: numpy.random.Generator) -> Callable[..., numpy.ndarray]:
    """The evaluator's way to apply a function, with results that are a little off."""
    apply = _Evaluator._apply

    def changed(self: _Evaluator, function: str, arguments: list[numpy.ndarray]) -> numpy.ndarray:
        result = apply(self, function, arguments)
        if function == "exp":
            result = numpy.where(result < LEAST_EXP, 0, result)
        return result if function in _EXACT else _shake(result, unit, numbers)

    return changed


def _least(exact: numpy.ndarray, kind: TensorType) -> numpy.ndarray:
    """The distance allowed to each element of a graph of any kind."""
    base = BASE[kind.dtype.name]
    size = numpy.where(numpy.isfinite(exact), numpy.abs(exact), 0.0)
    return numpy.asarray(base * size + base * 1e-2)


def _moved(exact: numpy.ndarray, others: list[numpy.ndarray]) -> numpy.ndarray:
    """How far rounding may move each element; infinite where even the kind of number is open."""
    with numpy.errstate(all="ignore"):
        spread = [numpy.abs(other.astype(numpy.float64) - exact) for other in others]
        same = [_same(other.astype(numpy.float64), exact) for other in others]
        worst = numpy.max([numpy.where(s, 0, d) for s, d in zip(same, spread)], axis=0)
        worst = numpy.where(numpy.isnan(worst), numpy.inf, worst)
        finite = worst[numpy.isfinite(worst)]
        typical = float(numpy.median(finite)) if finite.size else 0.0
        return numpy.asarray(SLACK * worst + 4 * typical)


def _lost(exact: numpy.ndarray, operators: set[str]) -> numpy.ndarray:
    """What results may be off by beside rounding.

    A product of many numbers is NaN where one part of it overflows and another is 0.
    """
    lost = numpy.zeros(exact.shape)
    if operators & {"conv", "conv_transpose"}:
        lost += WINOGRAD * numpy.abs(exact[numpy.isfinite(exact)]).max(initial=0.0)
    if "reduce_prod" in operators:
        lost[exact == 0] = numpy.inf
    return lost


def _great(graph: Graph, inputs: Arrays) -> bool:
    """Whether sums may pass through infinity: their order is free, and parts are near its edge."""
    edges = [(array, GREAT * float(ml_dtypes.finfo(array.dtype).max)) for array in inputs.values()
             if from_numpy(array.dtype).is_float]  # fmt: skip
    with numpy.errstate(all="ignore"):
        near = any(((abs(a) > edge) & numpy.isfinite(a)).any() for a, edge in edges)
    return near and any(whole(node) or _adds(graph, node) for node in graph.nodes)


def _adds(graph: Graph, node: Node) -> bool:
    group = group_of(graph, node)
    return bool(group.steps) or any(s.combine == "add" for s in group.statements)


def _edge(kind: TensorType) -> float:
    return GREAT * float(ml_dtypes.finfo(kind.dtype.numpy).max)


def _same(left: numpy.ndarray, right: numpy.ndarray) -> numpy.ndarray:
    return (left == right) | (numpy.isnan(left) & numpy.isnan(right))


def _differs(
    came: numpy.ndarray, value: numpy.ndarray, allowed: numpy.ndarray | None
) -> numpy.ndarray:
    if allowed is None:
        return numpy.asarray(came != value)
    with numpy.errstate(all="ignore"):
        wide = came.astype(numpy.float64)
        distance = numpy.abs(wide - value)
        largest = float(ml_dtypes.finfo(came.dtype).max)
        overflow = numpy.isinf(wide) & (numpy.abs(value) > largest / 2)
        fine = _same(wide, value) | (distance <= allowed) | numpy.isinf(allowed) | overflow
    return numpy.asarray(~fine)


# ---- which pass --------------------------------------------------------------------------------


def blame(case: Case, failure: Failure) -> str:
    """The first pass after which the graph no longer means what it meant."""
    if failure.sizes is None:
        return _blame_compile(case.graph)
    inputs = case.inputs(failure.sizes)
    if inputs is None or failure.kind != "value" or case.graph.has_regions:
        return "no pass was tried"
    expected, graph, cpu = Expected.of(case.graph, inputs), case.graph, machine()
    for entry in PASSES:
        before = graph
        graph = entry.make(cpu, TEMPLATES, PLAIN).run(graph)
        try:
            reason = expected.difference(_narrow(graph, evaluate(graph, inputs)))
        except Exception as error:
            reason = said(error)
        if reason:
            texts = f"before:\n{print_graph(before)}\nafter:\n{print_graph(graph)}"
            return f"pass '{entry.name}': {reason}\n{texts}"
    return f"the passes are right; kernels or program are not:\n{print_graph(graph)}"


def _narrow(graph: Graph, values: Arrays) -> Arrays:
    return {name: value.astype(graph.types[name].dtype.numpy) for name, value in values.items()}


def _blame_compile(graph: Graph) -> str:
    cpu = machine()
    for entry in PASSES:
        try:
            graph = entry.make(cpu, TEMPLATES, PLAIN).run(graph)
        except Exception as error:
            return f"pass '{entry.name}' fails: {said(error)}"
    return f"the passes run; what follows fails:\n{print_graph(graph)}"

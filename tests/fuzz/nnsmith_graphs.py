"""Graphs of NNSmith: constraints between operators of torch, solved by z3, exported to ONNX.

Liu et al., NNSmith: Generating Diverse and Valid Test Cases for Deep Learning Compilers, 2023. Its
graphs have fixed sizes. Here equal sizes of inputs become one dim where torch runs the graph at
other sizes of it, too; others stay what they are. onnxruntime and the imported graph in float64 say
what results are. As these graphs round, compare and cast what has been rounded before, an element
is right where it is what either of the two has, or what the graph has with values a little off.

The packages `nnsmith` and `torch` are no dependencies; `pip install nnsmith torch` brings them.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy
import onnx

import anydim as ad
from anydim.base.errors import DimError, InputError
from anydim.compiler.frontends.onnx import import_model
from tests.fuzz.case import Arrays
from tests.fuzz.cuts import running, with_results
from tests.fuzz.judge import Expected, Failure, said
from tests.fuzz.points import Sizes
from tests.fuzz.runner import BEGIN, SECONDS, Outcome, run_each, stop_after

TYPES = ["f32", "f64", "i32", "i64", "bool"]
MOST_ELEMENTS = 4096  # of a value, at the sizes that the solver found
SOLVING = 5000  # milliseconds
SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 33)
CALLS = 5
OPSET = 17


@cache
def packages() -> tuple[Any, Any, Any, Any]:
    """torch, how graphs are made, how they become networks, and of which operators."""
    import torch
    from nnsmith.graph_gen import model_gen
    from nnsmith.materialize import Model
    from nnsmith.narrow_spec import auto_opset

    torch.set_num_threads(1)
    networks = Model.init("torch")
    networks.add_seed_setter()
    return torch, model_gen, networks, auto_opset(networks, None, vulops=False)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what solver and exporter have to say."""
    with warnings.catch_warnings(), open(os.devnull, "w", encoding="utf-8") as nowhere:
        warnings.simplefilter("ignore")
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            yield


@dataclass(frozen=True)
class Smith:
    """A network of torch, the types of its inputs, and their axes: numbers, and names of dims."""

    seed: int
    network: Any
    types: dict[str, Any]  # of torch
    shapes: dict[str, tuple[int, ...]]
    axes: dict[str, tuple[int | str, ...]]

    @staticmethod
    def of(seed: int) -> Smith:
        torch, model_gen, networks, operators = packages()
        chance = random.Random(seed)
        with quiet():
            found = model_gen(
                opset=operators, method="symbolic-cinit", seed=seed, timeout_ms=SOLVING,
                max_elem_per_tensor=MOST_ELEMENTS, max_nodes=chance.choice((3, 5, 8, 12)),
                dtype_choices=TYPES,
            )  # fmt: skip
            torch.manual_seed(seed)
            network = networks.from_gir(found.make_concrete()).torch_model.eval()
        given = network.input_like
        types = {name: kind.dtype.torch() for name, kind in given.items()}
        shapes = {name: tuple(kind.shape) for name, kind in given.items()}
        return Smith(seed, network, types, shapes, dict(shapes)).freed(chance)

    def freed(self, chance: random.Random) -> Smith:
        """With dims for the sizes that torch lets vary; 1 is seldom one beside others."""
        smith = self
        sizes = {size for shape in self.shapes.values() for size in shape}
        for size in sorted(sizes, reverse=True):
            if size == 1 and smith.dims and chance.random() < 0.7:
                continue
            axes = {
                name: tuple(f"d{size}" if axis == size else axis for axis in given)
                for name, given in smith.axes.items()
            }
            tried = Smith(self.seed, self.network, self.types, self.shapes, axes)
            if all(tried.runs({f"d{size}": other}) for other in (size + 1, 2 * size + 3)):
                smith = tried
        return smith

    def fixed(self) -> Smith:
        """With no dims."""
        return Smith(self.seed, self.network, self.types, self.shapes, dict(self.shapes))

    @property
    def dims(self) -> list[str]:
        found = [axis for axes in self.axes.values() for axis in axes if isinstance(axis, str)]
        return list(dict.fromkeys(found))

    def inputs(self, sizes: Sizes) -> Arrays:
        """Normal numbers, and whole ones around 0; dims without a size have the solver's."""
        numbers = numpy.random.default_rng((self.seed, *sizes.values()))
        made = {}
        for name, axes in self.axes.items():
            shape = [
                sizes.get(axis, int(axis[1:])) if isinstance(axis, str) else axis for axis in axes
            ]
            values = numbers.standard_normal(shape) * (1 if self.is_float(name) else 3)
            made[name] = numpy.asarray(values).astype(str(self.types[name]).split(".")[-1])
        return made

    def is_float(self, name: str) -> bool:
        return bool(self.types[name].is_floating_point)

    def runs(self, sizes: Sizes) -> bool:
        """Whether torch runs the graph at these sizes."""
        torch, *_ = packages()
        given = [torch.from_numpy(array) for array in self.inputs(sizes).values()]
        try:
            with torch.no_grad(), quiet():
                self.network(*given)
        except Exception:
            return False
        return True

    def model(self) -> onnx.ModelProto:
        """As torch exports it."""
        torch, *_ = packages()
        given = tuple(torch.from_numpy(array) for array in self.inputs({}).values())
        open_axes = {
            name: {at: axis for at, axis in enumerate(axes) if isinstance(axis, str)}
            for name, axes in self.axes.items()
        }
        held = io.BytesIO()
        with quiet():
            torch.onnx.export(
                self.network, given, held, input_names=list(self.axes), dynamic_axes=open_axes,
                output_names=list(self.network.output_like), opset_version=OPSET, dynamo=False,
            )  # fmt: skip
        return onnx.load_from_string(held.getvalue())

    def points(self) -> list[Sizes]:
        chance = random.Random(self.seed)
        drawn = [{dim: chance.choice(SIZES) for dim in self.dims} for _ in range(CALLS - 1)]
        return [{dim: int(dim[1:]) for dim in self.dims}, *drawn]


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the graphs of these seeds, in order."""
    packages()
    return run_each(seeds, small, _one, _crashed)


def _one(seed: int, small: bool) -> Iterator[Outcome]:
    yield Outcome(seed, BEGIN)
    stop_after(SECONDS)
    yield Outcome(seed, *judged(seed, small))


def _crashed(seed: int, end: str, small: bool) -> Outcome:
    return Outcome(seed, f"crash: {end}")


def judged(seed: int, small: bool) -> tuple[str, str]:
    """What is wrong with the graph of a seed, and its text; twice '' where nothing is."""
    try:
        smith = Smith.of(seed)
        proto = smith.model()
        if any(node.op_type == "If" for node in proto.graph.node):
            smith = smith.fixed()  # a Squeeze whose rank sizes decide
            proto = smith.model()
    except Exception:  # the solver finds nothing in time, or an operator has no ONNX
        return "", ""
    found = judge(smith, proto, smith.points())
    if found is None:
        return "", ""
    if small:
        proto, found = smallest(smith, proto, found)
    return str(found), str(onnx.printer.to_text(proto))


def judge(smith: Smith, proto: onnx.ModelProto, points: list[Sizes]) -> Failure | None:
    """What is wrong at the first of some points, the solver's own before others."""
    try:
        graph = import_model(proto.SerializeToString())
        model = ad.compile(graph)
    except Exception as error:
        return Failure("compile", said(error))
    session = peer_of(proto)
    for number, sizes in enumerate(points):
        feeds = smith.inputs(sizes)
        held = {value.name: feeds[value.name] for value in model.inputs}
        beside = results_of(session, feeds)
        try:
            came = model(**held)
        except (DimError, InputError) as error:
            if number and beside is None:
                continue
            return Failure("refusal", said(error), sizes)
        except Exception as error:
            return Failure("call", said(error), sizes)
        expected = Expected.of(graph, held)
        if reason := expected.difference(came, rounded=True, beside=beside):
            return Failure("value", reason, sizes)
    return None


def peer_of(proto: onnx.ModelProto) -> Any:
    """onnxruntime; None where it lacks an operator for a type, as Atan for float64."""
    try:
        return running(proto)
    except Exception:
        return None


def results_of(session: Any, feeds: Arrays) -> Arrays | None:
    """None where it refuses these sizes."""
    if session is None:
        return None
    names = [value.name for value in session.get_outputs()]
    try:
        given = {value.name: feeds[value.name] for value in session.get_inputs()}
        return dict(zip(names, session.run(None, given)))
    except Exception:
        return None


def smallest(
    smith: Smith, proto: onnx.ModelProto, found: Failure
) -> tuple[onnx.ModelProto, Failure]:
    """The part of the first value that fails alone, at the sizes of a failure."""
    points = [dict(found.sizes)] if found.sizes is not None else smith.points()
    for node in proto.graph.node:
        for name in node.output:
            part = part_of(proto, name)
            try:
                again = judge(smith, part, points)
            except Exception:
                continue
            if again is not None and again.kind == found.kind:
                return part, again
    return proto, found


def part_of(proto: onnx.ModelProto, result: str) -> onnx.ModelProto:
    """The model of one value."""
    part, needed, nodes = with_results(proto, [result]), {result}, []
    for node in reversed(proto.graph.node):
        if needed & set(node.output):
            nodes.insert(0, node)
            needed |= set(node.input)
    inputs = [value for value in proto.graph.input if value.name in needed]
    held = [tensor for tensor in proto.graph.initializer if tensor.name in needed]
    for field, kept in (("node", nodes), ("input", inputs), ("initializer", held)):
        part.graph.ClearField(field)
        getattr(part.graph, field).extend(kept)
    return part

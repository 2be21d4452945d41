"""The numpy evaluator of graphs: the reference for every pass and kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from anydim.base.dtypes import DType, convert_array
from anydim.base.errors import DimError, InputError
from anydim.compiler.graph.binding import bind, check_guards, inferred_sizes, with_found_dims
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.graph.regions import (
    BranchRegion,
    CallRegion,
    Foreign,
    LoopRegion,
    PartRegion,
    Scan,
    Sizes,
)
from anydim.lang.meaning.evaluate import check_guards as check_group_guards
from anydim.lang.meaning.evaluate import evaluate as evaluate_group
from anydim.lang.tree import Group, TensorType
from anydim.runtime.conversion import Conversion
from anydim.runtime.delegated import Port
from anydim.runtime.signature import TensorSpec
from anydim.sizes.guard import holds

Arrays = Sequence[numpy.ndarray]
Sizing = Mapping[str, int]


def evaluate(
    graph: Graph, inputs: Mapping[str, Any], precision: DType | None = None
) -> dict[str, Any]:
    """Evaluate the outputs of a graph for these inputs, operator by operator.

    `precision` computes floating point in another type (float64 for an accurate reference).
    Raises InputError or DimError for inputs that do not fit.
    """
    kinds = graph.types
    specs = {name: TensorSpec(name, kinds[name].dtype, kinds[name].shape) for name in graph.inputs}

    def call(values: Mapping[str, Any]) -> dict[str, Any]:
        sizes = bind(graph, values)
        arrays = {name: numpy.asarray(values[name]) for name in graph.inputs}
        results: dict[str, Any] = {}
        results.update(zip(graph.outputs, _run(graph, arrays, sizes, precision)[0]))
        return results

    return Conversion(graph.name, graph.lists, specs, graph.box).run(call, inputs)


def _run(
    graph: Graph, inputs: Mapping[str, numpy.ndarray], sizes: Sizing, precision: DType | None
) -> tuple[list[numpy.ndarray], Sizing]:
    """The outputs for checked inputs, and all dims; `sizes` holds the dims known so far."""
    check_guards(graph, sizes)
    values = {name: numpy.asarray(inputs[name]) for name in graph.inputs}
    values.update({name: constant.array for name, constant in graph.constants.items()})
    last_use = {name: position for position, n in enumerate(graph.nodes) for name in n.given}
    kept = {*graph.outputs, *graph.constants}
    for position, node in enumerate(graph.nodes):
        made = evaluate_node(graph, node, values, sizes, precision)
        values.update(made)
        if node.region is not None:
            sizes = _after(graph, node, values, sizes)
            check_guards(graph, sizes)
        for name in (*node.given, *node.outputs):
            if last_use.get(name, -1) <= position and name not in kept:
                values.pop(name, None)
    return [values[name] for name in graph.outputs], sizes


def _after(
    graph: Graph, node: Node, values: Mapping[str, numpy.ndarray], sizes: Sizing
) -> dict[str, int]:
    """The dims that are known after a node with a region has run."""
    if isinstance(node.region, Sizes):
        held, row = values[node.given[0]], node.region.row
        held = held if row is None else held[row.evaluate(sizes)]
        numbers = held.reshape(-1).tolist()
        return with_found_dims(graph, node, numbers, node.region.dims, sizes)
    shapes = {name: values[name].shape for name in node.outputs}
    return inferred_sizes(graph, shapes, sizes, node.source or node.where())


def evaluate_node(
    graph: Graph,
    node: Node,
    values: Mapping[str, numpy.ndarray],
    sizes: Sizing,
    precision: DType | None = None,
) -> dict[str, numpy.ndarray]:
    """The results of one node by name; InputError for an out-of-bounds index."""
    if node.region is not None:
        return dict(zip(node.outputs, _Region(graph, node, sizes, precision).run(values)))
    group = group_of(graph, node)
    given = [values[name] for name in node.given]
    if node.operator != FUSED and (routine := operator(node.operator).routine) is not None:
        check_group_guards(group.guards, sizes)
        attributes = operator(node.operator).complete(node.attributes)
        return dict(zip(node.outputs, routine.evaluate(given, attributes, sizes)))
    tensors = {tensor.name: value for tensor, value in zip(group.inputs, given)}
    try:
        made = evaluate_group(group, tensors, sizes, precision)
    except DimError:
        raise
    except InputError as error:
        raise InputError(f"{node.source or node.where()}: {error.problem}", error.hint) from None
    return {name: made[tensor.name] for name, tensor in zip(node.outputs, group.outputs)}


def group_of(graph: Graph, node: Node) -> Group:
    """The comprehensions of a node; their inputs and outputs are in the node's order."""
    if node.operator == FUSED:
        return node.group
    given = [graph.types[name] for name in node.given]
    return operator(node.operator).instantiate(given, node.attributes, graph.box)


class _Region:
    """Runs the graphs that one node holds."""

    def __init__(self, graph: Graph, node: Node, sizes: Sizing, precision: DType | None) -> None:
        self.graph = graph
        self.node = node
        self.sizes = sizes
        self.precision = precision

    def run(self, values: Mapping[str, numpy.ndarray]) -> list[numpy.ndarray]:
        """The results of the node, in order."""
        given = [values[name] for name in self.node.given]
        region = self.node.region
        if isinstance(region, BranchRegion):
            if region.condition is not None:
                chosen = holds(region.condition, self.sizes)
            else:
                chosen, given = bool(given[0]), given[1:]
            return self.held(region.then if chosen else region.otherwise, given, self.sizes)
        if isinstance(region, Foreign):
            return self.foreign(region, given)
        if isinstance(region, CallRegion):
            return self.held(region.body, given, self.sizes)
        if isinstance(region, PartRegion):
            shape = _shape(self.graph.types[self.node.outputs[0]], self.sizes) or ()
            first = region.first.evaluate(self.sizes)
            return [given[0].reshape(-1)[first : first + math.prod(shape)].reshape(shape).copy()]
        return self.loop(region, given) if isinstance(region, LoopRegion) else []

    def foreign(self, region: Foreign, given: Arrays) -> list[numpy.ndarray]:
        """Run the engine on values in their own types: it is its own reference."""
        from anydim.runtime.devices.engines.once import evaluate_once
        from anydim.runtime.devices.engines.onnxruntime import may_crash

        kinds = self.graph.types
        dtypes = [kinds[name].dtype for name in self.node.given]
        arrays = [convert_array(value, dtype.numpy) for value, dtype in zip(given, dtypes)]
        ports = [Port(n, d, value.ndim) for n, d, value in zip(region.inputs, dtypes, arrays)]
        made = [
            Port(port, kinds[name].dtype, kinds[name].rank)
            for port, name in zip(region.outputs, self.node.outputs)
        ]
        where = self.node.source or self.node.where()
        shapes = [_shape(kinds[name], self.sizes) for name in self.node.outputs]
        if all(shape is not None and 0 in shape for shape in shapes):
            return [numpy.zeros(s or (), p.dtype.numpy) for s, p in zip(shapes, made)]
        if may_crash(region.operator) and any(0 in (shape or ()) for shape in [
            *shapes, *(array.shape for array in arrays)
        ]):  # fmt: skip
            raise InputError(f"{where}: {region.engine} takes no empty tensors")
        return evaluate_once(region.engine, region.model, ports, arrays, made, where)

    def held(self, graph: Graph, given: Arrays, sizes: Sizing) -> list[numpy.ndarray]:
        """The results of a held graph; `sizes` are the dims known around it."""
        return self.held_with_sizes(graph, given, sizes)[0]

    def held_with_sizes(
        self, graph: Graph, given: Arrays, sizes: Sizing
    ) -> tuple[list[numpy.ndarray], Sizing]:
        """The results of a held graph, and the dims known in it."""
        inputs = dict(zip(graph.inputs, given))
        shapes = {name: value.shape for name, value in inputs.items()}
        where = f"{self.node.source or self.node.where()}, '{graph.name}'"
        return _run(graph, inputs, inferred_sizes(graph, shapes, sizes, where), self.precision)

    def loop(self, loop: LoopRegion, given: Arrays) -> list[numpy.ndarray]:
        going = bool(given[0]) if loop.conditional else True
        given = given[loop.conditional :]
        carried, given = list(given[: loop.carried]), given[loop.carried :]
        stacks = self.stacks(loop, given[: loop.initials])
        given = given[loop.initials :]
        trips = None if loop.trips is None else loop.trips.evaluate(self.sizes)
        iteration = 0
        while going and (trips is None or iteration < trips):
            sizes = {**self.sizes, loop.counter: iteration}
            histories = [s.array for scan, s in zip(loop.scans, stacks) if scan.history]
            results, inner = self.held_with_sizes(loop.body, [*carried, *histories, *given], sizes)
            if loop.conditional:
                going, results = bool(results[0]), results[1:]
            carried = results[: loop.carried]
            for scan, stack, made in zip(loop.scans, stacks, results[loop.carried :]):
                position = scan.position.evaluate({**sizes, **inner})
                if scan.joined:
                    stack.join(position, made)
                else:
                    stack.put(position, made)
            iteration += 1
        return [*carried, *(stack.whole() for stack in stacks)]

    def stacks(self, loop: LoopRegion, initials: Arrays) -> list[_Stack]:
        waiting = list(initials)
        names = self.node.outputs[loop.carried :]
        return [
            self.stack(scan, self.graph.types[name], waiting.pop(0) if scan.initial else None)
            for scan, name in zip(loop.scans, names)
        ]

    def stack(self, scan: Scan, kind: TensorType, initial: numpy.ndarray | None) -> _Stack:
        """The initial contents of a stacked result."""
        lowest = {dim.name: dim.lo for dim in self.graph.box.dims}
        extent = 0 if scan.extent is None else scan.extent.evaluate(self.sizes)
        rest = [size.evaluate({**lowest, **self.sizes}) for size in kind.shape[1:]]
        wide = self.precision is not None and kind.dtype.is_float and not kind.dtype.stored
        dtype = self.precision if wide and self.precision is not None else kind.dtype
        empty = numpy.zeros((extent, *rest), dtype.numpy) if initial is None else initial.copy()
        return _Stack(empty, scan.extent is None)


def _shape(kind: TensorType, sizes: Sizing) -> tuple[int, ...] | None:
    """The shape of a type, if its sizes are known."""
    if not frozenset().union(*(size.symbols for size in kind.shape)) <= sizes.keys():
        return None
    return tuple(size.evaluate(sizes) for size in kind.shape)


class _Stack:
    """A stacked result being grown or filled."""

    def __init__(self, array: numpy.ndarray, growing: bool) -> None:
        self.array = array
        self.growing = growing
        self.slices: list[numpy.ndarray] = []

    def put(self, position: int, made: numpy.ndarray) -> None:
        """Store one slice; the first one determines the slice shape."""
        if self.growing:
            self.slices.append(made)
            return
        if not self.slices and made.shape != self.array.shape[1:]:
            self.array = numpy.zeros((len(self.array), *made.shape), self.array.dtype)
        self.slices = [made]
        if made.shape != self.array.shape[1:]:
            raise DimError(f"slices of shapes {self.array.shape[1:]} and {made.shape} do not stack")
        self.array[position] = made

    def join(self, position: int, made: numpy.ndarray) -> None:
        """Store several slices."""
        end = position + len(made)
        if made.shape[1:] != self.array.shape[1:] or not 0 <= position <= end <= len(self.array):
            raise DimError(f"{made.shape} at {position} does not fit into {self.array.shape}")
        self.array[position:end] = made

    def whole(self) -> numpy.ndarray:
        if not (self.growing and self.slices):
            return self.array
        shapes = {made.shape for made in self.slices}
        if len(shapes) > 1:
            one, other = sorted(shapes)[:2]
            raise DimError(f"slices of shapes {one} and {other} do not stack")
        return numpy.stack(self.slices)

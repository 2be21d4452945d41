"""The meaning of a graph: a numpy evaluator that every pass and kernel is compared with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy

from anydim.base.dtypes import DType, from_numpy
from anydim.base.errors import DimError, InputError
from anydim.base.text import listed, suggestion
from anydim.graph.nodes import FUSED, Graph, Node
from anydim.graph.operator import operator
from anydim.lang.evaluate import check_guards as check_group_guards
from anydim.lang.evaluate import evaluate as evaluate_group
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Size


def evaluate(
    graph: Graph, inputs: Mapping[str, numpy.ndarray], precision: DType | None = None
) -> dict[str, numpy.ndarray]:
    """The outputs of a graph for these inputs, computed operator by operator.

    `precision` computes floating point in another type (float64 for an accurate reference).
    Raises InputError or DimError for inputs that do not fit.
    """
    sizes = bind(graph, inputs)
    check_guards(graph, sizes)
    values = {name: numpy.asarray(inputs[name]) for name in graph.inputs}
    values.update({name: constant.array for name, constant in graph.constants.items()})
    last_use = {name: position for position, n in enumerate(graph.nodes) for name in n.given}
    kept = {*graph.outputs, *graph.constants}
    for position, node in enumerate(graph.nodes):
        values.update(evaluate_node(graph, node, values, sizes, precision))
        for name in (*node.given, *node.outputs):
            if last_use.get(name, -1) <= position and name not in kept:
                values.pop(name, None)
    return {name: values[name] for name in graph.outputs}


def evaluate_node(
    graph: Graph,
    node: Node,
    values: Mapping[str, numpy.ndarray],
    sizes: Mapping[str, int],
    precision: DType | None = None,
) -> dict[str, numpy.ndarray]:
    """The results of one node by name; InputError for an index that leaves its axis."""
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


def bind(graph: Graph, inputs: Mapping[str, numpy.ndarray]) -> dict[str, int]:
    """The sizes of the dims that these inputs have; every input is checked."""
    for name in inputs:
        if name not in graph.inputs:
            hint = suggestion(name, graph.inputs) or f"the inputs are {listed(graph.inputs)}"
            raise InputError(f"'{graph.name}' has no input '{name}'", hint)
    sizes: dict[str, int] = {}
    for name in graph.inputs:
        if name not in inputs:
            raise InputError(f"'{graph.name}': input '{name}' is missing")
        kind = graph.types[name]
        shape = _checked(graph, name, numpy.asarray(inputs[name]), kind)
        for size, actual in zip(kind.shape, shape):
            for symbol in size.symbols - sizes.keys():
                value = _solve(size, symbol, actual, sizes)
                if value is not None:
                    sizes[symbol] = value
    _check_sizes(graph, inputs, sizes)
    return sizes


def _solve(size: Size, symbol: str, actual: int, sizes: Mapping[str, int]) -> int | None:
    """The value of a symbol where `size`, affine in it, is `actual`."""
    split = size.substitute(sizes).linear_in((symbol,))
    if split is None or split[1].constant is None:
        return None
    factor = split[0][symbol].constant
    rest = actual - split[1].constant
    return rest // factor if factor and rest % factor == 0 else None


def _checked(
    graph: Graph, name: str, value: numpy.ndarray, kind: TensorType
) -> tuple[int, ...]:
    dtype = from_numpy(value.dtype)
    if dtype != kind.dtype:
        raise InputError(
            f"'{graph.name}': input '{name}' is {dtype}, expected {kind.dtype}",
            f"convert it: value.astype('{kind.dtype}')",
        )
    if value.ndim != kind.rank:
        raise InputError(
            f"'{graph.name}': input '{name}' has {value.ndim} axes, shape {value.shape}; "
            f"expected {kind.rank}, {kind}"
        )
    return value.shape


def _check_sizes(
    graph: Graph, inputs: Mapping[str, numpy.ndarray], sizes: Mapping[str, int]
) -> None:
    used = {s for name in graph.inputs for z in graph.types[name].shape for s in z.symbols}
    unused = {dim.name: dim.lo for dim in graph.box.dims if dim.name not in used}
    problems = graph.box.violations({**unused, **sizes})
    if problems:
        raise DimError(f"'{graph.name}': {problems[0]}")
    for name in graph.inputs:
        shape = numpy.asarray(inputs[name]).shape
        for axis, (size, actual) in enumerate(zip(graph.types[name].shape, shape)):
            expected = size.evaluate(sizes)
            if expected != actual:
                raise DimError(
                    f"'{graph.name}': input '{name}' has size {actual} in axis {axis}, "
                    f"expected {size} = {expected}"
                )


def check_guards(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Raise DimError for the first guard of the graph that these sizes break."""
    for guard in graph.guards:
        left, right = guard.left.evaluate(sizes), guard.right.evaluate(sizes)
        holds = {
            "==": left == right, "!=": left != right, "<=": left <= right, "<": left < right
        }  # fmt: skip
        if not holds[guard.relation]:
            raise DimError(
                f"'{graph.name}': {guard.message}: {guard.left} {guard.relation} {guard.right} "
                f"does not hold, {left} {guard.relation} {right}"
            )

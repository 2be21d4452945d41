"""Infers the sizes of dims from shapes, and checks them against a graph's declarations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy

from anydim.base.dtypes import from_numpy
from anydim.base.errors import DimError, InputError
from anydim.base.text import quote_list, suggestion
from anydim.compiler.graph.nodes import Graph, Node
from anydim.lang.meaning.evaluate import check_guards as check_group_guards
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Size


def bind(graph: Graph, inputs: Mapping[str, numpy.ndarray]) -> dict[str, int]:
    """The sizes of the dims of these inputs; every input is checked."""
    for name in inputs:
        if name not in graph.inputs:
            hint = suggestion(name, graph.inputs) or f"the inputs are {quote_list(graph.inputs)}"
            raise InputError(f"'{graph.name}' has no input '{name}'", hint)
    for name in graph.inputs:
        if name not in inputs:
            raise InputError(f"'{graph.name}': input '{name}' is missing")
        _check_kind(graph, name, numpy.asarray(inputs[name]), graph.types[name])
    return inferred_sizes(
        graph, {name: numpy.asarray(inputs[name]).shape for name in graph.inputs}, {}
    )


def inferred_sizes(
    graph: Graph, shapes: Mapping[str, tuple[int, ...]], known: Mapping[str, int], where: str = ""
) -> dict[str, int]:
    """`known` extended by the sizes that some values' shapes determine; DimError on conflicts.

    `where` names the owner of the values; by default they are the graph's inputs.
    """
    sizes = dict(known)
    for name, shape in shapes.items():
        for size, actual in zip(graph.types[name].shape, shape):
            for symbol in sorted(size.symbols - sizes.keys()):
                value = _solve(size, symbol, actual, sizes)
                if value is not None:
                    sizes[symbol] = value
    used = {s for name in shapes for size in graph.types[name].shape for s in size.symbols}
    problem = _outside(graph.box, sizes, used)
    if problem:
        raise DimError(f"{where or repr(graph.name)}: {problem}")
    kind = "value" if where else "input"
    for name, shape in shapes.items():
        for axis, (size, actual) in enumerate(zip(graph.types[name].shape, shape)):
            expected = size.evaluate(sizes)
            if expected != actual:
                raise DimError(
                    f"{where or repr(graph.name)}: {kind} '{name}' has size {actual} in axis "
                    f"{axis}, expected {size} = {expected}"
                )
    return sizes


def with_found_dims(
    graph: Graph, node: Node, values: Iterable[int], dims: Iterable[str], known: Mapping[str, int]
) -> dict[str, int]:
    """`known` extended by data-dependent dims; InputError where they do not fit the box."""
    sizes = {**known, **dict(zip(dims, values))}
    problem = _outside(graph.box, sizes, ())
    if problem:
        raise InputError(
            f"{node.source or node.where()}: a data-dependent size is out of bounds: {problem}"
        )
    return sizes


def check_guards(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Raise DimError for the first guard that fails; guards on unknown sizes are skipped."""
    try:
        check_group_guards(graph.guards, sizes)
    except DimError as error:
        raise DimError(f"'{graph.name}': {error.problem}", error.hint) from None


def _outside(box: Box, sizes: Mapping[str, int], needed: Collection[str]) -> str:
    """Describe what is wrong with known or needed sizes; empty if nothing."""
    unknown = [d.name for d in box.dims if d.name not in sizes and d.name not in needed]
    problems = box.without(unknown).violations(sizes)
    return problems[0] if problems else ""


def _solve(size: Size, symbol: str, actual: int, sizes: Mapping[str, int]) -> int | None:
    """The value of a symbol at which `size`, affine in it, is `actual`."""
    split = size.substitute(sizes).linear_in((symbol,))
    if split is None or split[1].constant is None:
        return None
    factor = split[0][symbol].constant
    rest = actual - split[1].constant
    return rest // factor if factor and rest % factor == 0 else None


def _check_kind(graph: Graph, name: str, value: numpy.ndarray, kind: TensorType) -> None:
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

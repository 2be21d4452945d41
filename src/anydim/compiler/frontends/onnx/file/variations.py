"""What calls may vary of a file, and the file for one variation (`runtime/variations.py`).

Calls decide ranks of inputs without a shape, and may override initializers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy

from anydim.base.errors import OptionError
from anydim.compiler.frontends.onnx.file.reading import Opened
from anydim.compiler.frontends.onnx.file.string_types import STRING
from anydim.compiler.frontends.onnx.file.tensors import MOST_AXES
from anydim.runtime.variations import PLAIN, Variable, Variation
from anydim.sizes import Dim

_OVERRIDES = 4  # the first IR version in which initializers may be overridden


def variable_of(opened: Opened, strings: bool = True) -> Variable:
    """What calls may vary of a file; `strings`: also the ranks of string inputs."""
    graph = opened.proto.graph
    held = {tensor.name for tensor in graph.initializer}
    inputs = tuple(value.name for value in graph.input if value.name not in held)
    optional = {value.name for value in graph.input} & held
    return Variable(
        graph.name or opened.name, inputs,
        frozenset(optional if opened.proto.ir_version >= _OVERRIDES else ()),
        tuple(value.name for value in graph.input if _without_rank(value, strings)),
    )  # fmt: skip


def _without_rank(value: Any, strings: bool) -> bool:
    kind = value.type
    if not kind.HasField("tensor_type") or kind.tensor_type.HasField("shape"):
        return False
    return strings or kind.tensor_type.elem_type != STRING


def apply_variation(found: Opened, variation: Variation) -> Opened:
    """A copy of the model modified for a variation."""
    if variation == PLAIN:
        return found
    proto = type(found.proto)()
    proto.CopyFrom(found.proto)
    values = {value.name: value for value in proto.graph.input}
    for name, rank in variation.ranks:
        shape = values[name].type.tensor_type.shape
        for _ in range(rank):
            shape.dim.add()
        shape.SetInParent()
    if variation.apart:
        for value in proto.graph.input:
            for axis in value.type.tensor_type.shape.dim:
                if axis.dim_param:
                    axis.ClearField("dim_param")
    weights = dict(_drop_overridden(proto.graph.initializer, found, variation.overridden))
    return replace(found, proto=proto, weights=weights, structure=str)


def _drop_overridden(
    tensors: Any, found: Opened, overridden: frozenset[str]
) -> Iterator[tuple[int, Callable[[], numpy.ndarray]]]:
    """Remove the overridden initializers; yields the contents of the others by new numbers."""
    kept = [number for number, tensor in enumerate(tensors) if tensor.name not in overridden]
    for number in reversed(range(len(tensors))):
        if tensors[number].name in overridden:
            del tensors[number]
    for now, before in enumerate(kept):
        if before in found.weights:
            yield now, found.weights[before]


def apply_ranks(opened: Opened, dims: Mapping[str, Dim]) -> tuple[Opened, dict[str, Dim]]:
    """Apply the ranks that `dims` gives to inputs without a shape; the model and the other dims.

    Raises OptionError for an invalid rank.
    """
    ranks = {name: dims[name] for name in variable_of(opened).unranked if name in dims}
    if not ranks:
        return opened, dict(dims)
    for name, dim in ranks.items():
        if dim.lo != dim.hi or dim.lo > MOST_AXES:
            problem = f"{opened.name}: input '{name}' has no shape, and '{dim}' is no rank"
            raise OptionError(problem, f"give its number of axes, at most {MOST_AXES}: {name}=3")
    variation = Variation(ranks=tuple((name, dim.lo) for name, dim in ranks.items()))
    return apply_variation(opened, variation), {n: d for n, d in dims.items() if n not in ranks}

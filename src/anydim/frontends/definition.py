"""A definition of the comprehension language -> graph, with every size variable a dim.

The graph has one node: the group that the definition means for its argument types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from anydim.base.dtypes import from_numpy
from anydim.base.frozen import FrozenMapping
from anydim.graph.nodes import FUSED, Graph, Node
from anydim.lang.instantiate import instantiate
from anydim.lang.syntax import Definition, Name, Number, Parameter, Spread, walk
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, Size, as_size

Pattern = tuple[tuple[str, tuple[bool, ...]], ...]


def pattern_of(definition: Definition, arrays: Sequence[numpy.ndarray]) -> Pattern:
    """What of the arguments decides their graph: dtypes, ranks, and which sizes broadcast.

    A dimension under an ellipsis broadcasts when it is 1 and meets one that is not.
    """
    meeting: dict[tuple[str, int], set[int]] = {}
    places = [_places(p, array.ndim) for p, array in zip(definition.parameters, arrays)]
    for array, row in zip(arrays, places):
        for size, place in zip(array.shape, row):
            if isinstance(place, tuple):
                meeting.setdefault(place, set()).add(size)
    return tuple(
        (
            array.dtype.name,
            tuple(
                isinstance(place, tuple) and size == 1 and len(meeting[place]) > 1
                for size, place in zip(array.shape, row)
            ),
        )
        for array, row in zip(arrays, places)
    )


def graph_of(definition: Definition, pattern: Pattern, attributes: Mapping[str, Any]) -> Graph:
    """The graph of a definition for arguments of a pattern; raises LanguageError as it must."""
    types = [
        _type(definition, parameter, dtype, ones)
        for parameter, (dtype, ones) in zip(definition.parameters, pattern)
    ]
    names = sorted({name for kind in types for size in kind.shape for name in size.symbols})
    box = Box.of(*(Dim(name) for name in names))
    group = instantiate(definition, types, attributes, box)
    inputs = tuple(tensor.name for tensor in group.inputs)
    tensors = (*group.inputs, *group.outputs)
    return Graph(
        name=definition.name,
        box=box,
        types=FrozenMapping({tensor.name: tensor.type for tensor in tensors}),
        inputs=inputs,
        outputs=tuple(tensor.name for tensor in group.outputs),
        nodes=(
            Node(
                FUSED,
                inputs,
                tuple(tensor.name for tensor in group.outputs),
                FrozenMapping({"group": group}),
                f"{definition.file}:{definition.line}: {definition.name}",
            ),
        ),
        guards=group.guards,
    )


def _places(parameter: Parameter, rank: int) -> list[Any]:
    """For each axis its shape term, or (ellipsis, position counted from its right end)."""
    spread = rank - sum(not isinstance(term, Spread) for term in parameter.shape)
    places: list[Any] = []
    for term in parameter.shape:
        if isinstance(term, Spread):
            places += [(term.name, spread - number) for number in range(max(spread, 0))]
        else:
            places.append(term)
    return places


def _type(
    definition: Definition, parameter: Parameter, dtype: str, ones: tuple[bool, ...]
) -> TensorType:
    places = _places(parameter, len(ones))
    if len(places) != len(ones):
        raise definition.error(
            parameter.position,
            f"argument '{parameter.name}' has {len(parameter.shape)} axes here, {len(ones)} came",
            "give an array of that rank, or declare an ellipsis such as '...b'",
        )
    shape = tuple(
        as_size(1) if one else _size(definition, parameter, place, number)
        for number, (place, one) in enumerate(zip(places, ones))
    )
    return TensorType(from_numpy(numpy.dtype(dtype)), shape)


def _size(definition: Definition, parameter: Parameter, place: Any, number: int) -> Size:
    if isinstance(place, tuple):
        ellipsis, position = place
        return Size.symbol(f"{ellipsis}.{position}")
    if isinstance(place, Number):
        return as_size(int(place.value))
    if isinstance(place, Name) and place.name not in {a.name for a in definition.attributes}:
        return Size.symbol(place.name)
    if any(isinstance(term, Name) for term in walk(place)):
        return Size.symbol(f"{parameter.name}.{number}")  # an expression: checked when bound
    raise definition.error(parameter.position, f"the shape of '{parameter.name}' is not understood")

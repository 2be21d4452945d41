"""TC texts of the scatter operators: updates written into a copy of a tensor at indices from data.

Where several updates meet, `reduction` determines the result: the last one in row-major order
('none'), or all of them combined with the previous element ('add', 'mul', 'min', 'max'). A
negative index counts from the end, unless `from_end` is False. Semantics: ONNX, ScatterElements,
ScatterND and TensorScatter.
"""

from __future__ import annotations

from anydim.base.errors import GraphError
from anydim.compiler.graph.operator import Attributes, Types, Written
from anydim.compiler.ops.writing import (
    axis_of,
    definition,
    expect_inputs,
    expect_rank,
    numbered,
    parameter,
    placed,
    read,
    target,
)
from anydim.sizes import Box

_ASSIGN = {"none": "=", "add": "+=", "mul": "*=", "min": "min=", "max": "max="}


def _assign(operator: str, attributes: Attributes) -> str:
    reduction = attributes["reduction"]
    if reduction not in _ASSIGN:
        known = ", ".join(map(repr, _ASSIGN))
        raise GraphError(f"operator '{operator}': reduction {reduction!r}", f"known: {known}")
    return _ASSIGN[reduction]


def _expect(operator: str, types: Types) -> None:
    expect_inputs(operator, types, 3, 3)
    if not types[1].dtype.is_integer:
        raise GraphError(f"operator '{operator}': indices are {types[1]}, expected integers")
    if types[2].dtype != types[0].dtype:
        raise GraphError(f"operator '{operator}': updates are {types[2]}, the tensor {types[0]}")


def scatter_elements(types: Types, attributes: Attributes, box: Box) -> Written:
    """x with each update at its own coordinates, except for the index along one axis."""
    _expect("scatter_elements", types)
    rank = types[0].rank
    for kind, what in ((types[1], "the indices"), (types[2], "the updates")):
        expect_rank("scatter_elements", kind, rank, what)
    axis = axis_of("scatter_elements", attributes["axis"], rank)
    indices, sizes, own = numbered("i", rank), numbered("N", rank), numbered("M", rank)
    chosen = placed(attributes, read("indices", indices), sizes[axis])
    position = [*indices[:axis], chosen, *indices[axis + 1 :]]
    parameters = [
        parameter("x", sizes), parameter("indices", own, "I"), parameter("updates", own),
    ]  # fmt: skip
    statements = [
        f"{target('y', indices)} = {read('x', indices)}",
        f"{target('y', position)} {_assign('scatter_elements', attributes)} "
        f"{read('updates', indices)}",
    ]
    return Written(definition("scatter_elements", parameters, statements))


def scatter_nd(types: Types, attributes: Attributes, box: Box) -> Written:
    """x with slices replaced by updates at tuples of indices, one per row of `indices`."""
    _expect("scatter_nd", types)
    rank, inner = types[0].rank, types[1].rank - 1
    depth = types[1].shape[-1].constant if inner >= 0 else None
    if depth is None or not 1 <= depth <= rank or types[2].rank != inner + rank - depth:
        raise GraphError(
            f"operator 'scatter_nd': {types[1]} and updates {types[2]} do not fit {types[0]}",
            "the last axis of the indices needs a constant size, at most the rank of the tensor",
        )
    sizes, chosen, outer = numbered("N", rank), numbered("j", inner), numbered("M", inner)
    every, rest = numbered("i", rank), numbered("i", rank)[depth:]
    position = [
        placed(attributes, read("indices", [*chosen, str(number)]), sizes[number])
        for number in range(depth)
    ]
    parameters = [
        parameter("x", sizes),
        parameter("indices", [*outer, str(depth)], "I"),
        parameter("updates", [*outer, *sizes[depth:]]),
    ]
    statements = [
        f"{target('y', every)} = {read('x', every)}",
        f"{target('y', [*position, *rest])} {_assign('scatter_nd', attributes)} "
        f"{read('updates', [*chosen, *rest])}",
    ]
    return Written(definition("scatter_nd", parameters, statements))


def tensor_scatter(types: Types, attributes: Attributes, box: Box) -> Written:
    """A cache with new entries along one axis; each row of the batch has its own start index.

    With `circular`, indices wrap to 0 at the end.
    """
    _expect("tensor_scatter", types)
    rank = types[0].rank
    axis = axis_of("tensor_scatter", attributes["axis"], rank)
    if axis == 0:
        raise GraphError(
            "operator 'tensor_scatter': axis 0 is the batch axis, expected another one"
        )
    expect_rank("tensor_scatter", types[1], 1, "the start indices")
    expect_rank("tensor_scatter", types[2], rank, "the updates")
    indices, sizes = numbered("i", rank), numbered("N", rank)
    own = [*sizes[:axis], "M", *sizes[axis + 1 :]]
    at = f"cast<int64>(indices(i0)) + {indices[axis]}"
    if attributes["circular"]:
        at = f"({at}) % {sizes[axis]}"
    position = [*indices[:axis], at, *indices[axis + 1 :]]
    parameters = [
        parameter("x", sizes), parameter("indices", ["N0"], "I"), parameter("updates", own),
    ]  # fmt: skip
    statements = [
        f"{target('y', indices)} = {read('x', indices)}",
        f"{target('y', position)} = {read('updates', indices)}",
    ]
    return Written(definition("tensor_scatter", parameters, statements))

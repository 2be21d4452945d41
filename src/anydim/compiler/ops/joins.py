"""TC texts of the operators that concatenate, split, repeat and pad tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from anydim.base.errors import GraphError
from anydim.compiler.graph.operator import Attributes, Types, Written
from anydim.compiler.ops.writing import (
    axis_of,
    declared,
    definition,
    expect_inputs,
    expect_rank,
    numbered,
    or_default,
    parameter,
    ranges,
    read,
    sizes_as_attributes,
    target,
)
from anydim.sizes import (
    Box,
    Guard,
    Size,
    Truth,
    as_size,
    condition,
    maximum,
    minimum,
    prove,
    simplify,
)


def concat(types: Types, attributes: Attributes, box: Box) -> Written:
    """Concatenate the inputs along an axis."""
    expect_inputs("concat", types, 1, 64)
    rank = types[0].rank
    axis = axis_of("concat", attributes["axis"], rank)
    for kind in types:
        if kind.rank != rank or kind.dtype != types[0].dtype:
            raise GraphError(f"operator 'concat': {types[0]} and {kind} cannot be concatenated")
    indices, sizes = numbered("i", rank), numbered("N", rank)
    zero = "false" if types[0].dtype.kind == "bool" else "0"
    parameters: list[str] = []
    ends: list[str] = []
    body = ""
    for number in range(len(types)):
        own = [*sizes[:axis], f"A{number}", *sizes[axis + 1 :]]
        parameters.append(parameter(f"x{number}", own))
        start = " + ".join(ends)
        position = f"{indices[axis]} - ({start})" if start else indices[axis]
        part = read(f"x{number}", [*indices[:axis], position, *indices[axis + 1 :]])
        ends.append(f"A{number}")
        if len(types) == 1:
            body += part
        elif number + 1 < len(types):
            body += f"{indices[axis]} < {' + '.join(ends)} ? ({part} else {zero}) : "
        else:
            body += f"({part} else {zero})"
    where = ranges(zip(indices, [*sizes[:axis], " + ".join(ends), *sizes[axis + 1 :]]))
    return Written(definition("concat", parameters, [f"{target('y', indices)} = {body}{where}"]))


def put(types: Types, attributes: Attributes, box: Box) -> Written:
    """x with a slice along an axis overwritten from index `first` on; the slice has to fit."""
    expect_inputs("put", types, 2, 2)
    rank = types[0].rank
    axis = axis_of("put", attributes["axis"], rank)
    expect_rank("put", types[1], rank, "the new slice")
    if types[1].dtype != types[0].dtype:
        raise GraphError(f"operator 'put': {types[1]} into {types[0]}")
    first, count = as_size(attributes["first"]), types[1].shape[axis]
    ends = simplify(first + count, box)
    if prove(ends, "<=", types[0].shape[axis], box) is not Truth.PROVED:
        raise GraphError(f"operator 'put': {types[0]} ends before {ends} along axis {axis}")
    indices, sizes = numbered("i", rank), numbered("N", rank)
    along, zero = indices[axis], "false" if types[0].dtype.kind == "bool" else "0"
    own = [*sizes[:axis], "M", *sizes[axis + 1 :]]
    position = [*indices[:axis], f"{along} - F", *indices[axis + 1 :]]
    old, new = (f"({read(*each)} else {zero})" for each in (("x", indices), ("new", position)))
    body = f"{along} < F ? {old} : {along} < F + M ? {new} : {old}{ranges(zip(indices, sizes))}"
    parameters = [parameter("x", sizes), parameter("new", own)]
    values = {"F": first}
    statement = f"{target('y', indices)} = {body}"
    return Written(definition("put", parameters, [statement], declared(values)), values)


def split(types: Types, attributes: Attributes, box: Box) -> Written:
    """Split x along an axis into parts of these sizes."""
    expect_inputs("split", types, 1, 1)
    rank = types[0].rank
    axis = axis_of("split", attributes["axis"], rank)
    parts = [as_size(size) for size in attributes["sizes"]]
    indices, names = numbered("i", rank), numbered("S", len(parts))
    extents = numbered("N", rank)
    statements = []
    for number, name in enumerate(names):
        position = " + ".join([*names[:number], indices[axis]])
        part = or_default(read("x", [*indices[:axis], position, *indices[axis + 1 :]]), types[0])
        where = ranges(zip(indices, [*extents[:axis], name, *extents[axis + 1 :]]))
        statements.append(f"{target(f'y{number}', indices)} = {part}{where}")
    message = f"the parts of a split add up to axis {axis}"
    total = sum(parts, as_size(0))
    guard = Guard(total, "==", types[0].shape[axis], message)
    results = [f"y{number}" for number in range(len(parts))]
    parameters = [parameter("x", extents)]
    text = definition("split", parameters, statements, declared(names), results)
    return Written(text, sizes_as_attributes("S", parts), (guard,))


def tile(types: Types, attributes: Attributes, box: Box) -> Written:
    """Repeat x along each axis."""
    expect_inputs("tile", types, 1, 1)
    repeats = [as_size(size) for size in attributes["repeats"]]
    rank = types[0].rank
    if len(repeats) != rank:
        raise GraphError(f"operator 'tile': {len(repeats)} repeats for {rank} axes")
    indices, sizes, names = numbered("i", rank), numbered("N", rank), numbered("S", rank)
    positions = [
        index if repeat.constant == 1 else f"{index} % {size}"
        for index, size, repeat in zip(indices, sizes, repeats)
    ]
    extents = [size * repeat for size, repeat in zip(types[0].shape, repeats)]
    body = f"{target('y', indices)} = {read('x', positions)}{ranges(zip(indices, names))}"
    text = definition("tile", [parameter("x", sizes)], [body], declared(names))
    return Written(text, sizes_as_attributes("S", extents))


def pad(types: Types, attributes: Attributes, box: Box) -> Written:
    """Pad x before and after along each axis; negative counts crop.

    mode 'constant' pads with the second input (default 0), 'edge' with the nearest element,
    'reflect' with the mirror image without the edge (at most one element less than the axis has),
    'wrap' with the elements of the other end.
    """
    expect_inputs("pad", types, 1, 2)
    rank, mode = types[0].rank, attributes["mode"]
    before = [as_size(size) for size in attributes["before"]]
    after = [as_size(size) for size in attributes["after"]]
    if not len(before) == len(after) == rank:
        raise GraphError(f"operator 'pad': {len(before)} and {len(after)} counts, {rank} axes")
    indices, names = numbered("i", rank), numbered("S", rank)
    offsets, sizes = numbered("B", rank), numbered("N", rank)
    if mode not in _PAD_POSITIONS:
        raise GraphError(f"operator 'pad': mode '{mode}' is none of {', '.join(_PAD_POSITIONS)}")
    moved = [not (b.constant == 0 and a.constant == 0) for b, a in zip(before, after)]
    positions = [
        _PAD_POSITIONS[mode].format(i=f"({index} - {offset})", n=size) if moves else index
        for index, offset, size, moves in zip(indices, offsets, sizes, moved)
    ]
    extents = [size + b + a for size, b, a in zip(types[0].shape, before, after)]
    guards = [
        Guard(as_size(0), "<=", extent, f"axis {axis} of a pad keeps a size of at least 0")
        for axis, extent in enumerate(extents)
    ]
    parameters = [parameter("x", sizes)]
    body, zero = read("x", positions), "false" if types[0].dtype.kind == "bool" else "0"
    if mode == "constant":
        parameters += ["T value"] if len(types) == 2 else []
        if rank:
            body = f"({body} else {'value' if len(types) == 2 else zero})"
    elif any(moved):
        body = _by_ranges(max(axis for axis in range(rank) if moved[axis]), positions, zero)
    if mode == "reflect":
        guards += _reflecting(types[0].shape, before, after)
    elif mode != "constant":
        guards += _repeating(types[0].shape, before, after)
    used = [offset for offset, moves in zip(offsets, moved) if moves]
    values = {**sizes_as_attributes("S", extents), **sizes_as_attributes("B", before)}
    text = definition(
        "pad", parameters, [f"{target('y', indices)} = {body}{ranges(zip(indices, names))}"],
        declared([*names, *used]),
    )  # fmt: skip
    return Written(text, {name: values[name] for name in (*names, *used)}, tuple(guards))


def _reflecting(
    shape: Sequence[Size], before: Sequence[Size], after: Sequence[Size]
) -> list[Guard]:
    """Guards: each side of a reflecting pad is smaller than its axis."""
    found = []
    for axis, (extent, *sides) in enumerate(zip(shape, before, after)):
        message = f"a reflecting pad of axis {axis} is smaller than the axis"
        shown = [_where_any(side, extent, sides) for side in sides]
        found += [Guard(side, "<", maximum(extent, 1), message) for side in shown]
    return found


def _where_any(count: Size, extent: Size, sides: Sequence[Size]) -> Size:
    """A number of elements read from x, or 0 where negative counts leave the result empty."""
    if all(side.constant is not None and side.constant >= 0 for side in sides):
        return count
    return minimum(count, maximum(extent + sides[0] + sides[1], 0) * maximum(count, 0))


def _any_positive(sides: Sequence[Size]) -> Size:
    """1 where a number is above 0, else 0."""
    return reduce(or_, (condition(side, ">", 0) for side in sides)).flag


def _repeating(shape: Sequence[Size], before: Sequence[Size], after: Sequence[Size]) -> list[Guard]:
    """Guards: a pad that repeats elements has an element to repeat."""
    return [
        Guard(
            _where_any(_any_positive(sides), extent, sides),
            "<=",
            extent,
            f"a pad of axis {axis} has no elements",
        )
        for axis, (extent, *sides) in enumerate(zip(shape, before, after))
    ]


def _by_ranges(axis: int, positions: Sequence[str], zero: str) -> str:
    """Split an axis into the parts before, in and after x, so that x itself is a plain copy."""
    inside = [*positions[:axis], f"i{axis} - B{axis}", *positions[axis + 1 :]]
    around, own = (f"({read('x', at)} else {zero})" for at in (positions, inside))
    return f"i{axis} < B{axis} ? {around} : i{axis} < B{axis} + N{axis} ? {own} : {around}"


_PAD_POSITIONS = {
    "constant": "{i}",
    "edge": "min(max({i}, 0), {n} - 1)",
    "reflect": "({n} - 1 - abs({n} - 1 - abs({i})))",
    "wrap": "{i} % {n}",
}

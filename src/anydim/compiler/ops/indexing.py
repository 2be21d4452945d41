"""TC texts of the gather operators and of the operators that make tensors from sizes."""

from __future__ import annotations

import math
from typing import Any

from anydim.base.errors import GraphError
from anydim.compiler.graph.operator import Attributes, Types, Written
from anydim.compiler.ops.writing import (
    axis_of,
    declared,
    definition,
    expect_inputs,
    expect_rank,
    numbered,
    parameter,
    placed,
    ranges,
    read,
    sizes_as_attributes,
    sizes_of,
    target,
    wrapped,
)
from anydim.sizes import LARGEST, Box, Factor, Guard, Size, as_size, fits


def gather(types: Types, attributes: Attributes, box: Box) -> Written:
    """Slices of x at these indices along an axis; negative indices count from the end."""
    _expect_indices("gather", types)
    rank, inner = types[0].rank, types[1].rank
    axis = axis_of("gather", attributes["axis"], rank)
    indices, sizes = numbered("i", rank), numbered("N", rank)
    chosen = numbered("j", inner)
    position = placed(attributes, read("indices", chosen), sizes[axis])
    result = [*indices[:axis], *chosen, *indices[axis + 1 :]]
    reads = [*indices[:axis], position, *indices[axis + 1 :]]
    parameters = [parameter("x", sizes), parameter("indices", numbered("M", inner), "I")]
    body = f"{target('y', result)} = {read('x', reads)}"
    return Written(definition("gather", parameters, [body]))


def gather_elements(types: Types, attributes: Attributes, box: Box) -> Written:
    """One element of x for each index; the index replaces the element's coordinate on the axis."""
    _expect_indices("gather_elements", types)
    rank = types[0].rank
    axis = axis_of("gather_elements", attributes["axis"], rank)
    if types[1].rank != rank:
        raise GraphError(f"operator 'gather_elements': {types[0]} and {types[1]} differ in rank")
    indices, sizes, chosen = numbered("i", rank), numbered("N", rank), numbered("M", rank)
    position = placed(attributes, read("indices", indices), sizes[axis])
    reads = [*indices[:axis], position, *indices[axis + 1 :]]
    guards = tuple(
        Guard(own, "<=", whole, f"indices of gather_elements are within axis {number}")
        for number, (own, whole) in enumerate(zip(types[1].shape, types[0].shape))
        if number != axis
    )
    parameters = [parameter("x", sizes), parameter("indices", chosen, "I")]
    body = f"{target('y', indices)} = {read('x', reads)}{ranges(zip(indices, chosen))}"
    return Written(definition("gather_elements", parameters, [body]), guards=guards)


def gather_nd(types: Types, attributes: Attributes, box: Box) -> Written:
    """Slices of x at tuples of indices; the last axis of `indices` holds a tuple."""
    _expect_indices("gather_nd", types)
    rank, batch = types[0].rank, attributes["batch_dims"]
    inner = types[1].rank - 1
    depth = types[1].shape[-1].constant if inner >= 0 else None
    if depth is None or not 0 <= batch <= min(inner, rank) or not 1 <= depth <= rank - batch:
        raise GraphError(
            f"operator 'gather_nd': {types[1]} does not index {types[0]} with {batch} batch axes",
            "the last axis of the indices needs a constant size, at most the rank of the tensor",
        )
    sizes, chosen = numbered("N", rank), numbered("j", inner)
    rest = numbered("i", rank)[batch + depth :]
    positions = [
        placed(attributes, read("indices", [*chosen, str(number)]), sizes[batch + number])
        for number in range(depth)
    ]
    index_sizes = [*sizes[:batch], *numbered("M", inner)[batch:], str(depth)]
    parameters = [parameter("x", sizes), parameter("indices", index_sizes, "I")]
    reads = [*chosen[:batch], *positions, *rest]
    body = f"{target('y', [*chosen, *rest])} = {read('x', reads)}"
    return Written(definition("gather_nd", parameters, [body]))


def _expect_indices(operator: str, types: Types) -> None:
    expect_inputs(operator, types, 2, 2)
    if not types[1].dtype.is_integer:
        raise GraphError(f"operator '{operator}': indices are {types[1]}, expected integers")


def one_hot(types: Types, attributes: Attributes, box: Box) -> Written:
    """Add an axis of size `depth`: the second of `values` at the index, the first elsewhere."""
    expect_inputs("one_hot", types, 2, 2)
    rank = types[0].rank
    axis = axis_of("one_hot", attributes["axis"], rank + 1)
    chosen = numbered("i", rank)
    index = f"cast<int64>({read('indices', chosen)})"
    result = [*chosen[:axis], "d", *chosen[axis:]]
    parameters = [parameter("indices", numbered("M", rank), "I"), parameter("values", ["2"])]
    body = (
        f"{target('y', result)} = {wrapped(index, 'D')} == d ? values(1) : values(0) where d in 0:D"
    )
    text = definition("one_hot", parameters, [body], ["size D"])
    return Written(text, {"D": as_size(attributes["depth"])})


def trilu(types: Types, attributes: Attributes, box: Box) -> Written:
    """Triangle of matrices above (or below) their k-th diagonal, 0 elsewhere."""
    expect_inputs("trilu", types, 1, 1)
    relation = ">=" if attributes["upper"] else "<="
    zero = "false" if types[0].dtype.kind == "bool" else "0"
    body = f"y(...p,i,j) = j - i {relation} K ? x(...p,i,j) : {zero}"
    text = definition("trilu", ["T(...p,N,M) x"], [body], ["size K"])
    return Written(text, {"K": sizes_of("trilu", "k", [attributes["k"]])[0]})


def reverse_sequence(types: Types, attributes: Attributes, box: Box) -> Written:
    """x with the first lengths[b] elements of its axis `time` reversed, for each b of `batch`."""
    _expect_indices("reverse_sequence", types)
    rank = types[0].rank
    time, batch = (axis_of("reverse_sequence", attributes[k], rank) for k in ("time", "batch"))
    expect_rank("reverse_sequence", types[1], 1, "the lengths")
    indices, sizes = numbered("i", rank), numbered("N", rank)
    length = f"cast<int64>(lengths({indices[batch]}))"
    t = indices[time]
    position = [
        *indices[:time],
        f"({t} < {length} ? {length} - 1 - {t} : {t})",
        *indices[time + 1 :],
    ]
    parameters = [parameter("x", sizes), parameter("lengths", [sizes[batch]], "I")]
    where = ranges(zip(indices, sizes))
    body = f"{target('y', indices)} = {read('x', position)}{where}"
    return Written(definition("reverse_sequence", parameters, [body]))


def range_(types: Types, attributes: Attributes, box: Box) -> Written:
    """`count` numbers of type `dtype`: start, start + step, ..."""
    expect_inputs("range", types, 0, 0)
    dtype = attributes["dtype"]
    body = f"y(i) = cast<{dtype}>(F + i * D) where i in 0:C"
    text = definition("range", [], [body], ["size F", "size D", "size C"])
    names = {"F": "start", "D": "step", "C": "count"}
    return Written(text, {name: as_size(attributes[long]) for name, long in names.items()})


def fill(types: Types, attributes: Attributes, box: Box) -> Written:
    """A tensor of a shape filled with `value`."""
    expect_inputs("fill", types, 0, 0)
    shape, dtype, value = attributes["shape"], attributes["dtype"], attributes["value"]
    indices, names = numbered("i", len(shape)), numbered("S", len(shape))
    body = f"{target('y', indices)} = cast<{dtype}>({literal(value)}){ranges(zip(indices, names))}"
    text = definition("fill", [], [body], declared(names))
    return Written(text, sizes_as_attributes("S", shape))


def literal(value: Any) -> str:
    """Format a number as a literal of the language."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "(-inf)"
    return repr(value) if value >= 0 else f"(-{-value!r})"


def size_tensor(types: Types, attributes: Attributes, box: Box) -> Written:
    """Sizes as data: a vector or, with `scalar`, one number; values wrap at 64 bits."""
    expect_inputs("size_tensor", types, 0, 0)
    values = [as_size(value) for value in attributes["values"]]
    dtype = attributes["dtype"]
    named: list[Size] = []
    terms = [_size_text(value, named, box) for value in values]
    if attributes["scalar"]:
        if len(terms) != 1:
            raise GraphError(f"operator 'size_tensor': {len(terms)} values for a scalar")
        statement = f"y = cast<{dtype}>({terms[0]})"
    else:
        body = "".join(f"i == {number} ? {term} : " for number, term in enumerate(terms[:-1]))
        body += terms[-1] if terms else "0"
        statement = f"y(i) = cast<{dtype}>({body}) where i in 0:{len(terms)}"
    text = definition("size_tensor", [], [statement], declared(numbered("S", len(named))))
    return Written(text, sizes_as_attributes("S", named))


def _size_text(size: Size, named: list[Size], box: Box) -> str:
    """A size as data; one that may exceed 64 bits is written as a sum of products, which wraps.

    Appends to `named` the sizes that the text calls S0, S1, ...
    """

    def name(part: Size) -> str:
        named.append(part)
        return f"S{len(named) - 1}"

    def factor(atom: Factor) -> str:
        return f"cast<int64>({name(Size.of_atom(atom))})"

    if fits(size, -LARGEST, LARGEST, box):
        return name(size)
    products = [
        "*".join((_wrapped_literal(number), *map(factor, monomial)))
        for monomial, number in size.monomials
    ]
    return f"({' + '.join(products)})"


def _wrapped_literal(value: int) -> str:
    low = -LARGEST - 1
    return f"cast<int64>({literal((value - low) % (1 << 64) + low)})"

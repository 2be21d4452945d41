"""TC texts of the operators that only reinterpret the layout of one tensor: views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anydim.base.errors import GraphError
from anydim.base.user_values import items_of, short_repr
from anydim.compiler.graph.operator import Attributes, Types, Written
from anydim.compiler.ops.writing import (
    axis_of,
    axis_set,
    declared,
    definition,
    expect_inputs,
    numbered,
    or_default,
    parameter,
    ranges,
    read,
    sizes_as_attributes,
    sizes_of,
    target,
)
from anydim.sizes import (
    LARGEST,
    Box,
    Guard,
    Size,
    Truth,
    as_size,
    broadcast_distance,
    broadcast_size,
    ceil_div,
    condition,
    maximum,
    minimum,
    product,
    prove,
    simplify,
)


def transpose(types: Types, attributes: Attributes, box: Box) -> Written:
    """Permute the axes of x: axis i of the result is axis perm[i] of x."""
    expect_inputs("transpose", types, 1, 1)
    rank = types[0].rank
    perm = attributes["perm"]
    hint = "give a list of integers, or None to reverse them"
    given = range(rank)[::-1] if perm is None else items_of("axes of 'transpose'", perm, hint)
    order = tuple(given)
    if sorted(axis if isinstance(axis, int) else -1 for axis in order) != list(range(rank)):
        raise GraphError(
            f"operator 'transpose': perm {short_repr(order)} does not order {rank} axes"
        )
    indices, sizes = numbered("i", rank), numbered("N", rank)
    result = target("y", [indices[axis] for axis in order])
    body = f"{result} = {read('x', indices)}"
    return Written(definition("transpose", [parameter("x", sizes)], [body]))


def reshape(types: Types, attributes: Attributes, box: Box) -> Written:
    """The elements in row-major order under another shape; one size may be -1: inferred."""
    expect_inputs("reshape", types, 1, 1)
    shape, guards = reshaped(types[0].shape, attributes["shape"], box)
    return _row_major("reshape", types, shape, guards)


def flatten(types: Types, attributes: Attributes, box: Box) -> Written:
    """Flatten to a matrix: the axes before `axis` become its rows, the others its columns."""
    expect_inputs("flatten", types, 1, 1)
    rank, axis = types[0].rank, attributes["axis"]
    if not -rank <= axis <= rank:
        raise GraphError(f"operator 'flatten': axis {axis} of a tensor with {rank} axes")
    axis = axis + rank if axis < 0 else axis
    shape = types[0].shape
    return _row_major("flatten", types, (product(shape[:axis]), product(shape[axis:])), ())


def _row_major(
    name: str, types: Types, shape: Sequence[Size], guards: tuple[Guard, ...]
) -> Written:
    rank = len(shape)
    indices, sizes = numbered("i", rank), numbered("S", rank)
    offset = indices[0] if indices else "0"
    for index, size in zip(indices[1:], sizes[1:]):
        offset = f"({offset})*{size} + {index}"
    source = or_default(f"x[{offset}]", types[0])
    body = f"{target('y', indices)} = {source}{ranges(zip(indices, sizes))}"
    parameters = [parameter("x", numbered("N", types[0].rank) or ["1"])]
    if not types[0].rank:
        body = f"{target('y', indices)} = x{ranges(zip(indices, sizes))}"
        parameters = ["T x"]
    text = definition(name, parameters, [body], declared(sizes))
    return Written(text, sizes_as_attributes("S", shape), guards)


def reshaped(
    shape: Sequence[Size], wanted: Sequence[Any], box: Box
) -> tuple[tuple[Size, ...], tuple[Guard, ...]]:
    """Return the shape of a reshape's result, and the guards under which the elements fit."""
    sizes = sizes_of("reshape", "shape", wanted)
    open_axes = [axis for axis, size in enumerate(sizes) if size.constant == -1]
    if len(open_axes) > 1:
        raise GraphError("operator 'reshape': more than one size is -1")
    guards: list[Guard] = []
    if open_axes:
        sizes[open_axes[0]], guards = _rest(shape, sizes, box)
    message = f"a reshape from [{_listed(shape)}] to [{_listed(sizes)}] keeps every element"
    guards.insert(0, Guard(product(shape), "==", product(sizes), message))
    for size in sizes:
        negative = prove(size, "<", 0, box)
        if negative is Truth.PROVED or (size.constant or 0) < 0:
            raise GraphError(f"operator 'reshape': size {size} is negative")
        if negative is Truth.UNKNOWN and size not in shape:
            guards.append(Guard(as_size(0), "<=", size, f"size {size} of a reshape is at least 0"))
    return tuple(sizes), tuple(guards)


def _rest(shape: Sequence[Size], sizes: Sequence[Size], box: Box) -> tuple[Size, list[Guard]]:
    """Return the size that -1 is inferred as, and the guards under which it is determined.

    An axis that keeps its size is left out of both products, so that it may be 0.
    """
    kept = [
        axis for axis, (old, new) in enumerate(zip(shape, sizes))
        if prove(old, "==", new, box) is Truth.PROVED
    ]  # fmt: skip
    total = product(size for axis, size in enumerate(shape) if axis not in kept)
    others = [size for axis, size in enumerate(sizes) if axis not in kept]
    total, rest = _without_common(total, product(s for s in others if s.constant != -1))
    if rest.constant == 0:
        raise GraphError(
            "operator 'reshape': the size for -1 is ambiguous, since another size is 0"
        )
    exact = total.divide_exactly(rest)
    if exact is not None:
        return simplify(exact, box), []
    message = f"a reshape from [{_listed(shape)}] to [{_listed(sizes)}] determines the size of -1"
    return simplify(total // maximum(rest, 1), box), [Guard(as_size(1), "<=", rest, message)]


def _without_common(total: Size, rest: Size) -> tuple[Size, Size]:
    """Divide both by the dims that are common factors."""
    for name in sorted(total.symbols & rest.symbols):
        fewer = total.divide_exactly(as_size(name)), rest.divide_exactly(as_size(name))
        if fewer[0] is not None and fewer[1] is not None:
            total, rest = fewer[0], fewer[1]
    return total, rest


def _listed(shape: Sequence[Size]) -> str:
    return ", ".join(map(str, shape))


def expand(types: Types, attributes: Attributes, box: Box) -> Written:
    """Broadcast x with a shape, as in numpy: axes of size 1 repeat on either side."""
    expect_inputs("expand", types, 1, 1)
    own = types[0].shape
    wanted = sizes_of("expand", "shape", attributes["shape"])
    rank = max(len(own), len(wanted))
    ones = [as_size(1)] * rank
    pairs = zip(ones[len(own) :] + list(own), ones[len(wanted) :] + wanted)
    met = [_broadcast_pair(mine, size, box) for mine, size in pairs]
    indices, names, steps = numbered("i", rank), numbered("S", rank), numbered("B", rank)
    reads = [
        {0: "0", 1: index}.get(step.constant, f"{index} * {name}")  # type: ignore[arg-type]
        for index, name, (_, step, _) in zip(indices, steps, met)
    ]
    body = f"{target('y', indices)} = {read('x', reads[rank - len(own) :])}"
    body += ranges(zip(indices, names))
    values = sizes_as_attributes("S", (extent for extent, _, _ in met))
    values |= {name: step for name, (_, step, _) in zip(steps, met) if step.constant is None}
    message = f"an expand of [{_listed(own)}] to [{_listed(wanted)}] can broadcast"
    guards = tuple(Guard(odd, "==", as_size(0), message) for _, _, odd in met)
    parameters = [parameter("x", numbered("N", len(own)))]
    return Written(definition("expand", parameters, [body], declared(values)), values, guards)


def _broadcast_pair(own: Size, wanted: Size, box: Box) -> tuple[Size, Size, Size]:
    """(extent, step, odd) of broadcasting a size with another.

    The index along x's axis is the result's times `step`; `odd` is 0 where the sizes fit.
    """
    zero, one = as_size(0), as_size(1)
    if own.constant == 1:
        return wanted, zero, zero
    if wanted.constant == 1 or prove(own, "==", wanted, box) is Truth.PROVED:
        return own, one, zero
    own_wide = prove(own, "==", 1, box) is Truth.REFUTED
    wanted_wide = prove(wanted, "==", 1, box) is Truth.REFUTED
    odd = broadcast_distance(own, wanted, box)
    step = one if own_wide else condition(own, ">", 1).flag
    if own_wide or wanted_wide:
        return (own if own_wide else wanted), step, odd
    return broadcast_size((own, wanted), box), step, odd


def squeeze(types: Types, attributes: Attributes, box: Box) -> Written:
    """x without the given axes of size 1; by default, all that always have size 1."""
    expect_inputs("squeeze", types, 1, 1)
    rank, shape = types[0].rank, types[0].shape
    axes = attributes["axes"]
    if axes is None:
        axes = [axis for axis, size in enumerate(shape) if size.constant == 1]
    axes = axis_set("squeeze", axes, rank)
    indices, sizes = numbered("i", rank), numbered("N", rank)
    reads = ["0" if axis in axes else indices[axis] for axis in range(rank)]
    sizes = ["1" if shape[a].constant == 1 and a in axes else sizes[a] for a in range(rank)]
    kept = [indices[axis] for axis in range(rank) if axis not in axes]
    guards = tuple(
        Guard(shape[axis], "==", as_size(1), f"axis {axis} of a squeeze has size 1")
        for axis in axes
    )
    body = f"{target('y', kept)} = {read('x', reads)}"
    return Written(definition("squeeze", [parameter("x", sizes)], [body]), guards=guards)


def unsqueeze(types: Types, attributes: Attributes, box: Box) -> Written:
    """x with new axes of size 1; `axes` are counted in the result."""
    expect_inputs("unsqueeze", types, 1, 1)
    given = attributes["axes"]
    count = 1 if isinstance(given, int) else len(given)
    rank = types[0].rank + count
    axes = axis_set("unsqueeze", given, rank)
    indices = numbered("i", rank)
    reads = [indices[axis] for axis in range(rank) if axis not in axes]
    where = ranges((indices[axis], "1") for axis in axes)
    body = f"{target('y', indices)} = {read('x', reads)}{where}"
    parameters = [parameter("x", numbered("N", types[0].rank))]
    return Written(definition("unsqueeze", parameters, [body]))


_LONGEST_STEP = 1 << 48  # above the elements of any axis


def slice_(types: Types, attributes: Attributes, box: Box) -> Written:
    """x[start:end:step] along some axes; negative and large bounds as in Python."""
    expect_inputs("slice", types, 1, 1)
    rank, starts = types[0].rank, attributes["starts"]
    axes = attributes["axes"]
    axes = tuple(range(len(starts))) if axes is None else axes
    axes = (axes,) if isinstance(axes, int) else axes
    axes = tuple(axis_of("slice", axis, rank) for axis in axes)
    steps = attributes["steps"] or (1,) * len(starts)
    if not len(axes) == len(starts) == len(attributes["ends"]) == len(steps) == len(set(axes)):
        raise GraphError(
            "operator 'slice': starts, ends, axes and steps do not match or repeat an axis"
        )
    indices = numbered("i", rank)
    positions = list(indices)
    values: dict[str, Size] = {}
    extents = []
    for axis, start, end, step in zip(axes, starts, attributes["ends"], steps):
        stride = _stride(step)
        first, count = _slice_range(types[0].shape[axis], start, end, stride, box)
        values[f"F{axis}"], values[f"C{axis}"] = first, count
        offset = indices[axis] if stride == 1 else f"{indices[axis]} * ({stride})"
        positions[axis] = offset if first.constant == 0 else f"F{axis} + {offset}"
        extents.append((indices[axis], f"C{axis}"))
    body = f"{target('y', indices)} = {read('x', positions)}{ranges(extents)}"
    text = definition("slice", [parameter("x", numbered("N", rank))], [body], declared(values))
    return Written(text, values)


def _stride(step: Any) -> int:
    """The constant step of a slice, clamped so that its products with positions fit 64 bits."""
    stride = as_size(step).constant
    if not stride:
        raise GraphError(f"operator 'slice': step {step} is not a constant other than 0")
    return max(-_LONGEST_STEP, min(stride, _LONGEST_STEP))


def _slice_range(extent: Size, start: Any, end: Any, stride: int, box: Box) -> tuple[Size, Size]:
    """(first index, count) of extent[start:end:stride]."""
    first, last = (
        simplify(_clipped(as_size(bound), extent, stride > 0, box), box) for bound in (start, end)
    )
    begin = as_size(start).constant
    if stride > 0:  # an empty slice may use the unclamped start: last is then below it
        unclamped = begin if begin is not None and 0 <= begin <= LARGEST // 2 else first
        count = ceil_div(last - unclamped, stride)
    else:
        count = ceil_div(first - last, -stride)
    return first, simplify(maximum(count, 0), box)


def _clipped(bound: Size, extent: Size, forward: bool, box: Box) -> Size:
    """Clamp a bound to the range of a slice; for a constant, one end suffices."""
    low, high = (as_size(0), extent) if forward else (as_size(-1), extent - 1)
    position = _from_front(bound, extent, box)
    number = bound.constant
    if number is None:
        return minimum(maximum(position, low), high)
    if abs(number) > LARGEST // 2:  # exporters write "to the end" as the limits of int64
        return low if number < 0 else high
    return maximum(position, low) if number < 0 else minimum(position, high)


def _from_front(bound: Size, extent: Size, box: Box) -> Size:
    """A bound counted from the front, whether its sign is known at compile time or not."""
    negative = prove(bound, "<", 0, box)
    if negative is Truth.REFUTED:
        return bound
    if negative is Truth.PROVED:
        return bound + extent
    return bound + condition(bound, "<", 0).where(extent, 0)

"""Texts of the operators that make grids of other sizes: resize and transposed convolution."""

from __future__ import annotations

from typing import Any

from anydim.base.errors import GraphError
from anydim.graph.operator import Attributes, Types, Written
from anydim.ops.writing import (
    declared,
    definition,
    expect_inputs,
    expect_rank,
    numbered,
    parameter,
    ranges,
    read,
    target,
)
from anydim.sizes import Box, Guard, as_size

# Where in x a place o of the result lies; {f} is the scale, {n} and {s} the sizes.
COORDINATES = {
    "asymmetric": "{o} / {f}",
    "half_pixel": "({o} + 0.5) / {f} - 0.5",
    "half_pixel_symmetric": "{n} / 2.0 * (1.0 - {s} / ({f} * {n})) + ({o} + 0.5) / {f} - 0.5",
    "pytorch_half_pixel": "{s} > 1.0 ? ({o} + 0.5) / {f} - 0.5 : 0.0",
    "align_corners": "{f} * {n} == 1.0 ? 0.0 : {o} * ({n} - 1.0) / ({f} * {n} - 1.0)",
}
ROUNDINGS = {
    "round_prefer_floor": "ceil({p} - 0.5)",
    "round_prefer_ceil": "floor({p} + 0.5)",
    "floor": "floor({p})",
    "ceil": "ceil({p})",
}
# The neighbours of a place: how many, how many of them before it, the weight of one whose
# distance is {d}.
_WEIGHTS = {
    "linear": (2, 0, "max(1.0 - {d}, 0.0)"),
    "cubic": (
        4, 1,
        "{d} <= 1.0 ? (({a} + 2.0) * {d} - ({a} + 3.0)) * {d} * {d} + 1.0"
        " : (({a} * {d} - 5.0 * {a}) * {d} + 8.0 * {a}) * {d} - 4.0 * {a}",
    ),
}  # fmt: skip


def weights(mode: str) -> tuple[int, int, str]:
    """(how many neighbours, how many of them before, the weight at distance {d}) of a mode."""
    return _WEIGHTS[mode]


def resize(types: Types, attributes: Attributes, box: Box) -> Written:
    """x sampled on a grid of other sizes, by the nearest element or by linear or cubic weights.

    `scales` are numbers, one per axis; without them they follow from the sizes.
    """
    expect_inputs("resize", types, 1, 1)
    rank, mode = types[0].rank, attributes["mode"]
    sizes = [as_size(size) for size in attributes["sizes"]]
    scales = attributes["scales"]
    if len(sizes) != rank or (scales is not None and len(scales) != rank):
        raise GraphError(f"operator 'resize': {len(sizes)} sizes for {rank} axes")
    for name, table in (("coordinates", COORDINATES), ("rounding", ROUNDINGS)):
        if attributes[name] not in table:
            raise GraphError(f"operator 'resize': {name} '{attributes[name]}' is none of "
                             f"{', '.join(table)}")  # fmt: skip
    if mode != "nearest" and mode not in _WEIGHTS:
        raise GraphError(f"operator 'resize': mode '{mode}' is none of nearest, linear, cubic")
    indices, places = numbered("i", rank), numbered("i", rank)
    statements: list[str] = []
    factors: list[str] = []
    values: dict[str, Any] = {}
    where: list[tuple[str, str]] = []
    kinds: list[str] = []
    for axis, (own, size) in enumerate(zip(types[0].shape, sizes)):
        scale = None if scales is None else float(scales[axis])
        where.append((f"i{axis}", f"N{axis}"))
        if own == size and (scale is None or scale == 1):
            continue
        where[-1] = (f"i{axis}", f"S{axis}")
        values[f"S{axis}"] = size
        kinds.append(f"size S{axis}")
        if scale is not None:
            values[f"F{axis}"] = scale
            kinds.append(f"float F{axis}")
        written, places[axis], factor = _axis(axis, scale, attributes)
        statements += written
        if factor:
            factors.append(factor)
            where.append((f"k{axis}", str(_WEIGHTS[mode][0])))
    combine = "+=!" if factors else "="
    body = " * ".join([*factors, read("x", places)])
    statements.append(f"{target('y', indices)} {combine} {body}{ranges(where)}")
    text = definition("resize", [parameter("x", numbered("N", rank))], statements, kinds)
    return Written(text, values)


def _axis(axis: int, scale: float | None, attributes: Attributes) -> tuple[list[str], str, str]:
    """(statements, the place to read, the weight of what is read) along a resized axis."""
    mode, coordinates, rounding = (attributes[k] for k in ("mode", "coordinates", "rounding"))
    index, size, span = f"i{axis}", f"N{axis}", f" where i{axis} in 0:S{axis}"
    if mode == "nearest" and scale is not None and scale.is_integer() and (
        (coordinates, rounding) in _REPEATS
    ):  # fmt: skip
        return [], f"{index} // {int(scale)}", ""
    factor = f"cast<double>(S{axis}) / cast<double>({size})" if scale is None else (
        f"cast<double>(F{axis})"
    )  # fmt: skip
    place = COORDINATES[coordinates].format(
        o=f"cast<double>({index})", f=f"({factor})",
        n=f"cast<double>({size})", s=f"cast<double>(S{axis})",
    )  # fmt: skip
    statements = [f"p{axis}({index}) = {place}{span}"]
    p = f"p{axis}({index})"
    if mode == "nearest":
        rounded = ROUNDINGS[rounding].format(p=p)
        return statements, f"min(max(cast<int64>({rounded}), 0), {size} - 1)", ""
    count, before, weight = _WEIGHTS[mode]
    near = f"cast<int64>(floor({p})) + k{axis} - {before}"
    distance = f"abs({p} - floor({p}) - cast<double>(k{axis} - {before}))"
    weight = weight.format(d=distance, a=f"({float(attributes['cubic'])!r})")
    name = f"w{axis}({index},k{axis})"
    both = f"{span}, k{axis} in 0:{count}"
    if attributes["exclude_outside"]:
        inside = f"({near}) >= 0 && ({near}) < {size}"
        statements += [
            f"v{axis}({index},k{axis}) = {inside} ? ({weight}) : 0.0{both}",
            f"t{axis}({index}) +=! v{axis}({index},k{axis})",
            f"{name} = v{axis}({index},k{axis}) / t{axis}({index})",
        ]
    else:
        statements.append(f"{name} = {weight}{both}")
    return statements, f"min(max({near}, 0), {size} - 1)", f"cast<T>({name})"


# With a whole scale these read x(i // scale).
_REPEATS = {
    ("asymmetric", "floor"),
    ("half_pixel", "round_prefer_floor"),
    ("half_pixel", "round_prefer_ceil"),
}


def transposed_convolution(types: Types, attributes: Attributes, box: Box) -> Written:
    """The transpose of a convolution: x[n, c, ...] spread by w[c, m/groups, ...], plus a bias.

    `before` is what the result leaves out at the start of each axis, `sizes` how long it is.
    """
    name = "conv_transpose"
    expect_inputs(name, types, 2, 3)
    rank, groups = types[0].rank - 2, attributes["groups"]
    if rank < 1:
        raise GraphError(f"operator '{name}': x is {types[0]}, expected at least 3 axes")
    expect_rank(name, types[1], rank + 2, "w")
    per_axis = [attributes[key] or (1,) * rank for key in ("strides", "dilations")]
    before, sizes = attributes["before"], attributes["sizes"]
    if not all(len(row) == rank for row in (*per_axis, before, sizes)):
        raise GraphError(f"operator '{name}': its attributes are not those of {rank} axes")
    channels, share = types[0].shape[1], types[1].shape[1]
    inner = channels.divide_exactly(groups)
    if inner is None:  # the guard refuses what is not whole groups
        inner = channels // groups
    outer, steps, places, conditions = numbered("o", rank), numbered("k", rank), [], []
    for axis, (stride, dilation) in enumerate(zip(*per_axis)):
        place = f"(o{axis} + B{axis} - k{axis} * {dilation})"
        conditions += [] if stride == 1 else [f"{place} % {stride} == 0"]
        places.append(place if stride == 1 else f"{place} // {stride}")
    channel, own = ("c", "m") if groups == 1 else ("(m // M) * D + c", "m % M")
    value = f"({read('x', ['n', channel, *places])} else 0)"
    if conditions:
        value = f"({' && '.join(conditions)} ? {value} : 0)"
    where = ranges([
        ("n", "N"), ("m", f"M * {groups}"), *zip(outer, numbered("S", rank)), ("c", "D"),
        *zip(steps, numbered("W", rank)),
    ])  # fmt: skip
    result = ["n", "m", *outer]
    last = "t" if len(types) == 3 else "y"
    statements = [
        f"{target(last, result)} +=! {value} * {read('w', [channel, own, *steps])}{where}"
    ]
    parameters = [
        parameter("x", ["N", "C", *numbered("H", rank)]),
        parameter("w", ["C", "M", *numbered("W", rank)]),
    ]
    if len(types) == 3:
        parameters.append("T(O) b")
        statements.append(f"{target('y', result)} = {read('t', result)} + b(m)")
    values = {f"S{axis}": as_size(size) for axis, size in enumerate(sizes)}
    values |= {f"B{axis}": as_size(size) for axis, size in enumerate(before)}
    values["D"] = inner
    guards = [Guard(channels, "==", inner * groups, f"channels in {groups} groups")]
    guards += [
        Guard(kind.shape[0], "==", share * groups, "a bias per channel") for kind in types[2:]
    ]
    text = definition(name, parameters, statements, declared(values))
    return Written(text, values, tuple(guards))

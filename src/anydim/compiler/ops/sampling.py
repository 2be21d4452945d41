"""TC texts of the operators that interpolate x at coordinates that are data."""

from __future__ import annotations

from anydim.base.errors import GraphError
from anydim.compiler.graph.operator import Attributes, Types, Written
from anydim.compiler.ops.resampling import interpolation_weights
from anydim.compiler.ops.writing import (
    declared,
    definition,
    expect_inputs,
    expect_rank,
    numbered,
    pads_of,
    parameter,
    ranges,
    read,
    steps_of,
    target,
)
from anydim.sizes import Box, Guard, as_size

SAMPLING = ("nearest", "linear", "cubic")
BORDERS = ("zeros", "border", "reflection")
_ALPHA = -0.75


def grid_sample(types: Types, attributes: Attributes, box: Box) -> Written:
    """Sample x[n, c, ...] at the coordinates grid[n, ..., k], which span -1 to 1 on each axis.

    The last coordinate belongs to the first of the axes. With `corners`, -1 and 1 are the centres
    of the outer elements, else their outer edges.
    """
    name, (mode, padding) = "grid_sample", (attributes["mode"], attributes["padding"])
    expect_inputs(name, types, 2, 2)
    rank = types[0].rank - 2
    if rank < 1 or types[1].rank != rank + 2 or types[1].shape[-1].constant != rank:
        raise GraphError(f"operator '{name}': grid {types[1]} does not fit {types[0]}")
    if mode not in SAMPLING or padding not in BORDERS:
        known = f"modes: {', '.join(SAMPLING)}; paddings: {', '.join(BORDERS)}"
        raise GraphError(f"operator '{name}': mode '{mode}', padding '{padding}'", known)
    sizes, outer, extents = numbered("D", rank), numbered("o", rank), numbered("O", rank)
    where = ["n in 0:N", *(f"{o} in 0:{e}" for o, e in zip(outer, extents))]
    statements: list[str] = []
    factors: list[str] = []
    positions: list[str] = []
    taps: list[str] = []
    for axis, size in enumerate(sizes):
        written, position, factor, tap = _coordinate(axis, rank, size, attributes, where)
        statements += written
        positions.append(position)
        factors += factor
        taps += tap
    value = read("x", ["n", "c", *positions])
    value = f"({value} else 0)" if padding == "zeros" else value
    combine = "+=!" if taps else "="
    span = ", ".join([*where, "c in 0:C", *taps])
    body = " * ".join([*factors, value])
    statements.append(f"{target('y', ['n', 'c', *outer])} {combine} {body} where {span}")
    parameters = [
        parameter("x", ["N", "C", *sizes]),
        parameter("grid", ["N", *extents, str(rank)], "G"),
    ]
    return Written(definition(name, parameters, statements))


def _coordinate(
    axis: int, rank: int, size: str, attributes: Attributes, where: list[str]
) -> tuple[list[str], str, list[str], list[str]]:
    """(statements, the position to read, weights, ranges of the taps) along one axis of x."""
    mode, padding, corners = (attributes[key] for key in ("mode", "padding", "corners"))
    outer = ["n", *numbered("o", rank)]
    span = " where " + ", ".join(where)
    last = f"cast<double>({size} - 1)"
    low, high = ("0.0", last) if corners else ("(-0.5)", f"(cast<double>({size}) - 0.5)")
    g = f"cast<double>({read('grid', [*outer, str(rank - 1 - axis)])})"
    at = f"({g} + 1.0) / 2.0 * {last}" if corners else (
        f"(({g} + 1.0) * cast<double>({size}) - 1.0) / 2.0"
    )  # fmt: skip
    at = f"round({at})" if mode == "nearest" else at
    raw, position = read(f"g{axis}", outer), read(f"p{axis}", outer)
    statements = [f"{raw} = {at}{span}"]
    moved = {
        "zeros": raw,
        "border": f"({raw} < {low} || {raw} > {high}) ? min(max({raw}, 0.0), {last}) : {raw}",
        "reflection": _reflected(raw, low, high),
    }[padding]
    statements.append(f"{position} = {moved}{span}")
    if mode == "nearest":
        index, factor, tap = f"cast<int64>({position})", [], []
        tapped = outer
    else:
        count, before, weight = interpolation_weights(mode)
        k = f"k{axis}"
        # output positions stay on the last axis, where vector loads are contiguous
        tapped, tap = [outer[0], k, *outer[1:]], [f"{k} in 0:{count}"]
        index = f"cast<int64>(floor({position})) + {k} - {before}"
        distance = f"abs({position} - floor({position}) - cast<double>({k} - {before}))"
        name = read(f"w{axis}", tapped)
        weight = weight.format(d=distance, a=f"({_ALPHA})")
        statements.append(f"{name} = cast<T>({weight}){span}, {tap[0]}")
        factor = [name]
    if padding == "reflection":
        index = f"cast<int64>({_reflected(f'cast<double>({index})', low, high)})"
    if padding != "zeros":
        index = f"min(max({index}, 0), {size} - 1)"
    chosen = read(f"i{axis}", tapped)
    statements.append(f"{chosen} = {index}{span}{''.join(f', {t}' for t in tap)}")
    return statements, chosen, factor, tap


def _reflected(position: str, low: str, high: str) -> str:
    """A coordinate reflected at the ends until it is between them."""
    width = f"({high} - {low})"
    away = f"(fmod(abs({position} - {low}), 2.0 * {width}))"
    back = f"({away} <= {width} ? {low} + {away} : {high} - ({away} - {width}))"
    in_bounds = f"({position} >= {low} && {position} <= {high})"
    return f"({in_bounds} ? {position} : ({width} > 0.0 ? {back} : {low}))"


def affine_grid(types: Types, attributes: Attributes, box: Box) -> Written:
    """Sampling grid of `sizes` under theta[n, k, k + 1]: theta times (coordinates, 1)."""
    expect_inputs("affine_grid", types, 1, 1)
    expect_rank("affine_grid", types[0], 3, "theta")
    sizes = [as_size(size) for size in attributes["sizes"]]
    rank = len(sizes)
    if [size.constant for size in types[0].shape[1:]] != [rank, rank + 1]:
        raise GraphError(f"operator 'affine_grid': theta is {types[0]} for {rank} axes")
    outer, extents = numbered("o", rank), numbered("S", rank)
    statements = []
    for axis, (o, size) in enumerate(zip(outer, extents)):
        number = f"cast<double>({o})"
        value = f"({number} * 2.0 + 1.0) / cast<double>({size}) - 1.0"
        if attributes["corners"]:
            value = f"{size} > 1 ? {number} * 2.0 / cast<double>({size} - 1) - 1.0 : -1.0"
        statements.append(f"p{axis}({o}) = cast<T>({value}) where {o} in 0:{size}")
    terms = [
        f"theta(n,r,{column}) * p{rank - 1 - column}(o{rank - 1 - column})"
        for column in range(rank)
    ]
    where = ranges([("n", "N"), *zip(outer, extents), ("r", str(rank))])
    statements.append(
        f"{target('y', ['n', *outer, 'r'])} = {' + '.join(terms)} + theta(n,r,{rank}){where}"
    )
    parameters = [parameter("theta", ["N", str(rank), str(rank + 1)])]
    text = definition("affine_grid", parameters, statements, declared(extents))
    return Written(text, {f"S{axis}": size for axis, size in enumerate(sizes)})


def roi_align(types: Types, attributes: Attributes, box: Box) -> Written:
    """Resample regions of x[n, c, h, w] to grids of `sizes`: mean of bilinear samples per cell.

    Each cell has `samples` times `samples` samples; with `largest` it is their maximum. rois[r, 4]
    are x1, y1, x2, y2 times 1 / `scale`; batch[r] is the n of each.
    """
    expect_inputs("roi_align", types, 3, 3)
    for kind, rank, what in zip(types, (4, 2, 1), ("x", "rois", "batch")):
        expect_rank("roi_align", kind, rank, what)
    sizes, samples = attributes["sizes"], attributes["samples"]
    if len(sizes) != 2:
        raise GraphError(f"operator 'roi_align': {len(sizes)} sizes, expected 2")
    height, width = sizes
    half = "0.5" if attributes["half_pixel"] else "0.0"
    statements = []
    for letter, first, extent, cells in (("v", 1, "H", height), ("u", 0, "W", width)):
        start = f"cast<double>(rois(r,{first})) * cast<double>(scale) - {half}"
        length = f"cast<double>(rois(r,{first + 2}) - rois(r,{first})) * cast<double>(scale)"
        length = length if attributes["half_pixel"] else f"max({length}, 1.0)"
        where = f" where r in 0:R, s in 0:{samples}, o in 0:{cells}"
        step = f"({length}) / cast<double>({cells})"
        at = (
            f"{start} + cast<double>(o) * {step}"
            f" + (cast<double>(s) + 0.5) * {step} / cast<double>({samples})"
        )
        raw, position = f"{letter}raw(r,s,o)", f"{letter}at(r,s,o)"
        end = f"cast<double>({extent} - 1)"
        outside = f"({raw} < -1.0 || {raw} > cast<double>({extent}))"
        near = f"min(cast<int64>({position}), {extent} - 1)"
        statements += [
            f"{raw} = {at}{where}",
            f"{position} = min(max({raw}, 0.0), {end}){where}",
            f"{letter}i(r,s,k,o) = min(max({near} + k, 0), {extent} - 1){where}, k in 0:2",
            f"{letter}w(r,s,k,o) = {outside} ? 0.0 : (k == 0 ? 1.0 - ({position} - cast<double>"
            f"({near})) : {position} - cast<double>({near})){where}, k in 0:2",
        ]
    cells = f"r in 0:R, c in 0:C, i in 0:{height}, j in 0:{width}"
    taps = f"a in 0:{samples}, k in 0:2, b in 0:{samples}, l in 0:2"
    weight = "w(r,a,k,b,l,i,j) = cast<T>(vw(r,a,k,i) * uw(r,b,l,j))"  # shared by all channels
    statements.append(f"{weight} where r in 0:R, {taps}, i in 0:{height}, j in 0:{width}")
    value = "w(r,a,k,b,l,i,j) * x(cast<int64>(batch(r)),c,vi(r,a,k,i),ui(r,b,l,j))"
    if attributes["largest"]:
        statements += [
            f"s(r,c,i,j,a,b) max=! {value} where {cells}, {taps}",
            f"y(r,c,i,j) max=! s(r,c,i,j,a,b) where {cells}, a in 0:{samples}, b in 0:{samples}",
        ]
    else:
        statements += [
            f"t(r,c,i,j) +=! {value} where {cells}, {taps}",
            f"y(r,c,i,j) = t(r,c,i,j) / cast<T>({samples * samples}) where {cells}",
        ]
    parameters = ["T(N,C,H,W) x", "T(R,4) rois", "I(R) batch"]
    text = definition("roi_align", parameters, statements, ["float scale"])
    return Written(text, {"scale": attributes["scale"]})


def deformable_convolution(types: Types, attributes: Attributes, box: Box) -> Written:
    """2-d convolution whose reads are displaced by `offset`, bilinear, times `mask`.

    x[n, c, h, w], w[m, c/groups, kh, kw], offset[n, g*kh*kw*2, oh, ow], then optionally bias[m] and
    mask[n, g*kh*kw, oh, ow]; g counts `offset_groups`.
    """
    kh, kw = _expect_deformable(types, attributes)
    biased, masked = attributes["biased"], attributes["masked"]
    group, parts = attributes["groups"], attributes["offset_groups"]
    channels, inner = types[0].shape[1], types[1].shape[1]
    share, taps = channels // parts, f"k in 0:{kh}, l in 0:{kw}"
    statements = [*_displaced_taps(attributes, kh, kw), _bilinear(taps)]
    channel = "(c)" if group == 1 else "(m // Q * D + c)"
    scaled = f"s(n,{channel},k,l,i,j)"
    if masked:
        scaled = f"{scaled} * mask(n,({channel} // P * {kh} + k) * {kw} + l,i,j)"
    last = "t" if biased else "y"
    statements.append(
        f"{last}(n,m,i,j) +=! {scaled} * w(m,c,k,l)"
        f" where n in 0:N, m in 0:M, i in 0:I, j in 0:J, c in 0:D, {taps}"
    )
    if biased:
        statements.append("y(n,m,i,j) = t(n,m,i,j) + bias(m)")
    parameters = ["T(N,C,H,W) x", f"T(M,D,{kh},{kw}) w", f"T(N,{parts * kh * kw * 2},I,J) offset"]
    parameters += ["T(M) bias"] if biased else []
    parameters += [f"T(N,{parts * kh * kw},I,J) mask"] if masked else []
    guards = (
        Guard(channels, "==", inner * group, "x has the channels of w times the groups"),
        Guard(channels, "==", share * parts, "channels are divisible by the offset groups"),
    )
    values = {"P": share, "Q": types[1].shape[0] // group}
    names = ["P", "Q"] if group != 1 else ["P"]
    text = definition("deform_conv", parameters, statements, declared(names))
    return Written(text, {key: values[key] for key in names}, guards)


def _expect_deformable(types: Types, attributes: Attributes) -> tuple[int, int]:
    """Return height and width of the kernel; raise GraphError where inputs do not fit."""
    name, count = "deform_conv", 3 + attributes["biased"] + attributes["masked"]
    expect_inputs(name, types, count, count)
    for kind, what in zip(types, ("x", "w", "offset")):
        expect_rank(name, kind, 4, what)
    kernel = [size.constant for size in types[1].shape[2:]]
    if None in kernel:
        raise GraphError(f"operator '{name}': weights {types[1]}, expected a kernel of fixed size")
    kh, kw = (int(size or 0) for size in kernel)
    return kh, kw


def _displaced_taps(attributes: Attributes, kh: int, kw: int) -> list[str]:
    """Along both axes, the two indices next to each displaced tap, and their weights."""
    strides, dilations = (
        steps_of("deform_conv", attributes, key, 2) for key in ("strides", "dilations")
    )
    pads = pads_of("deform_conv", attributes["pads"], 2)
    moves = (
        f"n in 0:N, g in 0:{attributes['offset_groups']}, k in 0:{kh}, l in 0:{kw},"
        " i in 0:I, j in 0:J"
    )
    statements = []
    for axis, (letter, own, step) in enumerate((("v", "i", "k"), ("u", "j", "l"))):
        base = f"{own} * {strides[axis]} - {pads[axis]} + {step} * {dilations[axis]}"
        at = f"{letter}at(n,g,k,l,i,j)"
        number = f"((g * {kh} + k) * {kw} + l) * 2 + {axis}"
        statements += [
            f"{at} = cast<double>({base}) + cast<double>(offset(n,{number},i,j)) where {moves}",
            # output positions stay on the last axes, where vector loads are contiguous
            f"{letter}w(n,g,k,l,a,i,j) = cast<T>(a == 0 ? 1.0 - ({at} - floor({at}))"
            f" : {at} - floor({at})) where {moves}, a in 0:2",
            f"{letter}i(n,g,k,l,a,i,j) = cast<int64>(floor({at})) + a where {moves}, a in 0:2",
        ]
    return statements


def _bilinear(taps: str) -> str:
    """s: the bilinear sample of each tap and channel; P channels share their offsets."""
    weight = "vw(n,c // P,k,l,a,i,j) * uw(n,c // P,k,l,b,i,j)"
    value = "x(n,c,vi(n,c // P,k,l,a,i,j),ui(n,c // P,k,l,b,i,j)) else 0"
    return (
        f"s(n,c,k,l,i,j) +=! {weight} * ({value}) where n in 0:N, c in 0:C,"
        f" {taps}, i in 0:I, j in 0:J, a in 0:2, b in 0:2"
    )

"""Texts of the operators about frequencies: discrete Fourier transforms and mel weights.

A complex number is an axis of size 2 at the end: its real and its imaginary part.
"""

from __future__ import annotations

from anydim.base.errors import GraphError
from anydim.graph.operator import Attributes, Types, Written
from anydim.ops.writing import (
    definition,
    expect_inputs,
    expect_rank,
    numbered,
    one_axis,
    parameter,
    read,
    target,
)
from anydim.sizes import Box, Guard, as_size, minimum, simplify

# The angle of the product of two places on a circle of L; the product is reduced first.
_ANGLE = "cast<double>(({a} * {b}) % L) * 6.283185307179586 / cast<double>(L)"


def fourier_transform(types: Types, attributes: Attributes, box: Box) -> Written:
    """The discrete Fourier transform of `length` elements along an axis, or its inverse.

    With `onesided` the frequencies from 0 to length // 2 are given, or taken by an inverse, whose
    result is real. Costs length * length products; elements past the end count as 0.
    """
    axis, parts = _transformed_axis(types, attributes)
    rank, inverse, onesided = types[0].rank, attributes["inverse"], attributes["onesided"]
    length = as_size(attributes["length"])
    half = length // 2 + 1
    given = half if inverse and onesided else length
    made = half if onesided and not inverse else length
    values = {
        "L": length, "F": simplify(made, box),
        "K": simplify(minimum(types[0].shape[axis], given), box),
    }  # fmt: skip
    indices, sizes = numbered("i", rank - 1), numbered("N", rank - 1)
    result = [*indices[:axis], "f", *indices[axis + 1 :]]
    place = [*indices[:axis], "k", *indices[axis + 1 :]]
    span = "".join(
        f"{index} in 0:{size}, " for number, (index, size) in enumerate(zip(indices, sizes))
        if number != axis
    )  # fmt: skip
    statements = _waves(inverse, onesided)
    statements += _turned(result, place, span, parts, real=inverse and onesided)
    declared = [f"size {key}" for key in values]
    parameters = [parameter("x", [*sizes, str(parts)])]
    return Written(definition("dft", parameters, statements, declared), values)


def _transformed_axis(types: Types, attributes: Attributes) -> tuple[int, int]:
    """The axis, and how many parts numbers have; GraphError where there is none like that."""
    expect_inputs("dft", types, 1, 1)
    rank = types[0].rank
    parts = types[0].shape[-1].constant if rank else None
    if rank < 2 or parts not in (1, 2):
        raise GraphError(f"operator 'dft': {types[0]}, expected a last axis of size 1 or 2")
    axis = one_axis("dft", attributes["axis"], rank)
    if axis == rank - 1:
        raise GraphError(f"operator 'dft': axis {axis} holds the parts of the numbers")
    return axis, parts


def _waves(inverse: bool, onesided: bool) -> list[str]:
    """c(f,k) and s(f,k): what an element is multiplied with."""
    angle, sign, weight = _ANGLE.format(a="f", b="k"), "" if inverse else "-", "1.0"
    if inverse:
        both = "(k == 0 || 2 * k == L ? 1.0 : 2.0)" if onesided else "1.0"
        weight = f"{both} / cast<double>(L)"
    return [
        f"c(f,k) = cast<T>(cos({angle}) * {weight}) where f in 0:F, k in 0:K",
        f"s(f,k) = cast<T>({sign}sin({angle}) * {weight}) where f in 0:F, k in 0:K",
    ]


def _turned(result: list[str], place: list[str], span: str, parts: int, real: bool) -> list[str]:
    """The sums over all elements and the result of them, of which the real part may be wanted."""
    own, other = read("x", [*place, "0"]), read("x", [*place, "1"])
    sums = {"a": f"{own} * c(f,k)"}
    if parts == 2:
        sums["b"] = f"{other} * s(f,k)"
    if not real:
        sums["d"] = f"{own} * s(f,k)"
        if parts == 2:
            sums["e"] = f"{other} * c(f,k)"
    statements = [
        f"{target(name, result)} +=! {body} where {span}f in 0:F, k in 0:K"
        for name, body in sums.items()
    ]
    whole, turned = read("a", result), read("d", result)
    if parts == 2:
        whole, turned = f"{whole} - {read('b', result)}", f"{turned} + {read('e', result)}"
    body = whole if real else f"p == 0 ? {whole} : {turned}"
    ends = f"where {span}f in 0:F, p in 0:{1 if real else 2}"
    return [*statements, f"{target('y', [*result, 'p'])} = {body} {ends}"]


def short_time_transform(types: Types, attributes: Attributes, box: Box) -> Written:
    """Discrete Fourier transforms of frames of x[b, n, 1 or 2], each `step` after the last.

    The second input, if given, weighs the elements of a frame; the result is [b, frame, f, 2].
    """
    name = "stft"
    expect_inputs(name, types, 1, 2)
    expect_rank(name, types[0], 3, "x")
    parts = types[0].shape[2].constant
    if parts not in (1, 2):
        raise GraphError(f"operator '{name}': {types[0]}, expected a last axis of size 1 or 2")
    length, step = as_size(attributes["length"]), as_size(attributes["step"])
    room = types[0].shape[1] - length
    values = {
        "L": length, "P": step, "R": simplify(room // step + 1, box),
        "F": length // 2 + 1 if attributes["onesided"] else length,
    }  # fmt: skip
    guards: tuple[Guard, ...] = (Guard(as_size(0), "<=", room, "a frame fits into the signal"),)
    angle = _ANGLE.format(a="f", b="k")
    window = " * cast<double>(w(k))" if len(types) == 2 else ""
    where = " where b in 0:B, t in 0:R, f in 0:F, k in 0:L"
    statements = [
        f"c(f,k) = cast<T>(cos({angle}){window}) where f in 0:F, k in 0:L",
        f"s(f,k) = cast<T>(-sin({angle}){window}) where f in 0:F, k in 0:L",
        f"a(b,t,f) +=! x(b,t * P + k,0) * c(f,k){where}",
        f"d(b,t,f) +=! x(b,t * P + k,0) * s(f,k){where}",
    ]
    whole, turned = "a(b,t,f)", "d(b,t,f)"
    if parts == 2:
        statements += [
            f"g(b,t,f) +=! x(b,t * P + k,1) * s(f,k){where}",
            f"e(b,t,f) +=! x(b,t * P + k,1) * c(f,k){where}",
        ]
        whole, turned = f"{whole} - g(b,t,f)", f"{turned} + e(b,t,f)"
    statements.append(
        f"y(b,t,f,p) = p == 0 ? {whole} : {turned} where b in 0:B, t in 0:R, f in 0:F, p in 0:2"
    )
    parameters = [f"T(B,S,{parts}) x"] + (["T(W) w"] if len(types) == 2 else [])
    if len(types) == 2:
        message = "a window is as long as a frame"
        guards = (*guards, Guard(types[1].shape[0], "==", length, message))
    text = definition(name, parameters, statements, [f"size {key}" for key in values])
    return Written(text, values, guards)


def mel_weights(types: Types, attributes: Attributes, box: Box) -> Written:
    """Triangles that sum the frequencies of a transform of `length` into `bins` mel bands.

    The inputs are numbers: the sample rate, the lower and the upper edge in hertz.
    """
    expect_inputs("mel_weights", types, 3, 3)
    if any(kind.rank for kind in types):
        raise GraphError("operator 'mel_weights': its inputs are numbers")
    kind = attributes["dtype"]
    mel = "2595.0 * log1p(cast<double>({0}) / 700.0) / 2.302585092994046"
    statements = [
        f"low = {mel.format('lower')}",
        f"span = ({mel.format('upper')} - low) / cast<double>(M + 2)",
        "hertz(i) = 700.0 * expm1((low + cast<double>(i) * span) / 2595.0 * 2.302585092994046)"
        " where i in 0:M + 2",
        "e(i) = cast<int64>(floor(cast<double>(L + 1) * hertz(i) / cast<double>(rate)))",
        "rise(j,i) = cast<double>(j - e(i)) / cast<double>(max(e(i + 1) - e(i), 1))"
        " where j in 0:L // 2 + 1, i in 0:M",
        "fall(j,i) = cast<double>(e(i + 2) - j) / cast<double>(max(e(i + 2) - e(i + 1), 1))"
        " where j in 0:L // 2 + 1, i in 0:M",
        "before(j,i) = e(i) == e(i + 1) ? (j == e(i) ? 1.0 : 0.0) : (j >= e(i) && j <= e(i + 1)"
        " ? rise(j,i) : 0.0) where j in 0:L // 2 + 1, i in 0:M",
        f"y(j,i) = cast<{kind}>(j >= e(i + 1) && j < e(i + 2) ? fall(j,i) : before(j,i))"
        " where j in 0:L // 2 + 1, i in 0:M",
    ]
    parameters = ["R rate", "F lower", "F upper"]
    text = definition("mel_weights", parameters, statements, ["size M", "size L"])
    return Written(text, {"M": as_size(attributes["bins"]), "L": as_size(attributes["length"])})


def cosine_window(types: Types, attributes: Attributes, box: Box) -> Written:
    """a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n) for i below `size`; n is the size, or less 1."""
    expect_inputs("cosine_window", types, 0, 0)
    size, kind = as_size(attributes["size"]), attributes["dtype"]
    first, second, third = (float(value) for value in attributes["weights"])
    period = size if attributes["periodic"] else size - 1
    angle = "cast<double>(i) * 6.283185307179586 / cast<double>(P)"
    value = f"{first!r} - {second!r} * cos({angle}) + {third!r} * cos(2.0 * {angle})"
    body = f"y(i) = cast<{kind}>(P > 0 ? {value} : 1.0) where i in 0:S"
    text = definition("cosine_window", [], [body], ["size S", "size P"])
    return Written(text, {"S": size, "P": period})

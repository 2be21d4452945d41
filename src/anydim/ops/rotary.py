"""The text of rotary position embedding."""

from __future__ import annotations

from anydim.graph.operator import Attributes, Types, Written
from anydim.ops.writing import definition, expect_inputs, expect_rank
from anydim.sizes import Box, Guard, as_size


def rotary_embedding(types: Types, attributes: Attributes, box: Box) -> Written:
    """x[batch, head, row, d] with pairs of elements turned by angles of each row.

    cos and sin are [batch, row, half]; the pairs are the halves of the first 2 * half elements,
    or neighbours with `interleaved`. `width` is 2 * half where that is not all of d.
    """
    name = "rotary_embedding"
    expect_inputs(name, types, 3, 3)
    for kind, rank, what in zip(types, (4, 3, 3), ("x", "cos", "sin")):
        expect_rank(name, kind, rank, what)
    depth = types[0].shape[3]
    width = depth if attributes["width"] is None else as_size(attributes["width"])
    half = width // 2
    guards = [
        Guard(half * 2, "==", width, "pairs of elements to turn"),
        Guard(width, "<=", depth, "the elements to turn are there"),
    ]
    for kind in types[1:]:
        message = "angles for every row and pair"
        wanted = (types[0].shape[0], types[0].shape[2], half)
        guards += [Guard(own, "==", size, message) for own, size in zip(kind.shape, wanted)]
    own = "x(b,h,i,d)"
    if attributes["interleaved"]:
        first, second = _turned("d // 2", "d + 1"), _turned("d // 2", "d - 1")
        body = f"d < 2 * H ? (d % 2 == 0 ? {first[0]} : {second[1]}) : {own}"
    else:  # three ranges of places, each with neighbours beside neighbours
        first, second = _turned("d", "d + H"), _turned("d - H", "d - H")
        body = f"d < H ? {first[0]} : (d < 2 * H ? {second[1]} : {own})"
    statement = f"y(b,h,i,d) = {body} where b in 0:B, h in 0:A, i in 0:R, d in 0:D"
    parameters = ["T(B,A,R,D) x", "T(BC,RC,HC) cos", "T(BS,RS,HS) sin"]
    text = definition(name, parameters, [statement], ["size H"])
    return Written(text, {"H": half}, tuple(guards))


def _turned(pair: str, other: str) -> tuple[str, str]:
    """The first and the second element of a pair, turned; `other` is the place of its partner."""
    c, s = f"(cos(b,i,{pair}) else 0)", f"(sin(b,i,{pair}) else 0)"
    own, partner = "x(b,h,i,d)", f"(x(b,h,i,{other}) else 0)"
    return f"({c} * {own} - {s} * {partner})", f"({s} * {partner} + {c} * {own})"

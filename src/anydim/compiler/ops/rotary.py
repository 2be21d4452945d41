"""TC text of rotary position embedding."""

from __future__ import annotations

from anydim.compiler.graph.operator import Attributes, Types, Written
from anydim.compiler.ops.writing import definition, expect_inputs, expect_rank
from anydim.sizes import Box, Guard, as_size, product


def rotary_embedding(types: Types, attributes: Attributes, box: Box) -> Written:
    """Rotate pairs of elements by the angles of each row: cos and sin are [batch, row, half].

    x is [batch, head, row, depth]: pairs are the halves of the first `width` elements (default:
    all), or neighbours with `interleaved`. Halves may be an axis: [.., 2, half].
    """
    name, interleaved = "rotary_embedding", attributes["interleaved"]
    expect_inputs(name, types, 3, 3)
    apart = types[0].rank == 5 and not interleaved
    for kind, rank, what in zip(types, (5 if apart else 4, 3, 3), ("x", "cos", "sin")):
        expect_rank(name, kind, rank, what)
    batch, _, rows, *last = types[0].shape
    width = product(last) if attributes["width"] is None else as_size(attributes["width"])
    half = width // 2
    guards = [
        Guard(half * 2, "==", width, "pairs of elements to rotate"),
        Guard(width, "<=", product(last), "the rotated elements are within the last axis"),
    ]
    for kind in types[1:]:
        angles = zip(kind.shape, (batch, rows, half))
        guards += [Guard(own, "==", size, "angles for every row and pair") for own, size in angles]
    if apart:
        body, own, sizes = _rotated("d", "s,d", "1 - s,d", "(s == 0 ? -1 : 1) *"), "s,d", "S,D"
    else:
        body, own, sizes = _along(interleaved, width != last[0]), "d", "D"
    ranges = ", ".join(f"{i.lower()} in 0:{i}" for i in f"B,A,R,{sizes}".split(","))
    parameters = [f"T(B,A,R,{sizes}) x", "T(BC,RC,HC) cos", "T(BS,RS,HS) sin"]
    statement = f"y(b,a,r,{own}) = {body} where {ranges}"
    text = definition(name, parameters, [statement], [] if apart else ["size H"])
    return Written(text, {} if apart else {"H": half}, tuple(guards))


def _along(interleaved: bool, rest: bool) -> str:
    """Rotation of the first 2 * H elements of each row; `rest`: whether rows have more."""
    default, unchanged = " else 0", "x(b,a,r,d)"
    if interleaved:
        default, sign = default if rest else "", "(d % 2 == 0 ? -1 : 1) *"
        rotated = _rotated("d // 2", "d", "d // 2 * 2 + 1 - d % 2", sign, default)
        return f"d < 2 * H ? {rotated} : {unchanged}" if rest else rotated
    first = _rotated("d", "d", "d + H", "-1 *", default)
    second = _rotated("d - H", "d", "d - H", "", default)
    return f"d < H ? {first} : " + (f"(d < 2 * H ? {second} : {unchanged})" if rest else second)


def _rotated(angle: str, own: str, partner: str, sign: str, default: str = "") -> str:
    """A rotated element: own * cos + sign * partner * sin."""
    c, s = (f"({table}(b,r,{angle}){default})" for table in ("cos", "sin"))
    return f"{c} * x(b,a,r,{own}) + {sign} {s} * (x(b,a,r,{partner}){default})"

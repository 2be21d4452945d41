"""Definitions in the language as nodes: loops over iterations, branches, writes in parts.

`called` takes one of written.tc, `iterations` and `integers` write loops of their own. Most are of
float32, some of any other type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import anydim as ad
from anydim.base.dtypes import DTYPES, DType, bfloat16
from anydim.compiler.frontends.builder import Value
from anydim.lang.surface.parser import parse
from anydim.sizes import Size, as_size
from tests.fuzz.maker import Maker, Shape

DEFINITIONS = parse((Path(__file__).parent / "written.tc").read_text("utf-8"))
# The shape of a second argument where there is one, from the first and a new size.
SECOND: dict[str, Callable[[Shape, Size], Shape]] = {
    "recurrence": lambda s, new: (s[2], s[2]),
    "solved": lambda s, new: (s[0], s[0]),
    "distances": lambda s, new: (new, s[1]),
    "stencil": lambda s, new: (as_size(3),),
    "product_of_polynomials": lambda s, new: (new,),
}
RANKS = {"recurrence": (3,), "product_of_polynomials": (1,)}
ANY_RANK = ("smoothed", "edges", "stencil")
ATTRIBUTES = {"smoothed": {"share": 0.5}, "relaxed": {"iterations": 2}, "windows": {"width": 4}}
INTEGERS = tuple(dtype for name, dtype in DTYPES.items() if dtype.is_integer and not dtype.stored)
FUNCTIONS = ("tanh({})", "sin({})", "abs({})", "{}", "relu({})", "max({}, -1.0)")


def called(m: Maker) -> Value | tuple[Value, ...]:
    """What one of the definitions makes of a value, and perhaps of a second one."""
    name = m.one(tuple(DEFINITIONS))
    ranks = RANKS.get(name, (1, 2, 3) if name in ANY_RANK else (2,))
    x = _value(m, ranks)
    operands = [x]
    if name in SECOND:
        operands.append(m.make(SECOND[name](x.shape, m.size()), x.dtype))
    attributes = ATTRIBUTES.get(name, {}) if m.chance(0.5) else {}
    made: Value | tuple[Value, ...] = m.builder.call(DEFINITIONS[name], *operands, **attributes)
    return made


def _value(m: Maker, ranks: tuple[int, ...], dtypes: Sequence[DType] = ()) -> Value:
    """A value of one of some element types; without these, of floats, float32 more than others."""
    dtype = m.one(dtypes or (*(ad.float32,) * 6, ad.float64, ad.float16, bfloat16))
    found = m.pick(lambda v: v.dtype == dtype and len(v.shape) in ranks)
    return m.input(m.shape(ranks[0], ranks[0]), dtype) if found is None else found


def integers(m: Maker) -> Value | tuple[Value, ...]:
    """A loop over integers of any type, which wrap; what it writes has their type."""
    x = _value(m, (2,), INTEGERS)
    back = m.chance(0.4)
    before = f"(y(t {'+' if back else '-'} {m.random.randint(1, 2)},c) else {m.one((0, 1, 5))})"
    value = m.one((
        f"{before} + x(t,c)", f"{m.one((3, 31))} * {before} + x(t,c)", f"max({before}, x(t,c))",
        f"{before} ^ x(t,c)", f"x(t,c) > 2 ? {before} : x(t,c)", f"{before} - (z(t,c) else 1)",
    ))  # fmt: skip
    lines = ["z(t,c) = x(t,c) * 2", f"y(t,c) = {value}"]
    if m.chance(0.3):
        edge = "t == T - 1" if back else "t == 0"
        lines[1] = f"if {edge} {{ y(t,c) = 1 where exists x(0,c) }} else {{ {lines[1]} }}"
    span = "T-1 : -1 : -1" if back else "T"
    results = m.one(("y", "y, z"))
    body = "\n".join([f"for t in {span} {{", *lines, "}"])
    text = f"def integers(R(T,C) x) -> ({results}) {{ {body} }}"
    made: Value | tuple[Value, ...] = m.builder.call(parse(text)["integers"], x)
    for value in made if isinstance(made, tuple) else (made,):
        assert value.dtype == x.dtype
        m.exact |= {value.name} if m.is_exact(x) else set()
    return made


def iterations(m: Maker) -> Value | tuple[Value, ...]:
    """A loop whose iterations read what earlier ones wrote, forwards or backwards."""
    x = _value(m, (2,))
    far, back = m.random.randint(1, 3), m.chance(0.4)
    span = "T-1 : -1 : -1" if back else m.one(("T", "0:T"))
    before = f"(y(t {'+' if back else '-'} {far},c) else {m.one((0, 0.5, -1))})"
    bodies = [
        f"y(t,c) = {m.one(FUNCTIONS).format(f'{share} * {before} + x(t,c)')}"
        for share in m.random.sample((0.5, -0.5, 0.25, 0.9), 2)
    ]
    condition = m.one(("t % 2 == 0", "t < 3", "t == T - 1", "T > 4", ""))
    lines = [f"if {condition} {{ {bodies[0]} }} else {{ {bodies[1]} }}"]
    lines = lines if condition else bodies[:1]
    results, first = "y", ""
    if m.chance(0.4):  # a value that every iteration changes
        results, first = "y, kept", "kept(c) = 0.5 where exists x(0,c)"
        lines.append(m.one(("kept(c) += y(t,c)", "kept(c) max= y(t,c)")))
    elif m.chance(0.3):  # a sum of each iteration
        results = "y, sums"
        lines.append("sums(t) +=! y(t,c)")
    body = "\n".join([first, f"for t in {span} {{", *lines, "}"])
    text = f"def iterations(R(T,C) x) -> ({results}) {{ {body} }}"
    made: Value | tuple[Value, ...] = m.builder.call(parse(text)["iterations"], x)
    return made


FAMILY = ((2, called), (1, iterations), (0.5, integers))

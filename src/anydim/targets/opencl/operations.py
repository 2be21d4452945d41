"""The small functions that kernels in OpenCL C are made of: a row each, for any number of lanes.

A row is an expression of the arguments a, b, c, as in `targets/c/operations.py`, whose rows for
scalar integers hold here too. The functions of OpenCL work on vectors of 2, 4, 8 and 16 lanes.
"""

from __future__ import annotations

from collections.abc import Callable

from anydim.base.errors import InternalError
from anydim.targets.c.forms import Form
from anydim.targets.c.operations import ARITY, SAME, SCALARS, filled
from anydim.targets.c.prelude import Helper, Prelude
from anydim.targets.opencl.dialect import MOST_LANES, OPENCL

_ANY: dict[tuple[str, str], str] = {
    ("abs", "f"): "fabs(a)",
    ("sqrt", "f"): "sqrt(a)",
    ("floor", "f"): "floor(a)",
    ("ceil", "f"): "ceil(a)",
    ("round", "f"): "rint(a)",
    ("trunc", "f"): "trunc(a)",
    ("copysign", "f"): "copysign(a, b)",
    ("fma", "f"): "fma(a, b, c)",
    ("ones", "u"): "popcount(a)",
    ("trailing_zeros", "u"): "popcount(({t})(~a & (a - ({t})(1))))",
    ("leading_zeros", "u"): "clz(a)",
    ("add_overflows", "i"): "((a ^ (({t})(({u})a + ({u})b))) & (b ^ (({t})(({u})a + ({u})b)))) < 0",
    ("mul_overflows", "i"): "mul_hi(a, b) != (({t})(({u})a * ({u})b) >> 63)",
}
_VECTORS: dict[tuple[str, str], str] = {
    ("min", "f"): "select(select(b, a, a < b), a, a != a)",
    ("max", "f"): "select(select(b, a, a > b), a, a != a)",
    ("fast_min", "f"): "select(b, a, a < b)",
    ("fast_max", "f"): "select(b, a, a > b)",
    ("abs", "i"): "as_{t}(abs(a))",
    ("abs", "u"): "a",
    ("fma", "i"): "as_{t}(as_{u}(a) * as_{u}(b) + as_{u}(c))",
    ("add", "i"): "as_{t}(as_{u}(a) + as_{u}(b))",
    ("sub", "i"): "as_{t}(as_{u}(a) - as_{u}(b))",
    ("mul", "i"): "as_{t}(as_{u}(a) * as_{u}(b))",
    ("neg", "i"): "as_{t}(({u})(0) - as_{u}(a))",
    ("min", "i"): "min(a, b)",
    ("max", "i"): "max(a, b)",
    ("bit_not", "i"): "~a",
    ("shift_left", "i"): "as_{t}((as_{u}(a) << as_{u}(b)) & as_{u}(as_{u}(b) < ({u})({bits})))",
    ("shift_right", "i"): "a >> min(as_{u}(b), ({u})({last}))",
    ("shift_right", "u"): "(a >> b) & as_{u}(b < ({u})({bits}))",
    ("dot_bytes", "i"): (
        "as_{t}(as_{u}(c)"
        " + (as_{u}(a) << 24 >> 24) * as_{u}(as_{s}(as_{u}(b) << 24) >> 24)"
        " + (as_{u}(a) << 16 >> 24) * as_{u}(as_{s}(as_{u}(b) << 16) >> 24)"
        " + (as_{u}(a) << 8 >> 24) * as_{u}(as_{s}(as_{u}(b) << 8) >> 24)"
        " + (as_{u}(a) >> 24) * as_{u}(as_{s}(b) >> 24))"
    ),
}


def helper(operation: str, form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    """The small function of that name; raises InternalError where there is none."""
    for made in (form, other):
        if made is not None and made.lanes > MOST_LANES:
            raise InternalError(f"OpenCL has no vectors like {made.name}")
    if operation in _MEMORY:
        return _MEMORY[operation](form, other, prelude, OPENCL.spaces.get(space, ""))
    names = "abc"[: ARITY.get(operation, 2)]
    parameters = tuple(f"{prelude.type(form)} {name}" for name in names)
    return Helper(form.name, parameters, (f"  return {_row(operation, form, names, prelude)};",))


def _row(operation: str, form: Form, names: str, prelude: Prelude) -> str:
    kind = form.kind
    plain = SAME.get(operation, operation) if kind in "iu" else operation
    if plain != operation:
        return prelude.call(plain, form, *names)
    for rows in (_ANY, SCALARS if form.lanes == 1 else _VECTORS):
        row = rows.get((operation, kind)) or (rows.get((operation, "i")) if kind == "u" else None)
        if row is not None:
            return filled(row, form, prelude)
    if form.lanes == 1:
        raise InternalError(f"OpenCL C has no '{operation}' of {form.name}")
    one = prelude.function(operation, form.scalar)
    return prelude.several(form, (
        f"{one}({', '.join(prelude.lane(name, lane) for name in names)})"
        for lane in range(form.lanes)
    ))  # fmt: skip


# ---- memory and lanes --------------------------------------------------------------------------


def _select(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    mask, kind = prelude.type(form.signed), prelude.type(form)
    return Helper(kind, (f"{mask} m", f"{kind} a", f"{kind} b"), ("  return select(b, a, m);",))


def _splat(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    element = prelude.type(form.scalar)
    line = f"  return {prelude.several(form, 'a')};"
    return Helper(prelude.type(form), (f"{element} a",), (line,))


def _iota(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    text = prelude.several(form, map(str, range(form.lanes)))
    return Helper(prelude.type(form), ("void",), (f"  return {text};",))


def _load(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    parameters = (_source(form, prelude, space),)
    return Helper(prelude.type(form), parameters, (f"  return vload{form.lanes}(0, p);",))


def _store(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    parameters = (f"{space}{prelude.type(form.scalar)} *p", f"{prelude.type(form)} a")
    return Helper("void", parameters, (f"  vstore{form.lanes}(a, 0, p);",))


def _load_if(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    """The lanes whose flags are set; the others are 0 and their memory is not touched."""
    parameters = (_source(form, prelude, space), f"{prelude.type(form.signed)} m")
    lanes = (f"{prelude.lane('m', n)} ? p[{n}] : 0" for n in range(form.lanes))
    lines = (
        f"  if (all(m)) return vload{form.lanes}(0, p);",
        f"  return {prelude.several(form, lanes)};",
    )
    return Helper(prelude.type(form), parameters, lines)


def _store_if(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    mask = prelude.type(form.signed)
    parameters = (
        f"{space}{prelude.type(form.scalar)} *p", f"{mask} m", f"{prelude.type(form)} a",
    )  # fmt: skip
    lines = [f"  if (all(m)) {{ vstore{form.lanes}(a, 0, p); return; }}"]
    for n in range(form.lanes):
        lines.append(f"  if ({prelude.lane('m', n)}) p[{n}] = {prelude.lane('a', n)};")
    return Helper("void", parameters, tuple(lines))


def _gather(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    offsets = prelude.type(Form("i64", form.lanes))
    lanes = (f"p[{prelude.lane('i', n)}]" for n in range(form.lanes))
    parameters = (_source(form, prelude, space), f"{offsets} i")
    return Helper(prelude.type(form), parameters, (f"  return {prelude.several(form, lanes)};",))


def _gather_if(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    offsets, mask = prelude.type(Form("i64", form.lanes)), prelude.type(form.signed)
    lanes = (
        f"{prelude.lane('m', n)} ? p[{prelude.lane('i', n)}] : 0" for n in range(form.lanes)
    )  # fmt: skip
    parameters = (_source(form, prelude, space), f"{offsets} i", f"{mask} m")
    return Helper(prelude.type(form), parameters, (f"  return {prelude.several(form, lanes)};",))


def _source(form: Form, prelude: Prelude, space: str) -> str:
    return f"{space}const {prelude.type(form.scalar)} *p"


def _bits(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    assert other is not None
    line = f"  return {prelude.cast('a', form)};"
    return Helper(prelude.type(form), (f"{prelude.type(other)} a",), (line,))


def _packed(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    """Flags as the bits of one unsigned integer, lane 0 lowest."""
    assert other is not None
    kind, source = prelude.type(form), prelude.type(other)
    lanes = " | ".join(
        f"({kind})({prelude.lane('m', lane)} & 1) << {lane}" for lane in range(other.lanes)
    )
    return Helper(kind, (f"{source} m",), (f"  return ({kind})({lanes});",))


def _unpacked(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    """Flags of the bits of an unsigned integer."""
    assert other is not None
    kind, source = prelude.type(form), prelude.type(other)
    lanes = (f"-({prelude.type(Form('i8'))})(a >> {lane} & 1)" for lane in range(form.lanes))
    return Helper(kind, (f"{source} a",), (f"  return {prelude.several(form, lanes)};",))


_MEMORY: dict[str, Callable[[Form, Form | None, Prelude, str], Helper]] = {
    "select": _select,
    "splat": _splat,
    "iota": _iota,
    "load": _load,
    "store": _store,
    "load_if": _load_if,
    "store_if": _store_if,
    "gather": _gather,
    "gather_if": _gather_if,
    "bits": _bits,
    "packed": _packed,
    "unpacked": _unpacked,
}

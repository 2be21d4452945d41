"""Helper functions of kernels in OpenCL C: a row each, for any number of lanes.

A row is an expression of the arguments a, b, c, as in `targets/c/operations.py`, whose rows for
scalar integers apply here too. The functions of OpenCL work on vectors of 2, 4, 8 and 16 lanes.
"""

from __future__ import annotations

from anydim.base.errors import InternalError
from anydim.compiler.targets.c.forms import Form
from anydim.compiler.targets.c.operations import (
    OF_LANES,
    SCALARS,
    MemoryHelper,
    Rows,
    each_lane,
    fill_row,
    lane_expression,
    parameters_of,
    source_pointer,
)
from anydim.compiler.targets.c.prelude import Helper, Prelude
from anydim.compiler.targets.opencl.dialect import MAX_LANES, OPENCL

_ANY: Rows = {
    ("sqrt", "f"): "sqrt(a)",
    ("floor", "f"): "floor(a)",
    ("ceil", "f"): "ceil(a)",
    ("round", "f"): "rint(a)",
    ("trunc", "f"): "trunc(a)",
    ("fma", "f"): "fma(a, b, c)",
    ("abs", "f"): "as_{t}(as_{u}(a) & {largest})",
    ("copysign", "f"): "as_{t}((as_{u}(a) & {largest}) | (as_{u}(b) & ~{largest}))",
    ("ones", "u"): "popcount(a)",
    ("trailing_zeros", "u"): "popcount(({t})(~a & (a - ({t})(1))))",
    ("leading_zeros", "u"): "clz(a)",
    ("add_overflows", "i"): "((a ^ (({t})(({u})a + ({u})b))) & (b ^ (({t})(({u})a + ({u})b)))) < 0",
    ("mul_overflows", "i"): "mul_hi(a, b) != (({t})(({u})a * ({u})b) >> 63)",
}
_VECTORS: Rows = {
    ("min", "f"): "a != a ? a : (a < b ? a : b)",
    ("max", "f"): "a != a ? a : (a > b ? a : b)",
    ("fast_min", "f"): "a < b ? a : b",
    ("fast_max", "f"): "a > b ? a : b",
    ("abs", "i"): "as_{t}((as_{u}(a) ^ as_{u}(a < ({t})(0))) - as_{u}(a < ({t})(0)))",
    ("abs", "u"): "a",
    ("fma", "i"): "as_{t}(as_{u}(a) * as_{u}(b) + as_{u}(c))",
    ("add", "i"): "as_{t}(as_{u}(a) + as_{u}(b))",
    ("sub", "i"): "as_{t}(as_{u}(a) - as_{u}(b))",
    ("mul", "i"): "as_{t}(as_{u}(a) * as_{u}(b))",
    ("neg", "i"): "as_{t}(({u})(0) - as_{u}(a))",
    ("min", "i"): "a < b ? a : b",
    ("max", "i"): "a > b ? a : b",
    ("bit_not", "i"): "~a",
    ("shift_left", "i"): "as_{t}((as_{u}(a) << as_{u}(b)) & as_{u}(as_{u}(b) < ({u})({bits})))",
    ("shift_right", "i"): ("a >> as_{t}(as_{u}(b) < ({u})({last}) ? as_{u}(b) : ({u})({last}))"),
    ("shift_right", "u"): "(a >> b) & as_{u}(b < ({u})({bits}))",
    ("dot_bytes", "i"): (
        "as_{t}(as_{u}(c)"
        " + (as_{u}(a) << 24 >> 24) * as_{u}(as_{s}(as_{u}(b) << 24) >> 24)"
        " + (as_{u}(a) << 16 >> 24) * as_{u}(as_{s}(as_{u}(b) << 16) >> 24)"
        " + (as_{u}(a) << 8 >> 24) * as_{u}(as_{s}(as_{u}(b) << 8) >> 24)"
        " + (as_{u}(a) >> 24) * as_{u}(as_{s}(b) >> 24))"
    ),
}
# clang builtins, for CPU compilers; a scalar square root is one instruction
_PLAIN: dict[str, str] = {
    "sqrt": "__builtin_sqrt{f}(a)",
    "floor": "__builtin_elementwise_floor(a)",
    "ceil": "__builtin_elementwise_ceil(a)",
    "round": "__builtin_elementwise_roundeven(a)",
    "trunc": "__builtin_elementwise_trunc(a)",
}


def helper(operation: str, form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    """Return the helper function of an operation; raises InternalError if there is none."""
    for each in (form, other):
        if each is not None and each.lanes > MAX_LANES:
            raise InternalError(f"OpenCL has no vectors like {each.name}")
    if operation in _OF_MEMORY:
        return _OF_MEMORY[operation](form, other, prelude, space)
    names, parameters = parameters_of(operation, form, prelude)
    rows = SCALARS if form.lanes == 1 else _VECTORS
    text = lane_expression(operation, form, names, prelude, _ANY, rows)
    if text is None and form.lanes == 1:
        raise InternalError(f"OpenCL C has no '{operation}' of {form.name}")
    text = each_lane(operation, form, names, prelude) if text is None else text
    return Helper(form.name, parameters, _lines(operation, form, text, prelude))


def _lines(operation: str, form: Form, text: str, prelude: Prelude) -> tuple[str, ...]:
    """Return the body of a function, rewritten where OpenCL's builtin is slow."""
    usual = f"  return {text};"
    if form.kind != "f":
        return (usual,)
    if operation == "fma":  # one instruction, if the processor has it
        fused = ("#pragma OPENCL FP_CONTRACT ON", "  return a * b + c;")
        return ("#ifdef PLAIN", *fused, "#else", usual, "#endif")
    plain = _PLAIN.get(operation)
    if plain is None:
        return (usual,)
    filled_in = fill_row(plain, form, prelude)
    if operation == "sqrt" and form.lanes > 1:
        lanes = (
            fill_row(plain, form, prelude).replace("(a)", f"({prelude.lane('a', n)})")
            for n in range(form.lanes)
        )
        filled_in = prelude.several(form, lanes)
    named = plain.partition("(")[0].format(f="")
    return (
        f"#if defined(PLAIN) && __has_builtin({named})",
        f"  return {filled_in};",
        "#else",
        usual,
        "#endif",
    )


# ---- memory and lanes --------------------------------------------------------------------------


def _select(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    mask, kind = prelude.type(form.signed), prelude.type(form)
    return Helper(kind, (f"{mask} m", f"{kind} a", f"{kind} b"), ("  return m ? a : b;",))


def _splat(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    element = prelude.type(form.scalar)
    line = f"  return {prelude.several(form, 'a')};"
    return Helper(prelude.type(form), (f"{element} a",), (line,))


def _load(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    parameters = (source_pointer(form, prelude, space),)
    where = OPENCL.spaces.get(space, "")
    plain = f"  return *(const {where}{prelude.unaligned_type(form)} *)p;"
    lines = ("#ifdef PLAIN", plain, "#else", f"  return vload{form.lanes}(0, p);", "#endif")
    return Helper(prelude.type(form), parameters, lines)


def _store(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    where = OPENCL.spaces.get(space, "")
    parameters = (f"{where}{prelude.type(form.scalar)} *p", f"{prelude.type(form)} a")
    plain = f"  *({where}{prelude.unaligned_type(form)} *)p = a;"
    lines = ("#ifdef PLAIN", plain, "#else", f"  vstore{form.lanes}(a, 0, p);", "#endif")
    return Helper("void", parameters, lines)


def _load_if(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    """Masked load: inactive lanes are 0 and do not access memory."""
    parameters = (source_pointer(form, prelude, space), f"{prelude.type(form.signed)} m")
    lanes = (f"{prelude.lane('m', n)} ? p[{n}] : 0" for n in range(form.lanes))
    usual = f"  return {prelude.several(form, lanes)};"
    masked = _mask_suffix(form, prelude)
    if not masked:
        return Helper(prelude.type(form), parameters, (usual,))
    builtin = f"__builtin_ia32_load{masked}_mask"
    given = f"(const {_pointed_type(form)} *)(ulong)p, {prelude.zero(form)}, {_mask(form)}"
    lines = (_IF_MASKED, f"  return {builtin}({given});", "#else", usual, "#endif")
    return Helper(prelude.type(form), parameters, lines)


def _store_if(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    mask, where = prelude.type(form.signed), OPENCL.spaces.get(space, "")
    parameters = (
        f"{where}{prelude.type(form.scalar)} *p", f"{mask} m", f"{prelude.type(form)} a",
    )  # fmt: skip
    usual = [
        f"  if ({prelude.lane('m', n)}) p[{n}] = {prelude.lane('a', n)};"
        for n in range(form.lanes)
    ]  # fmt: skip
    masked = _mask_suffix(form, prelude)
    if not masked:
        return Helper("void", parameters, tuple(usual))
    given = f"({_pointed_type(form)} *)(ulong)p, a, {_mask(form)}"
    line = f"  __builtin_ia32_store{masked}_mask({given});"
    return Helper("void", parameters, (_IF_MASKED, line, "#else", *usual, "#endif"))


_IF_MASKED = (
    "#if defined(PLAIN) && defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512DQ__)"
)
_MASKED = {"f32": "ups", "f64": "upd", "32": "dqusi", "64": "dqudi"}
_POINTED = {"f32": "float", "f64": "double", "32": "int", "64": "long"}


def _mask_suffix(form: Form, prelude: Prelude) -> str:
    """Return the suffix of x86's builtins for masked vectors; '' if there are none."""
    if form.all_bits not in (128, 256, 512) or form.bits < 32 or form.kind == "u":
        return ""
    return f"{_MASKED[form.element if form.kind == 'f' else str(form.bits)]}{form.all_bits}"


def _pointed_type(form: Form) -> str:
    element = _POINTED[form.element if form.kind == "f" else str(form.bits)]
    if form.kind == "f" and form.all_bits == 512:
        return element
    return element if form.kind == "f" else f"{element}{form.lanes}"


def _mask(form: Form) -> str:
    return f"__builtin_ia32_cvt{'d' if form.bits == 32 else 'q'}2mask{form.all_bits}(m)"


def cast_bits(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    """Bit cast by the dialect's own function."""
    assert other is not None
    line = f"  return {prelude.cast('a', form)};"
    return Helper(prelude.type(form), (f"{prelude.type(other)} a",), (line,))


_OF_MEMORY: dict[str, MemoryHelper] = {
    **OF_LANES,
    "select": _select, "splat": _splat, "load": _load, "store": _store, "load_if": _load_if,
    "store_if": _store_if, "bits": cast_bits,
}  # fmt: skip

"""Helper functions of kernels in C: a table with a row per operation, by kind of element.

A row is one expression of the arguments a, b, c in which `{t}` is the type, `{s}` and `{u}` the
signed and unsigned integers of the same width, `{w}` the unsigned integer type of the arithmetic
(never signed, which must not overflow; no narrower than an int, to which C would promote it),
`{bits}` the bits of an element. Comparisons of vectors return 0 or -1 per lane, of type `{s}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from anydim.base.errors import InternalError
from anydim.compiler.targets.c.forms import Form
from anydim.compiler.targets.c.machines import Choice, choices
from anydim.compiler.targets.c.prelude import Helper, Prelude

Rows: TypeAlias = "dict[tuple[str, str], str]"  # by operation and kind of element: 'f', 'i', 'u'
MemoryHelper: TypeAlias = "Callable[[Form, Form | None, Prelude, str], Helper]"

SCALARS: Rows = {
    ("abs", "f"): "__builtin_fabs{f}(a)",
    ("abs", "i"): "a < 0 ? ({t})-({w})a : a",
    ("abs", "u"): "a",
    ("sqrt", "f"): "__builtin_sqrt{f}(a)",
    ("floor", "f"): "__builtin_floor{f}(a)",
    ("ceil", "f"): "__builtin_ceil{f}(a)",
    ("round", "f"): "__builtin_rint{f}(a)",
    ("trunc", "f"): "__builtin_trunc{f}(a)",
    ("copysign", "f"): "__builtin_copysign{f}(a, b)",
    ("min", "f"): "a != a ? a : a < b ? a : b",
    ("max", "f"): "a != a ? a : a > b ? a : b",
    ("fast_min", "f"): "a < b ? a : b",
    ("fast_max", "f"): "a > b ? a : b",
    ("fma", "i"): "({t})(({w})a * ({w})b + ({w})c)",
    ("add", "i"): "({t})(({w})a + ({w})b)",
    ("sub", "i"): "({t})(({w})a - ({w})b)",
    ("mul", "i"): "({t})(({w})a * ({w})b)",
    ("neg", "i"): "({t})-({w})a",
    ("min", "i"): "a < b ? a : b",
    ("max", "i"): "a > b ? a : b",
    ("div", "i"): "b == 0 ? 0 : b == -1 ? ({t})-({w})a : a / b",
    ("div", "u"): "b == 0 ? 0 : a / b",
    ("fmod", "i"): "b == 0 || b == -1 ? 0 : a % b",
    ("fmod", "u"): "b == 0 ? 0 : a % b",
    ("floordiv", "i"): "{div}(a, b) - (({fmod}(a, b) ^ b) < 0 && {fmod}(a, b) != 0)",
    ("floordiv", "u"): "b == 0 ? 0 : a / b",
    ("mod", "i"): "{fmod}(a, b) + (({fmod}(a, b) ^ b) < 0 && {fmod}(a, b) != 0 ? b : 0)",
    ("mod", "u"): "b == 0 ? 0 : a % b",
    ("bit_not", "i"): "({t})~a",
    ("shift_left", "i"): "({u})b < {bits} ? ({t})(({w})a << b) : 0",
    ("shift_right", "i"): "a >> (({u})b < {bits} ? b : {bits} - 1)",
    ("shift_right", "u"): "b < {bits} ? a >> b : 0",
    ("ones", "u"): "({t})__builtin_popcountll(a)",
    ("trailing_zeros", "u"): "({t})(a == 0 ? {bits} : __builtin_ctzll(a))",
    ("leading_zeros", "u"): "({t})(a == 0 ? {bits} : __builtin_clzll(a) - (64 - {bits}))",
    ("dot_bytes", "i"): (
        "({t})(({w})c"
        " + ({w})((a & 255) * (i8)b) + ({w})((a >> 8 & 255) * (i8)(b >> 8))"
        " + ({w})((a >> 16 & 255) * (i8)(b >> 16)) + ({w})((a >> 24 & 255) * (i8)(b >> 24)))"
    ),
}
_VECTORS: Rows = {
    ("abs", "f"): "({t})(({u})a & {largest})",
    ("abs", "i"): "({t})((({u})a ^ ({u})(a < 0)) - ({u})(a < 0))",
    ("abs", "u"): "a",
    ("copysign", "f"): "({t})((({u})a & {largest}) | (({u})b & ~{largest}))",
    ("min", "f"): "{select}(a != a, a, {fast_min}(a, b))",
    ("max", "f"): "{select}(a != a, a, {fast_max}(a, b))",
    ("fast_min", "f"): "{select}(a < b, a, b)",
    ("fast_max", "f"): "{select}(a > b, a, b)",
    ("fma", "i"): "({t})(({u})a * ({u})b + ({u})c)",
    ("add", "i"): "({t})(({u})a + ({u})b)",
    ("sub", "i"): "({t})(({u})a - ({u})b)",
    ("mul", "i"): "({t})(({u})a * ({u})b)",
    ("neg", "i"): "({t})-({u})a",
    ("min", "i"): "{select}(({s})(a < b), a, b)",
    ("max", "i"): "{select}(({s})(a > b), a, b)",
    ("bit_not", "i"): "~a",
    ("shift_left", "i"): "({t})(({u})a << (({u})b & {last}) & ({u})(({u})b < {bits}))",
    ("shift_right", "i"): "a >> ({s})((({u})b | ({u})(({u})b >= {bits})) & {last})",
    ("shift_right", "u"): "(a >> (b & {last})) & ({u})(b < {bits})",
    ("dot_bytes", "i"): (
        "({t})(({u})c"
        " + (({u})a << 24 >> 24) * ({u})(({s})(({u})b << 24) >> 24)"
        " + (({u})a << 16 >> 24) * ({u})(({s})(({u})b << 16) >> 24)"
        " + (({u})a << 8 >> 24) * ({u})(({s})(({u})b << 8) >> 24)"
        " + (({u})a >> 24) * ({u})(({s})b >> 24))"
    ),
}
SAME = {"fast_min": "min", "fast_max": "max", "quotient": "div"}  # for integers
COMPARISONS = {
    "==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater",
    ">=": "greater_equal",
}  # fmt: skip
ARITY = {
    "abs": 1, "sqrt": 1, "floor": 1, "ceil": 1, "round": 1, "trunc": 1, "neg": 1, "bit_not": 1,
    "ones": 1, "trailing_zeros": 1, "leading_zeros": 1, "fma": 3, "dot_bytes": 3,
}  # fmt: skip


def helper(operation: str, form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    """Return the helper function of an operation; raises InternalError if there is none."""
    if operation in _OF_MEMORY:
        return _OF_MEMORY[operation](form, other, prelude, space)
    return _lanewise(operation, form, prelude)


# ---- elementwise -------------------------------------------------------------------------------


def parameters_of(operation: str, form: Form, prelude: Prelude) -> tuple[str, tuple[str, ...]]:
    """Return the names of an operation's parameters, a letter each, and the parameters."""
    names = "abc"[: ARITY.get(operation, 2)]
    return names, tuple(f"{prelude.type(form)} {name}" for name in names)


def lane_expression(
    operation: str, form: Form, names: str, prelude: Prelude, *tables: Rows
) -> str | None:
    """Return the expression of an operation by the first table with a row; None if none has one."""
    kind = form.kind
    plain = SAME.get(operation, operation) if kind in "iu" else operation
    if plain != operation:
        return prelude.call(plain, form, *names)
    for rows in tables:
        row = rows.get((operation, kind)) or (rows.get((operation, "i")) if kind == "u" else None)
        if row is not None:
            return fill_row(row, form, prelude)
    return None


def each_lane(operation: str, form: Form, names: str, prelude: Prelude) -> str:
    """Return a vector of the results of the scalar function for every lane."""
    one = prelude.function(operation, form.scalar)
    lanes = (
        f"{one}({', '.join(prelude.lane(name, lane) for name in names)})"
        for lane in range(form.lanes)
    )
    return prelude.several(form, lanes)


def _lanewise(operation: str, form: Form, prelude: Prelude) -> Helper:
    names, parameters = parameters_of(operation, form, prelude)
    found = choices(operation, form, prelude.processor)
    if operation in SAME and form.kind in "iu":
        found = []
    elif prelude.is_wide(form):
        return Helper(form.name, parameters, _halves(operation, form, names, prelude))
    elif operation == "fma" and form.kind == "f":
        return Helper(form.name, parameters, _multiply_add(form, found, prelude))
    text = lane_expression(
        operation, form, names, prelude, SCALARS if form.lanes == 1 else _VECTORS
    )
    if text is None and form.lanes == 1:
        raise InternalError(f"C has no '{operation}' of {form.name}")
    text = each_lane(operation, form, names, prelude) if text is None else text
    return Helper(form.name, parameters, _body(found, text))


def fill_row(row: str, form: Form, prelude: Prelude) -> str:
    """Fill in the names of a row's types and helper functions, which are defined."""
    wide = form.unsigned if form.lanes > 1 or form.bits >= 32 else Form("u32")
    suffix = prelude.dialect.literals.suffix.get(f"u{form.bits}", "")
    texts = {
        "t": form.name, "bits": str(form.bits), "last": str(form.bits - 1),
        "f": "f" if form.bits == 32 else "", "p": "f" if form.bits == 32 else "d",
        "largest": f"0x{(1 << (form.bits - 1)) - 1:x}{suffix}",
    }  # fmt: skip
    for letter, kind in (("s", form.signed), ("u", form.unsigned), ("w", wide)):
        if f"{{{letter}}}" in row:
            texts[letter] = prelude.type(kind)
    if "(i8)" in row:
        prelude.type(Form("i8"))
    for name in ("select", "div", "fmod", "fast_min", "fast_max"):
        if f"{{{name}}}" in row:
            texts[name] = prelude.function(name, form)
    return row.format(**texts)


def _body(found: Sequence[Choice], plain: str) -> tuple[str, ...]:
    """Return the first choice that the compiler has, otherwise the plain expression."""
    lines = []
    for number, choice in enumerate(found):
        lines.append(f"{'#elif' if number else '#if'} __has_builtin({choice.builtin})")
        lines.append(f"  return {choice.text};")
    if not found:
        return (f"  return {plain};",)
    return (*lines, "#else", f"  return {plain};", "#endif")


def _multiply_add(form: Form, found: Sequence[Choice], prelude: Prelude) -> tuple[str, ...]:
    """Multiply-add with one rounding if the processor has it, otherwise two."""
    if "fma" not in prelude.processor.has and prelude.processor.architecture != "aarch64":
        return ("  return a * b + c;",)
    if form.lanes == 1:
        return (f"  return __builtin_fma{'f' if form.bits == 32 else ''}(a, b, c);",)
    return _body(found, each_lane("fma", form, "abc", prelude))


def _halves(operation: str, form: Form, names: str, prelude: Prelude) -> tuple[str, ...]:
    """Apply the function to both halves of vectors wider than the processor's."""
    one = prelude.function(operation, form.half)
    parts = (
        f"{one}({', '.join(_part(name, form, high, prelude) for name in names)})"
        for high in (False, True)
    )
    return (f"  return {_join_halves(form, parts, prelude)};",)


def _part(name: str, form: Form, high: bool, prelude: Prelude) -> str:
    if prelude.is_wide(form):
        return prelude.call("high" if high else "low", form, name)
    count = form.lanes // 2
    if count == 1:
        return prelude.lane(name, int(high))
    start = count if high else 0
    return prelude.shuffle(name, name, tuple(range(start, start + count)), form)


def _join_halves(form: Form, parts: Iterable[str], prelude: Prelude) -> str:
    if prelude.is_wide(form):
        return prelude.call("joined", form, *parts)
    low, high = parts
    return prelude.shuffle(low, high, tuple(range(form.lanes)), form.half)


def _low(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    """The first half of a vector wider than a register, copied: GCC shuffles it lane by lane."""
    return _half(form, "&a", prelude)


def _high(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    """The second half of such a vector."""
    return _half(form, "(const char *)&a + sizeof b", prelude)


def _half(form: Form, address: str, prelude: Prelude) -> Helper:
    kind, half = prelude.type(form), prelude.type(form.half)
    lines = (f"  {half} b;", f"  __builtin_memcpy(&b, {address}, sizeof b);", "  return b;")
    return Helper(half, (f"{kind} a",), lines)


def _of_halves(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    """A vector wider than a register, of its halves."""
    kind, half = prelude.type(form), prelude.type(form.half)
    lines = (
        f"  {kind} c;", "  __builtin_memcpy(&c, &a, sizeof a);",
        "  __builtin_memcpy((char *)&c + sizeof a, &b, sizeof b);", "  return c;",
    )  # fmt: skip
    return Helper(kind, (f"{half} a", f"{half} b"), lines)


def _comparison(symbol: str) -> MemoryHelper:
    """The comparison of vectors that may be wider than a register."""

    def compare(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
        kind, flags = prelude.type(form), prelude.type(form.signed)
        text = f"({flags})(a {symbol} b)"
        if prelude.is_wide(form):
            one = prelude.function(COMPARISONS[symbol], form.half)
            parts = (f"{one}({_part('a', form, high, prelude)}, {_part('b', form, high, prelude)})"
                     for high in (False, True))  # fmt: skip
            text = _join_halves(form.signed, parts, prelude)
        return Helper(flags, (f"{kind} a", f"{kind} b"), (f"  return {text};",))

    return compare


# ---- memory and lanes --------------------------------------------------------------------------


def _select(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    mask = prelude.type(form.signed)
    found = choices("select", form, prelude.processor)
    text = f"({form.name})((m & ({mask})a) | (~m & ({mask})b))"
    kind = prelude.type(form)
    return Helper(kind, (f"{mask} m", f"{kind} a", f"{kind} b"), _body(found, text))


def _splat(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    element = prelude.type(form.scalar)
    text = f"({form.name}){{{', '.join('a' for _ in range(form.lanes))}}}"
    if prelude.is_wide(form):
        text = _join_halves(form, [prelude.call("splat", form.half, "a")] * 2, prelude)
    return Helper(prelude.type(form), (f"{element} a",), (f"  return {text};",))


def _iota(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    text = prelude.several(form, map(str, range(form.lanes)))
    return Helper(prelude.type(form), ("void",), (f"  return {text};",))


def _load(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    element, memory = prelude.type(form.scalar), prelude.unaligned_type(form)
    line = f"  return *(const {memory} *)p;"
    return Helper(prelude.type(form), (f"const {element} *p",), (line,))


def _store(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    element, memory = prelude.type(form.scalar), prelude.unaligned_type(form)
    line = f"  *({memory} *)p = a;"
    return Helper("void", (f"{element} *p", f"{prelude.type(form)} a"), (line,))


def _load_if(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    """Masked load: inactive lanes are 0 and do not access memory."""
    element, mask = prelude.type(form.scalar), prelude.type(form.signed)
    parameters = (f"const {element} *p", f"{mask} m")
    result = prelude.type(form)
    if prelude.is_wide(form):
        half = prelude.function("load_if", form.half)
        parts = (
            f"{half}(p{f' + {form.lanes // 2}' if high else ''}, "
            f"{_part('m', form.signed, high, prelude)})"
            for high in (False, True)
        )
        return Helper(result, parameters, (f"  return {_join_halves(form, parts, prelude)};",))
    found = choices("load_if", form, prelude.processor)
    lanes = ", ".join(f"m[{lane}] ? p[{lane}] : 0" for lane in range(form.lanes))
    return Helper(result, parameters, _body(found, f"({form.name}){{{lanes}}}"))


def _store_if(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    element, mask = prelude.type(form.scalar), prelude.type(form.signed)
    parameters = (f"{element} *p", f"{mask} m", f"{prelude.type(form)} a")
    if prelude.is_wide(form):
        half = prelude.function("store_if", form.half)
        lines = tuple(
            f"  {half}(p{f' + {form.lanes // 2}' if high else ''}, "
            f"{_part('m', form.signed, high, prelude)}, {_part('a', form, high, prelude)});"
            for high in (False, True)
        )
        return Helper("void", parameters, lines)
    found = choices("store_if", form, prelude.processor)
    plain = [f"  if (m[{lane}]) p[{lane}] = a[{lane}];" for lane in range(form.lanes)]
    if not found:
        return Helper("void", parameters, tuple(plain))
    choice = found[0]
    lines = (f"#if __has_builtin({choice.builtin})", f"  {choice.text};", "#else", *plain, "#endif")
    return Helper("void", parameters, lines)


def _gather(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    return _gather_lanes(form, prelude, space, masked=False)


def _gather_if(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    return _gather_lanes(form, prelude, space, masked=True)


def _gather_lanes(form: Form, prelude: Prelude, space: str, masked: bool) -> Helper:
    parameters = [source_pointer(form, prelude, space)]
    parameters.append(f"{prelude.type(Form('i64', form.lanes))} i")
    lanes = [f"p[{prelude.lane('i', lane)}]" for lane in range(form.lanes)]
    if masked:
        parameters.append(f"{prelude.type(form.signed)} m")
        lanes = [f"{prelude.lane('m', n)} ? {lane} : 0" for n, lane in enumerate(lanes)]
    line = f"  return {prelude.several(form, lanes)};"
    return Helper(prelude.type(form), tuple(parameters), (line,))


def source_pointer(form: Form, prelude: Prelude, space: str) -> str:
    """Return the parameter `p`, which elements are read from."""
    return f"{prelude.dialect.spaces.get(space, '')}const {prelude.type(form.scalar)} *p"


def _bits(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    """Bit cast to another type."""
    assert other is not None
    kind, source = prelude.type(form), prelude.type(other)
    lines = (f"  {kind} b;", "  __builtin_memcpy(&b, &a, sizeof b);", "  return b;")
    return Helper(kind, (f"{source} a",), lines)


def _packed(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    """Pack flags into the bits of an unsigned integer, lane 0 lowest."""
    assert other is not None
    kind, source = prelude.type(form), prelude.type(other)
    found = choices("packed", other, prelude.processor) if prelude.dialect.splits else []
    lanes = " | ".join(
        f"({kind})({prelude.lane('m', lane)} & 1) << {lane}" for lane in range(other.lanes)
    )
    return Helper(kind, (f"{source} m",), _body(found, f"({kind})({lanes})"))


def _unpacked(form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    """Unpack the bits of an unsigned integer to flags."""
    assert other is not None
    kind, source = prelude.type(form), prelude.type(other)
    lanes = (f"-({prelude.type(Form('i8'))})(a >> {lane} & 1)" for lane in range(form.lanes))
    return Helper(kind, (f"{source} a",), (f"  return {prelude.several(form, lanes)};",))


def reduction(operation: str, form: Form, prelude: Prelude, combine: Callable[..., str]) -> str:
    """Return the name of the function that reduces all lanes, half by half."""
    name = f"reduce_{operation}_{form.name}"
    if name in prelude.functions:
        return name
    lines, present, value = [], form, "a"
    while present.lanes > 1:
        half = present.half
        parts = [_part(value, present, high, prelude) for high in (False, True)]
        step = f"a{half.lanes}"
        lines.append(f"  const {prelude.type(half)} {step} = {combine(half, *parts)};")
        present, value = half, step
    lines.append(f"  return {value};")
    parameters = (f"{prelude.type(form)} a",)
    prelude.define(name, Helper(prelude.type(form.scalar), parameters, tuple(lines)))
    return name


# helpers of every dialect with vectors
OF_LANES: dict[str, MemoryHelper] = {
    "iota": _iota, "gather": _gather, "gather_if": _gather_if, "packed": _packed,
    "unpacked": _unpacked,
}  # fmt: skip
_OF_MEMORY: dict[str, MemoryHelper] = {
    **OF_LANES,
    "low": _low, "high": _high, "joined": _of_halves,
    **{name: _comparison(symbol) for symbol, name in COMPARISONS.items()},
    "select": _select, "splat": _splat, "load": _load, "store": _store, "load_if": _load_if,
    "store_if": _store_if, "bits": _bits,
}  # fmt: skip

"""Compiler builtins for a kind of processor, where plain C compiles badly.

Plain vector C is correct everywhere; a row exists because a compiler emits several instructions for
what the processor does in one, or has no syntax for it. A file tests whether the compiler has the
builtin (GCC and clang differ) and falls back to plain C.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from anydim.base.records import dataclass
from anydim.compiler.targets.c.forms import Form
from anydim.compiler.targets.processor import Processor


@dataclass(frozen=True)
class Choice:
    """An expression that requires a builtin function."""

    builtin: str
    text: str


def choices(operation: str, form: Form, processor: Processor) -> list[Choice]:
    """Return the expressions for an operation, best first; missing builtins are skipped."""
    if form.lanes == 1:
        return []
    found = []
    if operation in _ELEMENTWISE and form.kind == "f":
        builtin, arguments = _ELEMENTWISE[operation]
        found.append(Choice(builtin, f"{builtin}({arguments})"))
    rule = _X86.get((operation, form.kind)) if processor.architecture == "x86_64" else None
    if rule is not None and form.all_bits in (128, 256, 512):
        found += rule(form, processor.has)
    return found


# clang builtins for vectors of any width
_ELEMENTWISE = {
    "fma": ("__builtin_elementwise_fma", "a, b, c"),
    "sqrt": ("__builtin_elementwise_sqrt", "a"),
    "floor": ("__builtin_elementwise_floor", "a"),
    "ceil": ("__builtin_elementwise_ceil", "a"),
    "round": ("__builtin_elementwise_roundeven", "a"),
    "trunc": ("__builtin_elementwise_trunc", "a"),
}

# ---- x86 ---------------------------------------------------------------------------------------

_Features: TypeAlias = "frozenset[str]"
_Rule: TypeAlias = "Callable[[Form, _Features], list[Choice]]"
_TYPES = {
    "f32": "float", "f64": "double", "8": "char", "16": "short", "32": "int", "64": "long long",
}  # fmt: skip
_MASKED = {"f32": "ups", "f64": "upd", "8": "dquqi", "16": "dquhi", "32": "dqusi", "64": "dqudi"}


def _key(form: Form) -> str:
    return form.element if form.kind == "f" else str(form.bits)


def _vector(form: Form) -> str:
    """Return the vector type of builtins' parameters."""
    return f"__attribute__((vector_size({form.all_bits // 8}))) {_TYPES[_key(form)]}"


def _width(form: Form) -> str:
    return "" if form.all_bits == 128 else str(form.all_bits)


def _packed_kind(form: Form) -> str:
    """Return 'ps' or 'pd' for floats, 'd' or 'q' for integers."""
    return f"p{'s' if form.bits == 32 else 'd'}" if form.kind == "f" else _letter(form)


def _letter(form: Form) -> str:
    return {8: "b", 16: "w", 32: "d", 64: "q"}[form.bits]


def _call(name: str, *arguments: str) -> Choice:
    builtin = f"__builtin_ia32_{name}"
    return Choice(builtin, f"{builtin}({', '.join(arguments)})")


def _has_masks(form: Form, has: _Features) -> bool:
    """Whether there are masked instructions for such vectors."""
    wanted = {"avx512f", "avx512dq", "avx512bw"} | ({"avx512vl"} if form.all_bits < 512 else set())
    return wanted <= has


def _mask(form: Form) -> str:
    """Return the flags of vector `m` as a mask register."""
    builtin = f"__builtin_ia32_cvt{_letter(form)}2mask{form.all_bits}"
    return f"{builtin}(({_vector(form.signed)})m)"


def _every(form: Form) -> str:
    """Return a mask of all lanes."""
    return "(unsigned char)-1" if form.lanes <= 8 else "(unsigned short)-1"


def _floating(name: str, *arguments: str) -> _Rule:
    """Return the rule for vfmaddps, minps, sqrtps, ... in three widths."""
    fused = name == "vfmadd"

    def rule(form: Form, has: _Features) -> list[Choice]:
        full = f"{name}{_packed_kind(form)}{_width(form)}"
        if form.all_bits == 512:
            merged = () if fused else ("a",)
            call = _call(f"{full}_mask", *arguments, *merged, _every(form), "4")
            return [call] if "avx512f" in has else []
        needed = "fma" if fused else "avx" if form.all_bits == 256 else "sse2"
        return [_call(full, *arguments)] if needed in has else []

    return rule


def _rounding(mode: int) -> _Rule:
    def rule(form: Form, has: _Features) -> list[Choice]:
        kind = _packed_kind(form)
        if form.all_bits == 512:
            call = _call(f"rndscale{kind}_mask", "a", str(mode), "a", _every(form), "4")
            return [call] if "avx512f" in has else []
        needed = "avx" if form.all_bits == 256 else "sse4.1"
        return [_call(f"round{kind}{_width(form)}", "a", str(mode))] if needed in has else []

    return rule


def _has_avx_masks(form: Form, has: _Features) -> bool:
    return form.bits in (32, 64) and form.all_bits <= 256 and "avx2" in has


def _load_if(form: Form, has: _Features) -> list[Choice]:
    vector = _vector(form)
    if _has_masks(form, has):
        name = f"load{_MASKED[_key(form)]}{form.all_bits}_mask"
        made = _call(name, "(void *)p", f"({vector}){{0}}", _mask(form))
    elif _has_avx_masks(form, has):
        name = f"maskload{_packed_kind(form)}{_width(form)}"
        made = _call(name, "(void *)p", f"({_vector(form.signed)})m")
    else:
        return []
    return [Choice(made.builtin, f"({form.name}){made.text}")]


def _store_if(form: Form, has: _Features) -> list[Choice]:
    vector = _vector(form)
    if _has_masks(form, has):
        name = f"store{_MASKED[_key(form)]}{form.all_bits}_mask"
        return [_call(name, "(void *)p", f"({vector})a", _mask(form))]
    if _has_avx_masks(form, has):
        name = f"maskstore{_packed_kind(form)}{_width(form)}"
        return [_call(name, "(void *)p", f"({_vector(form.signed)})m", f"({vector})a")]
    return []


def _packed(form: Form, has: _Features) -> list[Choice]:
    if _has_masks(form, has):
        return [Choice(_mask(form).split("(")[0], _mask(form))]
    needed = "avx2" if form.all_bits == 256 else "sse2"
    if form.bits == 8 and form.all_bits <= 256 and needed in has:
        return [_call(f"pmovmskb{form.all_bits}", f"({_vector(form)})m")]
    return []


def _dot_bytes(form: Form, has: _Features) -> list[Choice]:
    """Return vpdpbusd, whose builtin GCC and clang name differently."""
    if {"avx512vnni", "avx512vl"} <= has or ("avxvnni" in has and form.all_bits < 512):
        names = (f"vpdpbusd_v{form.lanes}si", f"vpdpbusd{form.all_bits}")
        return [_call(name, "c", "a", "b") for name in names]
    return []


_X86: dict[tuple[str, str], _Rule] = {
    ("fma", "f"): _floating("vfmadd", "a", "b", "c"),
    ("fast_min", "f"): _floating("min", "a", "b"),
    ("fast_max", "f"): _floating("max", "a", "b"),
    ("sqrt", "f"): _floating("sqrt", "a"),
    ("round", "f"): _rounding(8),
    ("floor", "f"): _rounding(9),
    ("ceil", "f"): _rounding(10),
    ("trunc", "f"): _rounding(11),
    ("packed", "i"): _packed,
    ("dot_bytes", "i"): _dot_bytes,
    **{("load_if", kind): _load_if for kind in "fiu"},
    **{("store_if", kind): _store_if for kind in "fiu"},
}

"""Helper functions of kernels in CUDA C++: a row each, for scalars only.

Rows are as in `targets/c/operations.py`, whose rows for scalar integers apply here too. Arithmetic
of floats is that of loop IR: NVRTC's contraction to fma is disabled.
"""

from __future__ import annotations

from anydim.base.errors import InternalError
from anydim.compiler.targets.c.forms import FLAG, Form
from anydim.compiler.targets.c.operations import SCALARS, Rows, lane_expression, parameters_of
from anydim.compiler.targets.c.prelude import Helper, Prelude
from anydim.compiler.targets.opencl.operations import cast_bits

_ROWS: Rows = {
    ("sqrt", "f"): "__{p}sqrt_rn(a)",  # rounded to nearest, whatever the options are
    ("abs", "f"): "fabs{f}(a)",
    ("floor", "f"): "floor{f}(a)",
    ("ceil", "f"): "ceil{f}(a)",
    ("round", "f"): "rint{f}(a)",
    ("trunc", "f"): "trunc{f}(a)",
    ("fma", "f"): "fma{f}(a, b, c)",
    ("copysign", "f"): "copysign{f}(a, b)",
    ("ones", "u"): "({t})__popcll(a)",
    ("trailing_zeros", "u"): "({t})(a == 0 ? {bits} : __ffsll((long long)a) - 1)",
    ("leading_zeros", "u"): "({t})(__clzll((long long)a) - (64 - {bits}))",
    ("add_overflows", "i"): "((a ^ ({t})(({u})a + ({u})b)) & (b ^ ({t})(({u})a + ({u})b))) < 0",
    ("mul_overflows", "i"): "__mul64hi(a, b) != (({t})(({u})a * ({u})b) >> 63)",
}


def helper(operation: str, form: Form, other: Form | None, prelude: Prelude, space: str) -> Helper:
    """Return the helper function of an operation; raises InternalError if there is none."""
    if form.lanes > 1:
        raise InternalError(f"CUDA has no vectors like {form.name}")
    if operation == "copy_aside":
        return _copy_async(form.bits // 8)
    kind = prelude.type(form)
    if operation.startswith("copy_wide"):
        return _copy_wide(kind, form.bits // 8 * int(operation.removeprefix("copy_wide")))
    if operation == "exchange":
        word = kind if form.bits >= 32 else "unsigned"
        line = f"  return ({kind})__shfl_xor_sync(0xffffffffu, ({word})a, distance);"
        return Helper(kind, (f"{kind} a", "int distance"), (line,))
    if operation == "bits":
        return cast_bits(form, other, prelude, space)
    if operation in _HALVES:
        instruction, have, kinds = _HALVES[operation]
        line = f'  asm("{instruction} %0, %1;" : "={kinds[0]}"(made) : "{kinds[1]}"(a));'
        lines = (f"  {kind} made;", line, "  return made;")
        return Helper(kind, (f"{prelude.type(Form(have))} a",), lines)
    if operation in ("gather", "gather_if"):
        source, offset = f"const {prelude.type(form)} *p", f"{prelude.type(Form('i64'))} i"
        masked = operation == "gather_if"
        parameters = (source, offset, *((f"{prelude.type(Form(FLAG))} m",) if masked else ()))
        return Helper(kind, parameters, (f"  return {'m ? p[i] : 0' if masked else 'p[i]'};",))
    if operation in _FRAGMENTS:
        return _multiply_fragments(_FRAGMENTS[operation], prelude)
    names, parameters = parameters_of(operation, form, prelude)
    text = lane_expression(operation, form, names, prelude, _ROWS, SCALARS)
    if text is None:
        raise InternalError(f"CUDA C++ has no '{operation}' of {form.name}")
    return Helper(kind, parameters, (f"  return {text};",))


# conversions of float16, which is stored as its bits: PTX ISA, "cvt"
_HALVES = {
    "from_half": ("cvt.f32.f16", "u16", "fh"), "to_half": ("cvt.rn.f16.f32", "f32", "hf"),
}  # fmt: skip
# PTX names of the shape of `ir.Fragments` and of its operands' element type
_FRAGMENTS = {
    "multiply_float32": ("m16n8k8", "tf32"), "multiply_float16": ("m16n8k16", "f16"),
    "multiply_bfloat16": ("m16n8k16", "bf16"),
}  # fmt: skip


def _multiply_fragments(instruction: tuple[str, str], prelude: Prelude) -> Helper:
    """Warp-level matrix multiply: PTX ISA, "Multiply-and-accumulate instruction: mma"."""
    shape, kind = instruction
    real, word = prelude.type(Form("f32")), prelude.type(Form("u32"))
    sums, factors = ["c0", "c1", "c2", "c3"], ["a0", "a1", "a2", "a3", "b0", "b1"]
    lines = []
    if kind == "tf32":
        lines.append(f"  {word} {', '.join(f'w{name}' for name in factors)};")
        lines += [
            f'  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(w{name}) : "f"({name}));' for name in factors
        ]
    outs = ", ".join(f'"+f"({name})' for name in sums)
    ins = ", ".join(f'"r"({"w" * (kind == "tf32")}{name})' for name in factors)
    lines.append(
        f'  asm volatile("mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32'
        f' {{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9}}, {{%0,%1,%2,%3}};" : {outs} : {ins});'
    )
    given = [f"{real} &{name}" for name in sums]
    given += [f"{real if kind == 'tf32' else word} {name}" for name in factors]
    return Helper("void", tuple(given), tuple(lines))


# vector types of CUDA C++ by bytes
_WIDE = {2: "unsigned short", 4: "unsigned", 8: "uint2", 16: "uint4"}


def _copy_wide(kind: str, bytes: int) -> Helper:
    """A copy of a few elements by one access of 2 to 16 bytes."""
    given = (f"{kind} *__restrict__ to", f"const {kind} *__restrict__ from")
    wide = _WIDE[bytes]
    return Helper("void", given, (f"  *({wide} *)to = *(const {wide} *)from;",))


def _copy_async(bytes: int) -> Helper:
    """Async copy to shared memory: PTX ISA, "cp.async"; copies of 16 bytes bypass the L1 cache."""
    level = "cg" if bytes == 16 else "ca"
    given = ("void *to", "const void *from", "unsigned valid")
    lines = (
        "  unsigned at = (unsigned)__cvta_generic_to_shared(to);",
        f'  asm volatile("cp.async.{level}.shared.global [%0], [%1], {bytes}, %2;"'
        ' : : "r"(at), "l"(from), "r"(valid) : "memory");',
    )
    return Helper("void", given, lines)

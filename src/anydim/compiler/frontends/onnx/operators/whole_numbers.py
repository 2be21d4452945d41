"""Rows of arithmetic that depends on the element type.

Float operators that the standard also allows on integers and storage types compute in float64 or
float32; the result has the type of the input. Integer division by a size of 0 is guarded.
"""

from __future__ import annotations

from collections.abc import Callable

from anydim.base.dtypes import DType, boolean, float32, float64, int32
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.sizes import as_size, divisor_guard, product


def wide(dtype: DType) -> DType:
    """A float type that represents the numbers of a type, or most of them."""
    return float64 if dtype.is_integer and dtype.bits >= 32 else float32


def as_floats(build: Callable[[OnnxNode, str], str]) -> Callable[[OnnxNode], Result]:
    """A row that computes in floats: converts the first input, and the result back.

    Conversions truncate.
    """

    def row(call: OnnxNode) -> Result:
        dtype = call.type(0).dtype
        if dtype.is_float and not dtype.stored:
            return build(call, call.input(0))
        return call.as_type(build(call, call.as_type(call.input(0), wide(dtype))), dtype)

    return row


def shrink(call: OnnxNode, x: str) -> str:
    return call.emit("shrink", x, lambd=call.attribute("lambd"), bias=call.attribute("bias"))


def as_native(call: OnnxNode) -> str:
    """The first input in a type for IsNaN and IsInf: storage types are converted to float32."""
    dtype = call.type(0).dtype
    return call.as_type(call.input(0), float32) if dtype.stored else call.input(0)


def is_nan(call: OnnxNode) -> Result:
    return call.emit("is_nan", as_native(call))


def is_inf(call: OnnxNode) -> Result:
    return call.emit(
        "is_inf", as_native(call),
        negative=bool(call.attribute("detect_negative", 1)),
        positive=bool(call.attribute("detect_positive", 1)),
    )  # fmt: skip


def gemm(call: OnnxNode) -> Result:
    """Gemm; a c whose sizes may be 1 at run time is added by a broadcasting node."""
    a, b, beta = call.input(0), call.input(1), call.attribute("beta")
    alpha, left, right = call.attribute("alpha"), call.attribute("transA"), call.attribute("transB")
    if call.type(0).dtype.is_integer:
        return _gemm_of_integers(call)
    attributes = {"alpha": alpha, "transpose_a": bool(left), "transpose_b": bool(right)}
    if not call.given(2):
        return call.emit("gemm", a, b, **attributes)
    c = call.input(2)
    if all(size.constant is not None for size in call.shape(2)):
        return call.emit("gemm", a, b, c, beta=beta, **attributes)
    if beta != 1:
        c = call.emit("mul", c, call.number(beta, call.type(2).dtype))
    return call.emit("add", call.emit("gemm", a, b, **attributes), c)


def _gemm_of_integers(call: OnnxNode) -> Result:
    """The product of integers is exact; scaling by alpha and beta is in float64."""
    factors = (call.attribute("alpha"), call.attribute("beta") if call.given(2) else 1.0)
    operands = [
        call.emit("transpose", call.input(position), perm=(1, 0)) if call.attribute(name)
        else call.input(position)
        for position, name in enumerate(("transA", "transB"))
    ]  # fmt: skip
    terms = [call.emit("matmul", *operands), *([call.input(2)] if call.given(2) else [])]
    if factors != (1.0, 1.0):
        terms = [
            call.emit("mul", call.as_type(term, float64), call.number(factor, float64))
            for term, factor in zip(terms, factors)
        ]
    total = terms[0] if len(terms) == 1 else call.emit("add", *terms)
    return call.as_type(total, call.type(0).dtype)


def power(call: OnnxNode) -> Result:
    """Integers to the power of whole floats are exact, up to overflow."""
    base, exponent = call.input(0), call.input(1)
    dtype = call.type(0).dtype
    if not dtype.is_integer or not call.type(1).dtype.is_float:
        return call.emit("pow", base, exponent)
    exponent = call.as_type(exponent, float64)
    floats = call.emit("pow", call.as_type(base, float64), exponent)
    times = call.emit("maximum", exponent, call.number(0, float64))
    exact = call.emit("pow", base, call.emit("cast", times, to=dtype))
    whole = call.emit("equal", times, call.emit("floor", exponent))
    return call.emit("where", whole, exact, call.as_type(floats, dtype))


def bools_as_integers(call: OnnxNode, position: int) -> str:
    """An input of bools as int32; other types are unchanged."""
    value = call.input(position)
    return call.as_type(value, int32) if call.type(position).dtype == boolean else value


def div(call: OnnxNode) -> Result:
    """Div; integers round toward zero."""
    return _divide(call, "div")


def modulo(call: OnnxNode) -> Result:
    return _divide(call, "fmod" if call.attribute("fmod") else "mod")


def _divide(call: OnnxNode, name: str) -> str:
    made = call.binary(name)
    known = call.emitter.known.get(call.input(1))
    if call.kind(made).dtype.is_integer and known is not None:
        count = product(call.kind(made).shape)
        for size in dict.fromkeys(map(as_size, known.array.reshape(-1).tolist())):
            guard = divisor_guard(size, count, call.emitter.box, call.source)
            if guard is not None:
                call.emitter.guard(guard)
    return made

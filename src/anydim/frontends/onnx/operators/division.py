"""Rows of Div and Mod: integers are not divided by a size that is 0."""

from __future__ import annotations

from anydim.frontends.onnx.operators.call import OnnxNode, Result
from anydim.sizes import Guard, Size, as_size, maximum, minimum, product


def div(call: OnnxNode) -> Result:
    """Integers are divided toward zero."""
    return _divided(call, "div")


def modulo(call: OnnxNode) -> Result:
    return _divided(call, "fmod" if call.attribute("fmod") else "mod")


def _divided(call: OnnxNode, name: str) -> str:
    made = call.binary(name)
    known = call.emitter.known.get(call.input(1))
    if call.kind(made).dtype.is_integer and known is not None:
        count = product(call.kind(made).shape)
        for size in dict.fromkeys(map(as_size, known.array.reshape(-1).tolist())):
            _check(call, size, count)
    return made


def _check(call: OnnxNode, divisor: Size, count: Size) -> None:
    """Refuse calls in which some numbers are divided by 0."""
    if call.proved(divisor, "!=", 0):
        return
    distance = divisor if call.proved(divisor, ">=", 0) else maximum(divisor, 0 - divisor)
    message = f"{call.source}: integers are divided by {divisor}, which is 0"
    call.emitter.guard(Guard(minimum(count, 1), "<=", distance, message))

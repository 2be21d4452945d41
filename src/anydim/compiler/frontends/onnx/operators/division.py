"""Rows of Div and Mod, with guards against integer division by a size of 0."""

from __future__ import annotations

from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.sizes import as_size, divisor_guard, product


def div(call: OnnxNode) -> Result:
    """Div; integers round toward zero."""
    return _divided(call, "div")


def modulo(call: OnnxNode) -> Result:
    return _divided(call, "fmod" if call.attribute("fmod") else "mod")


def _divided(call: OnnxNode, name: str) -> str:
    made = call.binary(name)
    known = call.emitter.known.get(call.input(1))
    if call.kind(made).dtype.is_integer and known is not None:
        count = product(call.kind(made).shape)
        for size in dict.fromkeys(map(as_size, known.array.reshape(-1).tolist())):
            guard = divisor_guard(size, count, call.emitter.box, call.source)
            if guard is not None:
                call.emitter.guard(guard)
    return made

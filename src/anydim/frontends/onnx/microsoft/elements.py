"""Element work: activations with the bias before them."""

from __future__ import annotations

from anydim.frontends.onnx.microsoft.record import Row, row
from anydim.frontends.onnx.operators.call import OnnxNode, Result


def biased(call: OnnxNode) -> str:
    """The first input, with the second added where it is given."""
    return call.emit("add", call.input(0), call.input(1)) if call.given(1) else call.input(0)


def gelu(call: OnnxNode) -> Result:
    return call.emit("gelu", biased(call))


def fast_gelu(call: OnnxNode) -> Result:
    return call.emit("gelu_tanh", biased(call))


def quick_gelu(call: OnnxNode) -> Result:
    return call.emit("swish", call.input(0), alpha=call.attribute("alpha"))


ROWS: dict[str, Row] = {
    "BiasGelu": row(gelu, "A B -> C"),
    "FastGelu": row(fast_gelu, "X bias? -> Y"),
    "Gelu": row(gelu, "X -> Y"),
    "QuickGelu": row(quick_gelu, "X -> Y", alpha=1.702),
}

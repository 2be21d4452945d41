"""Rows of ONNX operators on signals: DFT, STFT, MelWeightMatrix."""

from __future__ import annotations

from collections.abc import Callable

from anydim.compiler.frontends.onnx.file.tensors import Unsupported, element_type
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.sizes import Size


def fourier_transform(call: OnnxNode) -> Result:
    """DFT; the axis is an attribute before opset 20, an input since."""
    inverse = bool(call.attribute("inverse"))
    axis = call.attribute("axis") if call.opset < 20 else -2
    if call.opset >= 20 and call.given(2):
        axis = call.size(2).constant
    if axis is None:
        raise Unsupported("an axis that depends on a dim")
    call.axis(axis)
    onesided = bool(call.attribute("onesided"))
    length = call.shape(0)[axis]
    if inverse and onesided:
        length = 2 * (length - 1)
    if call.given(1):
        length = call.size(1)
    return call.emit(
        "dft", call.input(0), length=length, axis=axis, inverse=inverse, onesided=onesided
    )


def short_time_transform(call: OnnxNode) -> Result:
    length: Size = call.shape(2)[0] if call.given(2) else call.shape(0)[1]
    if call.given(3):
        length = call.size(3)
    signal = call.input(0)
    if call.type(0).rank == 2:  # real signals may lack the axis of real and imaginary parts
        signal = call.emit("unsqueeze", signal, axes=(2,))
    return call.emit(
        "stft", signal, *call.given_inputs(2), step=call.size(1), length=length,
        onesided=bool(call.attribute("onesided")),
    )  # fmt: skip


def mel_weights(call: OnnxNode) -> Result:
    return call.emit(
        "mel_weights", call.input(2), call.input(3), call.input(4), bins=call.size(0),
        length=call.size(1), dtype=element_type(call.attribute("output_datatype")),
    )  # fmt: skip


def window(*weights: float) -> Callable[[OnnxNode], Result]:
    """A window that is a sum of cosines with these weights."""

    def build(call: OnnxNode) -> Result:
        return call.emit(
            "cosine_window", size=call.size(0), weights=weights,
            periodic=bool(call.attribute("periodic")),
            dtype=element_type(call.attribute("output_datatype")),
        )  # fmt: skip

    return build

"""Recurrent layers with weights of bytes."""

from __future__ import annotations

from anydim.base.dtypes import float32
from anydim.compiler.frontends.onnx.microsoft.record import Row, row
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.quantised import dynamic_bytes
from anydim.compiler.frontends.onnx.operators.recurrent import recurrent


def dynamic_lstm(call: OnnxNode) -> list[Result]:
    """The standard's LSTM with dynamically quantised input and states.

    Weights are [directions, input, 4 * hidden], scales and zero points one per direction or one per
    direction and column.
    """
    x, x_scale, x_zero = dynamic_bytes(call, call.input(0))
    w_scale, w_zero, r_scale, r_zero = (_columns(call, number) for number in range(8, 12))

    def first(call: OnnxNode, direction: int) -> list[str]:
        w, scale, zero = (_at(call, name, direction) for name in (call.input(1), w_scale, w_zero))
        sums = call.emit("cast", call.emit("matmul_integer", x, w, x_zero, zero), to=float32)
        gates = call.emit("mul", sums, call.emit("mul", x_scale, scale))
        return [gates, call.input(2), r_scale, r_zero]

    return recurrent("lstm", first, dynamic=True)(call)


def _columns(call: OnnxNode, number: int) -> str:
    """A scale or zero point for each direction and column."""
    name, weights = call.input(number), call.shape(1)
    if call.type(number).rank == 1:
        name = call.emit("unsqueeze", name, axes=(1,))
    return call.emit("expand", name, shape=(weights[0], weights[2]))


def _at(call: OnnxNode, name: str, direction: int) -> str:
    """The part of a tensor for a direction."""
    kind = call.kind(name)
    part = call.emit("slice", name, starts=(direction,), ends=(direction + 1,), axes=(0,))
    return call.emit("reshape", part, shape=kind.shape[1:])


ROWS: dict[str, Row] = {
    "DynamicQuantizeLSTM": row(
        dynamic_lstm,
        "X W R B? sequence_lens? initial_h? initial_c? P? W_scale W_zero_point R_scale"
        " R_zero_point -> Y? Y_h? Y_c?",
        types=("float",),
        activations=(str,), activation_alpha=(float,), activation_beta=(float,), clip=float,
        direction="forward", hidden_size=int, input_forget=0),
}  # fmt: skip

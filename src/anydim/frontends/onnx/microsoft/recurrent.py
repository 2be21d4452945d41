"""Recurrent layers whose weights are bytes."""

from __future__ import annotations

from dataclasses import replace

from anydim.base.dtypes import float32
from anydim.frontends.onnx.microsoft.record import Row, row
from anydim.frontends.onnx.operators.call import OnnxNode, Result
from anydim.frontends.onnx.operators.quantised import dynamic_bytes
from anydim.frontends.onnx.operators.recurrent import recurrent


def dynamic_lstm(call: OnnxNode) -> list[Result]:
    """The standard's LSTM of an input that is quantised as a whole.

    Weights are [directions, input, 4 * hidden], scales and zero points one per direction or one
    per direction and column. States stay float32 from one iteration to the next.
    """
    x = call.emit("dequantize", *dynamic_bytes(call, call.input(0)), to=float32)
    w, r = (_weights(call, tensor, scale) for tensor, scale in ((1, 8), (2, 10)))
    own = replace(call, inputs=(x, w, r, *call.inputs[3:8]))
    return recurrent("lstm")(own)


def _weights(call: OnnxNode, tensor: int, scale: int) -> str:
    """Weights as the standard has them: float32 [directions, 4 * hidden, input]."""
    wide = []
    for value in (call.input(scale), call.input(scale + 1)):
        axes = (1, 2) if call.kind(value).rank == 1 else (1,)
        wide.append(call.emit("unsqueeze", value, axes=axes))
    q, zero = (call.emit("cast", value, to=float32) for value in (call.input(tensor), wide[1]))
    made = call.emit("mul", call.emit("sub", q, zero), wide[0])
    return call.emit("transpose", made, perm=(0, 2, 1))


ROWS: dict[str, Row] = {
    "DynamicQuantizeLSTM": row(
        dynamic_lstm,
        "X W R B? sequence_lens? initial_h? initial_c? P? W_scale W_zero_point R_scale"
        " R_zero_point -> Y? Y_h? Y_c?",
        types=("float",), limits="the state is not quantised between iterations",
        activations=(str,), activation_alpha=(float,), activation_beta=(float,), clip=float,
        direction="forward", hidden_size=int, input_forget=0),
}  # fmt: skip

"""TC texts of the signal operators other than transforms: mel weights and windows."""

from __future__ import annotations

from anydim.base.errors import GraphError
from anydim.compiler.graph.operator import Attributes, Types, Written
from anydim.compiler.ops.writing import definition, expect_inputs
from anydim.sizes import Box, as_size


def mel_weights(types: Types, attributes: Attributes, box: Box) -> Written:
    """Triangular filters that sum the frequencies of a `length`-point DFT into `bins` mel bands.

    The inputs are scalars: the sample rate, the lower and the upper edge in hertz.
    """
    expect_inputs("mel_weights", types, 3, 3)
    if any(kind.rank for kind in types):
        raise GraphError("operator 'mel_weights': its inputs must be scalars")
    kind = attributes["dtype"]
    mel = "2595.0 * log1p(cast<double>({0}) / 700.0) / 2.302585092994046"
    statements = [
        f"low = {mel.format('lower')}",
        f"span = ({mel.format('upper')} - low) / cast<double>(M + 2)",
        "hertz(i) = 700.0 * expm1((low + cast<double>(i) * span) / 2595.0 * 2.302585092994046)"
        " where i in 0:M + 2",
        "e(i) = cast<int64>(floor(cast<double>(L + 1) * hertz(i) / cast<double>(rate)))",
        "rise(j,i) = cast<double>(j - e(i)) / cast<double>(max(e(i + 1) - e(i), 1))"
        " where j in 0:L // 2 + 1, i in 0:M",
        "fall(j,i) = cast<double>(e(i + 2) - j) / cast<double>(max(e(i + 2) - e(i + 1), 1))"
        " where j in 0:L // 2 + 1, i in 0:M",
        "before(j,i) = e(i) == e(i + 1) ? (j == e(i) ? 1.0 : 0.0) : (j >= e(i) && j <= e(i + 1)"
        " ? rise(j,i) : 0.0) where j in 0:L // 2 + 1, i in 0:M",
        f"y(j,i) = cast<{kind}>(j >= e(i + 1) && j < e(i + 2) ? fall(j,i) : before(j,i))"
        " where j in 0:L // 2 + 1, i in 0:M",
    ]
    parameters = ["R rate", "F lower", "F upper"]
    text = definition("mel_weights", parameters, statements, ["size M", "size L"])
    return Written(text, {"M": as_size(attributes["bins"]), "L": as_size(attributes["length"])})


def cosine_window(types: Types, attributes: Attributes, box: Box) -> Written:
    """a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n) for i < `size`; n is the size, or size - 1.

    With `periodic` n is the size. A symmetric window of one element is NaN: 0 / 0 in the standard's
    function, and in onnxruntime.
    """
    expect_inputs("cosine_window", types, 0, 0)
    size, kind = as_size(attributes["size"]), attributes["dtype"]
    weights = tuple(map(float, attributes["weights"]))
    if len(weights) != 3:
        raise GraphError(f"operator 'cosine_window': {len(weights)} weights, expected 3")
    first, second, third = weights
    period = size if attributes["periodic"] else size - 1
    angle = "cast<double>(i) * 6.283185307179586 / cast<double>(P)"
    value = f"{first!r} - {second!r} * cos({angle}) + {third!r} * cos(2.0 * {angle})"
    body = f"y(i) = cast<{kind}>({value}) where i in 0:S"
    text = definition("cosine_window", [], [body], ["size S", "size P"])
    return Written(text, {"S": size, "P": period})

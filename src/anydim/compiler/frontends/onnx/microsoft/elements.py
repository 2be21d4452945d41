"""Elementwise operators: activations with a bias, sums, products of complex numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydim.base.dtypes import boolean
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.microsoft.record import Required, Row, row
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result


def add_given(call: OnnxNode, total: str, *positions: int) -> str:
    """The sum of a value and those of some inputs that are given, in this order."""
    for value in call.given_inputs(*positions):
        total = call.emit("add", total, value)
    return total


def sum_inputs(call: OnnxNode, *positions: int) -> str:
    """The sum of the first input and the given ones of `positions`, in this order."""
    return add_given(call, call.input(0), *positions)


def gelu(call: OnnxNode) -> Result:
    return call.emit("gelu", sum_inputs(call, 1))


def fast_gelu(call: OnnxNode) -> Result:
    return call.emit("gelu_tanh", sum_inputs(call, 1))


def gemm_fast_gelu(call: OnnxNode) -> Result:
    made = call.emit("matmul", call.input(0), call.input(1))
    return call.emit("gelu_tanh", add_given(call, made, 2))


def quick_gelu(call: OnnxNode) -> Result:
    return call.emit("swish", call.input(0), alpha=call.attribute("alpha"))


def bias_add(call: OnnxNode) -> Result:
    return sum_inputs(call, 1, 2)


def bias_split_gelu(call: OnnxNode) -> Result:
    """The first half of each row times gelu of the second."""
    made = sum_inputs(call, 1)
    half = call.kind(made).shape[-1] // 2
    left, right = call.emit_many("split", 2, made, axis=-1, sizes=(half, half))
    return call.emit("mul", left, call.emit("gelu", right))


def bias_softmax(call: OnnxNode) -> Result:
    """Softmax over all axes from `axis` on, as if flattened."""
    axes = tuple(range(call.axis(call.attribute("axis")), call.type(0).rank))
    return call.emit("softmax", sum_inputs(call, 1), axis=axes[0] if len(axes) == 1 else axes)


def _not_training(call: OnnxNode, position: int) -> None:
    if call.given(position) and call.known(position).any():
        raise Unsupported("training")


def bias_dropout(call: OnnxNode) -> Sequence[Result]:
    """Data plus bias plus residual; without training nothing is dropped."""
    _not_training(call, 4)
    mask = call.emit("fill", shape=call.shape(0), value=True, dtype=boolean)
    return [sum_inputs(call, 1, 2), mask]


def bitmask_dropout(call: OnnxNode) -> Result:
    _not_training(call, 2)
    if any(call.outputs[1:]):
        raise Unsupported("its result mask")
    return call.held(0)


def complex_product(conjugate: bool) -> Callable[[OnnxNode], Result]:
    """Products of complex numbers: pairs of real and imaginary parts along the last axis."""

    def build(call: OnnxNode) -> Result:
        parts = []
        for position in range(2):
            if call.shape(position)[-1].constant != 2:
                raise Unsupported(f"complex numbers of type {call.type(position)}")
            parts += call.emit_many("split", 2, call.input(position), axis=-1, sizes=(1, 1))
        a, b, c, d = parts
        signs = ("add", "sub") if conjugate else ("sub", "add")
        products = ((a, c, b, d), (b, c, a, d))
        components = [
            call.emit(sign, call.emit("mul", p, q), call.emit("mul", r, s))
            for sign, (p, q, r, s) in zip(signs, products)
        ]
        return call.emit("concat", *components, axis=-1)

    return build


ROWS: dict[str, Row] = {
    "BiasAdd": row(bias_add, "X bias skip -> Y"),
    "BiasDropout": row(
        bias_dropout, "data bias residual? ratio? training_mode? -> output mask?", seed=int,
        limits="not in training"),
    "BiasGelu": row(gelu, "A B -> C"),
    "BiasSoftmax": row(bias_softmax, "data bias -> output", axis=1,
                       is_inner_broadcast=Required(int)),
    "BiasSplitGelu": row(bias_split_gelu, "X bias -> Y"),
    "BitmaskDropout": row(
        bitmask_dropout, "data ratio? training_mode? -> output mask?", seed=int,
        limits="not in training, no mask"),
    "ComplexMul": row(complex_product(False), "A B -> C"),
    "ComplexMulConj": row(complex_product(True), "A B -> C"),
    "FastGelu": row(fast_gelu, "X bias? -> Y"),
    "Gelu": row(gelu, "X -> Y"),
    "GemmFastGelu": row(gemm_fast_gelu, "X W bias? -> Y"),
    "QuickGelu": row(quick_gelu, "X -> Y", alpha=1.702),
    "SampleOp": row(lambda call: call.held(0), "X -> Y"),
}  # fmt: skip

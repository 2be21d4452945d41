"""Rows of normalisations.

Scales and statistics may differ in type from x: the computation uses the widest of the types, at
least float32 if they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anydim.base.dtypes import DType, bfloat16, float32, float64
from anydim.compiler.frontends.onnx.file.tensors import Unsupported, element_type
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result

_MVN_EPSILON = 1e-9


def working(dtype: DType) -> DType:
    """The type in which numbers of a type are normalised."""
    return float32 if dtype.bits < 32 else dtype


def common(dtypes: Iterable[DType]) -> DType:
    """The common type of several float types."""
    found = set(dtypes)
    if len(found) == 1:
        return found.pop()
    return float64 if float64 in found else float32


def batch_norm(call: OnnxNode) -> Result | Sequence[Result]:
    """In training mode the statistics are those of x, and the running ones are updated."""
    training = not call.attribute("is_test") if call.opset < 7 else call.attribute("training_mode")
    epsilon, dtype = call.attribute("epsilon"), call.type(0).dtype
    work = common(call.type(position).dtype for position in range(5))
    given = [call.as_type(call.input(position), work) for position in range(5)]
    if not training and not any(call.outputs[1:]):
        return call.as_type(call.emit("batch_norm", *given, epsilon=epsilon), dtype)
    if call.opset < 14:
        raise Unsupported("batch normalisation in training mode before opset 14")
    x, axes = given[0], (0, *range(2, call.type(0).rank))
    mean = call.emit("reduce_mean", x, axes=axes)
    centered = call.emit("sub", x, call.emit("reduce_mean", x, axes=axes, keepdims=True))
    variance = call.emit("reduce_mean", call.emit("mul", centered, centered), axes=axes)
    made = call.emit("batch_norm", *given[:3], mean, variance, epsilon=epsilon)
    results = [call.as_type(made, dtype)]
    for position, found in ((3, mean), (4, variance)):
        own, momentum = call.type(position).dtype, call.attribute("momentum")
        kept = call.emit("mul", call.input(position), call.number(momentum, own))
        moved = call.emit("mul", call.as_type(found, own), call.number(1 - momentum, own))
        results.append(call.emit("add", kept, moved))
    return results


def layer_norm(call: OnnxNode) -> Sequence[Result]:
    """The statistics have the type `stash_type`, independent of x."""
    statistics = any(call.outputs[1:])
    inputs = call.given_inputs(0, 1, 2)
    dtype = call.type(0).dtype
    wide = statistics and dtype == bfloat16
    made = call.emit_many(
        "layer_norm", 3 if statistics else 1,
        *(call.as_type(value, float32) if wide else value for value in inputs),
        axis=call.attribute("axis"), epsilon=call.attribute("epsilon"), statistics=statistics,
    )  # fmt: skip
    stash = element_type(call.attribute("stash_type", 1)) if statistics else dtype
    rest = [call.as_type(value, stash) for value in made[1:]]
    return [call.as_type(made[0], dtype), *rest]


def rms_norm(call: OnnxNode) -> Sequence[Result]:
    """x over the root of the mean of its squares, along the axes from `axis` on; 1 / the root."""
    axes = range(call.axis(call.attribute("axis", -1)), call.type(0).rank)
    return root_mean_square(call, call.input(0), call.input(1), axes, call.type(1).dtype)


def root_mean_square(
    call: OnnxNode, value: str, scale: str, axes: Sequence[int], to: DType
) -> tuple[str, str]:
    """x / root(mean of squares + epsilon) * scale as `to`; and the reciprocal of the root."""
    work = working(call.kind(value).dtype)
    x = call.as_type(value, work)
    square = call.emit("reduce_mean", call.emit("mul", x, x), axes=tuple(axes), keepdims=True)
    moved = call.emit("add", square, call.number(call.attribute("epsilon"), work))
    inverse = call.emit("reciprocal", call.emit("sqrt", moved))
    scaled = call.as_type(call.emit("mul", x, inverse), to)
    return call.emit("mul", scaled, call.as_type(scale, to)), inverse


def mean_variance_norm(call: OnnxNode) -> Result:
    """(x - mean) / deviation, along some axes."""
    axes, dtype = tuple(call.attribute("axes")), call.type(0).dtype
    if not all(-call.type(0).rank <= axis < call.type(0).rank for axis in axes):
        raise Unsupported(f"axes {axes} of a tensor with {call.type(0).rank} axes")
    x = call.as_type(call.input(0), working(dtype))
    work = call.kind(x).dtype
    mean = call.emit("reduce_mean", x, axes=axes, keepdims=True)
    centered = call.emit("sub", x, mean)
    square = call.emit(
        "reduce_mean", call.emit("mul", centered, centered), axes=axes, keepdims=True
    )
    deviation = call.emit("add", call.emit("sqrt", square), call.number(_MVN_EPSILON, work))
    return call.as_type(call.emit("div", centered, deviation), dtype)

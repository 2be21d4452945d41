"""Rows of ONNX operators with random numbers. A node without a seed gets one from its name.

The numbers of a node are the same in every call; `ops/random.py` has the generator.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

from anydim.base.dtypes import DType, boolean, float32, int32
from anydim.compiler.frontends.onnx.file.tensors import Unsupported, element_type
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.sizes import Size, as_size


def _seed(call: OnnxNode) -> int:
    given = call.attribute("seed")
    if given is None:
        return crc32(call.source.encode())
    return int(given) if float(given).is_integer() else crc32(struct.pack("<f", given))


def _distribution(call: OnnxNode, name: str) -> dict[str, Any]:
    if name == "random_uniform":
        return {"low": call.attribute("low"), "high": call.attribute("high")}
    return {"mean": call.attribute("mean"), "scale": call.attribute("scale")}


def random(name: str) -> Callable[[OnnxNode], Result]:
    """RandomUniform and RandomNormal of an attribute's shape, or of the input's, by name."""

    def build(call: OnnxNode) -> Result:
        shape = call.shape(0) if call.inputs else tuple(map(as_size, call.attribute("shape")))
        return call.emit(
            name, shape=shape, dtype=_dtype(call), seed=_seed(call), **_distribution(call, name)
        )

    return build


def _dtype(call: OnnxNode) -> DType:
    """The type of the attribute, else that of the input."""
    wanted = call.attribute("dtype")
    return call.type(0).dtype if wanted is None else element_type(wanted)


def bernoulli(call: OnnxNode) -> Result:
    """1 with the probability in each element, else 0."""
    hit = call.emit("less", _unit(call, call.shape(0), call.type(0).dtype), call.input(0))
    return call.as_type(hit, _dtype(call))


def multinomial(call: OnnxNode) -> Result:
    """Inverse transform sampling: the number of cumulative shares not above a uniform number."""
    count = as_size(call.attribute("sample_size"))
    rows, classes = call.shape(0)
    shares = call.emit("softmax", call.emit("cast", call.input(0), to=float32), axis=1)
    sums = call.emit("cum_sum", shares, axis=1)
    drawn = call.emit("unsqueeze", _unit(call, (rows, count), float32), axes=(2,))
    above = call.emit("greater_equal", drawn, call.emit("unsqueeze", sums, axes=(1,)))
    numbers = call.emit("cast", above, to=int32)
    found = call.emit("reduce_sum", numbers, axes=(2,), keepdims=False)
    chosen = call.emit("minimum", found, call.size_tensor(classes - 1, int32))
    return call.as_type(chosen, element_type(call.attribute("dtype")))


def dropout(call: OnnxNode) -> Sequence[Result]:
    """In training mode, keep elements with probability 1 - ratio and scale them by its inverse."""
    value, dtype = call.input(0), call.type(0).dtype
    if call.opset < 7 and not call.attribute("is_test"):
        raise Unsupported("dropout in training mode before opset 7")
    training = call.given(2)
    if training and call.input(2) in call.emitter.known:
        training = bool(call.known(2).any())
    if not training:
        kind = boolean if call.opset >= 10 else dtype
        mask = call.emit(
            "fill", shape=call.shape(0), value=True if kind == boolean else 1, dtype=kind
        )
        return [value, mask] if len(call.outputs) > 1 else [value]
    ratio = call.input(1) if call.given(1) else call.number(0.5, dtype)
    if call.emitter.types[ratio].rank:
        raise Unsupported("a ratio with axes")
    drawn = _unit(call, call.shape(0), float32)
    kept = call.emit("greater_equal", drawn, call.as_type(ratio, float32))
    work = float32 if dtype.stored else dtype
    scale = call.emit("sub", call.number(1, work), call.as_type(ratio, work))
    scaled = call.emit("div", call.as_type(value, work), scale)
    dropped = call.emit("where", kept, call.as_type(scaled, dtype), call.number(0, dtype))
    if call.input(2) in call.emitter.known:
        return [dropped, kept]
    flag = call.input(2)
    whole = call.emit("logical_not", flag)
    return [call.emit("where", flag, dropped, value), call.emit("logical_or", kept, whole)]


def _unit(call: OnnxNode, shape: Sequence[Size], dtype: DType) -> str:
    """Uniform numbers in 0..1."""
    return call.emit("random_uniform", shape=tuple(shape), dtype=dtype, seed=_seed(call))

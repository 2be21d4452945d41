"""Cases of the operators over small numbers; references compute in float64 and int64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from anydim.base.dtypes import float8_e4m3fn, float32, int4, int8, int16, uint8
from tests.ops.case import Case, case
from tests.ops.window_cases import convolved


def rounded(values: Any, zero: Any, low: int, high: int) -> Any:
    return np.clip(np.rint(values) + zero, low, high)


def quantized(low: int, high: int, shape: Any = ()) -> Any:
    """The reference of a quantisation whose scale and zero stand along `shape`."""

    def reference(x: Any, scale: Any, zero: Any = 0) -> Any:
        scale, zero = (np.reshape(v, shape) if shape else v for v in (scale, zero))
        ratio = np.float32(x) / np.float32(scale)
        return rounded(ratio, np.asarray(zero).astype(np.int64), low, high)

    return reference


def dequantized(shape: Any = ()) -> Any:
    def reference(x: Any, scale: Any, zero: Any = 0) -> Any:
        scale, zero = (np.reshape(v, shape) if shape else v for v in (scale, zero))
        return (x.astype(np.int64) - np.asarray(zero).astype(np.int64)) * scale

    return reference


def saturated(x: Any) -> Any:
    return np.clip(x, -448, 448).astype(np.float32).astype(ml_dtypes.float8_e4m3fn)


def whole(x: Any) -> Any:
    return np.asarray(x).astype(np.int64)


def products(a: Any, b: Any, left: Any, right: Any) -> Any:
    return (whole(a) - whole(left)) @ (whole(b) - whole(right))


def convolution(**attributes: Any) -> Any:
    def reference(x: Any, w: Any, x_zero: Any, w_zero: Any) -> Any:
        zeros = np.reshape(whole(w_zero), (-1, *[1] * (w.ndim - 1)))
        return convolved(whole(x) - whole(x_zero), whole(w) - zeros, **attributes)

    return reference


def repeated(x: Any, times: int, size: int) -> Any:
    """Scales of blocks, one for each place of the last axis."""
    return np.repeat(x, times, -1)[..., :size]


def fields(x: Any, bits: int) -> Any:
    """What lies in bytes, the low bits first."""
    single = np.unpackbits(x.astype(np.uint8)[..., None], axis=-1, bitorder="little")
    groups = single.reshape(*x.shape[:-1], 8 // bits * x.shape[-1], bits).astype(np.int64)
    return (groups << np.arange(bits)).sum(-1)


CASES: dict[str, list[Case]] = {
    "cast_saturated": [
        case("float32[n, 3]", to_type=float8_e4m3fn, to=lambda x: saturated(x)),
        case("float64[n]", to_type=float8_e4m3fn, to=lambda x: saturated(x)),
        case("bfloat16[m]", to_type=float8_e4m3fn, to=lambda x: saturated(x)),
        case("int32[m]", to_type=float8_e4m3fn, high=900, to=lambda x: saturated(x)),
    ],
    "cast_exponent": [
        case("float32[n, 3]", to=lambda x: 2.0 ** np.ceil(np.log2(abs(x)))),
        case("float32[n]", rounding="down", to=lambda x: 2.0 ** np.floor(np.log2(abs(x)))),
        case("float16[m]", rounding="nearest", saturate=False,
             to=lambda x: 2.0 ** np.floor(np.log2(abs(x) / 0.75))),
    ],
    "bit_cast": [
        case("int32[n, 3]", to_type=float32, to=lambda x: x.view(np.float32)),
        case("float16[m]", to_type=int16,
             to=lambda x: x.astype(np.float16).view(np.int16)),
        case("bool[m]", to_type=uint8, to=lambda x: x.astype(np.uint8)),
    ],
    "quantize": [
        case("float32[n, 3]", "float32[]", "uint8[]", to=quantized(0, 255), to_type=uint8),
        case("float32[n, 3]", "float32[]", to=quantized(-128, 127), to_type=int8),
        case("float32[n, 3, m]", "float32[3]", "int8[3]", low=-5,
             to=quantized(-128, 127, (3, 1)), to_type=int8),
        case("float32[n, m]", "float32[m]", "int4[m]", high=5,
             to=quantized(-8, 7), to_type=int4, axis=-1),
        case("float32[n, 5]", "float32[n, 3]", axis=1, block=2, to_type=uint8,
             to=lambda x, s: quantized(0, 255)(x, repeated(s, 2, 5))),
        case("float32[n]", "float32[]", to_type=float8_e4m3fn,
             to=lambda x, s: saturated(np.float32(x) / np.float32(s))),
    ],
    "dequantize": [
        case("uint8[n, 3]", "float32[]", "uint8[]", high=255, to=dequantized()),
        case("int8[n, 3, m]", "float32[3]", "int8[3]", low=-128, high=128, to=dequantized((3, 1))),
        case("int4[n, m]", "float32[m]", low=-8, high=8, axis=1, to=dequantized()),
        case("uint2[n, 5]", "float32[n, 2]", "uint2[n, 2]", high=4, axis=1, block=3,
             to=lambda x, s, z: dequantized()(x, repeated(s, 3, 5), repeated(z, 3, 5))),
        case("int32[n]", "float32[]", high=10**6, to=dequantized()),
        case("float8_e5m2[n, m]", "float32[]", to=lambda x, s: x * s),
    ],
    "requantize": [
        case("int32[n, 3]", "float32[3]", "uint8[]", low=-300, high=300, to_type=uint8,
             to=lambda t, s, z: rounded(np.float32(t) * np.float32(s), z, 0, 255)),
    ],
    "unpack_bits": [
        case("uint8[n, m]", high=256, bits=4, to=lambda x: fields(x, 4)),
        case("uint8[m]", high=256, bits=2, to=lambda x: fields(x, 2)),
        case("uint8[n, 2, 3]", high=256, bits=1, to=lambda x: fields(x, 1)),
    ],
    "matmul_integer": [
        case("uint8[n, 3]", "int8[3, m]", "uint8[]", "int8[]", high=100, to=products),
        case("int8[n, 3]", "int8[3, m]", "int8[n]", "int8[m]", low=-128, high=128,
             to=lambda a, b, left, right: products(a, b, left[:, None], right)),
        case("uint8[n, m, 3]", "uint8[3, 2]", "uint8[n, m, 1]", "uint8[]", high=255, to=products),
        case("uint8[n, 2, m]", "int8[n, m, 3]", "uint8[]", "int8[n, 1, 3]", high=100, to=products),
        case("uint8[3]", "uint8[3, m]", "uint8[]", "uint8[m]", to=products),
    ],
    "conv_integer": [
        case("uint8[n, 2, m]", "int8[3, 2, 2]", "uint8[]", "int8[]", high=100,
             pads=(1, 0), to=convolution(pads=(1, 0))),
        case("uint8[2, 4, n, m]", "uint8[6, 2, 2, 3]", "uint8[]", "uint8[6]", high=255,
             groups=2, strides=(2, 1), pads=(1, 1, 0, 1),
             to=convolution(groups=2, strides=(2, 1), pads=(1, 1, 0, 1))),
    ],
}  # fmt: skip

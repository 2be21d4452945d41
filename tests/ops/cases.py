"""For every operator of the library: inputs over dims n and m, and what numpy says it means."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from anydim.base.dtypes import boolean, float32, int32, int64
from anydim.sizes import as_size
from tests.ops import (
    quantisation_cases,
    recurrent_cases,
    scatter_cases,
    standard_cases,
    window_cases,
)
from tests.ops.case import Case, case, sized
from tests.ops.routine_cases import CASES as ROUTINE_CASES

N, M = as_size("n"), as_size("m")
FAR = 1 << 62


def unary(function: Callable[[Any], Any], dtype: str = "float32") -> list[Case]:
    return [case(f"{dtype}[n, 3]", to=function), case(f"{dtype}[]", to=function)]


def scalar(function: Callable[[float], float]) -> list[Case]:
    return unary(np.vectorize(function, otypes=[np.float64]))


def binary(function: Callable[[Any, Any], Any], dtype: str = "float32", low: int = 0) -> list[Case]:
    kinds = f"{dtype}[n, 3]", f"{dtype}[m, 1, 3]", f"{dtype}[1, 3]", f"{dtype}[]"
    pairs = [(0, 0), (0, 2), (3, 0), (1, 0), (0, 1)]
    return [case(kinds[a], kinds[b], to=function, low=low) for a, b in pairs]


def reduced(function: Callable[..., Any]) -> list[Case]:
    return [
        case("float32[n, 3, m]", to=lambda x: function(x, (0, 2)), axes=(0, 2)),
        case("float32[n, m]", to=lambda x: function(x, (1,))[:, None], axes=(-1,), keepdims=True),
        case("float32[n, 3]", to=lambda x: function(x, (0, 1))),
        case("float32[n]", to=lambda x: function(x[None], (0,)), axes=()),
    ]


def softmax(x: Any, axes: Any) -> Any:
    e = np.exp(x - x.max(axes, keepdims=True, initial=-np.inf))
    return e / e.sum(axes, keepdims=True)


def normalised(x: Any, scale: Any = 1, bias: Any = 0, axes: Any = -1, epsilon: float = 1e-5) -> Any:
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon) * scale + bias


def local_response(x: Any, low: int, high: int, alpha: float, beta: float, bias: float) -> Any:
    """`low` neighbours before each channel and `high` after it."""
    wide = np.pad(x * x, [(0, 0), (low, high), *[(0, 0)] * (x.ndim - 2)])
    count, channels = low + high + 1, x.shape[1]
    total = sum((wide[:, k : k + channels] for k in range(count)), np.zeros_like(x))
    return x / (bias + alpha * total / count) ** beta


def taken(x: Any, indices: Any, axis: int) -> Any:
    return np.take(x, indices.astype(int), axis)


def truncated(a: Any, b: Any) -> Any:
    return np.trunc(a / b)


def erf(x: float) -> float:
    return math.erf(x)


def log_sum_exp(x: Any, axes: Any) -> Any:
    return np.log(np.exp(x).sum(axes))


def cast_cases() -> list[Case]:
    return [
        case("float32[n, 2]", to=np.trunc, to_type=int64),
        case("int64[n]", to=lambda x: x != 0, to_type=boolean, low=-1, high=2),
        case("bool[n]", to=lambda x: x.astype(np.float32), to_type=float32),
        case("int64[n]", to=lambda x: x.astype(np.float32), to_type=float32),
    ]


CASES: dict[str, list[Case]] = {
    # arithmetic
    "add": binary(np.add), "sub": binary(np.subtract), "mul": binary(np.multiply),
    "div": [*binary(lambda a, b: a / b), case("int32[n]", "int32[n]", to=truncated, low=1)],
    "floor_div": [case("int32[n]", "int32[1]", to=np.floor_divide, low=1)],
    "mod": [case("int32[n]", "int32[1]", to=np.mod, low=1), *binary(np.mod)],
    "fmod": [case("int32[n]", "int32[1]", to=np.fmod, low=1), *binary(np.fmod)],
    "maximum": binary(np.maximum), "minimum": binary(np.minimum),
    "clip": [case("float32[n, 3]", "float32[]", "float32[]",
                  to=lambda x, a, b: np.minimum(np.maximum(x, a), b))],
    "neg": [*unary(np.negative), *unary(np.negative, "int32")],
    "abs": [*unary(np.abs), case("int64[n]", to=np.abs, low=-9)],
    "sign": [*unary(np.sign), case("int64[n]", to=np.sign, low=-9)],
    "reciprocal": unary(np.reciprocal), "identity": unary(lambda x: x),
    "cast": cast_cases(),
    "pow": [*binary(np.power), case("float32[n]", "int32[n]", to=np.power, high=4),
            case("int32[n]", "int32[n]", to=np.power, high=4),
            case("int32[n]", "float32[1]", to=lambda a, b: np.trunc(np.power(a, b)), low=1)],
    # functions
    "exp": unary(np.exp), "log": unary(np.log), "sqrt": unary(np.sqrt), "erf": scalar(erf),
    "tanh": unary(np.tanh), "sin": unary(np.sin), "cos": unary(np.cos), "tan": unary(np.tan),
    "asin": unary(np.arcsin), "acos": unary(np.arccos), "atan": unary(np.arctan),
    "sinh": unary(np.sinh), "cosh": unary(np.cosh), "asinh": unary(np.arcsinh),
    "acosh": unary(np.arccosh), "atanh": unary(np.arctanh), "floor": unary(np.floor),
    "ceil": unary(np.ceil), "round": unary(np.rint), "trunc": unary(np.trunc),
    "rsqrt": unary(lambda x: 1 / np.sqrt(x)), "log1p": unary(np.log1p), "expm1": unary(np.expm1),
    "erfc": scalar(math.erfc), "atan2": binary(np.arctan2),
    "sign_bit": [case("float32[n]", to=np.signbit)],
    "nextafter": binary(lambda a, b: np.nextafter(a.astype(np.float32), b.astype(np.float32))),
    # activations
    "sigmoid": unary(lambda x: 1 / (1 + np.exp(-x))),
    "relu": [*unary(lambda x: x * (x > 0)), case("int32[n]", to=lambda x: x * (x > 0), low=-9)],
    "leaky_relu": [case("float32[n]", to=lambda x: np.where(x < 0, 0.1 * x, x), alpha=0.1)],
    "prelu": binary(lambda x, s: np.where(x < 0, s * x, x)),
    "thresholded_relu": [case("float32[n]", to=lambda x: np.where(x > 0.5, x, 0), alpha=0.5)],
    "elu": [case("float32[n]", to=lambda x: np.where(x < 0, 2 * np.expm1(x), x), alpha=2.0)],
    "selu": scalar(lambda x: 1.0507009873554805 * (
        1.6732632423543772 * math.expm1(x) if x < 0 else x)),
    "celu": [case("float32[n]", to=lambda x: np.where(x < 0, 2 * np.expm1(x / 2), x), alpha=2.0)],
    "hard_sigmoid": unary(lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    "hard_swish": unary(lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "softplus": unary(lambda x: np.log(1 + np.exp(x))),
    "softsign": unary(lambda x: x / (1 + np.abs(x))),
    "swish": [case("float32[n]", to=lambda x: x / (1 + np.exp(-2 * x)), alpha=2.0)],
    "mish": unary(lambda x: x * np.tanh(np.log(1 + np.exp(x)))),
    "gelu": scalar(lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2),
    "gelu_tanh": scalar(lambda x: x / 2 * (
        1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    "shrink": [case("float32[n]", lambd=1.0, bias=0.5, to=lambda x: np.where(
        x < -1, x + 0.5, np.where(x > 1, x - 0.5, 0)))],
    # comparison, logic, bits
    "equal": [*binary(np.equal, "int32"), *binary(np.equal, "bool")],
    "not_equal": binary(np.not_equal, "int32"), "less": binary(np.less),
    "less_equal": binary(np.less_equal, "int32"), "greater": binary(np.greater),
    "greater_equal": binary(np.greater_equal, "int32"),
    "logical_and": binary(np.logical_and, "bool"), "logical_or": binary(np.logical_or, "bool"),
    "logical_xor": binary(np.logical_xor, "bool"), "logical_not": unary(np.logical_not, "bool"),
    "is_nan": unary(np.isnan),
    "is_inf": [case("float32[n]", to=np.isinf), case("float32[n]", to=np.isinf, negative=False)],
    "where": [case("bool[n, 1]", "float32[n, 3]", "float32[3]", to=np.where),
              case("bool[3]", "float32[m, 1, 1]", "float32[n, 3]", to=np.where)],
    "bit_and": binary(np.bitwise_and, "int32"), "bit_or": binary(np.bitwise_or, "uint8"),
    "bit_xor": binary(np.bitwise_xor, "int64"), "bit_not": unary(np.bitwise_not, "int32"),
    "shift_left": binary(np.left_shift, "int32"), "shift_right": binary(np.right_shift, "uint8"),
    # reductions and normalisations
    "reduce_sum": [*reduced(np.sum), case("int32[n]", to=np.sum)],
    "reduce_mean": reduced(np.mean),
    "reduce_max": reduced(lambda x, axes: np.max(x, axes, initial=-np.inf)),
    "reduce_min": reduced(lambda x, axes: np.min(x, axes, initial=np.inf)),
    "reduce_prod": reduced(np.prod),
    "reduce_l1": reduced(lambda x, axes: np.abs(x).sum(axes)),
    "reduce_l2": reduced(lambda x, axes: np.sqrt((x * x).sum(axes))),
    "reduce_sum_square": reduced(lambda x, axes: (x * x).sum(axes)),
    "reduce_log_sum": reduced(lambda x, axes: np.log(x.sum(axes))),
    "reduce_log_sum_exp": reduced(log_sum_exp),
    "softmax": [case("float32[n, m]", to=lambda x: softmax(x, -1)),
                case("float32[n, 3, m]", to=lambda x: softmax(x, 1), axis=1),
                case("float32[n, 3, m]", to=lambda x: softmax(x, (1, 2)), axis=(1, 2))],
    "log_softmax": [case("float32[n, m]", to=lambda x: np.log(softmax(x, -1))),
                    case("float32[n, 3, m]", to=lambda x: np.log(softmax(x, 0)), axis=0)],
    "layer_norm": [case("float32[n, 5]", "float32[5]", "float32[5]", to=normalised),
                   case("float32[n, m, 5]", "float32[5]", epsilon=0.1,
                        to=lambda x, s: normalised(x, s, epsilon=0.1)),
                   case("float32[n, 3, 5]", "float32[3, 5]", "float32[1, 5]", axis=1,
                        to=lambda x, s, b: normalised(x, s, b, (1, 2))),
                   case("float32[n, 3, 4]", statistics=True, to=lambda x: (
                        normalised(x), x.mean(-1, keepdims=True),
                        1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)))],
    "batch_norm": [case(
        "float32[n, 3, m]", "float32[3]", "float32[3]", "float32[3]", "float32[3]",
        to=lambda x, s, b, mean, v: (x - mean[:, None]) / np.sqrt(np.abs(v)[:, None] + 1e-5)
        * s[:, None] + b[:, None])],
    "det": [case("float64[n, m, m]", to=np.linalg.det), case("float64[n, n]", to=np.linalg.det),
            case("float32[2, m, 3, 3]", to=np.linalg.det)],
    "inverse": [
        case("float64[n, m, m]", to=np.linalg.inv), case("float64[n, n]", to=np.linalg.inv),
        case("float32[2, m, 3, 3]", to=np.linalg.inv)],
    "instance_norm": [case(
        "float32[n, 3, m, 2]", "float32[3]", "float32[3]",
        to=lambda x, s, b: normalised(x, s[:, None, None], b[:, None, None], (2, 3)))],
    "local_response_norm": [
        case("float32[n, 4, m]", count=N * 0 + 3, alpha=0.5, beta=0.5, bias=2.0,
             to=lambda x: local_response(x, 1, 1, 0.5, 0.5, 2.0)),
        case("float32[n, m, 2, 3]", count=N * 0 + 4, alpha=2.0,
             to=lambda x: local_response(x, 1, 2, 2.0, 0.75, 1.0))],
    "hardmax": [case("float32[n, 3]", to=lambda x: np.eye(3)[x.argmax(1)]),
                case("int32[3, n, m]", axis=0, high=3, to=lambda x: (
                     np.arange(3)[:, None, None] == x.argmax(0)))],
    # contractions
    "matmul": [case(a, b, to=np.matmul) for a, b in (
        ("float32[n, m]", "float32[m, 4]"), ("float32[n, 3, m]", "float32[m, 2]"),
        ("float32[n, 1, 3, m]", "float32[2, m, n]"), ("float32[m]", "float32[n, m, 3]"),
        ("float32[n, 3, m]", "float32[m]"), ("float32[n]", "float32[n]"),
        ("int32[n, m]", "int32[m, 4]"))],
    "gemm": [
        case("float32[n, m]", "float32[m, 4]", to=np.matmul),
        case("float32[m, n]", "float32[4, m]", "float32[4]", alpha=0.5, beta=2.0,
             transpose_a=True, transpose_b=True, to=lambda a, b, c: 0.5 * a.T @ b.T + 2 * c),
        case("float32[n, 3]", "float32[3, m]", "float32[n, 1]", to=lambda a, b, c: a @ b + c),
        case("float32[n, 3]", "float32[3, m]", "float32[]", beta=0.0, alpha=3.0,
             to=lambda a, b, c: 3 * a @ b)],
    "einsum": [case(*kinds, equation=text, to=lambda *a, text=text: np.einsum(text, *a))
               for text, *kinds in (
        ("ij,jk->ik", "float32[n, m]", "float32[m, 3]"), ("ii->i", "float32[n, n]"),
        ("bij,bjk->bki", "float32[n, 2, m]", "float32[n, m, 3]"), ("ij->", "float32[n, m]"),
        ("...ij,...j->...i", "float32[n, 2, m]", "float32[1, m]"), ("ba", "float32[n, m]"),
        ("i,j,k->kij", "float32[n]", "float32[m]", "float32[2]"), ("Aa->aA", "float32[n, 2]"),
        ("nf,fn->n", "float32[n, m]", "float32[m, n]"))],
    **quantisation_cases.CASES,
    **recurrent_cases.CASES,
    **scatter_cases.CASES,
    **window_cases.CASES,
    **standard_cases.CASES,
    **ROUTINE_CASES,
    # views and movement
    "transpose": [case("float32[n, 3, m]", perm=(2, 0, 1), to=lambda x: x.transpose(2, 0, 1)),
                  case("float32[n, m]", to=np.transpose), case("float32[]", to=np.transpose)],
    "reshape": [
        sized("float32[n, m, 6]", shape=(N, M, 2, -1), to=lambda x, n, m: x.reshape(n, m, 2, 3)),
        sized("float32[n, m, 6]", shape=(-1, 6), to=lambda x, n, m: x.reshape(n * m, 6)),
        sized("float32[n, m, 6]", shape=(6, M * N), to=lambda x, n, m: x.reshape(6, n * m)),
        sized("float32[]", shape=(1, 1), to=lambda x, n, m: x.reshape(1, 1)),
        sized("float32[1]", shape=(), to=lambda x, n, m: x.reshape(()))],
    "flatten": [sized("float32[n, 3, m]", to=lambda x, n, m: x.reshape(n, 3 * m)),
                sized("float32[n, 3]", axis=0, to=lambda x, n, m: x.reshape(1, n * 3)),
                sized("float32[n, 3]", axis=2, to=lambda x, n, m: x.reshape(n * 3, 1))],
    "expand": [
        sized("float32[n, 1]", shape=(N, M), to=lambda x, n, m: np.broadcast_to(x, (n, m))),
        sized("float32[3]", shape=(N, M, 1), to=lambda x, n, m: np.broadcast_to(x, (n, m, 3))),
        sized("float32[n]", shape=(N,), to=lambda x, n, m: x),
        sized("float32[]", shape=(N, 2), to=lambda x, n, m: np.broadcast_to(x, (n, 2)))],
    "squeeze": [case("float32[n, 1, 3, 1]", to=lambda x: x[:, 0, :, 0]),
                case("float32[1, n, 1]", axes=(-1,), to=lambda x: x[:, :, 0])],
    "unsqueeze": [case("float32[n, m]", axes=(0, -1), to=lambda x: x[None, :, :, None]),
                  case("float32[]", axes=(0,), to=lambda x: x[None])],
    "slice": [
        case("float32[n, m]", starts=(1,), ends=(FAR,), to=lambda x: x[1:]),
        case("float32[n, m]", starts=(-3, 0), ends=(-1, 2), to=lambda x: x[-3:-1, 0:2]),
        case("float32[n, m]", starts=(FAR,), ends=(-FAR,), axes=(1,), steps=(-2,),
             to=lambda x: x[:, ::-2]),
        case("float32[n]", starts=(-2,), ends=(-FAR,), steps=(-1,), to=lambda x: x[-2::-1]),
        sized("float32[n, 9]", starts=(1,), ends=(M,), axes=(-1,),
              to=lambda x, n, m: x[:, 1:m]),
        sized("float32[n]", starts=(M - 2,), ends=(N,), to=lambda x, n, m: x[m - 2 : n])],
    "split": [sized("float32[n, 6]", axis=1, sizes=(2, 0, 4),
                    to=lambda x, n, m: (x[:, :2], x[:, 2:2], x[:, 2:])),
              sized("float32[n]", sizes=(N,), to=lambda x, n, m: (x,))],
    "concat": [case("float32[n, 2]", "float32[m, 2]", to=lambda *a: np.concatenate(a)),
               case("int64[n]", "int64[1]", "int64[m]", to=lambda *a: np.concatenate(a)),
               case("bool[2, n]", "bool[2, m]", axis=-1, to=lambda *a: np.concatenate(a, 1)),
               case("float32[n]", to=lambda x: x)],
    "tile": [sized("float32[n, 3]", repeats=(2, M), to=lambda x, n, m: np.tile(x, (2, m)))],
    "pad": [
        case("float32[n, m]", before=(1, 0), after=(2, 3), to=lambda x: np.pad(
            x, ((1, 2), (0, 3)))),
        case("int32[n, 2]", "int32[]", before=(0, 1), after=(0, 0), to=lambda x, v: np.pad(
            x, ((0, 0), (1, 0)), constant_values=int(v))),
        case("float32[n, 4]", before=(0, -1), after=(0, -2), to=lambda x: x[:, 1:2]),
        case("float32[n, 3]", before=(0, 2), after=(0, 4), mode="edge", to=lambda x: np.pad(
            x, ((0, 0), (2, 4)), "edge")),
        case("float32[n, 5]", before=(0, 4), after=(0, 2), mode="reflect", to=lambda x: np.pad(
            x, ((0, 0), (4, 2)), "reflect")),
        case("float32[n, 3]", before=(0, 4), after=(0, 7), mode="wrap", to=lambda x: np.pad(
            x, ((0, 0), (4, 7)), "wrap"))],
    # indices and sizes
    "counted": [case("int64[n, m]", high=4, count=4, to=lambda x: x)],
    "gather": [case("float32[9, 2]", "int64[n, m]", low=-9, to=lambda x, i: taken(x, i, 0)),
               case("float32[n, 9]", "int32[]", axis=1, to=lambda x, i: taken(x, i, 1))],
    "gather_elements": [case("float32[9, n]", "int64[4, n]", low=-9, to=lambda x, i:
                             np.take_along_axis(x, i.astype(int), 0))],
    "gather_nd": [case("float32[9, 9, n]", "int64[m, 2]", low=-9, to=lambda x, i:
                       x[i[:, 0].astype(int), i[:, 1].astype(int)]),
                  case("float32[n, 9]", "int64[n, 1]", batch_dims=1, to=lambda x, i:
                       np.take_along_axis(x, i.astype(int), 1)[:, 0])],
    "one_hot": [sized("int64[n]", "float32[2]", depth=M + 1, low=0, high=1,
                      to=lambda i, v, n, m: np.where(np.eye(m + 1)[i.astype(int)], v[1], v[0])),
                sized("int64[n]", "int32[2]", depth=9, axis=0, low=-9,
                      to=lambda i, v, n, m: np.where(np.eye(9)[i.astype(int)].T, v[1], v[0]))],
    "arg_max": [case("int32[n, 4, m]", axis=1, high=3, to=lambda x: x.argmax(1)[:, None]),
                case("float32[n, 3]", axis=-1, keepdims=False, to=lambda x: x.argmax(1)),
                case("int32[n, 5]", axis=1, last=True, keepdims=False, high=3,
                     to=lambda x: 4 - x[:, ::-1].argmax(1))],
    "arg_min": [case("float32[n, 4, m]", axis=1, to=lambda x: x.argmin(1)[:, None]),
                case("int32[5, n]", last=True, high=3,
                     to=lambda x: 4 - x[::-1].argmin(0)[None])],
    "cum_sum": [case("float32[n, m]", axis=1, to=lambda x: x.cumsum(1)),
                case("int32[n, 2]", reverse=True, to=lambda x: x[::-1].cumsum(0)[::-1]),
                case("float32[n, m]", axis=-1, exclusive=True, to=lambda x: x.cumsum(1) - x),
                case("float32[n]", exclusive=True, reverse=True,
                     to=lambda x: x[::-1].cumsum(0)[::-1] - x)],
    "depth_to_space": [
        sized("float32[n, 8, m, 3]", block=2, to=lambda x, n, m: x.reshape(n, 2, 2, 2, m, 3)
              .transpose(0, 3, 4, 1, 5, 2).reshape(n, 2, 2 * m, 6)),
        sized("float32[n, 8, m, 3]", block=2, inner=True, to=lambda x, n, m: x.reshape(
            n, 2, 2, 2, m, 3).transpose(0, 1, 4, 2, 5, 3).reshape(n, 2, 2 * m, 6))],
    "space_to_depth": [
        sized("float32[n, m, 4, 6]", block=2, to=lambda x, n, m: x.reshape(n, m, 2, 2, 3, 2)
              .transpose(0, 3, 5, 1, 2, 4).reshape(n, 4 * m, 2, 3)),
        sized("float32[n, m, 4, 6]", block=2, inner=True, to=lambda x, n, m: x.reshape(
            n, m, 2, 2, 3, 2).transpose(0, 1, 3, 5, 2, 4).reshape(n, 4 * m, 2, 3))],
    "eye": [sized(rows=N, columns=M, k=1, to=lambda n, m: np.eye(n, m, 1)),
            sized(rows=N, columns=N, dtype=int32, to=lambda n, m: np.eye(n))],
    "trilu": [case("float32[n, 4, m]", to=np.triu),
              case("float32[n, m]", upper=False, k=-1, to=lambda x: np.tril(x, -1))],
    "range": [sized(start=3, step=2, count=N, to=lambda n, m: np.arange(n) * 2 + 3),
              sized(start=M, step=-1, count=M, dtype=int32, to=lambda n, m: np.arange(m, 0, -1))],
    "fill": [sized(shape=(N, 2), value=1.5, to=lambda n, m: np.full((n, 2), 1.5)),
             sized(shape=(), value=-7, dtype=int64, to=lambda n, m: np.array(-7)),
             sized(shape=(M,), value=True, dtype=boolean, to=lambda n, m: np.ones(m, bool)),
             sized(shape=(M,), value=-math.inf, to=lambda n, m: np.full(m, -np.inf))],
    "size_tensor": [sized(values=(N, N * M, 7), to=lambda n, m: np.array([n, n * m, 7])),
                    sized(values=(N + 1,), scalar=True, dtype=float32,
                          to=lambda n, m: np.array(n + 1)),
                    sized(values=(), to=lambda n, m: np.zeros(0))],
}  # fmt: skip
for _name, _more in standard_cases.MORE.items():
    CASES[_name] = [*CASES[_name], *_more]

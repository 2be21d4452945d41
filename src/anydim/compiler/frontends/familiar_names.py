"""Names of operators in numpy and torch, with the operators that compute them."""

from __future__ import annotations

from anydim.base.text import suggestion
from anydim.compiler.graph.operator import OPERATORS

FAMILIAR = {
    "all": "reduce_min", "amax": "reduce_max", "amin": "reduce_min", "any": "reduce_max",
    "arange": "range", "argmax": "arg_max", "argmin": "arg_min", "avg_pool2d": "average_pool",
    "bmm": "matmul", "broadcast_to": "expand", "cat": "concat", "chunk": "split", "clamp": "clip",
    "concatenate": "concat", "conv1d": "conv", "conv2d": "conv", "conv3d": "conv",
    "cumprod": "cum_prod", "cumsum": "cum_sum", "divide": "div", "dot": "matmul",
    "embedding": "gather", "full": "expand", "index_select": "gather", "interpolate": "resize",
    "isinf": "is_inf", "isnan": "is_nan", "linear": "gemm", "logsumexp": "reduce_log_sum_exp",
    "max": "reduce_max", "max_pool2d": "max_pool", "mean": "reduce_mean", "min": "reduce_min",
    "mm": "matmul", "moveaxis": "transpose", "multiply": "mul", "negative": "neg",
    "norm": "reduce_l2", "permute": "transpose", "power": "pow", "prod": "reduce_prod",
    "repeat": "tile", "scatter": "scatter_elements", "silu": "swish", "stack": "concat",
    "subtract": "sub", "sum": "reduce_sum", "swapaxes": "transpose", "take": "gather",
    "topk": "top_k", "view": "reshape",
}  # fmt: skip


def suggest_operator(name: str) -> str:
    """Return advice for the name of an operator that does not exist, or an empty text."""
    known = FAMILIAR.get(name)
    return f"use '{known}'" if known else suggestion(name, OPERATORS)

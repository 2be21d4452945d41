"""Promise: operators of torch's database equal eager torch at the exported size and two others.

A part of the database: `python -m tests.torch.op_db` runs all of it.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from tests.torch.op_db.worker import outcome_of  # noqa: E402

ENTRIES = (
    "add", "clamp", "div.floor_rounding", "remainder", "where", "nan_to_num",
    "sum", "mean", "var", "std_mean", "argmax", "max.reduction_with_dim", "logsumexp", "cumsum",
    "cummax", "median", "mode", "sort", "topk", "kthvalue", "quantile", "histc",
    "permute", "expand", "squeeze", "unfold", "roll", "flip", "as_strided", "diagonal_scatter",
    "index_put", "index_add", "gather", "scatter_reduce.amax", "index_select", "searchsorted",
    "masked_select", "nonzero", "unique", "unique_consecutive", "repeat_interleave",
    "matmul", "einsum", "addmm", "cdist", "linalg.lu",
    "linalg.qr", "linalg.eigvalsh", "linalg.svdvals", "linalg.slogdet", "linalg.cholesky_ex",
    "nn.functional.conv2d", "nn.functional.conv_transpose1d", "nn.functional.avg_pool2d",
    "nn.functional.max_pool2d", "nn.functional.adaptive_avg_pool2d",
    "nn.functional.adaptive_max_pool2d", "nn.functional.interpolate.bicubic",
    "nn.functional.batch_norm", "nn.functional.layer_norm", "nn.functional.group_norm",
    "nn.functional.gelu", "nn.functional.grid_sample", "nn.functional.embedding_bag",
    "nn.functional.scaled_dot_product_attention", "special.bessel_y0", "special.zeta", "igamma",
    "special.chebyshev_polynomial_t", "polygamma.polygamma_n_1",
)  # fmt: skip
OTHERS = {
    "bfloat16": ("add", "mean", "softmax", "nn.functional.gelu", "matmul", "nn.functional.conv2d"),
    "int64": (
        "add",
        "sum",
        "floor_divide",
        "remainder",
        "cumsum",
        "bitwise_left_shift",
        "gcd",
        "bitwise_xor",
        "bincount",
    ),
    "bool": ("logical_and", "sum", "any", "amax", "index_put", "where"),
    "float64": ("erf", "special.erfcx", "lgamma", "linalg.inv_ex", "pow"),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_entry_equals_eager(entry: str) -> None:
    found = outcome_of(entry, torch.float32, "anydim", 1)
    assert (found["outcome"], found["why"]) == ("right", "")


@pytest.mark.parametrize(("dtype", "entry"), [(d, e) for d, own in OTHERS.items() for e in own])
def test_entry_of_another_type_equals_eager(dtype: str, entry: str) -> None:
    found = outcome_of(entry, getattr(torch, dtype), "anydim", 1)
    assert (found["outcome"], found["why"]) == ("right", "")

"""Promise: attention with a mask is eager torch's, for rows without keys and for NaN too."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import anydim as ad  # noqa: E402


class Attention(torch.nn.Module):
    """Attention alone."""

    def forward(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def reference(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Attention where a bool mask selects scores: eager torch adds -inf, so NaN is never masked."""
    scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~mask, float("-inf"))
    shares = scores.softmax(-1).masked_fill(~mask.any(-1, keepdim=True), 0)
    return shares @ v


@pytest.mark.parametrize("depth", [8, 6])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_rows_without_keys_and_nan(kind: str, depth: int) -> None:
    """Rows without keys are 0, a NaN that is not masked stays NaN."""
    torch.manual_seed(0)

    def inputs(batch: int, rows: int, keys: int) -> tuple[Any, ...]:
        q, k, v = (torch.randn(batch, 2, size, depth) for size in (rows, keys, keys))
        allowed = torch.rand(batch, 1, rows, keys) < 0.6
        allowed[:, :, rows // 2] = False
        allowed[0, 0, 0] = True  # all keys, NaN too
        if kind == "bool":
            return q, k, v, allowed
        return q, k, v, torch.zeros(allowed.shape).masked_fill_(~allowed, float("-inf"))

    batch, rows, keys = (torch.export.Dim(name) for name in ("batch", "rows", "keys"))
    shapes = ({0: batch, 2: rows}, *({0: batch, 2: keys},) * 2, {0: batch, 2: rows, 3: keys})
    model = ad.compile(Attention(), inputs(2, 5, 7), dynamic_shapes=shapes)
    for sizes in ((2, 5, 7), (1, 1, 3), (3, 17, 40), (2, 33, 9)):
        for place in (None, 0, -1):
            q, k, v, mask = inputs(*sizes)
            if place is not None:
                k[0, 0, place, 1] = float("nan")
            wanted = reference(q, k, v, mask) if kind == "bool" else Attention()(q, k, v, mask)
            found = model(q, k, v, mask)["output"]
            assert place is None or wanted.isnan().any()
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_one_kernel() -> None:
    """A masked softmax does not keep attention from being one kernel."""
    q = torch.randn(2, 2, 5, 8)
    dims = {0: torch.export.Dim("batch"), 2: torch.export.Dim("length")}
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    shapes = (dims, dims, dims, {0: dims[0], 2: dims[2], 3: dims[2]})
    model = ad.compile(Attention(), (q, q, q, mask), dynamic_shapes=shapes)
    assert "attention" in str(model.profile(batch=2, length=64))

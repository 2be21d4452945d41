"""Promise: products by groups of rows, as mixtures of experts have them, run compiled."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers.integrations.moe")

import anydim as ad  # noqa: E402
from tests.torch.compiling import anew  # noqa: E402, F401


class Grouped(torch.nn.Module):
    def forward(self, x: Any, weight: Any, ends: Any) -> Any:
        return torch.ops.transformers.grouped_mm_fallback(x, weight, ends)


def inputs(random: Random, rows: int, behind: bool) -> tuple[Any, ...]:
    """Groups of random sizes, some of them empty; some rows may be behind the last group."""
    groups, depth, columns = 5, random.choice([4, 9, 16]), random.choice([1, 6, 33])
    last = random.randint(0, rows) if behind else rows
    ends = sorted(random.randint(0, last) for _ in range(groups - 1))
    kind = random.choice([torch.int32, torch.int64])
    return (
        torch.randn(rows, depth),
        torch.randn(groups, depth, columns),
        torch.tensor([*ends, last], dtype=kind),
    )


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("seed", range(40))
def test_groups(seed: int) -> None:
    random = Random(seed)
    torch.manual_seed(seed)
    traced = torch.compile(Grouped(), backend="anydim", dynamic=True)
    for rows in random.sample([2, 3, 8, 17, 64, 129], 3):
        given = inputs(random, rows, behind=seed % 3 == 0)
        torch.testing.assert_close(traced(*given), Grouped()(*given), rtol=1e-4, atol=1e-5)


def test_exported_groups() -> None:
    random, rows = Random(1), torch.export.Dim("rows")
    x, weight, ends = inputs(random, 7, behind=False)
    model = ad.compile(Grouped(), (x, weight, ends), dynamic_shapes=({0: rows}, None, None))
    for count in (0, 1, 7, 30):
        x = torch.randn(count, x.shape[1])
        ends = torch.tensor([0, count // 3, count // 3, count // 2, count], dtype=ends.dtype)
        found = model(x, weight, ends)["output"]
        torch.testing.assert_close(found, Grouped()(x, weight, ends), rtol=1e-4, atol=1e-5)

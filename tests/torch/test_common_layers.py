"""Promise: overloads that models often have run compiled, not in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import anydim as ad  # noqa: E402
from tests.torch.compiling import anew  # noqa: E402, F401

functional = torch.nn.functional


def bags(**more: Any) -> Callable[[Any], Any]:
    """Bags of rows of a table that depends on x, of indices that depend on x."""

    def function(x: Any) -> Any:
        offsets = torch.tensor([0, 0, 3, x.shape[0]])
        indices = x[:, 0].abs().long() % 5
        given = (indices, offsets) if more.get("include_last_offset") else (indices.view(-1, 1),)
        return functional.embedding_bag(given[0], x[:5] * 2, *given[1:], **more)

    return function


SIZES: dict[str, Callable[[Any], Any]] = {
    "n & 3": lambda x: x[: x.shape[0] & 3].sin() * 2,
    "n & 10": lambda x: x[: x.shape[0] & 10].sin() * 2,
    "n | 5": lambda x: torch.ones(x.shape[0] | 5).cos() + x.sum(),
    "n ^ 6": lambda x: torch.ones(x.shape[0] ^ 6).cos() + x.sum(),
    "-n & 7": lambda x: torch.ones(-x.shape[0] & 7).cos() + x.sum(),
    "n << 2, n >> 1": lambda x: torch.ones(x.shape[0] << 2).cos().sum() + x[: x.shape[0] >> 1],
    "step": lambda x: x[:: max(x.shape[0] - 9, 1)].sin() * 2,
    "step from the end": lambda x: x[-7 : -1 : max(x.shape[0] // 6, 1)].sin() * 2,
    "step of columns": lambda x: x[:, 1 : x.shape[0] : max(x.shape[0] - 16, 1)].sin() * 2,
}
GRADIENTS: dict[str, Callable[[Any], Any]] = {
    "sums": bags(mode="sum"),
    "means": bags(mode="mean"),
    "padding": bags(mode="mean", padding_idx=2),
    "offsets": bags(mode="mean", include_last_offset=True),
    "sums by offsets": bags(mode="sum", include_last_offset=True),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name: str) -> None:
    traced = torch.compile(SIZES[name], backend="anydim", dynamic=True)
    for rows in (20, 17, 23, 12):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(traced(x), SIZES[name](x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_bags(name: str) -> None:
    traced = torch.compile(GRADIENTS[name], backend="anydim", dynamic=True)
    for rows in (20, 17, 8):
        x = (torch.randn(rows, 6) * 3).requires_grad_()
        wanted, found = GRADIENTS[name](x), traced(x)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        first, second = (torch.autograd.grad(y.sin().sum(), x)[0] for y in (found, wanted))
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dim", [0, 1])
def test_gradients_of_weight_norm(dim: int) -> None:
    net = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(6, 8), dim=dim)
    traced = torch.compile(net, backend="anydim", dynamic=True)
    for rows in (3, 9):
        x = torch.randn(rows, 6)
        weights = list(net.parameters())
        first, second = (torch.autograd.grad(y(x).sin().sum(), weights) for y in (traced, net))
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)


class Quantised(torch.nn.Module):
    def forward(self, x: Any, weight: Any) -> Any:
        return torch._int_mm(x, weight) * 2


def test_products_of_int8() -> None:
    weight = torch.randint(-128, 128, (16, 8), dtype=torch.int8)
    rows = torch.export.Dim("rows")
    example = torch.ones(20, 16, dtype=torch.int8)
    model = ad.compile(Quantised(), (example, weight), dynamic_shapes=({0: rows}, None))
    traced = torch.compile(Quantised(), backend="anydim", dynamic=True)
    for count in (20, 33, 64):
        x = torch.randint(-128, 128, (count, 16), dtype=torch.int8)
        wanted = Quantised()(x, weight)
        assert torch.equal(traced(x, weight), wanted)
        assert torch.equal(model(x, weight)["output"], wanted)


@pytest.mark.parametrize("both", [False, True])
@torch.no_grad()
def test_projected_series(both: bool) -> None:
    """States of an LSTM with `proj_size`, of free lengths, in both directions."""
    net = torch.nn.LSTM(6, 8, 2, proj_size=4, batch_first=both, bidirectional=both)
    x = torch.randn(4, 7, 6)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    model = ad.compile(net, (x,), dynamic_shapes=({0: batch, 1: length},))
    traced = torch.compile(lambda x: net(x), backend="anydim", dynamic=True)
    for sizes in ((4, 7), (3, 12), (9, 2)):
        x = torch.randn(*sizes, 6)
        wanted = torch.utils._pytree.tree_leaves(net(x))
        for found in (model(x), traced(x)):
            leaves = torch.utils._pytree.tree_leaves(found)
            torch.testing.assert_close(leaves, wanted, rtol=1e-4, atol=1e-5)

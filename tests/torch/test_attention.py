"""Promise: attention with a mask is eager torch's, for rows without keys and for NaN too."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import anydim as ad  # noqa: E402
from tests.torch.compiling import anew  # noqa: E402, F401

NAMES = ("q", "k", "v", "mask")


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


class Grouped(torch.nn.Module):
    """Attention whose key heads serve several query heads."""

    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=self.causal, enable_gqa=True
        )


@dataclass(frozen=True)
class Case:
    """Heads of queries, keys and values, the axes before them, and a mask."""

    heads: tuple[int, int, int]
    batches: int
    mask: str
    depth: int

    def inputs(self, batch: int, rows: int, keys: int) -> list[Any]:
        lead = (2,) * (self.batches - 1) + (batch,) * min(self.batches, 1)
        q, k, v = (
            torch.randn(*lead, heads, size, self.depth)
            for heads, size in zip(self.heads, (rows, keys, keys))
        )
        if self.mask in ("none", "causal"):
            return [q, k, v]
        kind, _, heads = self.mask.partition(" ")
        shape = {"": (rows, keys), "one": (*lead, 1, rows, keys),
                 "each": (*lead, self.heads[0], rows, keys)}[heads]  # fmt: skip
        allowed = torch.rand(shape) < 0.7
        allowed[..., 0] = True
        added = torch.randn(shape).masked_fill_(~allowed, float("-inf"))
        return [q, k, v, allowed if kind == "bool" else added]

    def axes(self) -> list[dict[int, Any]]:
        """The free axes of the inputs, for torch.export."""
        batch, rows, keys = (torch.export.Dim(name) for name in ("batch", "rows", "keys"))
        first: dict[int, Any] = {self.batches - 1: batch} if self.batches else {}
        at = self.batches + 1
        found = [{**first, at: rows}, {**first, at: keys}, {**first, at: keys}]
        if self.mask in ("none", "causal"):
            return found
        ends = {0: rows, 1: keys} if " " not in self.mask else {**first, at: rows, at + 1: keys}
        return [*found, ends]


def drawn_case(random: Random) -> Case:
    heads = random.choice([(4, 2, 2), (6, 3, 3), (6, 1, 1), (8, 2, 2), (4, 4, 4), (6, 2, 3)])
    masks = ["none", "causal", "bool", "bool one", "bool each", "float one", "float each"]
    return Case(heads, random.choice([1, 1, 1, 0, 2]), random.choice(masks), random.choice([8, 5]))


SIZES = ((3, 5, 7), (2, 33, 18), (4, 3, 2), (3, 9, 40))


@pytest.mark.sampled(most=5)
@pytest.mark.parametrize("seed", range(60))
def test_grouped_heads(seed: int) -> None:
    """Key heads repeat as eager torch repeats them, in exports and in torch.compile."""
    case = drawn_case(Random(seed))
    torch.manual_seed(seed)
    net = Grouped(case.mask == "causal")
    examples = tuple(case.inputs(*SIZES[0]))
    exported = ad.compile(net, examples, dynamic_shapes=dict(zip(NAMES, case.axes())))
    traced = torch.compile(net, backend="anydim", dynamic=True)
    for sizes in SIZES:
        inputs = case.inputs(*sizes)
        wanted = net(*inputs)
        found = exported(*inputs)["output"]
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(traced(*inputs), wanted, rtol=1e-4, atol=1e-5)


def test_free_numbers_of_heads() -> None:
    """One program of torch.compile serves several numbers of heads; two groups of 4 at first."""
    net = torch.compile(Grouped(), backend="anydim", dynamic=True)
    for heads, kept, rows in ((8, 2, 5), (6, 3, 4), (12, 4, 9), (5, 5, 3)):
        q, k, v = (torch.randn(2, count, rows, 8) for count in (heads, kept, kept))
        torch.testing.assert_close(net(q, k, v), Grouped()(q, k, v), rtol=1e-4, atol=1e-5)


def test_gradients_of_grouped_heads() -> None:
    """Gradients of shared key heads are sums over their queries."""
    net = torch.compile(Grouped(causal=True), backend="anydim", dynamic=True)
    for rows in (5, 12):
        given = [torch.randn(2, count, rows, 8, requires_grad=True) for count in (6, 2, 2)]
        wanted = torch.autograd.grad(Grouped(causal=True)(*given).sin().sum(), given)
        found = torch.autograd.grad(net(*given).sin().sum(), given)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("heads", [1, 8])
def test_one_kernel_of_grouped_heads(heads: int) -> None:
    """A mask, of all heads or of each, does not keep grouped attention from being one kernel."""
    batch, rows, keys = (torch.export.Dim(name) for name in ("batch", "rows", "keys"))
    q, k = torch.randn(2, 8, 5, 16), torch.randn(2, 2, 7, 16)
    mask = torch.ones(2, heads, 5, 7, dtype=torch.bool)
    shapes = ({0: batch, 2: rows}, *({0: batch, 2: keys},) * 2, {0: batch, 2: rows, 3: keys})
    model = ad.compile(Grouped(), (q, k, k, mask), dynamic_shapes=shapes)
    assert "attention" in str(model.profile(batch=2, rows=64, keys=64))

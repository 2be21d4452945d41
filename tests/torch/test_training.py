"""Promise: a training step through torch.compile(backend="anydim") gives eager's gradients.

Tolerance: 1e-4 of each element plus 1e-5 (float32), at changing sizes, with one compile.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402

import anydim.torch.backend  # noqa: E402, F401  registers the backend
from tests.torch.compiling import anew  # noqa: E402, F401  before and after each test
from tests.torch.training_nets import NETS, Net  # noqa: E402


def compiled(function: Any) -> Any:
    return torch.compile(function, backend="anydim", dynamic=True)


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def gradients(module: Any, call: Callable[..., Any], x: Any) -> list[Any]:
    """The result, the gradient of x and those of the parameters, for a cotangent of cosines."""
    module.zero_grad()
    own = x.clone().requires_grad_()
    y = call(own)
    y.backward(torch.cos(torch.arange(y.numel(), dtype=y.dtype)).reshape(y.shape))
    return [y.detach(), own.grad, *(each.grad for each in module.parameters())]


CONVOLUTIONS = {
    "plain": (nn.Conv2d, 3, 8, 3, {"padding": 1}),
    "strided in groups": (nn.Conv2d, 4, 8, 3, {"stride": 2, "padding": 1, "groups": 2}),
    "depthwise dilated": (nn.Conv1d, 6, 6, 5, {"groups": 6, "dilation": 2, "padding": 4}),
    "several per channel": (nn.Conv1d, 3, 6, 3, {"groups": 3, "stride": 3}),
    "three axes": (nn.Conv3d, 3, 2, 2, {}),
    "unlike axes": (nn.Conv2d, 4, 4, (3, 1), {"stride": (2, 1), "bias": False}),
    "transposed": (nn.ConvTranspose2d, 4, 6, 3, {"stride": 2, "padding": 1, "output_padding": 1}),
    "transposed in groups": (nn.ConvTranspose1d, 4, 6, 3, {"stride": 3, "groups": 2}),
    "padded by more than a stride": (
        nn.ConvTranspose1d, 5, 3, 2, {"stride": 1, "dilation": 3, "output_padding": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_gradients_of_convolutions(name: str) -> None:
    kind, inner, outer, kernel, options = CONVOLUTIONS[name]
    module = kind(inner, outer, kernel, **options)
    rank = module.weight.dim() - 2
    call = compiled(module)
    for batch, size in ((2, 9), (3, 13), (4, 7)):
        x = torch.randn(batch, inner, *range(size, size + rank))
        for ours, theirs in zip(gradients(module, call, x), gradients(module, module, x)):
            close(ours, theirs)
    assert counters["stats"]["unique_graphs"] == 1


class SelfAttention(nn.Module):
    """nn.MultiheadAttention of x with itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.layer(x, x, x)[0]


PRODUCTS = {
    "linear layers": lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)),
    "attention": SelfAttention,
    "encoder layer": lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_axes_whose_size_is_a_product_of_two_free_sizes(name: str) -> None:
    """A kept tensor has an axis of size s0*s1: two dims."""
    module = PRODUCTS[name]()
    call = compiled(module)
    for batch, length in ((3, 5), (2, 7), (4, 4), (7, 2)):
        x = torch.randn(batch, length, 4)
        for ours, theirs in zip(gradients(module, call, x), gradients(module, module, x)):
            close(ours, theirs)


ACTIVATIONS = (
    nn.ReLU, nn.GELU, nn.SiLU, nn.Mish, nn.ELU, nn.Softplus, nn.Hardswish, nn.LeakyReLU, nn.Tanh,
    nn.Sigmoid, nn.LogSigmoid, nn.Hardsigmoid, nn.SELU, lambda: nn.GELU("tanh"), lambda: nn.GLU(),
)  # fmt: skip


def test_gradients_of_activations() -> None:
    """All in one graph, one after the other."""
    for start in range(0, len(ACTIVATIONS), 5):
        layers = [layer for kind in ACTIVATIONS[start : start + 5]
                  for layer in (nn.LazyLinear(16), kind(), nn.LazyBatchNorm1d())]  # fmt: skip
        module = nn.Sequential(*layers)
        module(torch.randn(4, 8))
        call = compiled(module)
        for batch in (3, 8, 21):
            x = torch.randn(batch, 8)
            for ours, theirs in zip(gradients(module, call, x), gradients(module, module, x)):
                torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.name)
def test_steps_equal_eager(net: Net) -> None:
    """Loss, gradients and buffers of five steps; random numbers by the same seed."""
    eager = net.module()
    module = copy.deepcopy(eager)
    call = compiled(module)
    both = [torch.optim.SGD(each.parameters(), 0.05) for each in (eager, module)]
    for step in range(5):
        inputs, labels = net.batch(step)
        losses = []
        for each in (eager, call):
            torch.manual_seed(step)
            losses.append(nn.functional.cross_entropy(each(*inputs), labels))
        for loss, optimiser in zip(losses, both):
            optimiser.zero_grad()
            loss.backward()
        close(losses[1], losses[0])
        for ours, theirs in zip(module.parameters(), eager.parameters()):
            close(ours.grad, theirs.grad)
        for optimiser in both:
            optimiser.step()
    for ours, theirs in zip(module.buffers(), eager.buffers()):
        close(ours, theirs)
    assert counters["stats"]["unique_graphs"] == net.graphs


def test_random_numbers_are_those_of_torch() -> None:
    def drawn(x: Any) -> Any:
        rows, columns = x.shape
        made = x + torch.rand_like(x) + torch.randn(rows, 1) + torch.randperm(columns)
        made = made + torch.randint(3, 9, (columns,)) + torch.bernoulli(torch.zeros_like(x), 0.4)
        return made + torch.empty_like(x).uniform_(2, 3) + torch.empty(rows * 2, 1).normal_()[:rows]

    call = compiled(drawn)
    for rows in (3, 4, 7):
        x = torch.randn(rows, rows + 9)
        torch.manual_seed(rows)
        ours = call(x)
        torch.manual_seed(rows)
        close(ours, drawn(x))
        assert not torch.equal(call(x), ours)  # the generator moved on
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (torch.optim.AdamW, {"lr": 0.01}),
        (torch.optim.RMSprop, {"lr": 0.001}),
        (torch.optim.Adagrad, {"lr": 0.01}),
    ],
)
def test_optimisers_are_compiled_graphs(kind: Any, options: Any, foreach: bool) -> None:
    """`torch.compile(optimiser.step)` changes the parameters as eager torch does."""
    eager = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    module = copy.deepcopy(eager)
    first, second = (kind(each.parameters(), foreach=foreach, **options)
                     for each in (eager, module))  # fmt: skip
    steps = first.step, compiled(second.step)
    graphs = []
    for _ in range(5):
        x = torch.randn(5, 8)
        for each, optimiser, step in zip((eager, module), (first, second), steps):
            optimiser.zero_grad()
            each(x).square().sum().backward()
            step()
        graphs.append(counters["stats"]["unique_graphs"])
    for ours, theirs in zip(module.parameters(), eager.parameters()):
        close(ours, theirs)
    assert graphs[-1] == graphs[1]  # state is created at the first step, and used at the second

"""Promise: graphs without gradients are traced once, if they write and share nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import anydim.torch.backend  # noqa: E402  registers the backend
from tests.torch.compiling import anew  # noqa: E402, F401

WEIGHT = torch.randn(8, 8)


def _random(x: Any) -> Any:
    return x + torch.rand_like(x)


def _constant(x: Any) -> Any:
    return x * torch.tensor([1.0, 2.0, 3.0, 4.0] * 2)


def _sizes(x: Any) -> Any:
    return x.reshape(-1) * x.shape[0], x.shape[0] * x.shape[1]


def _normalised(x: Any) -> Any:
    return F.layer_norm(F.linear(x, WEIGHT).transpose(0, 1).contiguous(), x.shape[:1])


def _permuted(x: Any) -> Any:
    return torch.relu(x[:, None]).permute(2, 1, 0)


def _attention(x: Any) -> Any:
    heads = x.view(1, x.shape[0], 2, 4).transpose(1, 2)
    return F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(2)


def _cast(x: Any) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return F.linear(x, WEIGHT).float()


ONCE = [_random, _constant, _sizes, _normalised, _permuted, _attention, _cast]


def _input_written(x: Any) -> Any:
    x.add_(1)
    return x * 2


def _input_written_by_an_operator(x: Any) -> Any:
    x += 1
    return x * 2


def _element_written(x: Any) -> Any:
    made = x.clone()
    made[:, 0] = 7
    return made


def _output_given(x: Any) -> Any:
    made = torch.empty_like(x)
    torch.add(x, 1, out=made)
    return made.sin()


def _view_of_the_input(x: Any) -> Any:
    return x.t(), x * 2


def _views_of_one_result(x: Any) -> Any:
    made = x * 2
    return made[0], made[1:]


def _same(x: Any) -> Any:
    return x.contiguous(), x + 1


def _statistics(x: Any) -> Any:
    mean, variance = torch.zeros(8), torch.ones(8)
    return F.batch_norm(x, mean, variance, training=True), mean, variance


TWICE = [
    _input_written, _input_written_by_an_operator, _element_written, _output_given,
    _view_of_the_input, _views_of_one_result, _same, _statistics,
]  # fmt: skip


@pytest.fixture
def traced(monkeypatch: Any) -> list[bool]:
    """Of each graph, whether it was traced once."""
    found: list[bool] = []
    real = anydim.torch.backend.traced_inference

    def noted(*arguments: Any) -> Any:
        graph = real(*arguments)
        found.append(graph is not None)
        return graph

    monkeypatch.setattr(anydim.torch.backend, "traced_inference", noted)
    return found


def _check(function: Callable[..., Any], mode: Callable[[], Any]) -> None:
    """Results and inputs afterwards equal eager torch's at a few sizes, aliases included."""
    call = torch.compile(function, backend="anydim", dynamic=True)
    for rows in (3, 5, 2):
        pairs = [torch.arange(rows * 8.0).view(rows, 8).sin() for _ in range(2)]
        with mode():
            torch.manual_seed(0)
            wanted = function(pairs[0])
            torch.manual_seed(0)
            found = call(pairs[1])
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(pairs[1], pairs[0])
        leaves = [torch.utils._pytree.tree_leaves(each) for each in (found, wanted)]
        for ours, theirs in zip(*leaves):
            if isinstance(theirs, torch.Tensor):
                assert _strides(ours) == _strides(theirs)
                assert _aliases(ours, pairs[1]) == _aliases(theirs, pairs[0])


def _strides(tensor: Any) -> list[int]:
    return [stride for size, stride in zip(tensor.shape, tensor.stride()) if size != 1]


def _aliases(one: Any, other: Any) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("function", ONCE, ids=lambda each: each.__name__)
def test_graphs_that_write_and_share_nothing_are_traced_once(
    traced: list[bool], function: Any, mode: Any
) -> None:
    _check(function, mode)
    assert traced and all(traced)


@pytest.mark.parametrize("function", TWICE, ids=lambda each: each.__name__)
def test_other_graphs_are_traced_by_torch(traced: list[bool], function: Any) -> None:
    _check(function, torch.no_grad)
    assert traced and not any(traced)


def test_numbers_of_modules_are_constants(traced: list[bool]) -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU6()).eval()
    _check(lambda x: module(9 * x), torch.no_grad)
    assert traced == [False, True]  # torch starts again, with constants


def test_gradients_are_traced_by_torch(traced: list[bool]) -> None:
    module = nn.Linear(8, 4)
    x = torch.randn(3, 8)
    call = torch.compile(module, backend="anydim", dynamic=True)
    call(x).sum().backward()
    assert traced == [False]
    torch.testing.assert_close(module.weight.grad, x.sum(0).expand(4, -1))


def test_gradients_enabled_within_are_traced_by_torch(traced: list[bool]) -> None:
    module = nn.Linear(8, 4)

    def function(x: Any) -> Any:
        with torch.enable_grad():
            return module(x)

    with torch.no_grad():
        made = torch.compile(function, backend="anydim", dynamic=True)(torch.randn(3, 8))
    assert not any(traced)
    made.sum().backward()
    assert module.bias.grad is not None


def test_weights_changed_in_place_are_noticed(traced: list[bool]) -> None:
    module, x = nn.Linear(8, 4), torch.randn(3, 8)
    call = torch.compile(module, backend="anydim", dynamic=True)
    with torch.no_grad():
        call(x)
        module.weight.add_(1)
        torch.testing.assert_close(call(x), module(x), rtol=1e-4, atol=1e-5)
    assert traced == [True]

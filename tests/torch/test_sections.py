"""Promise: an operator that cannot be compiled runs in torch, what surrounds it is compiled."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import anydim.torch.backend  # noqa: E402
from tests.torch.test_backend import compiled  # noqa: E402


@torch.library.custom_op("anydim_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x: Any) -> Any:
    return torch.empty_like(x)


doubled.register_autograd(lambda _, gradient: gradient * 2)


class Model(nn.Module):
    """A perceptron before the operator, one with dropout behind it, and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 8))
        self.behind = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 8))

    def forward(self, x: Any) -> Any:
        first = self.before(x)
        part = doubled(first[: x.shape[0] // 2 + 1])
        values, _ = torch.linalg.eig(torch.eye(4) + x.mean())
        behind = self.behind(part) + part.relu().sigmoid() + values.real.sum()
        return behind, first.transpose(0, 1), part.shape[0] * 2


@pytest.fixture
def built(monkeypatch: Any, caplog: Any) -> Iterator[list[int]]:
    """The numbers of nodes of the graphs that are compiled."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    found: list[int] = []
    own = anydim.torch.backend.compile

    def noted(graph: Any, **options: Any) -> Any:
        found.append(len(graph.nodes))
        return own(graph, **options)

    monkeypatch.setattr(anydim.torch.backend, "compile", noted)
    with caplog.at_level(logging.WARNING, logger="torch._dynamo.backends.anydim"):
        yield found


def test_calls_beside_eager_torch(built: list[int], caplog: Any) -> None:
    model = Model()
    call = compiled(model)
    for rows in (5, 7, 3):
        x = torch.randn(rows, 8)
        with torch.no_grad():
            torch.manual_seed(3)
            wanted = model(x)
            torch.manual_seed(3)
            found = call(x)
        for one, other in zip(wanted[:2], found[:2]):
            torch.testing.assert_close(one, other)
            assert one.stride() == other.stride()
        assert wanted[2] == found[2]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1 and lines[0].startswith("operators of a graph run in torch")
    assert "anydim_tests.doubled" in lines[0] and "linalg_eig" in lines[0]
    assert len(built) == 2 and min(built) >= 4


def test_gradients_beside_eager_torch(built: list[int]) -> None:
    model = Model()
    call = compiled(model)
    for rows in (5, 2, 9):
        x, gradients = torch.randn(rows, 8), []
        for each in (model, call):
            model.zero_grad()
            torch.manual_seed(3)
            results = each(x)
            (results[0].sum() + results[1].square().sum()).backward()
            gradients.append([weight.grad.clone() for weight in model.parameters()])
        for one, other in zip(*gradients):
            torch.testing.assert_close(one, other)
    assert len(built) >= 3


def test_weights_that_change_are_noticed(built: list[int]) -> None:
    model = Model().eval()
    call = compiled(model)
    x = torch.randn(4, 8)
    with torch.no_grad():
        torch.testing.assert_close(call(x)[0], model(x)[0])
        model.behind[0].weight.mul_(2)
        torch.testing.assert_close(call(x)[0], model(x)[0])
    assert len(built) == 3


def test_sizes_that_data_decide_pass_between(built: list[int]) -> None:
    def f(x: Any) -> Any:
        chosen = doubled(x[x > 0])
        return (chosen.sigmoid() + chosen.tanh()).exp().cumsum(0) * chosen.shape[0]

    call = compiled(f)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        for count in (5, 9, 4):
            x = torch.randn(count)
            torch.testing.assert_close(call(x), f(x))
    assert len(built) == 1


def test_states_that_a_call_writes(built: list[int]) -> None:
    def model() -> Any:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), Doubled(), nn.BatchNorm1d(6),
                             nn.Sigmoid(), nn.Tanh(), nn.Softplus(), nn.ELU())  # fmt: skip

    one, other = model(), model()
    call = compiled(other)
    for rows in (3, 8, 5):
        x = torch.randn(rows, 4)
        with torch.no_grad():
            torch.testing.assert_close(call(x), one(x))
        for mine, its in zip(other.buffers(), one.buffers()):
            torch.testing.assert_close(mine, its)
    assert built


class Doubled(nn.Module):
    def forward(self, x: Any) -> Any:
        return doubled(x)


def test_few_operators_between_are_not_compiled(built: list[int], caplog: Any) -> None:
    call = compiled(lambda x: doubled(doubled(x) + 1) * 3)
    torch.testing.assert_close(call(torch.ones(3)), torch.full((3,), 18.0))
    assert not built and "a graph runs in torch" in caplog.text


def test_a_size_that_data_decide_is_a_result_of_a_section() -> None:
    """A later section reads the size in the shape of a value, not in its own operators."""

    def function(x: Any) -> Any:
        found = x[x > 0]
        values = torch.linalg.eigvals(x)
        return found.sin().exp().cos() * 2, values

    torch._dynamo.reset()
    with patch.object(torch._dynamo.config, "capture_dynamic_output_shape_ops", True):
        call = torch.compile(function, backend="anydim", dynamic=True, fullgraph=True)
        for count in (4, 5, 1):
            x = torch.arange(count * count).reshape(count, count).sin()
            for ours, eager in zip(call(x), function(x)):
                assert torch.allclose(ours, eager, atol=1e-5)

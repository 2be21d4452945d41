"""Promise: weights that are constants of a compiled graph may change, as often as they do."""

from __future__ import annotations

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from anydim.torch.backend import _MOST_BUILDS, CompiledGraph  # noqa: E402
from tests.torch.compiling import anew  # noqa: E402, F401
from tests.unit.compiler.passes import test_large_weights as large_weights  # noqa: E402


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.inner(x).relu()


def compiled(module: Any) -> Any:
    return torch.compile(module, backend="anydim", dynamic=True)


@pytest.fixture
def builds(monkeypatch: Any) -> list[int]:
    """The numbers of weights that each build holds."""
    found: list[int] = []
    build = CompiledGraph.build

    def counted(self: Any) -> None:
        found.append(len(self.held))
        build(self)

    monkeypatch.setattr(CompiledGraph, "build", counted)
    return found


def test_modules_of_the_same_code_share_a_graph(builds: list[int]) -> None:
    modules = [Layer() for _ in range(6)]
    calls = [compiled(module) for module in modules]
    with torch.no_grad():
        for size in (3, 5, 2):
            for module, call in zip(modules, calls):
                x = torch.randn(size, 8)
                torch.testing.assert_close(call(x), module(x))
    assert builds == [2] * _MOST_BUILDS + [0]


def test_weights_changed_by_every_step_become_inputs(builds: list[int]) -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).eval()
    call, x = compiled(module), torch.randn(3, 8)
    with torch.no_grad():
        for _ in range(8):
            torch.testing.assert_close(call(x), module(x))
            for each in module.parameters():
                each.mul_(1.1)
            module[1].running_mean += 0.1
    assert len(builds) == _MOST_BUILDS + 1 and builds[0] and not builds[-1]


def test_weights_that_stay_remain_constants(builds: list[int]) -> None:
    call = compiled(Layer())
    with torch.no_grad():
        for size in range(2, 9):
            call(torch.randn(size, 8))
    assert builds == [2]


def test_threads_call_modules_of_the_same_code() -> None:
    modules = [Layer() for _ in range(4)]
    calls = [compiled(module) for module in modules]
    with torch.no_grad():
        calls[0](torch.randn(3, 8))
    failures: list[Any] = []

    def work(module: Any, call: Any) -> None:
        try:
            with torch.no_grad():
                for size in range(1, 20):
                    x = torch.randn(size, 8)
                    torch.testing.assert_close(call(x), module(x))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=each) for each in zip(modules, calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_call_computes_nothing_of_a_large_weight_alone() -> None:
    large_weights.check("torch")

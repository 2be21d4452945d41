"""Promise: torch.compile's calls at sizes that came before pass tensors to native code."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from anydim.runtime.invoke import POSSIBLE  # noqa: E402
from anydim.runtime.straight import StraightExecutable  # noqa: E402
from tests.torch.compiling import anew  # noqa: E402, F401


def compiled(module: Any) -> Any:
    return torch.compile(module, backend="anydim", dynamic=True)


@pytest.fixture
def first_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One element for each call that native code declined."""
    found: list[Any] = []
    execute = StraightExecutable._execute

    def counted(self: Any, *given: Any) -> Any:
        found.append(self)
        return execute(self, *given)

    monkeypatch.setattr(StraightExecutable, "_execute", counted)
    return found


@pytest.mark.skipif(not POSSIBLE, reason="calls are not repeated by native code here")
def test_steps_of_training_at_known_sizes(first_calls: list[Any]) -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    call, counts = compiled(module), []
    for _ in range(4):
        for rows in (3, 5, 2):
            x, found = torch.randn(rows, 4, requires_grad=True), []
            for each in (module, call):
                torch.manual_seed(rows)
                loss = each(x).square().sum()
                found.append([loss, *torch.autograd.grad(loss, [x, *module.parameters()])])
            torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
        counts.append(len(first_calls))
    assert counts == [6, 12, 12, 12]  # forward and backward


def test_arguments_of_any_form_at_known_sizes() -> None:
    """Strided, negated, and ones that record gradients; complex results, and numbers."""

    def scaled(x: Any, number: int) -> Any:
        return x * number, torch.complex(x, x).exp(), x.shape[0] * number

    call = compiled(scaled)
    plain = torch.randn(3, 4)
    pairs = torch.view_as_complex(torch.randn(3, 4, 2))
    forms = [plain, torch.randn(4, 3).T, pairs.conj().imag, plain.clone().requires_grad_()]
    with torch.no_grad():
        for _ in range(3):
            for x in forms:
                for number in (2, 3, -4):
                    torch.testing.assert_close(call(x, number), scaled(x, number))

"""Promise: LSTM, GRU and RNN stay whole under torch.compile, with eager's results and gradients.

Tolerance: 1e-4 of each element plus 1e-5 (float32). One compile serves all lengths and batches.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402

import anydim.torch.backend  # noqa: E402, F401  registers the backend
from tests.torch.compiling import anew  # noqa: E402, F401  before and after each test

SIZES = ((4, 3), (9, 5), (6, 2))  # length, batch


def compiled(module: Any, backend: str = "anydim") -> Any:
    return torch.compile(module, backend=backend, dynamic=True, fullgraph=True)


LAYERS = {
    "lstm": (nn.LSTM, {}),
    "lstm of two layers in both directions": (
        nn.LSTM, {"bidirectional": True, "num_layers": 2, "batch_first": True}),
    "lstm with dropout between": (nn.LSTM, {"num_layers": 3, "dropout": 0.3}),
    "gru in both directions": (nn.GRU, {"bidirectional": True}),
    "gru of two layers without bias": (nn.GRU, {"num_layers": 2, "bias": False}),
    "rnn of tanh": (nn.RNN, {"batch_first": True}),
    "rnn of relu in both directions": (nn.RNN, {"nonlinearity": "relu", "bidirectional": True}),
}  # fmt: skip


def results(call: Any, module: Any, x: Any, states: Any) -> list[Any]:
    """Results, and the gradients of x, of the first states and of the weights."""
    module.zero_grad()
    torch.manual_seed(3)
    given = [each.clone().requires_grad_() for each in (x, *states)]
    first = tuple(given[1:]) if len(states) == 2 else given[1] if states else None
    y, last = call(given[0], first)
    ends = last if isinstance(last, tuple) else (last,)
    loss = y.cos().sum() + sum((n + 2) * each.sin().sum() for n, each in enumerate(ends))
    loss.backward()
    return [y, *ends, *(each.grad for each in (*given, *module.parameters()))]


@pytest.mark.parametrize("given_states", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_equal_eager(name: str, given_states: bool) -> None:
    kind, options = LAYERS[name]
    eager = kind(5, 7, **options)
    module = copy.deepcopy(eager)
    call = compiled(module)
    rows = eager.num_layers * (2 if eager.bidirectional else 1)
    for length, batch in SIZES:
        x = torch.randn(*((batch, length) if eager.batch_first else (length, batch)), 5)
        count = (2 if kind is nn.LSTM else 1) if given_states else 0
        states = [torch.randn(rows, batch, 7) for _ in range(count)]
        wanted = results(eager, eager, x, states)
        for ours, theirs in zip(results(call, module, x, states), wanted):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("name", LAYERS)
def test_calls_equal_eager(name: str) -> None:
    kind, options = LAYERS[name]
    module = kind(5, 7, **options).eval()
    call = compiled(module)
    with torch.no_grad():
        for step in range(20):
            x = torch.randn(2 + step, 2 + step * 5 % 7, 5)
            for ours, theirs in zip(*(torch.utils._pytree.tree_leaves(f(x))
                                      for f in (call, module))):  # fmt: skip
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert counters["stats"]["unique_graphs"] == 1


def test_double_precision_gradients_to_the_bit_of_a_rounding() -> None:
    module = nn.LSTM(4, 6, bidirectional=True).double()
    x = torch.randn(5, 3, 4, dtype=torch.float64)
    wanted = results(module, module, x, [])
    for ours, theirs in zip(results(compiled(module), module, x, []), wanted):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_another_backend_runs_the_layers_of_torch() -> None:
    module = nn.GRU(4, 6, 2)
    x = torch.randn(5, 3, 4)
    wanted = results(module, module, x, [])
    for ours, theirs in zip(results(compiled(module, "aot_eager"), module, x, []), wanted):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_packed_series_run_in_torch() -> None:
    module = nn.LSTM(4, 6)
    packed = nn.utils.rnn.pack_sequence([torch.randn(5, 4), torch.randn(3, 4)])
    with torch.no_grad():
        found = torch.compile(module, backend="anydim", dynamic=True)(packed)[0].data
        torch.testing.assert_close(found, module(packed)[0].data)

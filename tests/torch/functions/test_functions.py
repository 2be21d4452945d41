"""Promise: a random function, compiled by torch.compile, does what it does in eager torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch.functions import runner  # noqa: E402
from tests.torch.functions.function import Function, Input  # noqa: E402
from tests.torch.functions.judge import judge  # noqa: E402


def failures(seeds: range) -> list[str]:
    outcomes = runner.run(seeds)
    return [f"{each.seed}: {each.failure}\n{each.text}" for each in outcomes if each.failure]


def test_a_few_random_functions() -> None:
    assert not failures(range(12))


def _one_more(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """A backend whose results are wrong by 1."""
    return lambda *arguments: tuple(each + 1 for each in module(*arguments))


def _copying(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """A backend whose results share no memory."""
    return lambda *arguments: tuple(each.clone() for each in module(*arguments))


@pytest.mark.parametrize(
    ("backend", "kind"), [(_one_more, "values"), (_copying, "aliases"), ("eager", None)]
)
def test_a_difference_is_found(backend: Any, kind: str | None) -> None:
    x = Input("x", ("n", "n"), torch.float64)
    found = judge(Function((x,), ("v1 = x[1:]",), ("v1",), ({"n": 3},)), backend)
    assert (found and found.kind) == kind


def _on_copies(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """A backend that writes no buffers of modules."""
    return lambda *arguments: module(*(
        each.detach().clone() if isinstance(each, torch.Tensor) else each for each in arguments
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("backend", "kind", "holder"),
    [(_on_copies, "state", "list"), ("eager", None, "dict"), ("eager", None, "pair")],
)
def test_state_of_modules_is_compared(backend: Any, kind: str | None, holder: str) -> None:
    x, y = (Input(name, ("n",), torch.float64) for name in "xy")
    lines = ("v1 = net.counted(x) + net.first(y[:, None])[:, 0]",)
    function = Function((x, y), lines, ("v1",), ({"n": 3},), taken=holder, returned=holder)
    found = judge(function, backend)
    assert (found and found.kind) == kind

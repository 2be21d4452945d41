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

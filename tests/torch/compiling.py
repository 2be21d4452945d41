"""Parts of tests: a function as a module, and a fixture of tests of torch.compile (`anew`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")


class Applied(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *values: Any) -> Any:
        return self.function(*values)


@pytest.fixture(autouse=True)
def anew(caplog: Any) -> Iterator[None]:
    """Each test starts without compiled code, and no graph of it runs in torch."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    with caplog.at_level(logging.WARNING, logger="torch._dynamo.backends.anydim"):
        yield
    assert [record.getMessage() for record in caplog.records] == []

"""Fixture of tests of torch.compile: `from tests.torch.compiling import anew`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def anew(caplog: Any) -> Iterator[None]:
    """Each test starts without compiled code, and no graph of it runs in torch."""
    import torch
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    with caplog.at_level(logging.WARNING, logger="torch._dynamo.backends.anydim"):
        yield
    assert [record.getMessage() for record in caplog.records] == []

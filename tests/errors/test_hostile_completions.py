"""Promise: what clients of language models send is answered or refused with a reason; others have
their answers, and nothing remains of clients that left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

for _package in ("starlette", "uvicorn", "httptools", "llguidance"):
    pytest.importorskip(_package)

from tests.errors import hostile_completions  # noqa: E402
from tests.unit.serving.server.running import Running  # noqa: E402


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with hostile_completions.served(tmp_path_factory.mktemp("lm")) as made:
        yield made


@pytest.mark.parametrize("path", hostile_completions.USUAL)
def test_values_without_a_meaning_are_refused(server: Running, path: str) -> None:
    before = hostile_completions.answers(server)
    assert all(status == 200 for status, _ in before)
    assert hostile_completions.refused(server, path) == []
    assert hostile_completions.answers(server) == before


def test_hard_schemas_are_answered_in_time(server: Running) -> None:
    assert hostile_completions.hard_forms(server) == []


def test_requests_behind_each_other_and_in_pieces(server: Running) -> None:
    assert hostile_completions.pipelined(server, 2) == []


def test_slow_bodies(server: Running) -> None:
    assert hostile_completions.slow_bodies(server, 30) == []


def test_clients_that_leave_harm_nobody(server: Running) -> None:
    assert hostile_completions.beside(server, 40) == []

"""Promise: what a server holds is at most its memory and a constant, whatever connections do, and
others are answered."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

for _package in ("starlette", "uvicorn", "httptools", "grpc"):
    pytest.importorskip(_package)

from anydim.serving.server.clients import CONSTANT, Limits  # noqa: E402
from tests.errors.hostile_connections import ATTACKS, MEMORY, held, seen, served  # noqa: E402
from tests.unit.serving.server.running import Running  # noqa: E402

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc")
FILES = 128 + 3 * 64  # of the process beside connections


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with served() as made:
        yield made


@pytest.mark.parametrize("name", ATTACKS)
def test_a_server_holds_its_memory_and_answers(server: Running, name: str) -> None:
    found = seen(server, name, ATTACKS[name][1])
    limits = Limits.of(MEMORY, 1024, None)
    assert found.bytes <= MEMORY + CONSTANT and held(found), str(found)
    assert found.files <= limits.http + limits.rpc + FILES
    assert server.process.poll() is None


def test_few_descriptors_are_no_end_and_log_a_line_of_each_cause() -> None:
    with served(descriptors=512) as made:
        found = seen(made, "idle", 700)
        assert held(found) and found.files < 512 and found.lines <= 2, str(found)

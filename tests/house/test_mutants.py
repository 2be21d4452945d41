"""Promise: the files and the tests of each room of `tests/mutants` exist."""

from __future__ import annotations

import pytest

from tests.mutants.rooms import ROOMS
from tests.mutants.run import ROOT


@pytest.mark.parametrize("name", ROOMS)
def test_files_and_tests_of_a_room_exist(name: str) -> None:
    for pattern in ROOMS[name].files:
        assert [*(ROOT / "src/anydim").glob(pattern)], pattern
    for test in ROOMS[name].tests:
        assert (ROOT / test.removeprefix("--ignore=")).exists(), test

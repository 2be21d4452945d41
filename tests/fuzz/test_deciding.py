"""Promise: random recursion with a bound and `while` give what the interpreter gives."""

from __future__ import annotations

import pytest

from tests.fuzz.deciding import judge, program


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(8))
def test_rows_that_decide(seed: int) -> None:
    made = program(seed)
    assert not judge(made, seed), made.text()

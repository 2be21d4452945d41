"""Promise: random recursion with a bound and `while` give what the interpreter gives."""

from __future__ import annotations

import pytest

from tests.fuzz.deciding import judge, program


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))]
)
def test_rows_that_decide(seed: int) -> None:
    made = program(seed)
    assert not judge(made, seed), made.text()

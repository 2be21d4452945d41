"""Promise: a call inside an expression gives what the same call as a statement gives."""

from __future__ import annotations

import pytest

from tests.fuzz.nested_calls import KINDS, judge, program

FAST = len(KINDS)


@pytest.mark.parametrize(
    "seed", [*range(FAST), *(pytest.param(s, marks=pytest.mark.slow) for s in range(FAST, 60))]
)
def test_calls_inside_expressions(seed: int) -> None:
    made = program(seed)
    assert not judge(made, seed), made.text(assigned=False)

"""Promise: compiled random graphs mean what they say, at every size, one size after another.

A failure prints the smallest graph found that fails alike. `python -m tests.fuzz` runs more.
"""

from __future__ import annotations

import pytest

from tests.fuzz.runner import run

QUICK, MANY = 60, 500


def failures(seeds: range) -> str:
    return "\n\n".join(
        f"seed {outcome.seed}: {outcome.failure}\n{outcome.text}"
        for outcome in run(seeds)
        if outcome.failure
    )


def test_a_few_random_graphs() -> None:
    found = failures(range(QUICK))
    assert not found, found


@pytest.mark.slow
def test_many_random_graphs() -> None:
    found = failures(range(10_000, 10_000 + MANY))
    assert not found, found

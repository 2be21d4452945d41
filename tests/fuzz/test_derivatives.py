"""Promise: the derivative of a random definition is that of its values (derivatives.py)."""

import pytest

from tests.fuzz import derivatives


def failures(seeds):
    return [f"{o.seed}: {o.failure}\n{o.text}" for o in derivatives.run(seeds) if o.failure]


def test_derivatives_of_a_few_random_definitions():
    assert not failures(range(3))


@pytest.mark.slow
def test_derivatives_of_many_random_definitions():
    assert not failures(range(1_000, 1_400))

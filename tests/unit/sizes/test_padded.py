"""Promise: a padded size is the least one of its rule that is not below the dim."""

from __future__ import annotations

import pytest

from anydim.base.errors import OptionError
from anydim.sizes import Box, Dim
from anydim.sizes.padded import padded_size

BOX = Box.of(Dim("n", 0, 40), Dim("u", 0))


@pytest.mark.parametrize("multiple", [1, 2, 7, 32])
def test_a_multiple(multiple: int) -> None:
    size = padded_size("n", multiple, BOX)
    for n in range(41):
        expected = next(m for m in range(0, 99, multiple) if m >= n)
        assert size.evaluate({"n": n}) == expected


@pytest.mark.parametrize("name", ["n", "u"])
def test_powers_of_two(name: str) -> None:
    size = padded_size(name, "pow2", BOX)
    for n in (*range(41), *((63, 64, 65, 2**39, 2**39 + 1, 2**40) if name == "u" else ())):
        expected = 0 if n == 0 else 1 << (n - 1).bit_length()
        assert size.evaluate({name: n}) == expected


def test_what_is_larger_than_all_powers_stays() -> None:
    assert padded_size("u", "pow2", BOX).evaluate({"u": 2**40 + 1}) == 2**40 + 1


def test_the_bound() -> None:
    assert padded_size("n", "bound", BOX).constant == 40
    with pytest.raises(OptionError, match=r"(?s)dim 'u' has no upper bound.*\{'u': \(0, 512\)\}"):
        padded_size("u", "bound", BOX)

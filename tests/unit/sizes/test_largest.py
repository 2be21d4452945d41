"""Promise: the largest size that fits is the largest of all, whatever the formula."""

from __future__ import annotations

from random import Random

import pytest

from anydim.sizes import Guard, Size, as_size, largest, largest_value, parse
from anydim.sizes.guard import holds
from anydim.sizes.largest import LARGEST, rises

FORMULAS = (
    "64*((n + 63)//64) + 128",
    "max(1536*n, 300*n*n + 40) + 4*min(n, 100)",
    "1000 - 3*n",  # falls
    "7*(n % 50) + n",  # up and down
    "400*min(n//8, 30) + 12*(n//max((n + 247)//248, 1))",  # even blocks: smaller when one more
    "777",
)


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("guarded", [False, True])
def test_it_is_what_trying_all_sizes_gives(text: str, guarded: bool) -> None:
    size, chance = parse(text), Random(text)
    guards = [Guard(parse("n % 32"), "==", as_size(0), "")] if guarded else []
    for _ in range(40):
        low = chance.randrange(0, 40)
        high = low + chance.randrange(0, 600)
        limit = chance.randrange(0, 4000)
        tried = [
            n for n in range(low, high + 1)
            if size.evaluate({"n": n}) <= limit and all(holds(g, {"n": n}) for g in guards)
        ]  # fmt: skip
        found = largest_value(size, "n", low, high, limit, guards)
        assert found == (tried[-1] if tried else None), (low, high, limit)


def test_without_upper_bound() -> None:
    n = Size.symbol("n")
    assert largest_value(9280 * n + 1, "n", 0, None, 1 << 30) == ((1 << 30) - 1) // 9280
    assert largest_value(parse("n % 7"), "n", 0, None, 10) == LARGEST
    odd = parse("n + 100*(n % 2)")
    assert largest_value(odd, "n", 0, None, 1_000_001) == 1_000_000


def test_what_rises_is_told_from_what_may_fall() -> None:
    assert [rises(parse(text)) for text in FORMULAS] == [True, True, False, False, False, True]
    assert not rises(parse("n*(n//2 - 1)"))  # negative at 0, times n falls at first
    assert rises(parse("n//2 - 1"))


def test_a_value_is_tried_before_bounds_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of a size of thousands of characters take a tenth of a second each."""
    monkeypatch.setattr(largest, "_MAX_STEPS", 8)
    size = parse("9280*n - min(n, 40) + 1")
    assert largest_value(size, "n", 0, None, 1 << 30) == ((1 << 30) + 39) // 9280

"""Sizes said in terms of each other stand for what they stood for; what is alike looks alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anydim.sizes import Box, Dim, Size, as_size, own_sizes
from tests.unit.sizes.strategies import boxes, checked, defined, points, sizes

BOX = Box.of(Dim("n"), Dim("h"), Dim("w", 0, 1000))


def said(*texts: str, box: Box = BOX) -> list[str] | None:
    given = list(map(as_size, texts))
    own = own_sizes(given, box)
    return None if own is None else [str(own.own(size)) for size in given]


@pytest.mark.parametrize("divisor", [2, 2**20, 2**61])
def test_a_pooling_is_that_of_what_it_takes(divisor: int) -> None:
    before = f"(h + {divisor - 1})//{divisor}"
    after = f"(h + {2 * divisor - 1})//{2 * divisor}"
    assert said("n", before, after) == ["size0", "size1", "(size1 + 1)//2"]


def test_what_shrinks_is_said_by_what_it_was() -> None:
    assert said("max(h - 40, 0)", "max(h - 42, 0)") == ["size0", "max(size0 - 2, 0)"]
    assert said("max((h - 1)//2, 0)", "max((h - 5)//4, 0)") == ["size0", "max(size0//2 - 1, 0)"]
    assert said("h//2", "(3*(h//2) + 1)//5") == ["size0", "(3*size0 + 1)//5"]


def test_dims_say_best_what_follows_from_them() -> None:
    assert said("h", "(h + 1)//2") is None
    assert said("n*h", "n") is None


def test_nothing_is_lost() -> None:
    assert said("h//2", "h//3") is None  # neither follows from the other alone
    assert said("(h + 1)//2", "h//4") is None
    assert said("h//2", "w//2", "h//3") is None  # nor from the one before
    assert said("(h*n)//2", "(h*n)//n") is None  # divided by no number
    assert said("h//2 - 5") == ["size0 - 5"]
    assert said("min(h - 5, w)") is None  # may be negative
    assert said("h//2", box=Box.of(Dim("h"), constraints=(as_size("h - 3"),))) is None


def test_bounds_are_those_of_what_is_named() -> None:
    own = own_sizes([as_size("(w + 1)//2")], BOX)
    assert own is not None
    assert own.box == Box.of(Dim("size0", 0, 500))


@checked
@given(st.lists(sizes(), min_size=1, max_size=4), boxes())
def test_names_stand_for_what_they_stood_for(given: list[Size], box: Box) -> None:
    own = own_sizes(given, box)
    if own is None:
        return
    named = [own.own(size) for size in given]
    assert [own.back(size) for size in named] == given
    for env in points(box):
        values = {name: defined(size, env) for name, size in own.sizes.items()}
        known = {name: value for name, value in values.items() if value is not None}
        assert not [v for v in own.box.violations(known) if "has no size" not in v]
        for size, name in zip(given, named):
            if name.symbols <= known.keys():
                assert defined(name, known) == defined(size, env)

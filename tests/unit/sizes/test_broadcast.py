"""Sizes that broadcast: their common size is right everywhere, and does not grow with a chain."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from anydim.base.dtypes import float32
from anydim.compiler.frontends.builder import Builder
from anydim.sizes import Box, Dim, as_size, broadcast_size, maximum, minimum
from tests.unit.sizes.strategies import boxes, checked

NAMES = tuple("abcdefghijkl")
BOX = Box.of(*(Dim(name) for name in NAMES))


def sizes(*texts):
    return [as_size(text) for text in texts]


def test_the_common_size_is_that_of_numpy_wherever_the_sizes_fit():
    common = broadcast_size(sizes("a", "b", "c"), BOX)
    for values in itertools.product((0, 1, 5), repeat=3):
        if len(set(values) - {1}) < 2:
            wanted = next((value for value in values if value != 1), 1)
            assert common.evaluate(dict(zip("abc", values))) == wanted


def test_what_met_before_is_not_nested():
    box = BOX
    everything = broadcast_size(sizes(*NAMES), box)
    chain = as_size("a")
    for name in NAMES[1:]:
        chain = broadcast_size([chain, as_size(name)], box)
    assert chain == everything
    assert broadcast_size([chain, as_size("c")], box) == chain
    assert str(everything).count("max") == str(everything).count("min") == 1


@checked
@given(boxes(), st.permutations(("a", "b", "n")))
def test_bounds_do_not_change_the_value_of_a_chain(box, order):
    first, second, third = sizes(*order)
    inner = broadcast_size([first, second], box)
    chain = broadcast_size([inner, third], box)
    highest = [9 if dim.hi is None else dim.hi for dim in box.dims]
    for values in itertools.product(*(range(d.lo, h + 1) for d, h in zip(box.dims, highest))):
        env = dict(zip(box.names, values))
        ends = [size.evaluate(env) for size in (inner, third)]
        assert chain.evaluate(env) == max(ends) * min(1, *ends)


def test_sizes_that_only_look_as_if_they_met_are_kept():
    below = as_size("a - 1")  # may be negative: max(a - 1, b)*min(a - 1, b, 1) is then no size
    odd = maximum(below, as_size("b")) * minimum(below, as_size("b"), 1)
    other = maximum(as_size("a"), as_size("b")) * minimum(as_size("c"), 1)
    for strange in (odd, other):
        common = broadcast_size([strange, as_size("d")], BOX)
        for values in itertools.product((0, 1, 2, 5), repeat=4):
            env = dict(zip("abcd", values))
            one, two = strange.evaluate(env), env["d"]
            assert common.evaluate(env) == max(one, two) * min(1, one, two)


def test_a_dozen_dims_that_broadcast_in_any_order_have_one_size():
    builder = Builder("chain")
    values = [builder.input(f"of_{name}", float32, (builder.dim(name),)) for name in NAMES]
    total = values[0]
    for value in (*values[1:], *values):
        total = builder.add(total, value)
    assert total.shape == (broadcast_size(sizes(*NAMES), BOX),)

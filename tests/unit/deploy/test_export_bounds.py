"""Promise: bounds of sizes over dims that data decides hold at all their sizes; an arena that
depends on them is enough, and formulas beyond the limits make no error."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import anydim as ad
from anydim.deploy.export.arena import arena_of
from anydim.deploy.export.bounds import Bounds
from anydim.sizes import Box, Dim, Size, as_size, maximum, minimum
from tests.unit.deploy.test_export import CC
from tests.unit.deploy.test_export_regions import assert_same_bits, in_turns

N, A, B = (as_size(name) for name in "nab")
BOX = Box((Dim("n", 0, 9), Dim("a", 0, None), Dim("b", 1, 5)), (N - B - A,))
POINTS = [
    {"n": n, "a": a, "b": b}
    for n, b in itertools.product(range(10), range(1, 6))
    for a in range(n - b + 1)
]


def drawn(chance: random.Random, depth: int = 2) -> Size:
    """A random size over n, a and b, with differences, products and quotients."""
    leaf = chance.choice([N, A, B, as_size(chance.randint(-3, 4))])
    if not depth:
        return leaf
    left, right = drawn(chance, depth - 1), drawn(chance, depth - 1)
    by = chance.randint(1, 4)
    ways = [
        left + right, left - right, left * right, left // by, left % by, left // (N + 1),
        minimum(left, right), maximum(left, right), leaf,
    ]  # fmt: skip
    return chance.choice(ways)


def test_bounds_hold_at_all_sizes() -> None:
    bounds, chance, found = Bounds.of(BOX, frozenset({"n"})), random.Random(0), 0
    for _ in range(400):
        size = drawn(chance)
        values = [(size.evaluate(point), point) for point in POINTS]
        most, least = bounds.most(size), bounds.least(size)
        found += most is not None
        for bound, sign in ((most, 1), (least, -1)):
            if bound is not None:
                assert bound.symbols <= {"n"}
                assert all(sign * (bound.evaluate(at) - value) >= 0 for value, at in values), size
    assert found > 300


def test_bounds_of_what_depends_on_other_data() -> None:
    bounds = Bounds.of(BOX, frozenset({"n"}))
    assert bounds.most(A) == maximum(N - 1, 0)
    assert bounds.most(N - A) == N
    assert bounds.most(4 * A // B) is None
    open_box = Box((Dim("n", 0, 9), Dim("a", 0, None)))
    assert Bounds.of(open_box, frozenset({"n"})).most(N + A) is None
    assert Bounds.of(open_box, frozenset({"n"})).most(N - A) == N


@pytest.mark.skipif(CC is None or shutil.which("make") is None, reason="there is no C compiler")
def test_the_bound_of_a_size_falls_with_another(tmp_path: Path) -> None:
    g = ad.Builder("windows")
    n = g.dim("n")
    x, of_a, of_b = (
        g.input("x", ad.float32, (n,)), g.input("of_a", ad.int64, ()), g.input("of_b", ad.int64, ())
    )  # fmt: skip
    b = g.find(of_b, "b", 0, 1000)
    a = g.find(of_a, "a", most=n - b)
    g.output("y", g.neg(g.slice(x, starts=(b,), ends=(a + b,), axes=(0,))))
    model = ad.compile(g)
    program = in_turns(model, tmp_path, code="llvm")
    random = np.random.default_rng(0)
    for size, first, second in ((5000, 5000, 0), (1000, 0, 1000), (17, 5, 12), (0, 0, 0)):
        x_of = random.standard_normal(size).astype(np.float32)
        inputs = {"x": x_of, "of_a": np.array(first), "of_b": np.array(second)}
        assert_same_bits(model, program, inputs)


def test_formulas_of_many_sizes_are_within_limits() -> None:
    g = ad.Builder("many")
    x = g.input("x", ad.float32, (g.dim("n", 0, 1000),))
    for number in range(20):
        g.output(f"y{number}", g.nonzero(g.less(np.float32(number), x)))
    found = arena_of(ad.compile(g).program, frozenset({"n"}))
    assert found is not None and len(str(found.bytes)) < 4000

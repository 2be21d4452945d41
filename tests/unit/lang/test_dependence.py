"""What runs in order and what does not: verdicts, distances, rings, in words; isl is the judge."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.lang.dependence import isl
from anydim.lang.dependence.accesses import accesses, instances
from anydim.lang.dependence.distances import common_loops, distance, same_iteration
from anydim.lang.dependence.verdicts import IN_ORDER, PARALLEL, SUM, Analysis, analyse
from anydim.lang.tree import (
    Apply,
    Branch,
    Expr,
    Group,
    Index,
    Loop,
    OrderedStep,
    Read,
    SizeTerm,
    Write,
)
from anydim.sizes import Box, Dim, Size, as_size
from tests.unit.compiler.kernels.nest_cases import (
    BOX,
    BY_NAME,
    HISTOGRAM,
    STENCIL,
    N,
    T,
    add,
    apply,
    axis,
    loop,
    mul,
    read,
    s,
    t,
    tensor,
    write,
)

needs_isl = pytest.mark.skipif(not isl.available(), reason="isl is not installed")


def found(name: str) -> Analysis:
    return analyse(BY_NAME[name].group, BOX)


@pytest.mark.parametrize(
    ("name", "orders"),
    [
        ("cumulative", [IN_ORDER]), ("guarded", [IN_ORDER]), ("pooling", [IN_ORDER]),
        ("backwards", [IN_ORDER]), ("every third", [PARALLEL]), ("halves", [PARALLEL]),
        ("levenshtein", [IN_ORDER, IN_ORDER]), ("elman", [IN_ORDER]),
        ("ragged", [PARALLEL, IN_ORDER]), ("triangle", [PARALLEL]), ("shifted", [IN_ORDER]),
    ],
)  # fmt: skip
def test_loops(name: str, orders: list[str]) -> None:
    assert [verdict.order for verdict in found(name).loops] == orders


def test_what_a_loop_carries_and_how_far_back() -> None:
    assert found("pooling").carried_distances(0) == {"c": 1}
    assert found("levenshtein").carried_distances(0) == {"d": 1}
    assert found("ragged").carried_distances(1) == {"total": None}
    assert found("halves").carried_distances(0) == {}


def test_what_a_loop_need_not_wait_for() -> None:
    steps = (
        loop(
            t, 0, T,
            write("w", (t, "i"), (axis("i", N),), mul(read("x", t, "i"), read("x", t, "i"))),
            write("v", (t, "i"), (axis("i", N),), add(read("w", t, "i"), 1)),
            write("h", (t + 2, "i"), (axis("i", N),),
                  add(read("h", t, "i"), read("v", t, "i"))),
            write("y", (t, "i"), (axis("i", N),), read("h", t + 1, "i")),
        ),
    )  # fmt: skip
    group = Group(
        (tensor("x", T, N),), (tensor("y", T, N), tensor("h", T + 2, N)), (),
        (tensor("w", T, N), tensor("v", T, N)), (), steps,
    )  # fmt: skip
    analysis = analyse(group, BOX)
    assert analysis.steady(0) == (0, 1)
    assert analysis.carried_distances(0) == {"h": 2}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cumulative", "y(t - 1, c) is read 1 iteration after it is written as y(t, c)"),
        ("levenshtein", "s runs in order: d(t, s - 1) is read 1 iteration after it is written as"),
        ("every third", "t is parallel: no iteration touches what another one writes"),
        ("ragged", "total(s) is read in every iteration, after it is written in others"),
        ("pooling", "2 slices of c along dimension 0 are enough"),
        ("pooling", "parts along b share nothing that is written"),
        ("shifted", "y(i) is written anew in one iteration and may be y(i - 1) of another"),
    ],
)
def test_the_verdict_in_words(name: str, words: str) -> None:
    assert words in str(found(name))


def test_axes_of_a_scatter() -> None:
    analysis = analyse(HISTOGRAM, BOX)
    assert [verdict.order for verdict in analysis.axes] == [SUM, SUM, IN_ORDER]
    assert "may meet at one element of count" in str(analysis)


def test_sums_into_one_place_are_no_order() -> None:
    steps = (loop(t, 0, T, write("y", ("i",), (axis("i", N),), read("x", t, "i"), "add")),)
    group = Group((tensor("x", T, N),), (tensor("y", N),), (), (), (), steps)
    (verdict,) = analyse(group, BOX).loops
    assert verdict.order == SUM
    assert "iterations add to the same elements of y" in str(verdict)


@pytest.mark.parametrize("back", (1, 3))
def test_a_ring_is_as_deep_as_the_reads_reach_back(back: int) -> None:
    zero = read("x", t, "i")
    steps = (
        loop(
            t, 0, T,
            write("c", (t, "i"), (axis("i", N),), read("c", t - back, "i", default=zero)),
            write("y", (t, "i"), (axis("i", N),), read("c", t, "i")),
        ),
    )  # fmt: skip
    group = Group(
        (tensor("x", T, N),), (tensor("y", T, N),), (), (tensor("c", T, N),), (), steps
    )  # fmt: skip
    assert analyse(group, BOX).rings == {"c": (0, back + 1)}


def test_what_is_read_after_the_loop_is_no_ring() -> None:
    steps = (
        loop(t, 0, T, write("c", (t, "i"), (axis("i", N),), read("x", t, "i"))),
        loop(s, 0, T, write("y", (s, "i"), (axis("i", N),), read("c", s, "i"))),
    )
    group = Group(
        (tensor("x", T, N),), (tensor("y", T, N),), (), (tensor("c", T, N),), (), steps
    )  # fmt: skip
    analysis = analyse(group, BOX)
    assert analysis.rings == {}
    assert [chunks.axis for chunks in analysis.chunks] == ["t and s", "i"]


@needs_isl
def test_isl_settles_what_forms_cannot() -> None:
    """Places 2*i + t % 2 of one iteration are those of every second one; i // 2 is never N."""
    place = add(mul(2, "i"), t % 2)
    steps = (loop(t, 0, T, write("y", (place,), (axis("i", N),), read("x", "i"))),)
    first, second = (accesses(i, {})[-1] for i in instances(steps) * 2)
    (at,) = common_loops(first.instance, second.instance)
    assert distance(first, second, at, BOX) is None
    assert isl.may_alias(first, second, (), at, BOX)
    two = Box.of(*(Dim(dim.name, 0, 2) for dim in BOX.dims))
    assert not isl.may_alias(first, second, (), at, two)
    group = Group((tensor("x", N),), (tensor("y", 2 * N + 1),), (), (), (), steps)
    assert analyse(group, BOX).loops[0].order == IN_ORDER
    assert analyse(group, two).loops[0].order == PARALLEL


@needs_isl
def test_isl_reads_conditions() -> None:
    """What an even iteration writes, an odd one reads elsewhere; only conditions tell them
    apart."""
    even = apply("equal", t % 2, 0)
    steps = (
        loop(t, 0, T, Branch(even, (write("y", (t % 2,), (), read("x", t)),),
                             (write("z", (t,), (), read("y", t % 2)),))),
    )  # fmt: skip
    group = Group((tensor("x", T),), (tensor("y", 2), tensor("z", T)), (), (), (), steps)
    (verdict,) = analyse(group, BOX).loops
    assert all(d.first.writes and d.second.writes for d in verdict.dependences)


# ---- random nests ------------------------------------------------------------------------------


def random_nest(rng: np.random.Generator, tame: bool = False) -> Group:
    """One or two loops with writes of y at random affine places; `tame` ones follow the loop."""
    steady = SizeTerm(as_size(int(rng.integers(0, 2))))

    def index(names: list[Size | str]) -> Expr:
        total: Expr = SizeTerm(as_size(int(rng.integers(-2, 3))))
        for name in names:
            factor = int(rng.choice((0, 0, 1, 1, 2, -1)))
            if factor:
                total = add(total, mul(factor, name))
        return total

    def body(names: list[Size | str]) -> Write:
        inside: list[Size | str] = [*names, "i"]
        place, other = ((index(inside), index(inside)) for _ in range(2))
        if tame:
            own = (add(mul(2, t), steady), add(t, steady))[rng.integers(2)]
            place, other = (own, place[1]), (own, other[1])
        value = add(read("x", "i"), Read("y", other))
        fresh = bool(rng.integers(2))
        return write("y", place, (axis("i", rng.choice((N, 3))),), value, "" if fresh else "add")

    def around(variable: Size, *steps: OrderedStep) -> Loop:
        start, stop = (0, T) if rng.integers(2) else (T - 1, -1)
        step = int(rng.choice((1, 2))) if start == 0 else -1
        return loop(variable, start, stop, *steps, step=step)

    if rng.integers(2):
        inner = around(s, body([t, s]))
        steps: tuple[OrderedStep, ...] = (around(t, inner, body([t])),)
    else:
        steps = (around(t, body([t]), body([t])),)
    shape = (Size.symbol("M"), Size.symbol("K"))
    return Group((tensor("x", N),), (tensor("y", *shape),), (), (), (), steps)


@needs_isl
@pytest.mark.parametrize("seed", range(60))
def test_never_bolder_than_isl(seed: int) -> None:
    group = random_nest(np.random.default_rng(seed))
    all = [a for i in instances(group.steps) for a in accesses(i, {}) if a.tensor == "y"]
    for number, first in enumerate(all):
        for second in all[number:]:
            common = common_loops(first.instance, second.instance)
            if not same_iteration(first, second, BOX):
                assert not isl.may_alias(first, second, common, None, BOX)
            for depth, at in enumerate(common):
                iterations = distance(first, second, at, BOX)
                if iterations is None:
                    continue
                outer = common[:depth]
                if isinstance(iterations, bool):
                    assert not isl.may_alias(first, second, outer, at, BOX)
                else:
                    assert iterations.constant is not None
                    wrong = iterations.constant < 0
                    assert not isl.may_alias(first, second, outer, at, BOX, later=wrong)


def values(expr: Expr, env: dict[str, int]) -> int:
    if isinstance(expr, SizeTerm):
        return expr.size.evaluate(env)
    if isinstance(expr, Index):
        return env[expr.name]
    assert isinstance(expr, Apply)
    left, right = (values(a, env) for a in expr.arguments)
    return left + right if expr.function == "add" else left * right


def touched(group: Group, env: dict[str, int]) -> dict[int, dict[int, list[tuple]]]:
    """For each write and iteration of the outer loop, what it touches: by running the loops."""
    found: dict[int, dict[int, list[tuple]]] = {}

    def run(steps: tuple[OrderedStep, ...], at: dict[str, int], number: list[int]) -> None:
        for step in steps:
            if isinstance(step, Loop):
                start, stop = (values(e, at) for e in (step.start, step.stop))
                saved = number[0]
                for iteration in range(start, stop, step.step):
                    number[0] = saved
                    run(step.body, {**at, step.variable: iteration}, number)
            elif isinstance(step, Write):
                for place in range(step.axes[0].extent.evaluate(env)):
                    here = {**at, "i": place}
                    (other,) = [r for r in _reads(step.body) if r.tensor == "y"]
                    record = (
                        tuple(values(p, here) for p in step.indices),
                        tuple(values(p, here) for p in other.indices),
                    )
                    found.setdefault(at["t"], {}).setdefault(number[0], []).append(record)
                number[0] += 1

    run(group.steps, dict(env), [0])
    return found


def _reads(expr: Expr) -> list[Read]:
    if isinstance(expr, Read):
        return [expr]
    return [r for a in expr.arguments for r in _reads(a)] if isinstance(expr, Apply) else []


def test_parallel_loops_touch_nothing_of_each_other() -> None:
    """By running the loops, with no analysis at all."""
    parallel = 0
    for seed in range(1000, 1040):
        group = random_nest(np.random.default_rng(seed), tame=True)
        if analyse(group, BOX).loops[0].order != PARALLEL:
            continue
        parallel += 1
        for env in ({"T": 4, "N": 3, "M": 9, "K": 9}, {"T": 5, "N": 1, "M": 9, "K": 9}):
            iterations = touched(group, env)
            for iteration, writes in iterations.items():
                made = {record[0] for records in writes.values() for record in records}
                for other, others in iterations.items():
                    if other != iteration:
                        used = {p for records in others.values() for r in records for p in r}
                        assert not made & used
    assert parallel > 10


def test_the_stencil_has_no_cut() -> None:
    assert analyse(STENCIL, BOX).chunks == ()

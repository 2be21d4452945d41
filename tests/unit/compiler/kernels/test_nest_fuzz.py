"""Random nests as kernels: the same as the numpy evaluator says, every access checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anydim.base.dtypes import float64
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.loop_nest import nest_template as nest
from anydim.compiler.kernels.loop_nest.nest_form import nest_form
from anydim.compiler.kernels.loop_nest.nest_lowering import _name
from anydim.compiler.kernels.loop_nest.nest_schedule import LoopNest
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.tree import Axis, Branch, Expr, Group, Loop, OrderedStep, Tensor, Write
from anydim.runtime.positions import FINE
from anydim.sizes import Box, Dim, Size
from tests.unit.compiler.kernels.launching import Prepared
from tests.unit.compiler.kernels.nest_cases import add, apply, axis, expr, mul, number, read, tensor

T, N = Size.symbol("T"), Size.symbol("N")
BOX = Box.of(Dim("T", 0, 5), Dim("N", 0, 6))
MIDDLE, WIDE = 40, 96  # places are around the middle of a tensor that is wide enough for all


class Maker:
    """Draws steps over the outputs y, z, v and the temporary w.

    `tame` ones go along one axis: all of a nest can be cut along it.
    """

    def __init__(self, seed: int, tame: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.tame = tame
        self.count = 0

    def chance(self, part: float) -> bool:
        return bool(self.rng.random() < part)

    def index(self, loops: list[Size], axes: list[str]) -> Expr:
        """An affine place around the middle; often a loop or an axis as it is."""
        total: Expr = add(MIDDLE, int(self.rng.integers(-1, 2)))
        for part in (*loops, *axes):
            factor = int(self.rng.choice((0, 1, 1, -1, 2)))
            if factor:
                total = add(total, mul(factor, part))
        if self.chance(0.15) and loops:
            total = add(total, apply("mod", loops[-1], 2))
        return total

    def place(self, loops: list[Size], axes: list[str]) -> tuple[Expr, Expr]:
        return self.index(loops, axes[:1]), self.index(loops[-1:], axes[-1:])

    def along(self, loops: list[Size]) -> Write:
        """A write along the axis i that reads what lies along it."""
        column = add("i", MIDDLE)
        body: Expr = read("x", self.index(loops, ["i"]), self.index(loops, ["k"]))
        for name in ("y", "z", "w"):
            if self.chance(0.6):
                other = read(name, self.index(loops, []), column)
                body = add(mul(number(0.5, float64), other), body)
        target = str(self.rng.choice(("y", "z", "w")))
        place = (expr(self.index(loops, [])), column)
        combine = str(self.rng.choice(("add", "max")))
        fresh = self.chance(0.5)
        return Write(target, place, (axis("i", N),), body, combine, (axis("k", 3),), fresh)

    def element(self, loops: list[Size]) -> Write:
        """A write of one element of v that reads an iteration before, or after."""
        here, back = loops[-1] + MIDDLE, int(self.rng.choice((-2, -1, 1, 1, 2)))
        default = number(3.0, float64) if self.chance(0.3) else None
        other = read("v", here - back, MIDDLE, default=default)
        body = add(mul(number(0.5, float64), other), read("x", here, MIDDLE))
        return Write("v", (expr(here), expr(MIDDLE)), (), body)

    def write(self, loops: list[Size]) -> Write:
        if loops and self.chance(0.25):
            return self.element(loops)
        if self.tame:
            return self.along(loops)
        axes = tuple(
            axis(name, self.rng.choice((N, 3, 17, 1)))
            for name in ("i", "j")[: int(self.rng.integers(0, 3))]
        )
        reduced: tuple[Axis, ...] = (axis("k", N),) if self.chance(0.4) else ()
        names = [a.name for a in axes]
        combine = str(self.rng.choice(("add", "max"))) if reduced or self.chance(0.3) else ""
        body: Expr = read("x", *self.place(loops, [*names, *(a.name for a in reduced)]))
        for name in ("y", "z", "w"):
            if self.chance(0.5):
                other = self.place(loops, names)
                if self.chance(0.5):
                    other = (expr(loops[-1] + MIDDLE - 1), other[1]) if loops else other
                if self.chance(0.5) and not names:
                    other = (other[0], expr(MIDDLE))
                body = add(mul(number(0.5, float64), read(name, *other)), body)
        target = str(self.rng.choice(("y", "z", "w")))
        place = self.place(loops, names)
        if self.chance(0.6):  # a plain place: a loop and the axes as they are
            first = expr(loops[-1] + MIDDLE) if loops else expr(MIDDLE)
            place = (first, add(names[-1], MIDDLE) if names else expr(MIDDLE))
        told = len(axes) < 2 and (not axes or self.chance(0.5))
        fresh = bool(combine) and (not axes or told) and self.chance(0.5)
        if fresh and axes:
            place = (place[0], add(names[-1], MIDDLE))
        plain = not combine and bool(axes)
        if plain and len(axes) == 2:
            axes, place = axes[:1], (place[0], add("i", MIDDLE))
            body = read("x", *self.place(loops, ["i"]))
        return Write(target, tuple(map(expr, place)), axes, body, combine, reduced, fresh)

    def steps(self, loops: list[Size], depth: int) -> tuple[OrderedStep, ...]:
        made: list[OrderedStep] = []
        for _ in range(int(self.rng.integers(1, 4))):
            kind = self.rng.random()
            if depth > 0 and kind < 0.5:
                made.append(self.loop(loops, depth))
            elif loops and depth >= 0 and kind > 0.8:
                condition = apply("less", apply("mod", loops[-1], 3), 2)
                sides = [self.steps(loops, -1), self.steps(loops, -1) if self.chance(0.5) else ()]
                made.append(Branch(condition, *sides))
            else:
                made.append(self.write(loops))
        return tuple(made)

    def loop(self, loops: list[Size], depth: int) -> Loop:
        variable = Size.symbol(f"t{self.count}")
        self.count += 1
        body = self.steps([*loops, variable], depth - 1)
        step = int(self.rng.choice((1, 1, 1, -1, 2, -2)))
        start, stop = (0, T) if step > 0 else (T - 1, -1)
        return Loop(str(variable), expr(start), expr(stop), step, body)


def random_group(seed: int) -> Group:
    def wide(name: str) -> Tensor:
        return tensor(name, WIDE, WIDE, dtype=float64)

    steps = Maker(seed, tame=seed % 2 == 0).steps([], 2)
    return Group((wide("x"),), tuple(map(wide, "yzv")), (), (wide("w"),), (), steps)


def check(made: Prepared, group: Group, sizes: dict[str, int], parts: int, compiled: bool) -> None:
    x = np.random.default_rng(sizes["T"]).standard_normal((WIDE, WIDE))
    expected = evaluate(group, {"x": x}, sizes)
    found = made.outputs([x], sizes, parts, compiled)
    assert (made.status == FINE).all()
    for result, name in zip(found, "yzv"):
        np.testing.assert_allclose(result, expected[name], rtol=1e-9, atol=1e-9, err_msg=str(sizes))


def slow(seed: int) -> Any:
    return pytest.param(seed, marks=pytest.mark.slow)


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("seed", [s if s % 4 == 0 else slow(s) for s in range(60)])
def test_random_nests(seed: int) -> None:
    group = random_group(seed)
    made = Prepared(group, (nest.TEMPLATE,), BOX, Machine(32, 16))
    for sizes in ({"T": 3, "N": 5}, {"T": 0, "N": 1}, {"T": 4, "N": 0}):
        check(made, group, sizes, 3, compiled=False)


def test_tame_nests_can_be_cut() -> None:
    forms = [nest_form(random_group(seed), BOX) for seed in range(0, 60, 2)]
    assert sum(bool(form and form.chunks) for form in forms) > 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1030))
def test_random_nests_compiled_at_more_sizes(seed: int) -> None:
    group = random_group(seed)
    made = Prepared(group, (nest.TEMPLATE,), BOX, Machine(32, 16))
    for iterations in range(5):
        sizes = {"T": iterations, "N": (7 * iterations + seed) % 7}
        check(made, group, sizes, 1 + iterations % 3, compiled=True)
    for chunks in nest_form(group, BOX).chunks:
        for block in (0, 1, 8):
            schedule = LoopNest(4, 2, _name(chunks), block)
            other = Prepared(group, (nest.TEMPLATE,), BOX, Machine(32, 16), schedule=schedule)
            check(other, group, {"T": 3, "N": 5}, 3, compiled=True)
